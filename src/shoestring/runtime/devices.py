"""Which device new tensors go to."""

from __future__ import annotations

import os

from ..backends import cpu as _cpu
from ..backends import opencl as _opencl  # noqa: F401
from ..backends import reference as _reference  # noqa: F401  (importing them offers their devices)
from ..backends.device import FACTORIES, device
from ..errors import fail


class Choice:
    name: str | None = None


_choice = Choice()


def default_device(name: str | None = None) -> str:
    """The device of new tensors; with a name, makes it the default from now on.

    At first SHOESTRING_DEVICE decides, and without it the best device of this installation."""
    if name is not None:
        _choice.name = device(name).name
    if _choice.name is None:
        asked = os.environ.get("SHOESTRING_DEVICE", "auto")
        if asked == "auto":
            asked = "cpu" if "cpu" in FACTORIES else "reference"
        _choice.name = device(asked).name
    return _choice.name


def set_threads(count: int) -> None:
    """Let the CPU's kernels use `count` threads. Results do not depend on it."""
    if not isinstance(count, int) or count < 1:
        fail(
            "value/threads.count",
            f"threads must be a whole number of at least 1, got {count!r}",
            tensors={},
            hint="ss.set_threads(2)",
        )
    if "cpu" in FACTORIES:
        _cpu.set_threads(count)


def threads() -> int:
    """How many threads the CPU's kernels use."""
    return _cpu.threads() if "cpu" in FACTORIES else 1
