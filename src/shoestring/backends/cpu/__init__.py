"""The CPU device: C++17 kernels on a thread pool of our own, the best instruction set chosen at run
time.

The native module is glue over a static library that knows nothing of Python; what cannot be
imported is simply not offered, and the `reference` device remains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..device import FACTORIES, Device
from ..launch import Placed

try:
    from . import _native
except ImportError as problem:  # a source tree that has not been built
    _native, missing = None, problem


class CPU(Device):
    name, kind, kernels = "cpu", "cpu", True

    def __init__(self) -> None:
        self.entries = frozenset(_native.entries())

    def buffer(self, nbytes: int) -> np.ndarray:
        try:
            return _native.Buffer(nbytes).bytes()
        except MemoryError as problem:
            self.out_of_memory(nbytes, problem)
            raise

    def program(self, launches: Sequence[Placed]) -> Any:
        return _native.Program([native(launch) for launch in launches])

    def has(self, entry: str) -> bool:
        return entry in self.entries

    def allocated_bytes(self) -> int:
        return _native.allocated_bytes()

    def peak_bytes(self) -> int:
        return _native.peak_bytes()

    def reset_peak(self) -> None:
        _native.reset_peak()


def native(launch: Placed) -> tuple:
    """A launch as the native module takes it: see Launch in runtime.h."""
    kernel, places, others = launch
    attached = [
        (a.port, a.index, own, list(a.integers), list(a.reals), a.entry)
        for a, own in zip(kernel.attached, others, strict=True)
    ]
    return kernel.entry, places, list(kernel.integers), list(kernel.reals), attached


def set_threads(count: int) -> None:
    """Kernels use `count` threads from now on (results do not depend on it)."""
    _native.set_threads(count)


def threads() -> int:
    """How many threads kernels use."""
    return _native.threads()


if _native is not None:
    FACTORIES["cpu"] = CPU
