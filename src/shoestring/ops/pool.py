"""2-D pooling: the geometry of windows, and the mean of each window.

    avg_pool2d   y = mean over the window;  avg_pool2d_grad: its adjoint

Windows [kernel] move by [stride] over x[N,C,H,W] with [padding] on each side. ceil_mode: the last
window may reach over the edge, if it starts inside the image or its leading padding (PyTorch's
rule). The largest value of each window: pool_max.py. Kernels: pool.cpp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..backends import Kernel, Launch
from ..backends.device import Device
from ..ir import Case, Cost, Op, Port, Shape, Spec, batch_leads, promote_float

Pair = tuple[int, int]
BAND = 16_384  # elements of x that a kernel computes in scratch at a time


class Pool(Op):
    """Geometry shared by all pooling ops."""

    kind, cheap_to_recompute = "kernel", False
    kernel: Pair
    stride: Pair
    padding: Pair
    ceil_mode: bool
    batch_axis = batch_leads

    def sizes(self, x: Shape) -> Shape:
        return (
            x[0],
            x[1],
            *[
                self.length(n, *size)
                for n, *size in zip(x[2:], self.kernel, self.stride, self.padding, strict=True)
            ],
        )

    def length(self, n: int, kernel: int, stride: int, pad: int) -> int:
        span = n + 2 * pad - kernel
        count = (-(-span // stride) if self.ceil_mode else span // stride) + 1
        return count - 1 if self.ceil_mode and (count - 1) * stride >= n + pad else count

    def pooled(self, x: Shape) -> Shape:
        """sizes(x), with complaints."""
        if len(x) != 4:
            self.fail(
                "shape/pool.rank",
                f"needs [N, C, H, W], got {list(x)}",
                hint="x.unsqueeze(0) adds a batch axis",
            )
        if any(2 * pad > kernel for pad, kernel in zip(self.padding, self.kernel, strict=True)):
            self.fail(
                "shape/pool.padding",
                f"padding {self.padding} is more than half of the window {self.kernel}",
                cause="a window could lie in the padding alone",
                hint=f"padding={min(self.kernel) // 2}",
            )
        y = self.sizes(x)
        if min(*x[2:], *y[2:]) < 1:
            self.fail(
                "shape/pool.window",
                f"a {self.kernel[0]}x{self.kernel[1]} window does not fit a {x[2]}x{x[3]} image",
                hint=f"kernel_size={max(1, min(x[2:]))}",
            )
        return y

    def windows(self, H: int, W: int, P: int, Q: int):
        """(p, q, h range, w range) of every window, cut to the image."""
        for p in range(P):
            for q in range(Q):
                top, left = (
                    p * self.stride[0] - self.padding[0],
                    q * self.stride[1] - self.padding[1],
                )
                yield (
                    p,
                    q,
                    max(top, 0),
                    min(top + self.kernel[0], H),
                    max(left, 0),
                    min(left + self.kernel[1], W),
                )

    def divisor(self, H: int, W: int, p: int, q: int, count_include_pad: bool) -> int:
        """How many elements a window's mean is over: those of the image, or of the padded image."""
        found = 1
        for k, n, i in ((0, H, p), (1, W, q)):
            start = i * self.stride[k] - self.padding[k]
            stop = min(start + self.kernel[k], n + self.padding[k])
            found *= stop - start if count_include_pad else min(stop, n) - max(start, 0)
        return found

    def loads(self, device: Device, x: Spec) -> tuple[Port, ...]:
        """The port where rows of x are computed as windows need them; where windows of two tasks
        share rows, both compute them."""
        fits = x.dtype == np.float32
        return (Port("load"),) if fits and self.kernel[0] * x.shape[3] <= BAND else ()

    def numbers(self, x: Shape, y: Shape) -> tuple[int, ...]:
        """For kernels: planes, H, W, P, Q, kernel, stride, padding."""
        return (x[0] * x[1], x[2], x[3], y[2], y[3], *self.kernel, *self.stride, *self.padding)


class AvgPool(Pool):
    """What the mean and its adjoint share."""

    count_include_pad: bool

    def dtype(self, x):
        return promote_float(x)

    def run(self, entry: str, device, inputs, x: Shape, y: Shape):
        if inputs[0].dtype != np.float32:
            return None
        numbers = (*self.numbers(x, y), int(self.count_include_pad))
        return Launch((Kernel(entry, (0, 1), numbers),))


