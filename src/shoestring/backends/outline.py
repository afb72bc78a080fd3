"""A device in outline: it knows which kernels the real one has, and gives out shapes instead of
memory.

Planning asks nothing else of a device. So a step can be planned that this machine could never hold,
in the time that its graph takes; and parameters need not even be drawn (`keeps_values` is False).
Nothing runs here: asking for a value is an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ..errors import fail
from .device import Device, Flags
from .launch import Placed, row_major


class Outline:
    """What a realized value shows of itself, without the value."""

    flags = Flags()
    base = None  # no memory

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize
        self.strides = tuple(n * self.dtype.itemsize for n in row_major(self.shape))


class OutlinedDevice(Device):
    """Stands in for `device` under its name."""

    keeps_values = False

    def __init__(self, device: Device) -> None:
        self.device = device
        self.name, self.kernels, self.floats = device.name, device.kernels, device.floats
        self.kind, self.host = device.kind, device.host

    def __getattr__(self, name: str) -> Any:
        """Facts that ops ask for, such as the number of cores."""
        return getattr(self.device, name)

    def has(self, entry: str) -> bool:
        return self.device.has(entry)

    def program(self, launches: Sequence[Placed]) -> Any:
        return self

    def run(self, addresses: Any) -> NoReturn:
        """Where a real device runs a program: an error."""
        self.refuse()

    def empty(
        self, shape: tuple[int, ...], dtype: np.dtype, what: str = "", layer: Any = ""
    ) -> Any:
        return Outline(shape, dtype)

    def upload(self, array: np.ndarray, what: str = "") -> Any:
        return Outline(array.shape, array.dtype)

    def allocated_bytes(self) -> int:
        return 0

    def peak_bytes(self) -> int:
        return 0

    def reset_peak(self) -> None:
        """There is nothing to reset."""

    def buffer(self, nbytes: int) -> np.ndarray:
        self.refuse()

    def refuse(self) -> NoReturn:
        fail(
            "launch/outline.run",
            f"a value was asked of an outline of {self.name}, which plans and runs nothing",
            tensors={},
            cause="a look at a value, or a parameter read while its gradient is pending",
            hint="plan the step as in docs/planning.md, or run it outside `with outlined()`",
        )
