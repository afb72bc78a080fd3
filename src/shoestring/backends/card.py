"""What graphics cards share, whatever drives them: arrays that the host cannot reach, programs of
compiled kernels.

A driver (cuda/, opencl/) says how memory is taken and copied, how a kernel is compiled and how it
is started. Memory is counted here, at the calls that take it from the driver.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import DeviceError, fail
from .device import Device, Flags
from .launch import Kernel, Operand, Placed, row_major
from .source import Source, render

LARGEST_GRID = (2**31 - 1, 65535, 65535)


class CardMemory:
    """Memory of a card: given back when the last array on it is gone. handle: what the driver calls
    it."""

    def __init__(self, device: Card, handle: Any, nbytes: int) -> None:
        self.device, self.handle, self.nbytes = device, handle, nbytes
        weakref.finalize(self, device.freed, handle, nbytes).atexit = False

    @property
    def size(self) -> int:
        return self.nbytes

    @property
    def address(self) -> int:
        return self.device.address_of(self.handle)


class CardArray:
    """A realized value on a card: where it lies, not what it holds. `numpy()` copies it to the
    host. base: its memory;  offset: bytes from there;  strides: bytes."""

    __slots__ = ("__weakref__", "base", "dtype", "flags", "nbytes", "offset", "shape", "strides")

    def __init__(
        self,
        base: CardMemory,
        shape: Sequence[int],
        dtype: np.dtype,
        offset: int = 0,
        strides: Sequence[int] | None = None,
    ) -> None:
        self.base, self.shape, self.dtype, self.offset = base, tuple(shape), dtype, offset
        whole = tuple(n * dtype.itemsize for n in row_major(self.shape))
        self.strides = whole if strides is None else tuple(strides)
        count = 1
        for n in self.shape:
            count *= n
        self.nbytes = count * dtype.itemsize
        self.flags = Flags(self.strides == whole or count == 0)

    def view(self, shape: Sequence[int], strides: Sequence[int], start: int) -> CardArray:
        """Another look at the same memory. strides, start: in elements."""
        size = self.dtype.itemsize
        return CardArray(
            self.base, shape, self.dtype, self.offset + start * size, [s * size for s in strides]
        )

    def numpy(self) -> np.ndarray:
        return self.base.device.read(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = self.numpy()
        return found if dtype is None else found.astype(dtype)

    def __float__(self) -> float:
        return float(self.numpy())

    def copy(self) -> np.ndarray:
        """Its values on the host, as NumPy's copy() gives them for an array there."""
        return self.numpy()


class Bound(NamedTuple):
    """A kernel ready to start: what the driver compiled, and its buffers as (base, byte offset)."""

    function: Any
    kernel: Kernel
    source: Source
    places: tuple[tuple[int, int], ...]


class CardProgram:
    """Kernels in order. run(bases): the memory that each base stands for."""

    def __init__(self, device: Card, launches: Sequence[Placed]) -> None:
        self.device = device
        self.kernels = [bind(device, kernel, places) for kernel, places, _ in launches]

    def run(self, bases: Sequence[Any]) -> None:
        self.run_range(bases, 0, len(self.kernels))

    def run_range(self, bases: Sequence[Any], first: int, end: int) -> None:
        start = self.device.start
        for function, kernel, source, places in self.kernels[first:end]:
            at = [(bases[b][0], bases[b][1] + offset) for b, offset in places]
            start(function, kernel, source, at)


def bind(device: Card, kernel: Kernel, places: Sequence[tuple[int, int]]) -> Bound:
    """Render, check against the card's limits, compile."""
    given = list(places)
    source = render(kernel)
    written = {p for p, q in zip(given, source.parameters, strict=True) if q.access != "READ"}
    read = [p for p, q in zip(given, source.parameters, strict=True) if q.access == "READ"]
    if written.intersection(read) or len(written) + len(read) < len(given):
        source = render(kernel, aliased=True)
    threads = 1
    for n in kernel.block:
        threads *= n
    if threads > device.largest_block:
        fail(
            "launch/card.block",
            f"{kernel.entry} asks for blocks of {threads} threads, "
            f"{device.name} allows {device.largest_block}",
            tensors={},
            error=DeviceError,
            hint="blocks as large as device.largest_block says",
        )
    for axis, (n, most) in enumerate(zip(kernel.grid, LARGEST_GRID, strict=False)):
        if n > most:
            fail(
                "launch/card.grid",
                f"{kernel.entry} asks for {n:,} blocks along axis {axis}, the most is {most:,}",
                tensors={},
                error=DeviceError,
                hint="a smaller batch, or micro_batches=2",
            )
    return Bound(device.compile(source), kernel, source, tuple(given))


