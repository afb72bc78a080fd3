"""Looking after gradients between backward() and step(): clipping, NaN checks, statistics.

Clipping and checking are graph: they run inside the plan, also in a compiled step, and a bad
gradient ends the plan before any parameter is stored.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .. import runtime
from ..ir import F, Node
from ..runtime import State, guarded
from ..tensor import Tensor, wrap
from ..variable import Parameter, tensor
from .arguments import checked, parameter_list

HINT = "ss.clip_grad_norm_(model.parameters(), max_norm=1.0)"


def with_gradients(parameters: Any, op: str) -> list[State]:
    """The states whose gradients there are, each once; those without any are left out."""
    items = parameter_list(parameters, op, HINT.replace("clip_grad_norm_", op))
    return [p.state for p in items if runtime.present(p.state.grad) is not None]


def clip_grad_norm_(
    parameters: Iterable[Parameter], max_norm: float, norm_type: float = 2.0
) -> Tensor:
    """Scale all gradients by min(1, max_norm / (norm + 1e-6)), norm = (sum over all elements
    |g|^p)^(1/p) = M (sum (|g| / M)^p)^(1/p), M = max |g|: no power overflows or vanishes.

    parameters  a list of them, an iterator not used before, or one; those without a gradient are
                left out
    norm_type   p: a positive number, or math.inf for the largest |g|
    returns     the norm before clipping, a scalar tensor; 0 without gradients
    A NaN or infinite gradient is refused, with the parameter's name, and all gradients stay as they
    were; so is a norm of finite gradients that is above the largest float.
    """
    op = "clip_grad_norm_"
    limit = checked(op, "max_norm", max_norm, lambda v: v >= 0, "not below 0", most=math.inf)
    if isinstance(norm_type, str) and norm_type == "inf":  # as PyTorch spells it too
        norm_type = math.inf
    order = checked(op, "norm_type", norm_type, lambda v: v > 0, "above 0", most=math.inf)
    states = [s for s in with_gradients(parameters, op) if math.prod(s.node.shape)]
    if not states:
        return tensor(0.0)
    device, dtype = states[0].node.device, states[0].node.dtype
    largest = joined(F.maximum, [largest_of(s) for s in states])
    total = largest
    if order < math.inf:
        total = F.mul(largest, norm_of(states, nonzero(largest), order))
        what = f"the norm of all gradients together ({names(states)})"
        total = guarded(F.check_finite(total, what=what))
    small = runtime.scalar(1e-6, dtype, device=device)
    scale = F.div(runtime.scalar(limit, dtype, device=device), F.add(total, small))
    scale = F.minimum(scale, runtime.scalar(1.0, dtype, device=device))
    runtime.assign([(s.grad, F.mul(s.grad.node, scale)) for s in states], settle=True)
    return wrap(total)


def largest_of(state: State) -> Node:
    """max |g| of one gradient, checked to be finite."""
    g = state.grad.node
    found = F.max(F.abs(g), axes=tuple(range(len(g.shape))), keepdims=False)
    return guarded(F.check_finite(found, what=f"the norm of the gradient of {state.name}"))


def nonzero(x: Node) -> Node:
    """x, or 1 where it is 0."""
    zero, one = (runtime.scalar(v, x.dtype, device=x.device) for v in (0.0, 1.0))
    return F.where(F.equal(x, zero), one, x)


def norm_of(states: list[State], unit: Node, order: float) -> Node:
    """(sum over all elements (|g| / unit)^p)^(1/p), p = order."""
    p = runtime.scalar(order, unit.dtype, device=unit.device)
    parts = []
    for state in states:
        x = F.div(state.grad.node, unit)
        powers = F.mul(x, x) if order == 2 else F.abs(x) if order == 1 else F.pow(F.abs(x), p)
        parts.append(F.sum(powers, axes=tuple(range(len(x.shape))), keepdims=False))
    total = joined(F.add, parts)
    if order in (1, 2):
        return F.sqrt(total) if order == 2 else total
    return F.pow(total, F.div(runtime.scalar(1.0, unit.dtype, device=unit.device), p))


def names(states: list[State]) -> str:
    shown = ", ".join(str(s.name) for s in states[:3])
    return shown if len(states) <= 3 else f"{shown} and {len(states) - 3} more"


def joined(op: Callable[[Node, Node], Node], nodes: list[Node]) -> Node:
    return functools.reduce(op, nodes)


def check_nan_gradients(parameters: Iterable[Parameter]) -> None:
    """Refuse gradients with a NaN or an infinity: the plan ends before anything is stored, and the
    error names the parameter. Computes nothing by itself."""
    states = with_gradients(parameters, "check_nan_gradients")
    runtime.assign(
        [
            (s.grad, guarded(F.check_finite(s.grad.node, what=f"the gradient of {s.name}")))
            for s in states
        ],
        settle=True,
    )


def print_tensor_stats(x: Tensor, name: str = "") -> None:
    """Print min, max, mean, std and the count of NaN and infinite values of x, a tensor or what
    `ss.tensor` takes."""
    x = x if isinstance(x, Tensor) else tensor(x)
    values = np.asarray(x.numpy(), np.float64)
    finite = values[np.isfinite(values)]
    name = name or getattr(x, "name", "tensor")
    if finite.size:
        numbers = (
            f"min {finite.min():.6g}  max {finite.max():.6g}  "
            f"mean {finite.mean():.6g}  std {finite.std():.6g}"
        )
    else:
        numbers = "no finite values"
    print(
        f"{name} {list(x.shape)} {x.dtype}  {numbers}  NaN {int(np.isnan(values).sum())}  "
        f"infinite {int(np.isinf(values).sum())}"
    )
