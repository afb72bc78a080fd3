"""Typed errors with one look, and the one function through which all of them pass.

    conv2d: input has 3 channels, weight expects 4            <- what, with the op
        at  layer conv1, train.py:31                          <- layer path, the user's own line
        x:  [32, 3, 28, 28] float32 on cpu                    <- evidence: every tensor involved
        w:  [16, 4, 3, 3] float32 on cpu
        expected  weight [16, 3, 3, 3], got [16, 4, 3, 3]
        cause     the previous layer gives 3 channels
      try:  Conv2D(in_channels=3, out_channels=16, kernel_size=3)

`fail("shape/conv2d.channels", ...)` is the only way to raise in this package: its first argument
names the place and begins with the stage. `places()` reads the package's own source and lists every
such call, so nothing can be forgotten and nothing has to be registered by hand; a test asserts a
message for each of them.
"""

from __future__ import annotations

import ast
import os
import pathlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

PACKAGE = str(pathlib.Path(__file__).parent)
STAGES = ("shape", "type", "data", "compile", "launch", "value")


class ShoestringError(Exception):
    """Base of all errors raised here. `place` names where it was raised, `stage` is the place's
    first part."""

    place = ""
    stage = property(lambda self: self.place.partition("/")[0])
    what = ""
    details: dict[str, Any] = {}

    def __reduce__(self) -> tuple:
        """What goes from process to process: the text, and facts without what they are facts of."""
        facts = {name: value for name, value in vars(self).items() if name != "again"}
        facts["details"] = {
            name: {k: describe(v) for k, v in value.items()} if isinstance(value, dict) else value
            for name, value in self.details.items()
        }
        return type(self), self.args, facts


class ShapeError(ShoestringError, ValueError):
    """Shapes do not fit an operation."""


class DTypeError(ShoestringError, TypeError):
    """An element type, or the type of an argument, does not fit."""


class DataError(ShoestringError, ValueError):
    """The values themselves are wrong: a label out of range, a NaN gradient, a damaged file.

    again: raises it anew, without this one's traceback (set for checks that are part of a plan)."""

    again: Any = None


class CompileError(ShoestringError, RuntimeError):
    """A graph cannot become a plan."""


class TraceError(CompileError):
    """Something inside a compiled step cannot be traced: reading a value, a handle that leaks
    out."""


class StaleGraphError(CompileError):
    """backward() reached a value of a parameter that has been overwritten since."""


class DeviceError(ShoestringError, RuntimeError):
    """A device is unknown, missing, or failed."""


class TornStateError(DeviceError):
    """A kernel failed after parameters had begun to change. Load the last checkpoint."""


class MemoryBudgetError(DeviceError):
    """No plan fits the memory limit. Raised before anything runs.

    limit_bytes, floor_bytes: the limit, and the smallest limit that would do. again: raises it anew
    with the largest batch that fits."""

    limit_bytes = floor_bytes = 0
    again: Any = None


class ArgumentError(ShoestringError, ValueError):
    """An argument is outside what a function accepts."""


class NumberOverflowError(ArgumentError, OverflowError):
    """A number does not fit the element type that it meets."""


class OutOfRange(ArgumentError, IndexError):
    """An index is outside its axis."""


class NameUnknownError(ShoestringError, AttributeError):
    """A name does not exist; the message has the nearest one."""


class ConfigError(ShoestringError, ValueError):
    """An environment variable SHOESTRING_* is unknown or has a bad value."""


BY_STAGE = dict(
    shape=ShapeError,
    type=DTypeError,
    data=DataError,
    compile=CompileError,
    launch=DeviceError,
    value=ArgumentError,
)


class Context:
    """What a thread is at. layer: the Location of the running layer, for errors;  inputs: (name,
    description), for errors
    grad_enabled  whether what it builds is recorded for backward();  before: what it was in each
                  block around"""

    __slots__ = ("before", "grad_enabled", "inputs", "layer")

    def __init__(self) -> None:
        self.layer: Any = None
        self.inputs: tuple = ()
        self.grad_enabled, self.before = True, []


# The plain class, which is faster than one derived from it: every op that is built looks here.
local = threading.local()


def context() -> Context:
    """That of the running thread."""
    try:
        return local.context
    except AttributeError:  # the thread is new
        local.context = made = Context()
        return made


hooks: list = []  # called with the error before it is raised; see debug.on_failure


@contextmanager
def unreported() -> Iterator[None]:
    """Errors of a trial call no hook."""
    before = hooks[:]
    hooks.clear()
    try:
        yield
    finally:
        hooks[:] = before


def fail(
    place: str,
    what: str,
    *,
    op: str = "",
    tensors: Any = None,
    expected: str = "",
    cause: str = "",
    hint: str = "",
    error: type[ShoestringError] | None = None,
    layer: Any = None,
    line: str = "",
    source: BaseException | None = None,
) -> NoReturn:
    """Raise the error of `place`, in the project's one format.

    place     "stage/name", a literal; stage is one of STAGES
    what      one sentence; `op` goes before it
    tensors   {name: description or anything with .shape .dtype .device}
    expected  what was expected and what came; cause: why, when known; hint: a line to copy
    error     the class, where it is not the stage's own
    layer     where the value was built (default: the running layer); line: the user's line, where
              it was recorded
    source    the exception that led here
    """
    rows = [f"{op}: {what}" if op else what]
    layer, line = layer or context().layer, line or user_line()
    where = ", ".join([*([f"layer {layer}"] if layer else []), *([line] if line else [])])
    rows += [f"    at  {where}"] if where else []
    shown = dict(tensors) if tensors is not None else dict(context().inputs)
    width = max([len(name) for name in shown], default=0) + 1
    rows += [f"    {name + ':':{width}} {describe(value)}" for name, value in shown.items()]
    rows += [f"    expected  {expected}"] if expected else []
    rows += [f"    cause     {cause}"] if cause else []
    rows += [f"  try:  {hint}"] if hint else []
    kind = error or BY_STAGE[place.partition("/")[0]]
    problem = kind("\n".join(rows))
    problem.place, problem.what = place, what
    problem.details = dict(
        op=op, layer=str(layer) if layer else "", line=line, tensors=shown, hint=hint
    )
    for hook in list(hooks):
        hook(problem)
    try:
        raise problem from source
    finally:
        del problem  # or its traceback would hold this frame, and this frame its traceback


def describe(value: Any) -> str:
    """`[32, 3, 28, 28] float32 on cpu`"""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return str(list(value))
    text = f"{list(value.shape)} {value.dtype}"
    return f"{text} on {value.device}" if getattr(value, "device", None) else text


def user_line() -> str:
    """`train.py:31`: the innermost line outside this package, or "" when there is none."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith("<frozen"):
        return ""
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def places() -> dict[str, str]:
    """{place: "file:line"} of every `fail("...")` in the package, read from its source."""
    found: dict[str, str] = {}
    for path in sorted(pathlib.Path(PACKAGE).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "attr", getattr(node.func, "id", "")) == "fail"
            ):
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    found[first.value] = f"{path.relative_to(PACKAGE)}:{node.lineno}"
    return found


def nearest(name: str, known: Any) -> str:
    """The known name most like `name`, or ""."""
    import difflib

    matches = difflib.get_close_matches(name, list(known), 1, 0.5)
    return matches[0] if matches else ""
