"""Convolution: the function and the layer. Formula, gradients and kernels: ops/conv.*"""

from __future__ import annotations

from numbers import Integral
from typing import Any

from ..errors import fail
from ..ir import F
from ..tensor import Tensor, wrap
from ..variable import Parameter
from . import init
from .module import Module

Pair = int | tuple[int, int]


def pair(value: Any, name: str, least: int) -> tuple[int, int]:
    """(a, b) from a or (a, b), both whole numbers not below `least`."""
    found = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(found) != 2 or not all(isinstance(n, Integral) and int(n) >= least for n in found):
        fail(
            "value/layer.pair",
            f"{name} must be a whole number of at least {least}, or two, got {value!r}",
            tensors={},
            hint=f"{name}={max(least, 1)}",
        )
    return int(found[0]), int(found[1])


def padding_of(padding: Any, H: int, W: int, R: int, S: int, stride: tuple[int, int]) -> tuple:
    """((top, bottom), (left, right)). "same" gives outputs of ceil(size / stride), the odd pixel at
    the end (the rule of TensorFlow); "valid" is no padding."""
    if padding == "valid":
        return (0, 0), (0, 0)
    if padding == "same":
        found = []
        for size, kernel, step in ((H, R, stride[0]), (W, S, stride[1])):
            total = max(0, (-(-size // step) - 1) * step + kernel - size)
            found.append((total // 2, total - total // 2))
        return tuple(found)
    if isinstance(padding, str):
        fail(
            "value/conv2d.padding",
            f"there is no padding {padding!r}",
            op="conv2d",
            tensors={},
            expected='a number, two, "same" or "valid"',
            hint='padding="same"',
        )
    vertical, horizontal = pair(padding, "padding", 0)
    return (vertical, vertical), (horizontal, horizontal)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
) -> Tensor:
    """y[n,k,p,q] = bias[k] + sum_{c,r,s} x[n, c, p*stride + r - padding, q*stride + s - padding] *
    weight[k,c,r,s]

    x        [N, C, H, W];  weight: [K, C, R, S];  bias: [K] or None
    stride   step between windows, one number or (vertical, horizontal)
    padding  zeros around the image: a number, two, "valid" (0) or "same" (output sizes ceil(size /
             stride))
    returns  [N, K, P, Q], P = (H + padding above and below - R) // stride + 1
    errors   ShapeError where channels, kernel or bias do not fit; ArgumentError for other options
    """
    if pair(dilation, "dilation", 1) != (1, 1):
        fail(
            "value/conv2d.dilation",
            f"dilation is 1 here, got {dilation}",
            op="conv2d",
            tensors={"x": x.spec},
            hint="a larger kernel_size, or a stride",
        )
    steps = pair(stride, "stride", 1)
    if x.ndim == 4 and weight.ndim == 4:
        edges = padding_of(padding, x.shape[2], x.shape[3], weight.shape[2], weight.shape[3], steps)
    else:
        edges = ((0, 0), (0, 0))  # the op complains about the rank
    y = F.conv2d(x.node, weight.node, stride=steps, padding=edges)
    if bias is not None:
        if bias.shape != weight.shape[:1]:
            fail(
                "shape/conv2d.bias",
                f"weight gives {weight.shape[0]} channels, bias has shape {list(bias.shape)}",
                op="conv2d",
                tensors={"weight": weight.spec, "bias": bias.spec},
                expected=f"bias {[weight.shape[0]]}, got {list(bias.shape)}",
                hint=f"bias=ss.zeros({weight.shape[0]})",
            )
        y = F.add(y, F.reshape(bias.node, to=(bias.size, 1, 1)))
    return wrap(y)


class Conv2D(Module):
    """conv2d with a weight [out_channels, in_channels, R, S] (Kaiming normal) and a bias
    [out_channels] (zeros)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair | str = 0,
        bias: bool = True,
    ) -> None:
        R, S = pair(kernel_size, "kernel_size", 1)
        for name, count in (("in_channels", in_channels), ("out_channels", out_channels)):
            if not isinstance(count, Integral) or int(count) < 1:
                fail(
                    "value/conv2d.channels",
                    f"{name} must be a whole number of at least 1, got {count!r}",
                    op="Conv2D",
                    tensors={},
                    hint="Conv2D(in_channels=3, out_channels=16, kernel_size=3)",
                )
        steps = pair(stride, "stride", 1)
        padding_of(padding, 1, 1, R, S, steps)  # a wrong one is an error here, not when called
        self.weight = Parameter(init.kaiming_normal((int(out_channels), int(in_channels), R, S)))
        self.bias = Parameter([0.0] * out_channels) if bias else None
        self.stride, self.padding = stride, padding

    def forward(self, x: Tensor) -> Tensor:
        return conv2d(x, self.weight, self.bias, self.stride, self.padding)

    def describe(self) -> str:
        K, C, R, S = self.weight.shape
        return f"{C}, {K}, ({R}, {S}), stride={self.stride}, padding={self.padding!r}"
