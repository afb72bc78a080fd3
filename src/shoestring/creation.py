"""Tensors of given shapes: full, zeros, ones, arange, eye. Their values come from the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import fail
from .operands import as_data, sizes
from .runtime import default_device
from .tensor import Tensor
from .variable import tensor


def full(shape: Any, value: Any, dtype: Any = "float32", device: str | None = None) -> Tensor:
    """A tensor of `shape` with `value` everywhere. dtype None: the value's own type."""
    device = device or default_device()
    shape = sizes((shape,), "full")
    values = as_data(value, dtype, device)
    if values.shape not in ((), shape[len(shape) - values.ndim :]):
        fail(
            "shape/full.value",
            f"a value of shape {list(values.shape)} does not fill {list(shape)}",
            op="full",
            tensors={},
            hint="a number, or the last sizes of the shape",
        )
    return tensor(np.broadcast_to(values, shape), values.dtype, device)


def zeros(*shape: Any, dtype: Any = "float32", device: str | None = None) -> Tensor:
    """Zeros: ss.zeros(2, 3)."""
    return full(sizes(shape, "zeros"), 0, dtype or "float32", device)


def ones(*shape: Any, dtype: Any = "float32", device: str | None = None) -> Tensor:
    """Ones: ss.ones(2, 3)."""
    return full(sizes(shape, "ones"), 1, dtype or "float32", device)


def zeros_like(x: Tensor) -> Tensor:
    """Zeros with shape, type and device of x."""
    return full(x.shape, 0, x.dtype, x.device)


def ones_like(x: Tensor) -> Tensor:
    """Ones with shape, type and device of x."""
    return full(x.shape, 1, x.dtype, x.device)


def arange(*limits: Any, dtype: Any = None, device: str | None = None) -> Tensor:
    """start, start + step, ... before stop; int64 unless a limit is a float."""
    try:
        values = np.arange(*[x.item() if isinstance(x, Tensor) else x for x in limits])
    except (TypeError, ValueError, ArithmeticError) as problem:
        fail(
            "value/arange.limits",
            f"arange({', '.join(repr(x) for x in limits)}) is no range: {problem}",
            op="arange",
            tensors={},
            source=problem,
            hint="ss.arange(stop), or ss.arange(start, stop, step)",
        )
    return tensor(values, dtype, device)


def eye(n: int, dtype: Any = "float32", device: str | None = None) -> Tensor:
    """The n x n identity."""
    (n,) = sizes((n,), "eye")
    return tensor(np.eye(n, dtype=np.uint8), dtype or "float32", device)
