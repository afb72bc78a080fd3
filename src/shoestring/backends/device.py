"""What every device offers: memory, copies, programs. Host devices hand out NumPy arrays over
memory of their own.

A realized value is anything with `shape`, `dtype`, `strides` (bytes) and `flags.c_contiguous`; on
host devices it is a NumPy array. `bases` are what a program's launches refer to: (base, byte
offset) stands for bases[base] + offset.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, DeviceError, MemoryBudgetError, fail, nearest
from . import memory_log
from .launch import Operand, Placed

DEVICES: dict[str, Device] = {}
FACTORIES: dict[str, Callable[[], Device]] = {}
FAMILIES: dict[str, Callable[[int], Device]] = {}  # of numbered devices: "cuda:0", "opencl:1"
RELEASE: list[Callable[[Device], None]] = []  # each gives back memory that a device could spare

# Held by the thread that evaluates, assigns, opens a device, or allocates under a memory limit; a
# fork waits for it, so that the child finds nothing half done.
TURN = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=TURN.acquire, after_in_parent=TURN.release, after_in_child=TURN.release
    )


class Flags(NamedTuple):
    """As of a NumPy array over memory that a device gave out, row by row."""

    c_contiguous: bool = True
    owndata: bool = False


class Device:
    """name: how users spell it, "cpu". kind: "cpu", "card" or "reference", which ops ask for.
    kernels: whether it runs launches itself (else every op runs its reference). host: whether its
    values are NumPy arrays. keeps_values: False for an outline, which only plans (outline.py)."""

    name, kind, host = "", "reference", True
    kernels = False
    keeps_values = True
    floats = ("float32",)
    limit: int | None = None  # bytes that all allocations of a device may take together

    def buffer(self, nbytes: int) -> np.ndarray:
        """Memory from the system: uint8[nbytes], aligned to 64 bytes, counted. Freed with the last
        array on it."""
        raise NotImplementedError

    def program(self, launches: Sequence[Placed]) -> Any:
        """Something with run(bases), bases what `place` gives for each."""
        raise NotImplementedError

    def has(self, entry: str) -> bool:
        """Whether a kernel of that name exists."""
        return False

    def allocated_bytes(self) -> int:
        """Bytes held now, as counted where memory is asked of the system."""
        raise NotImplementedError

    def peak_bytes(self) -> int:
        """The most bytes held at once since reset_peak()."""
        raise NotImplementedError

    def reset_peak(self) -> None:
        raise NotImplementedError

    def empty(
        self, shape: tuple[int, ...], dtype: np.dtype, what: str = "tensor", layer: Any = ""
    ) -> np.ndarray:
        """An array of this device with undefined contents. what, layer: for the memory log."""
        nbytes = dtype.itemsize
        for n in shape:
            nbytes *= n
        if nbytes == 0:
            return np.empty(shape, dtype)
        if self.limit is None:
            return self.array(self.allocate(nbytes, what, layer), shape, dtype)
        with TURN:
            if self.allocated_bytes() + nbytes > self.limit:
                self.make_room(nbytes)
            return self.array(self.allocate(nbytes, what, layer), shape, dtype)

    def allocate(self, nbytes: int, what: str, layer: Any = "") -> np.ndarray:
        """buffer(), written to the memory log if that is on."""
        memory = self.buffer(nbytes)
        if memory_log.enabled:
            memory_log.allocated(self, memory, what, layer)
        return memory

    def upload(self, array: np.ndarray, what: str = "tensor") -> np.ndarray:
        """A copy of host data on this device. what: for the memory log."""
        copy = self.empty(array.shape, array.dtype, what)
        copy[...] = array
        return copy

    def array(
        self,
        base: Any,
        shape: Sequence[int],
        dtype: np.dtype,
        offset: int = 0,
        strides: Sequence[int] | None = None,
    ) -> Any:
        """An array over memory that is there. offset, strides: bytes."""
        return np.ndarray(tuple(shape), dtype, base, offset, strides)

    def lying(self, base: Any, offset: int, operand: Operand) -> np.ndarray:
        """A copy of what lies `offset` bytes from a base (see `place`), at these strides."""
        size = operand.dtype.itemsize
        steps = [(n - 1) * s * size for n, s in zip(operand.shape, operand.strides, strict=True)]
        low = sum(s for s in steps if s < 0)
        span = sum(s for s in steps if s > 0) - low + size
        raw = (ctypes.c_ubyte * span).from_address(base + offset + low)
        strides = [s * size for s in operand.strides]
        return np.ndarray(operand.shape, operand.dtype, raw, -low, strides).copy()

    def write(self, target: Any, values: np.ndarray) -> None:
        """Host values into an array of this device."""
        target[...] = values

    def read(self, value: Any) -> np.ndarray:
        """A value of this device as a NumPy array: itself on host devices, else a copy."""
        return value

    def place(self, value: Any) -> Any:
        """What stands for a value's memory where a program runs: its address."""
        return value.__array_interface__["data"][0]

    def synchronize(self) -> None:
        """Wait for everything that was started."""

    def free_bytes(self) -> int:
        """Bytes that could be allocated now without slowing the system down."""
        try:
            with open("/proc/meminfo") as info:
                sizes = dict(line.split(":") for line in info)
            return int(sizes["MemAvailable"].split()[0]) * 1024
        except (OSError, KeyError):
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2

    def make_room(self, nbytes: int) -> None:
        """Release what is only kept for the next plan, and refuse if that is not enough."""
        for release in RELEASE:
            release(self)
        gc.collect()
        now = self.allocated_bytes()
        if self.limit is not None and now + nbytes > self.limit:
            fail(
                "launch/memory.limit",
                f"{nbytes:,} bytes more would exceed the memory limit of {self.limit:,} bytes",
                tensors={},
                error=MemoryBudgetError,
                cause=f"{now:,} bytes are in use on {self.name}",
                hint="a smaller batch, free tensors that are no longer needed, or "
                f'ss.memory_limit("{-(-(now + nbytes) // 2**20)}MiB")',
            )

    def out_of_memory(self, nbytes: int, source: BaseException | None = None) -> None:
        fail(
            "launch/memory.out",
            f"{self.name} could not provide {nbytes:,} bytes",
            tensors={},
            cause=f"{self.allocated_bytes():,} bytes are in use there",
            source=source,
            hint="a smaller batch, or free tensors that are no longer needed",
            error=DeviceError,
        )


def device(name: str) -> Device:
    """The device that users call `name`; opened at first use."""
    found = DEVICES.get(name)
    if found is None:
        with TURN:
            found = opened(name)
    return found


def opened(name: str) -> Device:
    found = DEVICES.get(name)  # another thread may have been first
    if found is None:
        family, _, number = name.partition(":")
        if family in FAMILIES and (not number or number.isdecimal()):
            name = f"{family}:{number or 0}"
            found = DEVICES.get(name)
            if found is None:
                found = DEVICES[name] = FAMILIES[family](int(number or 0))
            return found
        factory = FACTORIES.get(name)
        if factory is None:
            close = nearest(name, [*FACTORIES, *[f"{f}:0" for f in FAMILIES]])
            fail(
                "value/device.unknown",
                f"there is no device {name!r}",
                tensors={},
                error=ArgumentError,
                cause=f"there are {', '.join(sorted([*FACTORIES, *[f + ':0' for f in FAMILIES]]))}",
                hint=f'device="{close or "cpu"}"',
            )
        found = DEVICES[name] = factory()
    return found
