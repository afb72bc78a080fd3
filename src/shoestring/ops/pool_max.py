"""2-D pooling by the largest value of each window.

    max_pool2d         y = max over the window, and which of its places has it: r*S + s, the first
                       among equals; NaN wins
    max_pool2d_grad    dx = dy, sent to those places (windows that overlap add up)
    max_pool2d_gather  its adjoint: g read at those places
    max_pool2d_places  the same places as h*W + w of the image

A place within the window fits a byte (an int32 for windows of more than 256), a quarter of what a
place in the image takes; it is what a training step keeps of a pooling layer. Windows: see pool.py.
Kernels: pool_max.cpp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..backends import Kernel, Launch
from ..ir import Case, Cost, Port, Shape, int32, int64, uint8
from .pool import Pair, Pool


class MaxPool(Pool):
    """What ops on places share."""

    def place_type(self) -> np.dtype:
        return uint8 if math.prod(self.kernel) <= 256 else int32

    def geometry(self) -> dict:
        """The attributes that say where windows lie."""
        return dict(kernel=self.kernel, stride=self.stride, padding=self.padding)

    def check(self, position: np.dtype) -> None:
        if position != self.place_type():
            self.fail(
                "type/max_pool2d.position",
                f"places in a {self.kernel[0]}x{self.kernel[1]} window are {self.place_type()}, "
                f"got {position}",
                hint="use the second output of F.max_pool2d",
            )

    def places(self, position: np.ndarray, H: int, W: int):
        """(h, w, whether it lies in the image) of every place."""
        P, Q = position.shape[2:]
        r, s = np.divmod(position.astype(np.int64), self.kernel[1])
        h = np.arange(P)[:, None] * self.stride[0] - self.padding[0] + r
        w = np.arange(Q) * self.stride[1] - self.padding[1] + s
        return h, w, (h >= 0) & (h < H) & (w >= 0) & (w < W)

    def run(self, entry: str, device, floats, position, x: Shape, y: Shape):
        if any(a.dtype != np.float32 for a in floats):
            return None
        numbers = (*self.numbers(x, y), position.dtype.itemsize)
        return Launch((Kernel(entry, tuple(range(len(floats) + 1)), numbers),))


@dataclass(frozen=True, eq=False)
class MaxPool2D(MaxPool):
    """y[n,c,p,q] = max over the window of x;  position = r*S + s of the first place in the window
    with that value."""

    name, outputs = "max_pool2d", 2
    kernel: Pair = (2, 2)
    stride: Pair = (2, 2)
    padding: Pair = (0, 0)
    ceil_mode: bool = False
    cases = (
        Case([(2, 2, 4, 5)], domains="distinct"),
        Case([(1, 2, 5, 5)], dict(kernel=(3, 2), stride=(2, 1), padding=(1, 1)), "distinct"),
        Case([(1, 1, 5, 4)], dict(kernel=(2, 3), stride=(2, 2), ceil_mode=True), "distinct"),
        Case([(1, 2, 18, 18)], dict(kernel=(17, 17), padding=(1, 0)), "distinct"),
    )

    def shape(self, x):
        y = self.pooled(x)
        return y, y

    def dtype(self, x):
        return x, self.place_type()

    def reference(self, x):
        N, C, P, Q = self.sizes(x.shape)
        y, position = np.empty((N, C, P, Q), x.dtype), np.empty((N, C, P, Q), self.place_type())
        for p, q, top, bottom, left, right in self.windows(*x.shape[2:], P, Q):
            window = x[:, :, top:bottom, left:right]
            window = window.reshape(N, C, math.prod(window.shape[2:]))
            best = np.where(np.isnan(window), np.inf, window).argmax(-1)
            nan = np.isnan(window)
            best = np.where(nan.any(-1), nan.argmax(-1), best)
            y[:, :, p, q] = np.take_along_axis(window, best[..., None], -1)[..., 0]
            r = best // (right - left) + top - (p * self.stride[0] - self.padding[0])
            s = best % (right - left) + left - (q * self.stride[1] - self.padding[1])
            position[:, :, p, q] = r * self.kernel[1] + s
        return y, position

    def gradient(self, F, dy, y, x):
        """Near x the maximum stays where it is: y moves as that one element does, so dy goes there
        and nowhere else."""
        if dy[0] is None:
            return (None,)
        return (F.max_pool2d_grad(dy[0], y[1], x_shape=x.shape, **self.geometry()),)

    def launch_cpu(self, device, inputs, outputs):
        y, position = outputs
        return self.run("max_pool2d", device, (*inputs, y), position, inputs[0].shape, y.shape)

    def ports_cpu(self, device, inputs, outputs):
        return self.loads(device, inputs[0])

    def cost(self, x):
        y = math.prod(self.sizes(x))
        return Cost(
            y * math.prod(self.kernel), 4.0 * (math.prod(x) + y) + y * self.place_type().itemsize
        )


class Positions(MaxPool):
    """What scatter and gather by place share."""

    def dtype(self, a, position):
        self.check(position)
        return a

    def batch_axis(self, axes, a, position):
        return 0 if axes == (0, 0) else None if axes == (None, None) else "mixed"

    def cost(self, a, position):
        places = math.prod(position)
        return Cost(places, 4.0 * (math.prod(a) + places) + places * self.place_type().itemsize)


@dataclass(frozen=True, eq=False)
class MaxPool2DGrad(Positions):
    """dx[n,c,h,w] = sum of dy[n,c,p,q] over all windows p, q whose place position[n,c,p,q] is h, w;
    the order of the sum is that of p, then q"""

    name = "max_pool2d_grad"
    x_shape: Shape = ()
    kernel: Pair = (2, 2)
    stride: Pair = (2, 2)
    padding: Pair = (0, 0)
    cases = (
        Case(
            [(2, 2, 1, 2), (2, 2, 1, 2)],
            dict(x_shape=(2, 2, 3, 4)),
            ("any", "labels 4"),
            ("float32", "uint8"),
        ),
        Case(
            [(1, 2, 3, 4), (1, 2, 3, 4)],
            dict(x_shape=(1, 2, 5, 4), kernel=(3, 2), stride=(2, 1), padding=(1, 1)),
            ("any", "labels 6"),
            ("float32", "uint8"),
        ),
    )

    def shape(self, dy, position):
        if dy != position or len(self.x_shape) != 4 or self.x_shape[:2] != dy[:2]:
            self.fail(
                "shape/max_pool2d_grad.sizes",
                f"dy {list(dy)} and positions {list(position)} do not belong to x "
                f"{list(self.x_shape)}",
                hint="both have the shape of the pooled tensor",
            )
        return self.x_shape

    def for_part(self, axis, first, count):
        return dict(x_shape=(count, *self.x_shape[1:]))

    def reference(self, dy, position):
        N, C, H, W = self.x_shape
        h, w, inside = self.places(position, H, W)
        dx = np.zeros((N * C, H * W), dy.dtype)
        rows = N * C, math.prod(dy.shape[2:])
        place = np.where(inside, h * W + w, 0).reshape(rows)
        np.add.at(dx, (np.arange(N * C)[:, None], place), np.where(inside, dy, 0).reshape(rows))
        return dx.reshape(self.x_shape)

    def ports_cpu(self, device, inputs, outputs):
        return (Port("inline"),) if outputs[0].dtype == np.float32 else ()

    def gradient(self, F, g, dx, dy, position):
        """dx is dy moved to places: dy gets g from those places."""
        return F.max_pool2d_gather(g, position, **self.geometry()), None

    def launch_cpu(self, device, inputs, outputs):
        dy, position = inputs
        floats = (dy, *outputs)
        return self.run("max_pool2d_grad", device, floats, position, self.x_shape, dy.shape)


@dataclass(frozen=True, eq=False)
class MaxPool2DGather(Positions):
    """y[n,c,p,q] = g[n,c,h,w] at the place h, w of window p, q (0 where it is padding)"""

    name = "max_pool2d_gather"
    kernel: Pair = (2, 2)
    stride: Pair = (2, 2)
    padding: Pair = (0, 0)
    cases = (
        Case(
            [(2, 2, 3, 4), (2, 2, 1, 2)], domains=("any", "labels 4"), dtypes=("float32", "uint8")
        ),
        Case(
            [(1, 2, 5, 4), (1, 2, 3, 4)],
            dict(kernel=(3, 2), stride=(2, 1), padding=(1, 1)),
            ("any", "labels 6"),
            ("float32", "uint8"),
        ),
    )

    def shape(self, g, position):
        fits = len(g) == 4 and g[:2] == position[:2]
        if not fits or (math.prod(g) == 0 and math.prod(position) > 0):
            self.fail(
                "shape/max_pool2d_gather.sizes",
                f"g {list(g)} and positions {list(position)} do not belong together",
                hint="both have the same N and C, and g has places to read",
            )
        return position

    def reference(self, g, position):
        H, W = g.shape[2:]
        h, w, inside = self.places(position, H, W)
        flat = g.reshape(*g.shape[:2], H * W)
        place = np.where(inside, h * W + w, 0).reshape(
            *position.shape[:2], math.prod(position.shape[2:])
        )
        found = np.take_along_axis(flat, place, -1).reshape(position.shape)
        return np.where(inside, found, g.dtype.type(0))

    def gradient(self, F, dy, y, g, position):
        """y reads g at places: dg gets dy at those places."""
        return F.max_pool2d_grad(dy, position, x_shape=g.shape, **self.geometry()), None

    def launch_cpu(self, device, inputs, outputs):
        g, position = inputs
        floats = (g, *outputs)
        return self.run("max_pool2d_gather", device, floats, position, g.shape, position.shape)


@dataclass(frozen=True, eq=False)
class MaxPool2DPlaces(MaxPool):
    """y[n,c,p,q] = h*W + w of the place h, w of window p, q in an image W = width wide"""

    name, gradient = "max_pool2d_places", None
    kernel: Pair = (2, 2)
    stride: Pair = (2, 2)
    padding: Pair = (0, 0)
    width: int = 1
    cases = (
        Case([(2, 2, 3, 4)], dict(width=9), "labels 4", "uint8"),
        Case(
            [(1, 2, 3, 4)],
            dict(kernel=(3, 2), stride=(2, 1), padding=(1, 1), width=4),
            "labels 6",
            "uint8",
        ),
    )

    def shape(self, position):
        return position

    def dtype(self, position):
        self.check(position)
        return int64

    def reference(self, position):
        h, w, _ = self.places(position, 0, 0)
        return h * self.width + w

    def launch_cpu(self, device, inputs, outputs):
        (position,), shape = inputs, inputs[0].shape
        numbers = (*self.numbers((*shape[:2], 0, self.width), shape), position.dtype.itemsize)
        return Launch((Kernel("max_pool2d_places", (0, 1), numbers),))

    def cost(self, position):
        places = math.prod(position)
        return Cost(4.0 * places, places * (8.0 + self.place_type().itemsize))