class Card(Device):
    """cores          multiprocessors or compute units
    local_bytes    memory that a block may share;  largest_block: threads in a block
    largest_bytes  the largest allocation;  total_bytes: all memory;  model: its name"""

    kind, kernels, host = "card", True, False
    cores, local_bytes, largest_block = 1, 32768, 256
    largest_bytes, total_bytes, model = 2**62, 0, ""

    def __init__(self) -> None:
        self.now = self.peak = 0

    # ---- what a driver says ----------------------------------------------------------------------
    def take(self, nbytes: int) -> Any:
        """A handle of new memory; None if there is not enough."""
        raise NotImplementedError

    def give(self, handle: Any) -> None:
        raise NotImplementedError

    def address_of(self, handle: Any) -> int:
        """As the driver counts, for the memory log."""
        raise NotImplementedError

    def copy_in(self, handle: Any, offset: int, data: np.ndarray) -> None:
        """Contiguous host data to the card. When it returns, the data may be changed."""
        raise NotImplementedError

    def copy_out(self, handle: Any, offset: int, data: np.ndarray) -> None:
        """Into contiguous host memory, after everything that was started before."""
        raise NotImplementedError

    def compile(self, source: Source) -> Any:
        raise NotImplementedError

    def start(self, function: Any, kernel: Kernel, source: Source, places: Sequence[tuple]) -> None:
        """Start a kernel after those before it. places: (memory, byte offset) per buffer."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait for everything that was started."""
        raise NotImplementedError

    # ---- memory ----------------------------------------------------------------------------------
    def buffer(self, nbytes: int) -> Any:
        if nbytes > self.largest_bytes:
            fail(
                "launch/card.allocation",
                f"{self.name} gives at most {self.largest_bytes:,} bytes at once, not {nbytes:,}",
                tensors={},
                error=DeviceError,
                hint=f'ss.memory_limit("{self.largest_bytes // 2**20}MiB"), or a smaller batch',
            )
        handle = self.take(nbytes)
        if handle is None:
            self.out_of_memory(nbytes)
        self.now += nbytes
        self.peak = max(self.peak, self.now)
        return CardMemory(self, handle, nbytes)

    def freed(self, handle: Any, nbytes: int) -> None:
        self.now -= nbytes
        self.give(handle)

    def allocated_bytes(self) -> int:
        return self.now

    def peak_bytes(self) -> int:
        return self.peak

    def reset_peak(self) -> None:
        self.peak = self.now

    def array(
        self,
        base: Any,
        shape: Sequence[int],
        dtype: np.dtype,
        offset: int = 0,
        strides: Sequence[int] | None = None,
    ) -> Any:
        if isinstance(base, CardArray):
            base, offset = base.base, base.offset + offset
        return CardArray(base, shape, dtype, offset, strides)

    def upload(self, array: np.ndarray, what: str = "tensor") -> Any:
        found = self.empty(array.shape, array.dtype, what)
        self.write(found, array)
        return found

    def write(self, target: Any, values: np.ndarray) -> None:
        if isinstance(target, np.ndarray):  # nothing to hold, so no memory of the card
            target[...] = values
        elif target.nbytes:
            values = np.broadcast_to(values, target.shape).astype(target.dtype, copy=False)
            self.copy_in(target.base.handle, target.offset, np.ascontiguousarray(values))

    def read(self, value: Any) -> np.ndarray:
        """A copy on the host. Of an array with gaps, the bytes from its first to its last element
        travel."""
        if isinstance(value, np.ndarray):
            return value
        if value.nbytes == 0:
            return np.empty(value.shape, value.dtype)
        steps = [(n - 1) * s for n, s in zip(value.shape, value.strides, strict=True)]
        low = sum(s for s in steps if s < 0)
        span = sum(s for s in steps if s > 0) - low + value.dtype.itemsize
        data = np.empty(span, np.uint8)
        self.copy_out(value.base.handle, value.offset + low, data)
        found = np.ndarray(value.shape, value.dtype, data, -low, value.strides)
        return found if found.flags.c_contiguous else found.copy()

    def lying(self, base: Any, offset: int, operand: Operand) -> np.ndarray:
        memory, start = base
        strides = [s * operand.dtype.itemsize for s in operand.strides]
        return self.read(self.array(memory, operand.shape, operand.dtype, start + offset, strides))

    def place(self, value: Any) -> Any:
        """What a program's bases are: (memory, byte offset)."""
        if isinstance(value, CardArray):
            return value.base, value.offset
        return (value, 0) if isinstance(value, CardMemory) else None

    # ---- programs --------------------------------------------------------------------------------
    def program(self, launches: Sequence[Placed]) -> Any:
        return CardProgram(self, launches)

    def has(self, entry: str) -> bool:
        return True
