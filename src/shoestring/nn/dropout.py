"""Dropout: y = x * m / (1 - p), m = 0 with probability p, else 1 (Srivastava et al., 2014)."""

from __future__ import annotations

from .. import runtime
from ..errors import fail
from ..ir import F
from ..tensor import Tensor, node_of, wrap
from .module import Module


def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p), so that the mean
    stays.

    x   any shape;  p: from 0 (x itself) to 1 (zeros);  training: False gives x itself
    The mask depends on ss.seed and the number of draws before; recomputation sees the same one.
    """
    if not 0 <= p <= 1:
        fail(
            "value/dropout.p",
            f"a probability lies in [0, 1], got {p}",
            op="dropout",
            tensors={"x": x.spec},
            hint="dropout(x, p=0.5)",
        )
    if not training or p == 0:
        return x
    if p == 1:  # zeros also where x is infinite or NaN
        return wrap(F.absorb(node_of(0.0, x), x.node))
    keep = F.bernoulli(runtime.random.key(x.device), node_of(1.0 - p, x), to=x.shape)
    return wrap(F.mul(x.node, F.mul(keep, node_of(1 / (1 - p), x))))


class Dropout(Module):
    """dropout(x, p) in training, x itself in evaluation."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)

    def describe(self) -> str:
        return f"p={self.p}"
