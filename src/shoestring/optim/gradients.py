"""Looking after gradients between backward() and step(): clipping, NaN checks, statistics.

Clipping and checking are graph: they run inside the plan, also in a compiled step, and a bad
gradient ends the plan before any parameter is stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import runtime
from ..errors import fail
from ..ir import F, Node
from ..runtime import State, guarded
from ..tensor import Tensor, wrap
from ..variable import Parameter, Variable, tensor


def with_gradients(parameters: Any) -> list[State]:
    items = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for p in items:
        if not isinstance(p, Variable):
            fail(
                "type/gradients.parameter",
                f"only Parameters have gradients to look after, got {type(p).__name__}",
                tensors={},
                hint="model.parameters(), or ss.parameters(thing)",
            )
    return [p.state for p in items if p.state.grad is not None and p.state.grad.node is not None]


def clip_grad_norm_(
    parameters: Iterable[Parameter], max_norm: float, norm_type: float = 2.0
) -> Tensor:
    """Scale all gradients by min(1, max_norm / (norm + 1e-6)), norm = (sum over all elements
    |g|^p)^(1/p).

    norm_type  p: a positive number, or math.inf for the largest |g|
    returns    the norm before clipping, a scalar tensor; 0 without gradients
    A NaN or infinite gradient is refused, with the parameter's name, and all gradients stay as they
    were.
    """
    if not max_norm >= 0 or not norm_type > 0:
        fail(
            "value/clip_grad_norm.number",
            f"max_norm must not be below 0 and norm_type above it, got {max_norm} and {norm_type}",
            op="clip_grad_norm_",
            tensors={},
            hint="ss.clip_grad_norm_(model.parameters(), max_norm=1.0)",
        )
    states = with_gradients(parameters)
    if not states:
        return tensor(0.0)
    device = states[0].node.device
    p = runtime.scalar(norm_type, device=device)
    parts = [part_of_norm(s, norm_type, p) for s in states]
    total = parts[0]
    for part in parts[1:]:
        total = F.maximum(total, part) if norm_type == math.inf else F.add(total, part)
    if len(parts) > 1:  # finite parts can have an infinite sum, which would make every gradient 0
        total = guarded(F.check_finite(total, what="the norm of all gradients together"))
    if norm_type == 2:
        total = F.sqrt(total)
    elif norm_type != math.inf:
        total = F.pow(total, F.div(runtime.scalar(1.0, device=device), p))
    limit, small = runtime.scalar(max_norm, device=device), runtime.scalar(1e-6, device=device)
    scale = F.minimum(F.div(limit, F.add(total, small)), runtime.scalar(1.0, device=device))
    runtime.assign([(s.grad, F.mul(s.grad.node, scale)) for s in states], settle=True)
    return wrap(total)


def part_of_norm(state: State, norm_type: float, p: Node) -> Node:
    """sum |g|^p of one gradient (max |g| for infinity), checked to be finite."""
    g = state.grad.node
    axes = tuple(range(len(g.shape)))
    if norm_type == math.inf:
        found = F.max(F.abs(g), axes=axes, keepdims=False)
    else:
        powers = (
            F.mul(g, g) if norm_type == 2 else F.abs(g) if norm_type == 1 else F.pow(F.abs(g), p)
        )
        found = F.sum(powers, axes=axes, keepdims=False)
    return guarded(F.check_finite(found, what=f"the norm of the gradient of {state.name}"))


def check_nan_gradients(parameters: Iterable[Parameter]) -> None:
    """Refuse gradients with a NaN or an infinity: the plan ends before anything is stored, and the
    error names the parameter. Computes nothing by itself."""
    states = with_gradients(parameters)
    runtime.assign(
        [
            (s.grad, guarded(F.check_finite(s.grad.node, what=f"the gradient of {s.name}")))
            for s in states
        ],
        settle=True,
    )


def print_tensor_stats(x: Tensor, name: str = "") -> None:
    """Print min, max, mean, std and the count of NaN and infinite values of x."""
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
