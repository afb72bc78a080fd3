"""Reductions over axes: sum, mean, variance, largest, smallest (reduce_products.py: product, norm).

    y[k] = combine over r of x[k, r]          r: the places along `axes`, k: the other axes

`axes` None means all; negative axes count from the end; `keepdims` leaves reduced axes with size 1.
Types: a sum of integers or bool is int64, their mean and variance are float32, the rest keep their
type. Over nothing: a sum is 0, a product 1, a mean NaN, and the largest or smallest value is an
error.

Sums go into doubles every 2,048 terms, so that their error hardly grows with their length
(ops/reduce.cpp). The kernels read any strides; the launch merges and sorts the axes, says along
which one the input is dense, and cuts long reductions to few outputs into slices: from shapes and
strides alone, so that results do not depend on threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backends import Kernel, Launch
from ..ir import MEAN, MIXED, SUM, Case, Cost, Node, Op, Port, Shape, float32, int64
from .card import strided_load
from .layout import constant, kept_block, reduction, resized, resolve
from .reduce_card import sums_card
from .reduce_sums import MOST_SUMS, Sums

ROW = 64  # the shortest row for which a sum computes what it adds up
DIVIDE = 1  # `end` of the sum kernel: divide by the divisor
CASES = (
    Case([(3, 5)]),
    Case([(2, 3, 4, 5)], dict(axes=(0, 2, 3))),
    Case([(4, 3)], dict(axes=(0,), keepdims=True)),
    Case([(2, 3, 4)], dict(axes=(-1,))),
    Case([()]),
    Case([(2, 3)], dict(axes=())),
)


class ReduceOp(Op):
    """What all reductions share.

    linear      the reduction of a sum is the sum of the reductions
    over_batch  what a reduction over the samples is to them: SUM, MEAN or MIXED
    entry       the kernel;  divides: by `divisor`
    """

    kind, cheap_to_recompute, strided = "reduce", False, True
    entry, linear, over_batch, divides = "", False, MIXED, False

    def over(self, x: Shape) -> tuple[int, ...]:
        """The reduced axes of x, sorted."""
        raise NotImplementedError

    def terms(self, x):
        return math.prod(x[k] for k in self.over(x))

    def layout(self, x: Shape) -> tuple[int, int, int] | None:
        return kept_block(x, self.over(x))

    def divisor(self, x: Shape) -> float:
        """What a sum is divided by."""
        return 1.0

    def batch_axis(self, axes, x):
        batch = axes[0]
        if not isinstance(batch, int):
            return batch if batch is None or self.linear else MIXED
        if batch in self.over(x):
            return self.over_batch
        stays = len(self.shape(x)) == len(x)
        return batch if stays else batch - sum(k < batch for k in self.over(x))

    def launch_cpu(self, device, inputs, outputs):
        (x,) = inputs
        end, divisor = (DIVIDE, self.divisor(x.shape)) if self.divides else (0, 1.0)
        return reduction(device, self.entry, x, self.over(x.shape), outputs[0].dtype, end, divisor)

    def launch_card(self, device, inputs, outputs):
        (x,) = inputs
        layout = self.sums(device, x)
        if layout is None:
            return None
        return sums_card(device, layout, [self.divisor(x.shape)], strided_load(x), 0, 1)

    def ports_cpu(self, device, inputs, outputs):
        """load: what is added up is computed piece by piece, where it lies in long rows."""
        (x,) = inputs
        kept = [k for k in range(len(x.shape)) if k not in self.over(x.shape)]
        row = math.prod(x.shape[max(kept, default=-1) + 1 :])
        fits = self.entry == "sum" and x.dtype == np.float32 and row >= ROW
        return (Port("load"),) if fits else ()

    def ports_card(self, device, inputs, outputs):
        return (Port("load"),) if self.sums(device, inputs[0]) is not None else ()

    def sums(self, device, x):
        fits = self.entry == "sum" and device.kernels and x.dtype == np.float32
        return self.layout(x.shape) if fits else None

    def merge(self, others):
        return Sums([self, *others]) if len(others) < MOST_SUMS else None

    def cost(self, x):
        return Cost(float(math.prod(x)), 4.0 * (math.prod(x) + math.prod(self.shape(x))))


@dataclass(frozen=True, eq=False)
class AxesOp(ReduceOp):
    """Reductions with `axes` and `keepdims`."""

    axes: tuple[int, ...] | None = None
    keepdims: bool = False

    def over(self, x):
        return resolve(self, self.axes, len(x))

    def shape(self, x):
        over = self.over(x)
        return tuple(
            1 if k in over else n for k, n in enumerate(x) if self.keepdims or k not in over
        )

    def spread(self, F: Any, y: Node, x: Node) -> Node:
        """y over the sizes of x: each y[k] stands at every x[k, r]."""
        over = self.over(x.shape)
        kept = tuple(1 if k in over else n for k, n in enumerate(x.shape))
        return F.expand(y if y.shape == kept else F.reshape(y, to=kept), to=x.shape)


@dataclass(frozen=True, eq=False)
class Sum(AxesOp):
    """y[k] = sum_r x[k, r]; integers and bool add up as int64."""

    name, entry, linear, over_batch = "sum", "sum", True, SUM
    cases = (
        *CASES,
        Case([(0, 3)], dict(axes=(0,))),
        Case([(3, 70)], dict(axes=(1,)), "labels 9", "int32"),
        Case([(5, 3)], dict(axes=(0,)), "bool", "bool"),
    )

    def dtype(self, x):
        return x if x.kind == "f" else int64

    def reference(self, x):
        return x.sum(self.over(x.shape), dtype=self.dtype(x.dtype), keepdims=self.keepdims)

    def gradient(self, F, dy, y, x):
        """dy[k]/dx[k, r] = 1 for every r, so dx[k, r] = dy[k]."""
        return (self.spread(F, dy, x),)


@dataclass(frozen=True, eq=False)
class SumTo(ReduceOp):
    """y = x summed over every axis along which y would be repeated to reach x. Undoes expand."""

    name, entry, linear, over_batch = "sum_to", "sum", True, SUM
    to: Shape = ()
    cases = (
        Case([(2, 3, 4)], dict(to=(3, 1))),
        Case([(2, 3)], dict(to=())),
        Case([(2, 3)], dict(to=(2, 3))),
        Case([(4, 0)], dict(to=(1,))),
        Case([(3, 2, 5, 4)], dict(to=(2, 1, 1))),
    )

    def over(self, x):
        new = len(x) - len(self.to)
        return tuple(k for k, n in enumerate(x) if k < new or n != self.to[k - new])

    def shape(self, x):
        new = len(x) - len(self.to)
        if new < 0 or any(a != b and b != 1 for a, b in zip(x[new:], self.to, strict=True)):
            self.fail(
                "shape/sum_to.to",
                f"{list(self.to)} does not broadcast to {list(x)}",
                cause="its axes must equal the last ones of the input, or be 1",
                hint="F.sum(x, axes=...)",
            )
        return self.to

    def dtype(self, x):
        return x if x.kind == "f" else int64

    def for_part(self, axis, first, count):
        return {} if axis is None else dict(to=resized(self.to, axis, count))

    def reference(self, x):
        return x.sum(self.over(x.shape), dtype=self.dtype(x.dtype)).reshape(self.to)

    def gradient(self, F, dy, y, x):
        """Every element of x is added to one of y: dx is dy repeated over the sizes of x."""
        return (F.expand(dy, to=x.shape),)


@dataclass(frozen=True, eq=False)
class Mean(AxesOp):
    """y[k] = 1/n sum_r x[k, r], n the number of r; a float always, NaN where n = 0."""

    name, entry, linear, over_batch, divides = "mean", "sum", True, MEAN, True
    cases = (
        *CASES,
        Case([(3, 0)], dict(axes=(1,))),
        Case([(3, 4)], dict(axes=(1,)), "labels 9", "uint8"),
    )

    def dtype(self, x):
        return x if x.kind == "f" else float32

    def reference(self, x):
        total = x.sum(
            self.over(x.shape),
            dtype=x.dtype if x.dtype.kind == "f" else np.float64,
            keepdims=self.keepdims,
        )
        with np.errstate(invalid="ignore"):
            return (total / np.asarray(self.terms(x.shape), total.dtype)).astype(
                self.dtype(x.dtype)
            )

    def gradient(self, F, dy, y, x):
        """dy[k]/dx[k, r] = 1/n for every r, so dx[k, r] = dy[k] / n."""
        return (self.spread(F, F.div(dy, constant(max(self.terms(x.shape), 1), dy)), x),)

    def divisor(self, x):
        return float(self.terms(x))


@dataclass(frozen=True, eq=False)
class Var(AxesOp):
    """y[k] = 1/(n - correction) sum_r (x[k, r] - m[k])^2, m the mean; NaN where that is 0/0."""

    name = "var"
    correction: float = 1
    cases = (
        *CASES[:4],
        Case([(3, 4)], dict(axes=(1,), correction=0, keepdims=True)),
        Case([(6,)], dict(), "labels 9", "int64"),
    )

    def dtype(self, x):
        return x if x.kind == "f" else float32

    def divisor(self, x: Shape) -> float:
        return float(max(self.terms(x) - self.correction, 0))

    def reference(self, x):
        over, dtype, x = (
            self.over(x.shape),
            self.dtype(x.dtype),
            x if x.dtype.kind == "f" else x.astype(np.float64),
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            m = x.sum(over, keepdims=True) / x.dtype.type(self.terms(x.shape))
            total = ((x - m) ** 2).sum(over, keepdims=self.keepdims)
            return (total / x.dtype.type(self.divisor(x.shape))).astype(dtype)

    def gradient(self, F, dy, y, x):
        """With d[r] = x[r] - m: dy/dx[r] = 1/(n - correction) (2 d[r] - 2 (1/n) sum_s d[s]).

        The second sum is 0, so dx[k, r] = dy[k] 2/(n - correction) (x[k, r] - m[k]).
        """
        divisor = self.divisor(x.shape)
        factor = F.mul(dy, constant(2 / divisor if divisor else math.nan, dy))
        return (
            F.mul(
                self.spread(F, factor, x),
                F.sub(x, F.mean(x, axes=self.over(x.shape), keepdims=True)),
            ),
        )

    def launch_cpu(self, device, inputs, outputs):
        """The mean goes to a workspace, then the squares of what is left are summed."""
        (x,) = inputs
        over = self.over(x.shape)
        first = reduction(
            device, "sum", x, over, outputs[0].dtype, DIVIDE, float(self.terms(x.shape))
        )
        if first is None or x.dtype != np.float32:
            return None
        mean, *_ = first.kernels
        partial = first.workspaces  # two kernels, one after the other, share it
        spaces = (outputs[0].size * 4, *partial)
        mean = mean._replace(buffers=(0, 2, 3)[: 2 + len(partial)])
        squares = Kernel(
            "squares", (0, 2, 1, 3)[: 3 + len(partial)], mean.integers, (self.divisor(x.shape),)
        )
        return Launch((mean, squares), spaces)


class ExtremeOp(AxesOp):
    def shape(self, x):
        if self.terms(x) == 0:
            self.fail(
                "shape/extreme.empty",
                f"the {self.name} of no elements does not exist",
                cause=f"axes {list(self.over(x))} of {list(x)} are empty",
                hint="if x.size: x.max()",
            )
        return super().shape(x)

    def gradient(self, F, dy, y, x):
        """y[k] = x[k, r] for the place r of the largest (smallest) value: dx = dy there, else 0.

        Where m places are equally good, each gets dy / m, the middle of all the slopes possible
        there. Where y is NaN so is dx.
        """
        best = F.cast(F.equal(x, self.spread(F, y, x)), to=dy.dtype.name)
        share = F.div(best, F.sum(best, axes=self.over(x.shape), keepdims=True))
        return (F.absorb(self.spread(F, dy, x), share),)


@dataclass(frozen=True, eq=False)
class Max(ExtremeOp):
    """y[k] = max_r x[k, r]; NaN wins."""

    name, entry = "max", "max"
    cases = (
        Case([(3, 5)], domains="distinct"),
        Case([(2, 3, 4, 5)], dict(axes=(0, 2, 3)), "distinct"),
        Case([(4, 3)], dict(axes=(0,), keepdims=True), "distinct"),
        Case([()]),
        Case([(3, 40)], dict(axes=(1,)), "labels 90", "int64"),
        Case([(5, 3)], dict(axes=(0,)), "bool", "bool"),
    )

    def reference(self, x):
        return x.max(self.over(x.shape), keepdims=self.keepdims)


@dataclass(frozen=True, eq=False)
class Min(ExtremeOp):
    """y[k] = min_r x[k, r]; NaN wins."""

    name, entry = "min", "min"
    cases = Max.cases

    def reference(self, x):
        return x.min(self.over(x.shape), keepdims=self.keepdims)
