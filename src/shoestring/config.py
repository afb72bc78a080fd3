"""All switches: environment variables SHOESTRING_*, in one table. The documentation is made from
it.

They are read when `import shoestring` runs; an unknown name or a bad value is an error that lists
what would do.
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from .errors import ConfigError, fail, nearest


class Switch(NamedTuple):
    """name without SHOESTRING_; what is allowed, in words; how text becomes a value (ValueError if
    it cannot); what it does. `reserved`: not in force yet; setting it is an error, since a switch
    that does nothing would be a promise broken in silence."""

    name: str
    allowed: str
    default: Any
    read: Callable[[str], Any]
    about: str
    reserved: bool = False


def yes_or_no(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError
    return text == "1"


def device_name(text: str) -> str:
    if text.partition(":")[0] not in ("auto", "cpu", "reference", "cuda", "opencl"):
        raise ValueError
    return text


UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def bytes_of(text: str) -> int:
    """Bytes from "1.8GB" (decimal), "460MiB" (binary) or "482344960"; ValueError if it is none of
    these."""
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", text)
    unit = UNITS.get(found[2].upper() or "B") if found else None
    if found is None or unit is None:
        raise ValueError(text)
    return int(float(found[1]) * unit)


def limit_of(text: str) -> int | str:
    """A memory limit: "auto", or bytes."""
    return text if text == "auto" else bytes_of(text)


SWITCHES = (
    Switch(
        "DEVICE",
        "auto, cpu, reference, cuda, cuda:N, opencl or opencl:N",
        "auto",
        device_name,
        "where new tensors go; auto is the best device there is",
    ),
    Switch("DATA", "a folder", "", str, "where data sets are looked for first, such as mnist.npz"),
    Switch(
        "CACHE",
        "a folder",
        "",
        str,
        "where downloads and compiled kernels are kept; default: the system's place for caches",
    ),
    Switch(
        "CHECK",
        "0 or 1",
        False,
        yes_or_no,
        "verify the graph after every pass and every plan; look at what each launch reaches, "
        "and compare every tenth small one with its reference",
    ),
    Switch(
        "MEMORY_LIMIT",
        "a size such as 1.8GB, 460MiB or bytes, or auto",
        "",
        limit_of,
        "a budget for everything that is allocated on a device; auto: what is free, less a tenth",
    ),
    Switch("DEBUG", "1 to 4", "", str, "print plans and launches as they are made", True),
    Switch(
        "LOG_MEMORY",
        "0 or 1",
        False,
        yes_or_no,
        "a line on stderr for every allocation and release, and for what lies in a plan's arena",
    ),
    Switch("TUNE", "0 or 1", "", str, "choose among a kernel's variants by measuring", True),
)


def load(environment: Any = None) -> dict[str, Any]:
    """{name: value} of every switch; complains about unknown names and bad values."""
    environment = os.environ if environment is None else environment
    values = {switch.name: switch.default for switch in SWITCHES}
    known = {f"SHOESTRING_{switch.name}": switch for switch in SWITCHES}
    offered = [name for name, switch in known.items() if not switch.reserved]
    for name, text in environment.items():
        if not name.startswith("SHOESTRING_"):
            continue
        switch = known.get(name)
        if switch is None:
            close = nearest(name, offered)
            fail(
                "value/config.unknown",
                f"there is no switch {name}",
                tensors={},
                error=ConfigError,
                cause=f"the switches are {', '.join(offered)}",
                hint=f"{close}=..." if close else f"unset {name}",
            )
        if switch.reserved:
            fail(
                "value/config.reserved",
                f"{name} is reserved: this version cannot do it yet",
                tensors={},
                error=ConfigError,
                cause=f"it is to mean: {switch.about}",
                hint=f"unset {name}",
            )
        try:
            values[switch.name] = switch.read(text)
        except ValueError:
            fail(
                "value/config.value",
                f"{name} is {text!r}",
                tensors={},
                error=ConfigError,
                expected=f"{switch.allowed}, got {text!r}",
                hint=f"{name}={switch.default if switch.default else 0}",
            )
    return values


def cache_folder() -> pathlib.Path:
    """SHOESTRING_CACHE, or the system's place for caches."""
    base = os.environ.get("SHOESTRING_CACHE")
    if base:
        return pathlib.Path(base)
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "shoestring"


def table() -> str:
    """The switches as a Markdown table."""
    rows = [
        f"| `SHOESTRING_{s.name}` | {s.allowed} | "
        f"{s.default or ('0' if s.default is False else '')} | "
        f"{'reserved, not in force yet: ' * s.reserved}{s.about} |"
        for s in SWITCHES
    ]
    return "\n".join(["| switch | value | default | what it does |", "|---|---|---|---|", *rows])
