"""OpenCL devices through pyopencl: AMD, Intel and Arm graphics, and PoCL on the CPU, which tests
the kernels of cards where there is no card.

"opencl:0" is the first device, graphics cards before others; "opencl" means the first. Nothing is
asked of the drivers before a device is named. Kernels get a buffer and where they begin in it,
since OpenCL 1.2 has no addresses.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import DeviceError, fail
from ..card import Card
from ..device import FAMILIES
from ..launch import Kernel
from ..source import Source

OPTIONS = ("-cl-std=CL1.2", "-w")  # nothing that lets the compiler change the arithmetic
LOCAL_BYTES = 49152  # what kernels are written for


@functools.cache
def library() -> Any:
    """pyopencl, imported at first use."""
    os.environ.setdefault("PYOPENCL_COMPILER_OUTPUT", "0")
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")  # programs are kept by this process alone
    import pyopencl

    warnings.filterwarnings("ignore", category=pyopencl.CompilerWarning)
    return pyopencl


@functools.cache
def devices() -> tuple[Any, ...]:
    """All devices of all platforms, graphics cards first."""
    if importlib.util.find_spec("pyopencl") is None:
        return ()
    cl, found = library(), []
    try:
        for platform in cl.get_platforms():
            found += platform.get_devices()
    except cl.LogicError:  # no driver has registered itself
        return tuple(found)
    return tuple(sorted(found, key=lambda d: not d.type & cl.device_type.GPU))


class OpenCL(Card):
    """One OpenCL device."""

    def __init__(self, index: int) -> None:
        super().__init__()
        found = devices()
        if index >= len(found):
            fail(
                "value/opencl.device",
                f"there is no OpenCL device number {index}",
                tensors={},
                error=DeviceError,
                cause="pyopencl is not installed"
                if importlib.util.find_spec("pyopencl") is None
                else f"the drivers offer {len(found)}",
                hint='pip install "shoestring[opencl]", and the OpenCL driver of the card',
            )
        cl, self.name, self.device = library(), f"opencl:{index}", found[index]
        self.context = cl.Context([self.device])
        self.queue = cl.CommandQueue(self.context, self.device)
        self.cores = self.device.max_compute_units
        self.largest_block = self.device.max_work_group_size
        self.local_bytes = min(self.device.local_mem_size, LOCAL_BYTES)
        self.largest_bytes = self.device.max_mem_alloc_size
        self.total_bytes, self.model = self.device.global_mem_size, self.device.name.strip()
        self.programs: dict[Source, Any] = {}

    def take(self, nbytes: int) -> Any:
        cl = library()
        try:
            memory = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, nbytes)
            cl.enqueue_fill_buffer(self.queue, memory, np.uint8(0), 0, 1)  # drivers wait until used
            return memory
        except cl.Error:
            return None

    def give(self, handle: Any) -> None:
        handle.release()

    def address_of(self, handle: Any) -> int:
        return handle.int_ptr

    def copy_in(self, handle: Any, offset: int, data: np.ndarray) -> None:
        library().enqueue_copy(self.queue, handle, data, dst_offset=offset, is_blocking=True)

    def copy_out(self, handle: Any, offset: int, data: np.ndarray) -> None:
        library().enqueue_copy(self.queue, data, handle, src_offset=offset, is_blocking=True)

    def compile(self, source: Source) -> Any:
        found = self.programs.get(source)
        if found is None:
            cl = library()
            try:
                program = cl.Program(self.context, source.text).build(options=list(OPTIONS))
            except cl.RuntimeError as problem:
                refuse(self, source, str(problem))
            found = self.programs[source] = cl.Kernel(program, source.entry)
            most = found.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, self.device)
            threads = found.get_work_group_info(
                cl.kernel_work_group_info.COMPILE_WORK_GROUP_SIZE, self.device
            )
            if np.prod(threads) > most:
                too_large(self, source, int(np.prod(threads)), most)
        return found

    def start(self, function: Any, kernel: Kernel, source: Source, places: Sequence[tuple]) -> None:
        arguments: list[Any] = []
        for (memory, offset), parameter in zip(places, source.parameters, strict=True):
            arguments += [memory.handle, np.uint64(offset // parameter.bytes)]
        size = [n * m for n, m in zip(kernel.grid, kernel.block, strict=True)]
        function.set_args(*arguments)
        library().enqueue_nd_range_kernel(self.queue, function, size, list(kernel.block))

    def synchronize(self) -> None:
        self.queue.finish()

    def free_bytes(self) -> int:
        return max(self.total_bytes - self.now, 0)


def refuse(device: Any, source: Source, problem: str) -> None:
    """The compiler's first complaint, which names the real file and line."""
    lines = [line.strip() for line in problem.splitlines() if re.search(r"error|warning", line)]
    fail(
        "launch/opencl.compile",
        f"the driver of {device.model} does not compile {source.entry}",
        tensors={},
        error=DeviceError,
        cause=lines[0] if lines else problem.strip()[:200],
        hint="a newer driver; if that does not help, report it with this message",
    )


def too_large(device: Any, source: Source, threads: int, most: int) -> None:
    fail(
        "launch/opencl.block",
        f"{source.entry} has blocks of {threads} threads, {device.model} can run {most} of them",
        tensors={},
        error=DeviceError,
        hint="report it: a variant with smaller blocks is missing",
    )


FAMILIES["opencl"] = OpenCL
