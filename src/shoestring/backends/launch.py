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


class Attached(NamedTuple):
    """A program, or a buffer, at a port of a kernel.

    port      where it runs or is used:
              "load"    the program computes what the kernel would read as input `index`; where it
                        would write, its buffers are -1: the kernel supplies them
              "store"   the program runs in place over stretches of result `index`
              "end"     the program runs once, over all results
              "also"    no program: buffers[0] receives the sum of input `index`, as it passes by
              "inline"  input `index` of the loaded program, or of the kernel's own one, is computed
                        block by block by the kernel `entry` from these buffers and integers
              "part"    one of the programs of a shared launch; index: 1 if it is chained to the one
                        before
    buffers   numbered as those of the kernel: of the program's inputs, then of its outputs
    integers, reals  the program (see Kernel("elementwise", ...))
    """

    port: str
    index: int
    buffers: tuple[int, ...]
    integers: tuple[int, ...] = ()
    reals: tuple[float, ...] = ()
    entry: str = ""


class Kernel(NamedTuple):
    """One kernel call.

    entry     name of the function in the backend's registry
    buffers   which arrays it gets: 0.. are the op's inputs, then its outputs, then the launch's
              workspaces; -1: an input that is in no memory, since a program computes it
    integers  sizes, strides and flags, in the order the kernel's header states
    reals     numbers that are structure (rare: most numbers are inputs)

    On cards everything is known when the kernel is compiled, so there are no integers and reals:

    source    the file: a name in ops/, or a path
    defines   (NAME, value) pairs: sizes, strides, flags, tiles, macros such as ("LOAD(i)", "x[i]")
    grid      blocks per axis;  block: threads per axis

    attached  what is attached at its ports
    """

    entry: str
    buffers: tuple[int, ...]
    integers: tuple[int, ...] = ()
    reals: tuple[float, ...] = ()
    source: str | None = None
    defines: tuple[tuple[str, Any], ...] = ()
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    attached: tuple[Attached, ...] = ()
    batched_by: str = ""

    def renumbered(self, number: Sequence[int]) -> Kernel:
        """The same call where buffer b is called number[b]."""
        own = tuple(renumbered(self.buffers, number))
        return self._replace(
            buffers=own,
            attached=tuple(
                a._replace(buffers=tuple(renumbered(a.buffers, number))) for a in self.attached
            ),
        )

    def as_attached(self, port: str, index: int = 0) -> tuple[Attached, ...]:
        """A program's call as what is attached at a port of another kernel, with what is computed
        inline for it."""
        return Attached(port, index, self.buffers, self.integers, self.reals), *self.attached


def renumbered(buffers: Sequence[int], number: Sequence[int]) -> list[int]:
    return [number[b] if b >= 0 else b for b in buffers]


class Placed(NamedTuple):
    """A kernel and where its buffers lie, its own and those of each attachment: (base, byte
    offset)."""

    kernel: Kernel
    places: list[tuple[int, int]]
    attached: list[list[tuple[int, int]]]


NOWHERE = (0, 0)  # where a buffer lies that no kernel touches


def placed(kernel: Kernel, places: Sequence[tuple[int, int]]) -> Placed:
    """places: of the op's inputs, its outputs, the launch's workspaces."""

    def found(buffers: Sequence[int]) -> list[tuple[int, int]]:
        return [places[b] if b >= 0 else NOWHERE for b in buffers]

    return Placed(kernel, found(kernel.buffers), [found(a.buffers) for a in kernel.attached])


class Launch(NamedTuple):
    """The kernels of one op, in order, and the bytes of each workspace that they share. Kernels
    never allocate."""

    kernels: tuple[Kernel, ...]
    workspaces: tuple[int, ...] = ()
