"""What an op tells a backend: which kernels to run on which buffers. Data only; knows no op and no
graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a contiguous array."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


class Operand(NamedTuple):
    """One array as a kernel sees it: sizes and strides in elements; its address is bound later."""

    shape: tuple[int, ...]
    dtype: np.dtype
    strides: tuple[int, ...]

    @property
    def contiguous(self) -> bool:
        """Row-major without gaps (axes of size 1 do not count)."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Kernel(NamedTuple):
    """One kernel call.

    entry     name of the function in the backend's registry
    buffers   which arrays it gets: 0.. are the op's inputs, then its outputs, then the launch's
              workspaces
    integers  sizes, strides and flags, in the order the kernel's header states
    reals     numbers that are structure (rare: most numbers are inputs)

    On cards everything is known when the kernel is compiled, so there are no integers and reals:

    source    the file: a name in ops/, or a path
    defines   (NAME, value) pairs: sizes, strides, flags, tiles, macros such as ("LOAD(i)", "x[i]")
    grid      blocks per axis;  block: threads per axis
    """

    entry: str
    buffers: tuple[int, ...]
    integers: tuple[int, ...] = ()
    reals: tuple[float, ...] = ()
    source: str | None = None
    defines: tuple[tuple[str, Any], ...] = ()
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()


class Launch(NamedTuple):
    """The kernels of one op, in order, and the bytes of each workspace that they share. Kernels
    never allocate."""

    kernels: tuple[Kernel, ...]
    workspaces: tuple[int, ...] = ()
