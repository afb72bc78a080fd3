"""Activations: functions, and layers that call them. All are elementwise but softmax; formulas in
ops/elementwise.py."""

from __future__ import annotations

from typing import Any

from ..ir import F
from ..tensor import Tensor, node_of, wrap
from .module import Module


def relu(x: Tensor) -> Tensor:
    """max(x, 0), elementwise; NaN stays NaN."""
    return wrap(F.relu(node_of(x)))


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """x where x > 0, else slope * x."""
    x = wrap(node_of(x))
    return wrap(F.leaky_relu(x.node, node_of(slope, x)))


def gelu(x: Tensor) -> Tensor:
    """x * Phi(x), Phi the normal distribution function, by erf (Hendrycks and Gimpel, 2016)."""
    return wrap(F.gelu(node_of(x)))


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return wrap(F.silu(node_of(x)))


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return wrap(F.sigmoid(node_of(x)))


def tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return wrap(F.tanh(node_of(x)))


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), without overflow."""
    return wrap(F.softplus(node_of(x)))


def softmax(x: Tensor, axis: int = -1, *, dim: int | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `axis`, computed without overflow."""
    x = wrap(node_of(x))
    return wrap(F.softmax(x.node, axis=x._axis(axis if dim is None else dim, "softmax")))


def log_softmax(x: Tensor, axis: int = -1, *, dim: int | None = None) -> Tensor:
    """log(softmax(x)) along `axis`, computed without overflow."""
    x = wrap(node_of(x))
    return wrap(F.log_softmax(x.node, axis=x._axis(axis if dim is None else dim, "log_softmax")))


def layer(function: Any, name: str) -> type[Module]:
    def forward(self: Module, x: Tensor) -> Tensor:
        return function(x)

    doc = f"The function `{function.__name__}` as a layer: {function.__doc__}"
    return type(name, (Module,), dict(forward=forward, __doc__=doc, __module__=__name__))


ReLU, GELU, SiLU = layer(relu, "ReLU"), layer(gelu, "GELU"), layer(silu, "SiLU")
Sigmoid, Tanh, Softplus = (
    layer(sigmoid, "Sigmoid"),
    layer(tanh, "Tanh"),
    layer(softplus, "Softplus"),
)


class LeakyReLU(Module):
    """x where x > 0, else slope * x."""

    def __init__(self, slope: float = 0.01) -> None:
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        return leaky_relu(x, self.slope)


class Softmax(Module):
    """exp(x) / sum(exp(x)) along `axis`."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return softmax(x, self.axis)
