"""Linear: y = x @ weight.T + bias. Kernels: ops/matmul.*"""

from __future__ import annotations

from numbers import Integral

from ..errors import fail
from ..ir import F
from ..tensor import Tensor, wrap
from ..variable import Parameter
from . import init
from .module import Module


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias.  x: [..., in];  weight: [out, in];  bias: [out] or None;  returns [...,
    out]"""
    if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        shown = {"weight": weight.spec, **({} if bias is None else {"bias": bias.spec})}
        fail(
            "shape/linear.weight",
            "weight and bias do not belong together" if weight.ndim == 2 else "weight is no matrix",
            op="linear",
            tensors=shown,
            expected="weight [out_features, in_features], bias [out_features]",
            hint=f"bias=ss.zeros({weight.shape[0]})"
            if weight.ndim == 2
            else f"weight.reshape(1, {weight.size})",
        )
    if x.ndim < 2:
        fail(
            "shape/linear.rank",
            f"needs a batch, [N, {weight.shape[1]}], got {list(x.shape)}",
            op="linear",
            tensors={"x": x.spec, "weight": weight.spec},
            hint="x.unsqueeze(0)",
        )
    if x.shape[-1] != weight.shape[1]:
        fail(
            "shape/linear.features",
            f"input has {x.shape[-1]} features, weight expects {weight.shape[1]}",
            op="linear",
            tensors={"x": x.spec, "weight": weight.spec},
            expected=f"[..., {weight.shape[1]}], got {list(x.shape)}",
            hint=f"Linear(in_features={x.shape[-1]}, out_features={weight.shape[0]})"
            if x.ndim == 2
            else "ss.flatten(x) before the layer",
        )
    y = F.matmul(x.node, weight.node, transpose_b=True)
    return wrap(y if bias is None else F.add(y, bias.node))


class Linear(Module):
    """linear with a weight [out_features, in_features] (Kaiming normal) and a bias [out_features]
    (zeros)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        for name, count in (("in_features", in_features), ("out_features", out_features)):
            if not isinstance(count, Integral) or int(count) < 1:
                fail(
                    "value/linear.features",
                    f"{name} must be a whole number of at least 1, got {count!r}",
                    op="Linear",
                    tensors={},
                    hint="Linear(in_features=784, out_features=10)",
                )
        self.weight = Parameter(init.kaiming_normal((int(out_features), int(in_features))))
        self.bias = Parameter([0.0] * out_features) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)

    def describe(self) -> str:
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}"
