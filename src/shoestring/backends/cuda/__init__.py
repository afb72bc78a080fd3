"""NVIDIA cards from Kepler (sm_35) on, through the driver alone.

"cuda:0" is the first card; "cuda" means it. Kernels are compiled by NVRTC (nvrtc.py), kept on disk
(cache.py), checked against the card's limits, and launched as graphs once they are replayed
(program.py). Where there is no compiler, kernels that were compiled before still run.

Everything runs on one stream of the card's primary context, in order. Each use makes the context
current, since other threads and libraries choose theirs. After a fault of a kernel the context is
lost for this process: the error says which kernels were under way, and every later use says it
again.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
from collections import deque
from collections.abc import Sequence
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

import numpy as np

from ...errors import DeviceError, fail
from ..card import Card
from ..device import FAMILIES
from ..launch import Kernel, Placed
from ..source import Source
from . import cache, nvrtc
from .driver import FAULTS, OUT_OF_MEMORY, open_driver, refused
from .program import CudaProgram
from .staging import Staging

OLDEST = (3, 5)
LOCAL_BYTES = 49152  # what a block may share without asking
ARGUMENT_BYTES = 4096
REMEMBERED = 64  # programs started since the last wait, for messages
MAX_THREADS, SHARED, LOCAL, REGISTERS = 0, 1, 3, 4  # attributes of a function


class Exported:
    """The folder of kernels that are used instead of a compiler."""

    folder: pathlib.Path | None = None


class Function:
    """A kernel that is loaded, and what it takes of the card."""

    def __init__(self, device: CUDA, module: c_void_p, source: Source) -> None:
        self.device, self.entry, self.handle = device, source.entry, c_void_p()
        device.call("cuModuleGetFunction", byref(self.handle), module, source.entry.encode())
        self.most_threads = self.attribute(MAX_THREADS)
        self.registers = self.attribute(REGISTERS)
        if shared := max(self.attribute(SHARED) - device.local_bytes, 0):
            self.refuse(f"shares {shared + device.local_bytes:,} bytes", f"{device.local_bytes:,}")
        if stack := self.attribute(LOCAL):
            self.refuse(f"needs a stack of {stack:,} bytes per thread", "none")

    def attribute(self, which: int) -> int:
        found = c_int()
        self.device.call("cuFuncGetAttribute", byref(found), which, self.handle)
        return found.value

    def check(self, kernel: Kernel, buffers: int) -> None:
        """Whether the card can launch it so."""
        threads = int(np.prod(kernel.block))
        if threads > self.most_threads:
            what = f"has blocks of {threads} threads of {self.registers} registers"
            self.refuse(what, f"{self.most_threads} threads")
        if 8 * buffers > ARGUMENT_BYTES:
            self.refuse(f"has {buffers} buffers", f"{ARGUMENT_BYTES // 8}")

    def refuse(self, what: str, most: str) -> None:
        fail(
            "launch/cuda.kernel",
            f"{self.entry} {what}",
            tensors={},
            error=DeviceError,
            cause=f"the most on {self.device.model} is {most}",
            hint="smaller blocks or tiles, and small arrays only with constant indices",
        )


class CUDA(Card):
    """One NVIDIA card. capability: (6, 1) for sm_61."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.driver, self.name, self.lost = open_driver(), f"cuda:{index}", ""
        count = self.driver.count()
        if index >= count:
            fail(
                "value/cuda.device",
                f"there is no card {self.name}",
                tensors={},
                error=DeviceError,
                cause=f"the driver offers {count}",
                hint=f'device="cuda:{count - 1}"' if count else 'nvidia-smi, or device="cpu"',
            )
        self.model = self.driver.model(index)
        self.capability = self.driver.capability(index)
        if self.capability < OLDEST:
            fail(
                "value/cuda.card",
                f"{self.model} (compute capability {self.capability[0]}.{self.capability[1]}) is "
                "too old for this package",
                tensors={},
                error=DeviceError,
                expected="compute capability 3.5 or more: Kepler GK110 and later",
                hint='device="opencl:0" or device="cpu"',
            )
        self.cores = self.driver.attribute(index, 16)
        self.largest_block = self.driver.attribute(index, 1)
        self.local_bytes = min(self.driver.attribute(index, 8), LOCAL_BYTES)
        self.total_bytes = self.driver.total_bytes(index)
        self.kernel_launch = self.driver.functions["cuLaunchKernel"]
        self.graph_launch = self.driver.functions["cuGraphLaunch"]
        self.recent: deque[tuple[str, ...]] = deque(maxlen=REMEMBERED)
        self.functions: dict[Source, Function] = {}
        self.context, self.stream = c_void_p(), c_void_p()
        self.driver.call("cuDevicePrimaryCtxRetain", byref(self.context), index)
        self.call("cuStreamCreate", byref(self.stream), 1)  # waits for no other stream
        self.staging = Staging(self)
        if Exported.folder is not None:
            self.cores = exported_facts(Exported.folder)["cores"]  # which decide about tiles

    # ---- calls -----------------------------------------------------------------------------------
    def enter(self) -> None:
        """Before every use: the same process, a context in order, and current in this thread."""
        if self.lost:
            fail(
                "launch/cuda.lost",
                f"{self.name} cannot be used any more in this process",
                tensors={},
                error=DeviceError,
                cause=self.lost,
                hint="start again from the last checkpoint",
            )
        self.check("cuCtxSetCurrent", self.driver.result("cuCtxSetCurrent", self.context))

    def call(self, name: str, *arguments: Any) -> None:
        self.enter()
        self.check(name, self.driver.functions[name](*arguments))

    def check(self, what: str, code: int) -> None:
        """Raise the error of a code; after a fault the context is lost."""
        if code == 0:
            return
        text = self.driver.name_of(code)
        if code not in FAULTS:
            refused(what, code, text, f"{self.name} ({self.model})")
        self.lost = f"{text} ({code}) in {self.suspects()}"
        fail(
            "launch/cuda.fault",
            f"a kernel failed on {self.name} ({self.model}): {text} ({code})",
            tensors={},
            error=DeviceError,
            cause=f"it was {self.suspects()}; what is on the card is lost",
            hint="SHOESTRING_CHECK=1, which waits for each kernel and names the one",
        )

    def started(self, entries: tuple[str, ...]) -> None:
        """Kernels have been launched, for messages about faults."""
        self.recent.append(entries)

    def suspects(self) -> str:
        """The kernels since the last wait, in words."""
        names = [name for entries in self.recent for name in entries]
        if len(names) < 2:
            return "".join(names) or "no kernel of this package"
        shown = list(dict.fromkeys(names))
        more = f" and {len(shown) - 12} more" if len(shown) > 12 else ""
        return f"one of {len(names)} launches of {', '.join(shown[:12])}{more}"

    def synchronize(self) -> None:
        self.call("cuStreamSynchronize", self.stream)
        self.recent.clear()

    # ---- memory ----------------------------------------------------------------------------------
    def take(self, nbytes: int) -> Any:
        self.enter()
        found = c_uint64()
        code = self.driver.functions["cuMemAlloc_v2"](byref(found), nbytes)
        if code == OUT_OF_MEMORY:
            return None
        self.check("cuMemAlloc_v2", code)
        return found.value

    def give(self, handle: Any) -> None:
        """Called by the garbage collector: nothing to complain to, and in a process that was forked
        nothing to give back."""
        self.release("cuMemFree_v2", handle)

    def destroy_graph(self, executable: c_void_p, graph: c_void_p) -> None:
        self.release("cuGraphExecDestroy", executable)
        self.release("cuGraphDestroy", graph)

    def release(self, name: str, handle: Any) -> None:
        functions = self.driver.functions
        if os.getpid() == self.driver.process and not self.lost:
            functions["cuCtxSetCurrent"](self.context)
            functions[name](handle)

    def address_of(self, handle: Any) -> int:
        return handle

    def copy_in(self, handle: Any, offset: int, data: np.ndarray) -> None:
        self.staging.copy_in(handle + offset, data)

    def copy_out(self, handle: Any, offset: int, data: np.ndarray) -> None:
        self.staging.copy_out(handle + offset, data)
        self.recent.clear()

    def free_bytes(self) -> int:
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    # ---- kernels ---------------------------------------------------------------------------------
    def program(self, launches: Sequence[Placed]) -> Any:
        return CudaProgram(self, launches)

    def compile(self, source: Source) -> Function:
        found = self.functions.get(source)
        if found is None:
            image = self.image(source)
            found = self.functions[source] = Function(self, self.load(image, source), source)
        return found

    def image(self, source: Source) -> bytes:
        """The compiled kernel: exported, kept on disk, or made now."""
        targets = nvrtc.targets(self.capability)
        if Exported.folder is not None:
            return cache.read(Exported.folder, source, targets) or not_exported(self, source)
        found = cache.read(cache.folder(), source, targets)
        if found is None:
            chosen = nvrtc.choose(self.capability, self.driver.version)
            if chosen is None:
                nvrtc.missing(self.model, self.capability, self.driver.version)
            compiler, target = chosen
            found = compiled(compiler, source, target, self.model)
            with contextlib.suppress(OSError):  # a cache that cannot be written is none
                cache.write(cache.folder(), source, target, found, nvrtc.spelt(compiler))
        return found

    def load(self, image: bytes, source: Source) -> c_void_p:
        """The module of a cubin or of PTX."""
        module, log = c_void_p(), ctypes.create_string_buffer(4096)
        options = (c_int * 2)(5, 6)  # the log of errors, its size
        values = (c_void_p * 2)(ctypes.addressof(log), len(log))
        self.enter()
        load = self.driver.functions["cuModuleLoadDataEx"]
        code = load(byref(module), image, 2, options, values)
        if code and code not in FAULTS:
            text, told = self.driver.name_of(code), log.value.decode(errors="replace").strip()
            what = f"loading {source.entry}"
            refused(what, code, text, f"{self.name} ({self.model})", told[:200])
        self.check(f"loading {source.entry}", code)
        return module


