"""The CUDA driver through ctypes: libcuda.so.1 (nvcuda.dll on Windows) and nothing else.

    prototypes   one table; every function in it exists from driver 450.80.02 on (CUDA 11.0), but
                 for NEWER, each of which has a way round it where it is called
    first use    open_driver() loads the library and initialises the driver, import does not
    processes    a process that was forked after that cannot use it: an error, not a hang
    results      a code that is not 0 becomes an error that says what failed and what to type

What belongs to one card (its context, its stream, what runs there) is in __init__.py.
"""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, NoReturn

from ...errors import DeviceError, fail

LIBRARY = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
FLOOR = 11000  # the driver interface of 450.80.02
GRID = (c_uint,) * 6  # blocks and threads along x, y, z


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS: a launch as a node of a graph."""

    _fields_ = [
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("arguments", POINTER(c_void_p)),
        ("extra", c_void_p),
    ]


OUT = POINTER(c_void_p)  # where a handle is written
PROTOTYPES: dict[str, tuple] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDevicePrimaryCtxRetain": (OUT, c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemHostAlloc": (OUT, c_size_t, c_uint),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuStreamCreate": (OUT, c_uint),
    "cuStreamSynchronize": (c_void_p,),
    "cuEventCreate": (OUT, c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuModuleLoadDataEx": (OUT, c_char_p, c_uint, POINTER(c_int), OUT),
    "cuModuleGetFunction": (OUT, c_void_p, c_char_p),
    "cuFuncGetAttribute": (POINTER(c_int), c_int, c_void_p),
    "cuLaunchKernel": (c_void_p, *GRID, c_uint, c_void_p, OUT, OUT),
    "cuGraphCreate": (OUT, c_uint),
    "cuGraphAddKernelNode": (OUT, c_void_p, OUT, c_size_t, POINTER(KernelNode)),
    "cuGraphInstantiateWithFlags": (OUT, c_void_p, c_uint64),
    "cuGraphInstantiate_v2": (OUT, c_void_p, OUT, c_char_p, c_size_t),
    "cuGraphExecKernelNodeSetParams": (c_void_p, c_void_p, POINTER(KernelNode)),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphExecDestroy": (c_void_p,),
    "cuGraphDestroy": (c_void_p,),
}
NEWER = {"cuGraphInstantiateWithFlags"}  # CUDA 11.4; before it cuGraphInstantiate_v2

OUT_OF_MEMORY = 2
# after these the context answers nothing else: a kernel has read or written where it must not, ...
FAULTS = {214, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721}

# what to do about a code; other codes are told by their name alone
REMEDIES = {
    100: "nvidia-smi: the driver must list a card; CUDA_VISIBLE_DEVICES must not hide it",
    101: "nvidia-smi: the driver must list a card; CUDA_VISIBLE_DEVICES must not hide it",
    3: "ls -l /dev/nvidia*: the user must be allowed to read and write these",
    304: "ls -l /dev/nvidia*: the user must be allowed to read and write these",
    999: "sudo nvidia-modprobe -u -c 0, or restart the machine after an update of the driver",
    802: "sudo systemctl start nvidia-fabricmanager",
    803: "restart the machine: the driver was updated and its kernel module is still the old one",
    804: "unset LD_LIBRARY_PATH: a compatibility package of CUDA stands before the card's driver",
    46: "nvidia-smi: another process has the card for itself (compute mode)",
    209: "rm -r the cache folder that shoestring doctor names",
    218: "a newer driver, or pip install nvidia-cuda-nvrtc-cu11==11.8.89",
    222: "a newer driver, or pip install nvidia-cuda-nvrtc-cu11==11.8.89",
}
START_WORKERS = (
    'multiprocessing.get_context("spawn").Process(...), or start workers before the first use of '
    "the card"
)


class Driver:
    """The driver in this process. library: what ctypes has loaded."""

    def __init__(self, library: Any) -> None:
        self.process = os.getpid()
        self.functions: dict[str, Any] = {}
        for name, types in PROTOTYPES.items():
            function = getattr(library, name, None)
            if function is None and name not in NEWER:
                too_old(f"it has no {name}")
            if function is not None:
                function.argtypes, function.restype = types, c_int
                self.functions[name] = function
        self.call("cuInit", 0)
        self.version = self.number("cuDriverGetVersion")
        if self.version < FLOOR:
            too_old(f"it is that of CUDA {spelt(self.version)}")

    def result(self, name: str, *arguments: Any) -> int:
        """The code that a function of the driver returns."""
        if os.getpid() != self.process:
            forked()
        return self.functions[name](*arguments)

    def call(self, name: str, *arguments: Any) -> None:
        code = self.result(name, *arguments)
        if code:
            refused(name, code, self.name_of(code))

    def number(self, name: str, *arguments: Any) -> int:
        """What a function writes into an int."""
        found = c_int()
        self.call(name, byref(found), *arguments)
        return found.value

    def name_of(self, code: int) -> str:
        """CUDA_ERROR_..."""
        text = c_char_p()
        self.functions["cuGetErrorName"](code, byref(text))
        return (text.value or b"an unknown error").decode()

    def has(self, name: str) -> bool:
        return name in self.functions

    # ---- cards, without a context; a card is called by its number --------------------------------
    def count(self) -> int:
        """How many cards there are."""
        return self.number("cuDeviceGetCount")

    def attribute(self, card: int, which: int) -> int:
        return self.number("cuDeviceGetAttribute", which, card)

    def model(self, card: int) -> str:
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, len(text), card)
        return text.value.decode(errors="replace")

    def total_bytes(self, card: int) -> int:
        found = c_size_t()
        self.call("cuDeviceTotalMem_v2", byref(found), card)
        return found.value

    def capability(self, card: int) -> tuple[int, int]:
        """(6, 1) for sm_61"""
        return self.attribute(card, 75), self.attribute(card, 76)


@functools.cache
def open_driver() -> Driver:
    """The driver, initialised at the first call of this process."""
    return Driver(load_library())


def load_library() -> Any:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as problem:
        fail(
            "value/cuda.driver",
            f"there is no NVIDIA driver: {LIBRARY} cannot be loaded",
            tensors={},
            error=DeviceError,
            source=problem,
            cause=str(problem),
            hint='the driver of the card, from nvidia.com or the system; without one device="cpu"',
        )


def spelt(version: int) -> str:
    """11.8 for 11080"""
    return f"{version // 1000}.{version % 1000 // 10}"


def too_old(cause: str) -> NoReturn:
    fail(
        "value/cuda.old",
        "the NVIDIA driver is too old",
        tensors={},
        error=DeviceError,
        cause=cause,
        expected="driver 450.80.02 (Windows: 452.39) or newer, which is CUDA 11.0",
        hint="a newer driver; 470 is the last for Kepler, 580 for Maxwell, Pascal and Volta",
    )


def forked() -> NoReturn:
    fail(
        "launch/cuda.forked",
        "the card was used before this process was forked, and cannot be used in it",
        tensors={},
        error=DeviceError,
        cause="CUDA does not survive fork(), which is how multiprocessing starts workers on Linux",
        hint=START_WORKERS,
    )


def refused(name: str, code: int, text: str, card: str = "the driver", cause: str = "") -> NoReturn:
    """A call failed, and nothing is broken by that."""
    fail(
        "launch/cuda.call",
        f"{name} failed on {card}: {text} ({code})",
        tensors={},
        error=DeviceError,
        cause=cause,
        hint=REMEDIES.get(code, "shoestring doctor"),
    )
