"""Pooling: functions and layers. Formulas, gradients and kernels: ops/pool.*"""

from __future__ import annotations

from typing import Any

from ..ir import F
from ..tensor import Tensor, wrap
from .conv import Pair, pair
from .module import Module


def windows(kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool) -> dict:
    kernel = pair(kernel_size, "kernel_size", 1)
    return dict(
        kernel=kernel,
        stride=kernel if stride is None else pair(stride, "stride", 1),
        padding=pair(padding, "padding", 0),
        ceil_mode=bool(ceil_mode),
    )


def max_pool2d(
    x: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Largest value of each window; the first among equals, and NaN wins.

    x               [N, C, H, W]
    kernel_size, stride, padding   one number or (vertical, horizontal); stride None: the kernel's
    size
    ceil_mode       the last window may reach over the edge
    return_indices  also the places of the maxima, int64 [N, C, P, Q], as h*W + w
    """
    geometry = windows(kernel_size, stride, padding, ceil_mode)
    y, position = F.max_pool2d(x.node, **geometry)
    if not return_indices:
        return wrap(y)
    del geometry["ceil_mode"]
    return wrap(y), wrap(F.max_pool2d_places(position, width=x.shape[3], **geometry))


def avg_pool2d(
    x: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Mean of each window of x [N, C, H, W]; count_include_pad: padding counts as zeros (see
    max_pool2d for the rest)."""
    return wrap(
        F.avg_pool2d(
            x.node,
            count_include_pad=bool(count_include_pad),
            **windows(kernel_size, stride, padding, ceil_mode),
        )
    )


class Pool2D(Module):
    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        ceil_mode: bool = False,
    ) -> None:
        windows(
            kernel_size, stride, padding, ceil_mode
        )  # complains now rather than at the first call
        self.kernel_size, self.stride, self.padding, self.ceil_mode = (
            kernel_size,
            stride,
            padding,
            ceil_mode,
        )

    def describe(self) -> str:
        stride = self.kernel_size if self.stride is None else self.stride
        return f"{self.kernel_size}, stride={stride}, padding={self.padding}"


class MaxPool2D(Pool2D):
    """max_pool2d as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        return max_pool2d(x, self.kernel_size, self.stride, self.padding, self.ceil_mode)


class AvgPool2D(Pool2D):
    """avg_pool2d as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        return avg_pool2d(x, self.kernel_size, self.stride, self.padding, self.ceil_mode)
