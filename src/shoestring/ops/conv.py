"""2-D convolution. Bilinear in (x, w), so three ops close under differentiation:

    conv2d              y  = x (*) w
    conv2d_input_grad   dx = what dy says about x
    conv2d_weight_grad  dw = what dy says about w

Each is linear in both of its tensors, and the gradient of any one is built from the other two.
Sizes: x[N,C,H,W], w[K,C,R,S], y[N,K,P,Q] with P = (H + top + bottom - R) // stride + 1. Kernels:
conv.cpp, under the same names; conv.cl and conv_weights.cl. Padding is ((top, bottom), (left,
right)): the user's "same" and "valid" are resolved in nn/conv.py. No dilation, no groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..backends import Kernel, Launch
from ..ir import MIXED, SUM, Case, Cost, Op, Port, Shape, promote_float
from .conv_card import conv_card, weights_card
from .layout import kept_block

Pads = tuple[tuple[int, int], tuple[int, int]]
NONE: Pads = ((0, 0), (0, 0))
MAX_SPLITS = 8  # parts of a batch whose weight gradients are summed one by one
PIXELS = 768  # that a task of weight_grad transposes at a time (conv_weights.h)
PARTIAL = 1 << 18  # floats that these parts' sums may take together
COPIED = 1 << 19  # floats of the padded copy of an input: so many images are worked on at a time


class Conv(Op):
    """What the three share: geometry, types, cost."""

    kind, cheap_to_recompute = "kernel", False
    stride: tuple[int, int]
    padding: Pads

    def dtype(self, a, b):
        return promote_float(a, b)

    def sizes(self, x: Shape, w: Shape) -> Shape:
        """[N, K, P, Q]"""
        (top, bottom), (left, right) = self.padding
        P = (x[2] + top + bottom - w[2]) // self.stride[0] + 1
        Q = (x[3] + left + right - w[3]) // self.stride[1] + 1
        return x[0], w[0], P, Q

    def padded(self, x: np.ndarray) -> np.ndarray:
        return np.pad(x, ((0, 0), (0, 0), *self.padding))

    def taps(self, R: int, S: int, P: int, Q: int):
        """(r, s, the view of padded x that meets tap r, s): the one place that knows the
        geometry."""
        a, b = self.stride
        for r in range(R):
            for s in range(S):
                yield (
                    r,
                    s,
                    (
                        slice(None),
                        slice(None),
                        slice(r, r + a * (P - 1) + 1, a),
                        slice(s, s + b * (Q - 1) + 1, b),
                    ),
                )

    def work(self, x: Shape, w: Shape, y: Shape) -> Cost:
        return Cost(
            2.0 * math.prod(y) * math.prod(w[1:]),
            4.0 * (math.prod(x) + math.prod(w) + math.prod(y)),
        )

    def run(
        self,
        entry: str,
        device: str,
        inputs,
        outputs,
        x: Shape,
        w: Shape,
        y: Shape,
        first: int,
        image: int,
        *spaces: int,
        more: tuple[int, ...] = (),
    ):
        """One kernel; integers N C H W K R S P Q, stride, top and left padding, images at a time,
        `more`. first, spaces: floats of workspaces; image: of the copy of one image."""
        if any(o.dtype != np.float32 for o in [*inputs, *outputs]):
            return None
        sizes = (*x, w[0], *w[2:], *y[2:], *self.stride, *self.start)
        images = together(x[0], image)
        spaces = (first, images * image, *spaces)
        buffers = tuple(range(3 + len(spaces)))
        return Launch(
            (Kernel(entry, buffers, (*sizes, images, *more)),),
            tuple(4 * n + 64 for n in spaces),
        )

    @property
    def start(self) -> tuple[int, int]:
        """Padding at the top and on the left."""
        return self.padding[0][0], self.padding[1][0]

    def unfolded(self, x: Shape, w: Shape, y: Shape) -> int:
        """Floats of the copy of one image with its padding, columns sorted by their remainder of
        the stride (see conv_source.h); 0 where x itself will do."""
        if self.padding == NONE and self.stride[1] == 1:
            return 0
        rows = (y[2] - 1) * self.stride[0] + w[2]
        columns = y[3] + (w[3] - 1) // self.stride[1]
        return x[1] * rows * self.stride[1] * columns


def together(images: int, copied: int) -> int:
    """Of how many images the padded copies, of so many floats each, are made at a time."""
    return max(1, min(images, COPIED // copied if copied else images))


def turned(channels: int, lines: int, Q: int) -> int:
    """Floats of dy that all tasks of weight_grad together turn at a time: whole lines of Q pixels,
    for panels of 8, 16 or 32 channels: each panel's taps are cut into bands so that there are at
    least 16 tasks. lines: of a split."""
    all_tasks = max(channels * -(-16 * panel // channels) for panel in (8, 16, 32))
    return all_tasks * min(-(-PIXELS // Q), lines) * Q


def packed(K: int, terms: int) -> int:
    """Floats of a weight matrix cut into panels of at most 8 rows, and of the offsets (int64) of
    its taps."""
    return (K + 7) // 8 * 8 * terms + 2 * terms


@dataclass(frozen=True, eq=False)
class Conv2D(Conv):
    """y[n,k,p,q] = sum_{c,r,s} x[n, c, p*stride_0 + r - top, q*stride_1 + s - left] * w[k,c,r,s], x
    being 0 outside."""

    name = "conv2d"
    stride: tuple[int, int] = (1, 1)
    padding: Pads = NONE
    cases = (
        Case([(2, 3, 5, 6), (4, 3, 3, 2)]),
        Case([(1, 2, 6, 5), (3, 2, 3, 3)], dict(stride=(2, 2), padding=((1, 1), (1, 1)))),
        Case([(2, 1, 4, 4), (2, 1, 1, 1)], dict(stride=(1, 2))),
        Case([(2, 2, 3, 4), (1, 2, 2, 3)], dict(padding=((0, 1), (2, 0)))),
    )

    def shape(self, x, w):
        if len(x) != 4 or len(w) != 4:
            self.fail(
                "shape/conv2d.rank",
                f"needs x [N, C, H, W] and w [K, C, R, S], got {list(x)} and {list(w)}",
                hint="x.unsqueeze(0) adds a batch axis",
            )
        if x[1] != w[1]:
            self.fail(
                "shape/conv2d.channels",
                f"input has {x[1]} channels, weight expects {w[1]}",
                expected=f"weight {[w[0], x[1], *w[2:]]}, got {list(w)}",
                hint=f"Conv2D(in_channels={x[1]}, out_channels={w[0]}, "
                f"kernel_size={w[2] if w[2] == w[3] else w[2:]})",
            )
        y = self.sizes(x, w)
        if min(y[2:]) < 1:
            self.fail(
                "shape/conv2d.kernel",
                f"a {w[2]}x{w[3]} kernel does not fit a {x[2]}x{x[3]} image",
                cause=f"the padding is {self.padding[0]} and {self.padding[1]}",
                hint='padding="same", or a smaller kernel_size',
            )
        return y

    def batch_axis(self, axes, x, w):
        return axes[0] if axes[0] in (0, None) and axes[1] is None else MIXED

    def terms(self, x, w):
        return w[1] * w[2] * w[3]

    def reference(self, x, w):
        _, _, P, Q = self.sizes(x.shape, w.shape)
        xp, y = self.padded(x), np.zeros(self.sizes(x.shape, w.shape), np.result_type(x, w))
        for r, s, at in self.taps(*w.shape[2:], P, Q):
            y += np.einsum("ncpq,kc->nkpq", xp[at], w[:, :, r, s])
        return y

    def gradient(self, F, dy, y, x, w):
        """y is a sum of products x*w: dx collects dy*w over every place where x was used, dw
        collects dy*x."""
        a = dict(stride=self.stride, padding=self.padding)
        return F.conv2d_input_grad(dy, w, x_shape=x.shape, **a), F.conv2d_weight_grad(
            dy, x, w_shape=w.shape, **a
        )

    def launch_cpu(self, device, inputs, outputs):
        x, w, y = inputs[0].shape, inputs[1].shape, outputs[0].shape
        return self.run(
            "conv2d",
            device,
            inputs,
            outputs,
            x,
            w,
            y,
            packed(w[0], math.prod(w[1:])),
            self.unfolded(x, w, y),
        )

    def launch_card(self, device, inputs, outputs):
        if any(o.dtype != np.float32 for o in [*inputs, *outputs]):
            return None
        x, w, y = inputs[0].shape, inputs[1].shape, outputs[0].shape
        return conv_card(device, x, w, y, self.stride, self.start, forward=True)

    def ports_cpu(self, device, inputs, outputs):
        fits = all(s.dtype == np.float32 for s in inputs)
        return (Port("store"),) if fits else ()

    ports_card = ports_cpu

    def cost(self, x, w):
        return self.work(x, w, self.sizes(x, w))


@dataclass(frozen=True, eq=False)
class Conv2DInputGrad(Conv):
    """dx[n,c,h,w] = sum_{k,r,s} dy[n,k,p,q] * w[k,c,r,s] over all p, q with p*stride + r - top = h
    (and so for w)."""

    name = "conv2d_input_grad"
    stride: tuple[int, int] = (1, 1)
    padding: Pads = NONE
    x_shape: Shape = ()
    cases = (
        Case([(2, 4, 3, 5), (4, 3, 3, 2)], dict(x_shape=(2, 3, 5, 6))),
        Case(
            [(1, 3, 3, 3), (3, 2, 3, 3)],
            dict(stride=(2, 2), padding=((1, 1), (1, 1)), x_shape=(1, 2, 6, 5)),
        ),
    )

    def shape(self, dy, w):
        fits = len(self.x_shape) == 4 and self.sizes(self.x_shape, w) == dy
        if not fits or self.x_shape[1] != w[1] or min(dy[2:]) < 1:
            self.fail(
                "shape/conv2d_input_grad.sizes",
                f"dy {list(dy)} and w {list(w)} do not belong to x {list(self.x_shape)}",
                hint="x_shape is the shape that conv2d was given",
            )
        return self.x_shape

    def for_part(self, axis, first, count):
        return dict(x_shape=(count, *self.x_shape[1:]))

    def batch_axis(self, axes, dy, w):
        return axes[0] if axes[0] in (0, None) and axes[1] is None else MIXED

    def terms(self, dy, w):
        return w[0] * w[2] * w[3]

    def reference(self, dy, w):
        (top, bottom), (left, right) = self.padding
        N, C, H, W = self.x_shape
        dx = np.zeros((N, C, H + top + bottom, W + left + right), np.result_type(dy, w))
        for r, s, at in self.taps(*w.shape[2:], *dy.shape[2:]):
            dx[at] += np.einsum("nkpq,kc->ncpq", dy, w[:, :, r, s])
        return dx[:, :, top : top + H, left : left + W]

    def gradient(self, F, g, dx, dy, w):
        """Linear in dy (its adjoint is conv2d with w) and in w (a product g*dy per use, which
        weight_grad collects)."""
        a = dict(stride=self.stride, padding=self.padding)
        return F.conv2d(g, w, **a), F.conv2d_weight_grad(dy, g, w_shape=w.shape, **a)

    def launch_cpu(self, device, inputs, outputs):
        x, w, y = outputs[0].shape, inputs[1].shape, inputs[0].shape
        spread = y[1] * (x[2] + w[2] - 1) * (x[3] + w[3] - 1)
        return self.run(
            "conv2d_input_grad",
            device,
            inputs,
            outputs,
            x,
            w,
            y,
            packed(w[1], w[0] * w[2] * w[3]),
            spread,
        )

    def launch_card(self, device, inputs, outputs):
        if any(o.dtype != np.float32 for o in [*inputs, *outputs]):
            return None
        x, w, y = outputs[0].shape, inputs[1].shape, inputs[0].shape
        return conv_card(device, x, w, y, self.stride, self.start, forward=False)

    def ports_cpu(self, device, inputs, outputs):
        fits = all(s.dtype == np.float32 for s in inputs)
        return (Port("store"),) if fits else ()

    ports_card = ports_cpu

    def cost(self, dy, w):
        return self.work(self.x_shape, w, dy)


@dataclass(frozen=True, eq=False)
class Conv2DWeightGrad(Conv):
    """dw[k,c,r,s] = sum_{n,p,q} dy[n,k,p,q] * x[n, c, p*stride_0 + r - top, q*stride_1 + s -
    left]"""

    name = "conv2d_weight_grad"
    stride: tuple[int, int] = (1, 1)
    padding: Pads = NONE
    w_shape: Shape = ()
    cases = (
        Case([(2, 4, 3, 5), (2, 3, 5, 6)], dict(w_shape=(4, 3, 3, 2))),
        Case(
            [(1, 3, 3, 3), (1, 2, 6, 5)],
            dict(stride=(2, 2), padding=((1, 1), (1, 1)), w_shape=(3, 2, 3, 3)),
        ),
    )

    def shape(self, dy, x):
        fits = len(self.w_shape) == 4 and self.sizes(x, self.w_shape) == dy
        if not fits or x[1] != self.w_shape[1] or min(dy[2:]) < 1:
            self.fail(
                "shape/conv2d_weight_grad.sizes",
                f"dy {list(dy)} and x {list(x)} do not belong to w {list(self.w_shape)}",
                hint="w_shape is the shape that conv2d was given",
            )
        return self.w_shape

    def batch_axis(self, axes, dy, x):
        return SUM if axes == (0, 0) else None if axes == (None, None) else MIXED

    def terms(self, dy, x):
        return dy[0] * dy[2] * dy[3]

    def reference(self, dy, x):
        xp, dw = self.padded(x), np.zeros(self.w_shape, np.result_type(dy, x))
        for r, s, at in self.taps(*self.w_shape[2:], *dy.shape[2:]):
            dw[:, :, r, s] = np.einsum("nkpq,ncpq->kc", dy, xp[at])
        return dw

    def gradient(self, F, g, dw, dy, x):
        """Linear in dy (its adjoint is conv2d of x with g) and in x (dy*g per use, which input_grad
        collects)."""
        a = dict(stride=self.stride, padding=self.padding)
        return F.conv2d(x, g, **a), F.conv2d_input_grad(dy, g, x_shape=x.shape, **a)

    def launch_cpu(self, device, inputs, outputs):
        x, w, y = inputs[1].shape, outputs[0].shape, inputs[0].shape
        taps = math.prod(w[1:])
        K = -(-w[0] // 32) * 32 if w[0] > 16 else 16  # whole panels of channels
        rows = taps + 9  # whole tiles of taps, and the sums of dy
        splits = max(1, min(MAX_SPLITS, y[0] * y[2], PARTIAL // (K * rows)))
        copied = self.unfolded(x, w, y)
        lines = -(-together(x[0], copied) * y[2] // splits)
        return self.run(
            "conv2d_weight_grad",
            device,
            inputs,
            outputs,
            x,
            w,
            y,
            splits * K * rows + 2 * rows,
            copied,
            turned(splits * K, lines, y[3]),
            more=(splits, splits * K * rows),
        )

    def launch_card(self, device, inputs, outputs):
        if any(o.dtype != np.float32 for o in [*inputs, *outputs]):
            return None
        x, w, y = inputs[1].shape, outputs[0].shape, inputs[0].shape
        return weights_card(device, x, w, y, self.stride, self.start)

    def ports_cpu(self, device, inputs, outputs):
        """also: dy summed over all that belongs to a channel."""
        fits = all(s.dtype == np.float32 for s in inputs)
        return (Port("also", 0, kept_block(inputs[0].shape, (0, 2, 3))),) if fits else ()

    def cost(self, dy, x):
        return self.work(x, self.w_shape, dy)
