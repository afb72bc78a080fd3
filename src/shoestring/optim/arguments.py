"""What optimisers, schedules and clipping accept: parameters, and numbers.

Numbers are Python's or NumPy's, or arrays or tensors of one element, whose value is taken at that
moment. They are judged as float32, in which they enter a plan: 0.99999999 is not below 1 there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ..errors import fail
from ..tensor import Tensor
from ..variable import Variable

USUAL = dict(lr=0.1, weight_decay=0.01, eps=1e-8, max_norm=1.0, norm_type=2.0)
LARGEST = float(np.finfo(np.float32).max)


def parameter_list(things: Any, op: str, hint: str) -> list[Variable]:
    """The variables in `things` (one, or an iterable of them), each once. An iterator without any
    is an error: it has been used up before, and what was meant would be left out."""
    if isinstance(things, Tensor):
        things = [things]
    if not isinstance(things, Iterable) or hasattr(things, "parameters"):  # Sequential iterates
        fail(
            "type/optimizer.parameters",
            f"needs a list of parameters, got {type(things).__name__}",
            op=op,
            tensors={},
            hint=hint,
        )
    items = list(things)
    if not items and isinstance(things, Iterator):
        fail(
            "value/optimizer.exhausted",
            "the iterator of parameters gives none",
            op=op,
            tensors={},
            cause="it was used up by an earlier call, or its condition holds for no parameter",
            hint=f"a list, or model.parameters() anew: {hint}",
        )
    found: dict[int, Variable] = {}
    for p in items:
        if not isinstance(p, Variable):
            fail(
                "type/optimizer.parameter",
                f"takes Parameters, got {kind_of(p)}",
                op=op,
                tensors={"got": p.spec} if isinstance(p, Tensor) else {},
                hint="an optimiser of its own for each group: ss.SGD(group, lr=...)"
                if isinstance(p, dict)
                else f"model.parameters(), or ss.parameters(thing): {hint}",
            )
        found.setdefault(id(p.state), p)
    return list(found.values())


def kind_of(thing: Any) -> str:
    """How a message calls what is no parameter."""
    if isinstance(thing, Tensor):
        return "Tensor: the result of a computation, or data, which nothing trains"
    if isinstance(thing, dict):
        return "dict: there are no groups of parameters"
    return type(thing).__name__


def is_flag(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def plain(value: Any) -> int | float | None:
    """A number as Python's int or float; None if it is none."""
    if isinstance(value, (int, float)) and not is_flag(value):
        return value
    if isinstance(value, (np.generic, np.ndarray, Tensor)):
        if value.size == 1 and value.dtype.kind in "fiu":
            return (value.numpy() if isinstance(value, Tensor) else value).item()
    return None


def checked(
    op: str,
    name: str,
    value: Any,
    holds: Callable[[float], bool],
    what: str,
    most: float = LARGEST,
) -> float:
    """`value` as a float for which `holds` is true, also in float32. what: how the message calls
    the values that are allowed. most: math.inf where infinity is one of them."""
    found = plain(value)
    if found is None:
        fail(
            "type/optimizer.number",
            f"{name} must be a number, got {shown(value)}",
            op=op,
            tensors={},
            expected=what,
            hint=f"{name}={USUAL.get(name, 0.9)}",
        )
    if not (-LARGEST <= found <= most and holds(float(np.float32(min(found, LARGEST))))):
        fail(
            "value/optimizer.number",
            f"{name} must be {what}, got {shown(value)}",
            op=op,
            tensors={},
            hint=f"{name}={USUAL.get(name, 0.9)}",
        )
    return float(found) if found <= LARGEST else math.inf


def shown(value: Any) -> str:
    if isinstance(value, (np.ndarray, Tensor)):
        return f"{type(value).__name__} {list(value.shape)} {value.dtype}"
    return repr(value)