@dataclass(frozen=True, eq=False)
class AvgPool2D(AvgPool):
    """y[n,c,p,q] = sum over the window of x / number of its elements (padding counted if
    count_include_pad)"""

    name = "avg_pool2d"
    kernel: Pair = (2, 2)
    stride: Pair = (2, 2)
    padding: Pair = (0, 0)
    ceil_mode: bool = False
    count_include_pad: bool = True
    cases = (
        Case([(2, 2, 4, 5)]),
        Case([(1, 2, 5, 5)], dict(kernel=(3, 2), stride=(2, 1), padding=(1, 1))),
        Case(
            [(1, 2, 5, 5)],
            dict(kernel=(3, 3), padding=(1, 1), ceil_mode=True, count_include_pad=False),
        ),
    )

    def shape(self, x):
        return self.pooled(x)

    def terms(self, x):
        return math.prod(self.kernel)

    def reference(self, x):
        y = np.empty(self.sizes(x.shape), x.dtype)
        H, W = x.shape[2:]
        for p, q, top, bottom, left, right in self.windows(H, W, *y.shape[2:]):
            total = x[:, :, top:bottom, left:right].sum((2, 3))
            y[:, :, p, q] = total / self.divisor(H, W, p, q, self.count_include_pad)
        return y

    def gradient(self, F, dy, y, x):
        """Every element of a window has the weight 1 / count in its mean."""
        return (F.avg_pool2d_grad(dy, x_shape=x.shape, **self.attributes()),)

    def launch_cpu(self, device, inputs, outputs):
        return self.run("avg_pool2d", device, inputs, inputs[0].shape, outputs[0].shape)

    def ports_cpu(self, device, inputs, outputs):
        return self.loads(device, inputs[0])

    def cost(self, x):
        y = math.prod(self.sizes(x))
        return Cost(y * math.prod(self.kernel), 4.0 * (math.prod(x) + y))


@dataclass(frozen=True, eq=False)
class AvgPool2DGrad(AvgPool):
    """dx[n,c,h,w] = sum of dy[n,c,p,q] / count(p, q) over all windows that hold h, w"""

    name = "avg_pool2d_grad"
    kernel: Pair = (2, 2)
    stride: Pair = (2, 2)
    padding: Pair = (0, 0)
    ceil_mode: bool = False
    count_include_pad: bool = True
    x_shape: Shape = ()
    cases = (
        Case([(2, 2, 2, 2)], dict(x_shape=(2, 2, 4, 5))),
        Case(
            [(1, 2, 3, 6)], dict(kernel=(3, 2), stride=(2, 1), padding=(1, 1), x_shape=(1, 2, 5, 5))
        ),
    )

    def shape(self, dy):
        if self.pooled(self.x_shape) != dy:
            self.fail(
                "shape/avg_pool2d_grad.sizes",
                f"dy {list(dy)} does not belong to x {list(self.x_shape)}",
                hint="x_shape is the shape that avg_pool2d was given",
            )
        return self.x_shape

    def for_part(self, axis, first, count):
        return dict(x_shape=(count, *self.x_shape[1:]))

    def terms(self, dy):
        return math.prod(self.kernel)

    def reference(self, dy):
        dx = np.zeros(self.x_shape, dy.dtype)
        H, W = self.x_shape[2:]
        for p, q, top, bottom, left, right in self.windows(H, W, *dy.shape[2:]):
            dx[:, :, top:bottom, left:right] += dy[:, :, p : p + 1, q : q + 1] / self.divisor(
                H, W, p, q, self.count_include_pad
            )
        return dx

    def gradient(self, F, g, dx, dy):
        """Linear in dy, the adjoint of the mean: its own adjoint is the mean."""
        attributes = {k: v for k, v in self.attributes().items() if k != "x_shape"}
        return (F.avg_pool2d(g, **attributes),)

    def launch_cpu(self, device, inputs, outputs):
        return self.run("avg_pool2d_grad", device, inputs, self.x_shape, inputs[0].shape)

    def cost(self, dy):
        return Cost(
            math.prod(dy) * math.prod(self.kernel), 4.0 * (math.prod(self.x_shape) + math.prod(dy))
        )