def compiled(compiler: nvrtc.NVRTC, source: Source, target: str, card: str) -> bytes:
    image, log = compiler.compile(source.text, target, f"{source.entry}.cl")
    return image or nvrtc.refuse(card, source.entry, log)


def exported_facts(folder: pathlib.Path) -> dict[str, Any]:
    """What a folder of kernels was compiled for."""
    try:
        return json.loads((folder / "card.json").read_text())
    except (OSError, ValueError) as problem:
        fail(
            "value/cuda.exported",
            f"{folder} is not a folder of exported kernels: {problem}",
            tensors={},
            error=DeviceError,
            source=problem,
            hint=f"shoestring plan NETWORK --arch sm_61 --export {folder}",
        )


def not_exported(device: CUDA, source: Source) -> bytes:
    facts = exported_facts(Exported.folder)
    major, minor = device.capability
    fail(
        "launch/cuda.exported",
        f"{Exported.folder} has no {source.entry} like this for {device.model} (sm_{major}{minor})",
        tensors={},
        error=DeviceError,
        cause="they were compiled for " + ", ".join(f"{k} {v}" for k, v in facts.items()),
        hint="export with the options of this run: shoestring plan NETWORK --batch N "
        f"--arch sm_{major}{minor} --export DIR",
    )


FAMILIES["cuda"] = CUDA
