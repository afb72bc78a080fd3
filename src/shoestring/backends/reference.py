"""The reference device: every op runs its own NumPy reference, in float64 if asked. Slow, and
always right.

Nothing is compiled, so it works wherever NumPy does. Its memory comes from NumPy and is counted
here.
"""

from __future__ import annotations

import weakref

import numpy as np

from .device import FACTORIES, Device


class Reference(Device):
    name = "reference"
    floats = ("float32", "float64")

    def __init__(self) -> None:
        self.now = self.peak = 0

    def buffer(self, nbytes: int) -> np.ndarray:
        try:
            memory = np.empty(nbytes, np.uint8)
        except MemoryError as problem:
            self.out_of_memory(nbytes, problem)
            raise
        self.now += nbytes
        self.peak = max(self.peak, self.now)
        weakref.finalize(memory, self._free, nbytes)
        return memory

    def _free(self, nbytes: int) -> None:
        self.now -= nbytes

    def allocated_bytes(self) -> int:
        return self.now

    def peak_bytes(self) -> int:
        return self.peak

    def reset_peak(self) -> None:
        self.peak = self.now


FACTORIES["reference"] = Reference
