"""Which device new tensors go to."""

from __future__ import annotations

import os
import threading

from ..backends import cpu as _cpu
from ..backends import cuda as _cuda  # noqa: F401
from ..backends import opencl as _opencl  # noqa: F401
from ..backends import reference as _reference  # noqa: F401  (importing them offers their devices)
from ..backends.device import FACTORIES, device
from ..errors import fail


class Choice(threading.local):
    name: str | None = None  # of each thread
    first: str | None = None  # of all that have chosen none: the main thread's


_choice = Choice()


def default_device(name: str | None = None) -> str:
    """The device of new tensors; with a name, makes it the default of this thread from now on.

    At first SHOESTRING_DEVICE decides, and without it the best device of this installation. Threads
    that have chosen none follow the main thread."""
    if name is not None:
        _choice.name = device(name).name
        if threading.current_thread() is threading.main_thread():
            Choice.first = _choice.name
    found = _choice.name or Choice.first
    if found is None:
        asked = os.environ.get("SHOESTRING_DEVICE", "auto")
        if asked == "auto":
            asked = "cpu" if "cpu" in FACTORIES else "reference"
        found = Choice.first = device(asked).name
    return found


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
