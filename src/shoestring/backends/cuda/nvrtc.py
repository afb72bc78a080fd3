"""NVRTC, NVIDIA's compiler as a library, through ctypes: text of a kernel -> cubin.

    found     in the wheels nvidia-cuda-nvrtc-cu11, -cu12, -cu13, then in the system
    chosen    by its own list of architectures: the newest that compiles for this card and is not
              of a later major version than the driver, which would refuse what it makes
    target    sm_61: a cubin, which the driver only loads; for a card newer than the compiler
              compute_90: PTX of its highest architecture, which the driver compiles

NVRTC 11.8 compiles for every card from Kepler (3.5) to Hopper, so it is what the extra `cuda`
installs.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import importlib.util
import os
import pathlib
import sys
from collections.abc import Iterable, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from typing import Any, NoReturn

from ...errors import DeviceError, fail

WHEEL = "pip install nvidia-cuda-nvrtc-cu11==11.8.89"
OPTIONS = ("--fmad=false",)  # nothing that lets the compiler change the arithmetic
PATTERNS = ("nvrtc64_*.dll",) if os.name == "nt" else ("libnvrtc.so", "libnvrtc.so.*")
PROTOTYPES: dict[str, tuple] = {
    "nvrtcVersion": (POINTER(c_int), POINTER(c_int)),
    "nvrtcGetNumSupportedArchs": (POINTER(c_int),),
    "nvrtcGetSupportedArchs": (POINTER(c_int),),
    "nvrtcCreateProgram": (POINTER(c_void_p), c_char_p, c_char_p, c_int, c_void_p, c_void_p),
    "nvrtcCompileProgram": (c_void_p, c_int, POINTER(c_char_p)),
    "nvrtcDestroyProgram": (POINTER(c_void_p),),
    "nvrtcGetProgramLogSize": (c_void_p, POINTER(c_size_t)),
    "nvrtcGetProgramLog": (c_void_p, c_char_p),
    "nvrtcGetPTXSize": (c_void_p, POINTER(c_size_t)),
    "nvrtcGetPTX": (c_void_p, c_char_p),
    "nvrtcGetCUBINSize": (c_void_p, POINTER(c_size_t)),
    "nvrtcGetCUBIN": (c_void_p, c_char_p),
}


class NVRTC:
    """One library. version: (11, 8);  architectures: [35, 37, 50, ...]"""

    def __init__(self, path: str) -> None:
        self.path, library = path, ctypes.CDLL(path)
        for name, types in PROTOTYPES.items():
            function = getattr(library, name)  # AttributeError: older than 11.2
            function.argtypes, function.restype = types, c_int
        self.library = library
        major, minor, count = c_int(), c_int(), c_int()
        library.nvrtcVersion(byref(major), byref(minor))
        self.version = major.value, minor.value
        library.nvrtcGetNumSupportedArchs(byref(count))
        found = (c_int * count.value)()
        library.nvrtcGetSupportedArchs(found)
        self.architectures = sorted(found)

    @functools.cached_property
    def builtins(self) -> Any:
        """The library that it looks for by name when it compiles, loaded by its path: it lies
        beside it, where the system does not look."""
        major, minor = self.version
        name = f"libnvrtc-builtins.so.{major}.{minor}"
        if os.name == "nt":
            name = f"nvrtc-builtins64_{major}{minor}.dll"
        path = pathlib.Path(self.path).with_name(name)
        return ctypes.CDLL(str(path)) if path.exists() else None

    def compile(self, text: str, target: str, name: str = "kernel") -> tuple[bytes, str]:
        """(a cubin for "sm_61", PTX for "compute_61", empty if it does not compile; the log)"""
        _, library, program = self.builtins, self.library, c_void_p()
        library.nvrtcCreateProgram(byref(program), text.encode(), name.encode(), 0, None, None)
        try:
            options = [f"--gpu-architecture={target}".encode(), *[o.encode() for o in OPTIONS]]
            code = library.nvrtcCompileProgram(
                program, len(options), (c_char_p * len(options))(*options)
            )
            log = self.taken(program, "ProgramLog").decode(errors="replace")
            image = "CUBIN" if target.startswith("sm_") else "PTX"
            return b"" if code else self.taken(program, image), log
        finally:
            library.nvrtcDestroyProgram(byref(program))

    def taken(self, program: Any, what: str) -> bytes:
        size = c_size_t()
        getattr(self.library, f"nvrtcGet{what}Size")(program, byref(size))
        found = ctypes.create_string_buffer(size.value or 1)
        getattr(self.library, f"nvrtcGet{what}")(program, found)
        return found.raw[: size.value] if what == "CUBIN" else found.value


def folders() -> list[pathlib.Path]:
    """Where NVRTC may lie: wheels first."""
    spec = importlib.util.find_spec("nvidia")
    wheels = [pathlib.Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    inside = ("cuda_nvrtc/lib", "cuda_nvrtc/bin", "cu13/lib", "cu13/bin", "cu13/bin/x86_64")
    found = [wheel / name for wheel in wheels for name in inside]
    toolkits = [os.environ.get(name, "") for name in ("CUDA_PATH", "CUDA_HOME")]
    toolkits += ["/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-*"), reverse=True)]
    found += [pathlib.Path(t) / name for t in toolkits if t for name in ("lib64", "lib", "bin")]
    searched = os.environ.get("PATH" if os.name == "nt" else "LD_LIBRARY_PATH", "")
    found += [pathlib.Path(p) for p in searched.split(os.pathsep) if p]
    if sys.platform == "linux":
        system = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
        found += [pathlib.Path(p) for p in system]
    return found


@functools.cache
def installed() -> tuple[NVRTC, ...]:
    """All that can be loaded; each once."""
    found: dict[str, NVRTC] = {}
    for folder in folders():
        for path in sorted(p for pattern in PATTERNS for p in folder.glob(pattern)):
            real = os.path.realpath(path)
            if real in found or "builtins" in path.name or ".alt" in path.name:
                continue
            try:
                found[real] = NVRTC(real)
            except (OSError, AttributeError):  # of another machine, or too old to give cubins
                continue
    return tuple(found.values())


def target_of(architectures: Iterable[int], capability: tuple[int, int]) -> str | None:
    """What a compiler with these architectures should compile to for a card of this capability;
    None if the card is older than all of them. Cubins run on later minor versions."""
    major, minor = capability
    older = [a for a in architectures if a <= 10 * major + minor]
    if not older:
        return None
    return f"sm_{max(older)}" if max(older) // 10 == major else f"compute_{max(older)}"


def targets(capability: tuple[int, int]) -> list[str]:
    """All that a card can load, best first."""
    major, minor = capability
    known = (35, 37, 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 103, 120, 121)
    cubins = [f"sm_{10 * major + m}" for m in range(minor, -1, -1)]
    return cubins + [f"compute_{a}" for a in reversed(known) if a <= 10 * major + minor]


def choose(
    capability: tuple[int, int], driver_version: int, offered: Sequence[NVRTC] | None = None
) -> tuple[NVRTC, str] | None:
    """(compiler, target) for a card, None if no compiler that is installed will do.

    driver_version  as the driver counts: 11080 is CUDA 11.8"""
    found = []
    for nvrtc in installed() if offered is None else offered:
        target = target_of(nvrtc.architectures, capability)
        if target is not None and nvrtc.version[0] <= driver_version // 1000:
            found.append((target.startswith("sm_"), nvrtc.version, nvrtc, target))
    if not found:
        return None
    best = max(found, key=lambda f: f[:2])
    return best[2], best[3]


def missing(card: str, capability: tuple[int, int], driver_version: int) -> NoReturn:
    """No compiler will do: say why, and which one would."""
    major, minor = capability
    offered = installed()
    causes = [f"{spelt(n)} {why_not(n, capability, driver_version)}" for n in offered]
    fail(
        "launch/cuda.compiler",
        f"there is no compiler for {card} (sm_{major}{minor})",
        tensors={},
        error=DeviceError,
        cause="; ".join(causes) or "NVRTC is not installed",
        hint=f"{WHEEL}, or kernels compiled elsewhere (shoestring plan NETWORK "
        f"--arch sm_{major}{minor} --export DIR)",
    )


def spelt(nvrtc: NVRTC) -> str:
    return f"NVRTC {nvrtc.version[0]}.{nvrtc.version[1]}"


def why_not(nvrtc: NVRTC, capability: tuple[int, int], driver_version: int) -> str:
    if target_of(nvrtc.architectures, capability) is None:
        return f"compiles for sm_{nvrtc.architectures[0]} and newer"
    return f"is too new for the driver, which is that of CUDA {driver_version // 1000}"


def refuse(card: str, entry: str, log: str) -> NoReturn:
    """The compiler's first complaint, which names the real file and line."""
    lines = [line.strip() for line in log.splitlines() if "error" in line]
    fail(
        "launch/cuda.compile",
        f"{entry} does not compile for {card}",
        tensors={},
        error=DeviceError,
        cause=lines[0] if lines else log.strip()[:300],
        hint="mend that line of the kernel; if it is one of ours, report it with this message",
    )
