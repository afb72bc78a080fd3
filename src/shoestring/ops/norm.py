"""What normalisation layers need of a batch: mean and variance over some axes in one op, and sums
within parts of the batch, of which those of each part can be made.

    mean = sum x / M,  variance = sum (x - mean)^2 / M  (biased), M = number of elements reduced;
                       axes stay, with size 1.

The variance is of distances from the mean, never E[x^2] - E[x]^2, which loses everything when the
mean is large. Normalising itself is elementwise (`scale_shift`), so that it can join its
neighbours. Kernel: norm.cpp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..backends import Kernel, Launch, Operand
from ..ir import MIXED, Case, Cost, Op, Port, leaf, promote_float
from .layout import copy_kernel, reduction, row_major


@dataclass(frozen=True, eq=False)
class Moments(Op):
    """mean = sum_axes x / M;  variance = sum_axes (x - mean)^2 / M"""

    name, kind, outputs, cheap_to_recompute = "moments", "reduce", 2, False
    mixes = (
        "a batch normalisation in training takes mean and variance of the batch that it sees, and "
        "those of a part are others: the result would not be that of the full batch",
        "ss.compile(step, micro_batches={parts}, allow_batchnorm_split=True), if statistics of "
        "each part will do, or model.eval()",
    )
    axes: tuple[int, ...] = (0,)
    cases = (
        Case([(3, 4, 2, 2)], dict(axes=(0, 2, 3))),
        Case([(3, 5)], dict(axes=(1,))),
        Case([(4, 3)], dict(axes=(0,))),
    )

    def shape(self, x):
        if (
            not self.axes
            or sorted(set(self.axes)) != list(self.axes)
            or not all(0 <= a < len(x) for a in self.axes)
        ):
            self.fail(
                "shape/moments.axes",
                f"axes {list(self.axes)} do not fit {len(x)} axes",
                expected=f"increasing axes from 0 to {len(x) - 1}",
                hint="axes=(0, 2, 3)",
            )
        kept = tuple(1 if k in self.axes else n for k, n in enumerate(x))
        return kept, kept

    def dtype(self, x):
        return (promote_float(x),) * 2

    def batch_axis(self, axes, x):
        found = (
            axes[0]
            if axes[0] is None or (isinstance(axes[0], int) and axes[0] not in self.axes)
            else MIXED
        )
        return found, found

    def count(self, x) -> int:
        return math.prod(x[k] for k in self.axes)

    def terms(self, x):
        return self.count(x)

    def reference(self, x):
        count = x.dtype.type(self.count(x.shape))
        with np.errstate(invalid="ignore"):  # of nothing: 0/0
            mean = x.sum(self.axes, keepdims=True) / count
            return mean, ((x - mean) ** 2).sum(self.axes, keepdims=True) / count

    def gradient(self, F, dy, y, x):
        """mean: every x has the weight 1/M. variance: d/dx_i sum_j (x_j - mean)^2 / M = 2 (x_i -
        mean) / M, as the distances from the mean add up to 0, so that the mean's own change
        contributes nothing."""
        dmean, dvariance = dy
        count = max(self.count(x.shape), 1)  # of nothing: dx is empty too
        share = leaf(np.asarray(1 / count, x.dtype), device=x.device)
        double = leaf(np.asarray(2 / count, x.dtype), device=x.device)
        parts = []
        if dvariance is not None:
            parts.append(F.mul(F.sub(x, y[0]), F.mul(dvariance, double)))
        if dmean is not None:
            parts.append(F.mul(dmean, share))
        if not parts:
            return (None,)
        dx = parts[0] if len(parts) == 1 else F.add(parts[0], parts[1])
        return (dx if dx.shape == x.shape else F.expand(dx, to=x.shape),)

    def ports_cpu(self, device, inputs, outputs):
        return (Port("end"),) if self.layout(inputs[0].shape) else ()

    def layout(self, x) -> tuple[int, int, int] | None:
        """x as [outer, kept, inner], reduced over outer and inner; None if its axes do not lie
        so."""
        first, last = self.axes[0], self.axes[-1]
        middle = [k for k in range(first, last + 1) if k not in self.axes]
        if first == 0 and last == len(x) - 1 and middle:
            start, end = middle[0], middle[-1] + 1
            if len(middle) != end - start:
                return None
            return math.prod(x[:start]), math.prod(x[start:end]), math.prod(x[end:])
        if not middle and last == len(x) - 1:  # the last axes: every row for itself
            return 1, math.prod(x[:first]), self.count(x)
        if not middle and first == 0:  # the first axes: columns
            return self.count(x), math.prod(x[last + 1 :]), 1
        return None

    def launch_cpu(self, device, inputs, outputs):
        (x,) = inputs
        layout = self.layout(x.shape)
        if x.dtype != np.float32 or layout is None:
            return None
        return Launch((Kernel("moments", (0, 1, 2), layout),))

    def cost(self, x):
        return Cost(4.0 * math.prod(x), 4.0 * math.prod(x))


@dataclass(frozen=True, eq=False)
class SumByPart(Op):
    """y[n, ...] = sum of x[m, ...] over all samples m in the part of the batch that n is in; the
    parts follow each other and have the sizes `within`."""

    name, kind, cheap_to_recompute = "sum_by_part", "reduce", False
    within: tuple[int, ...] = ()
    cases = (
        Case([(5, 3)], dict(within=(3, 2))),
        Case([(4, 3, 1, 2)], dict(within=(4,))),
        Case([(3,)], dict(within=(1, 1, 1))),
    )

    def shape(self, x):
        if not x or sum(self.within) != x[0] or min(self.within, default=0) < 1:
            self.fail(
                "shape/sum_by_part.within",
                f"parts of {list(self.within)} samples are not a batch of {x[0] if x else 'none'}",
                hint="within=(x.shape[0],)",
            )
        return x

    def batch_axis(self, axes, x):
        (batch,) = axes
        return MIXED if batch == 0 else batch

    def for_part(self, axis, first, count):
        return dict(within=(count,)) if axis == 0 else {}

    def terms(self, x):
        return max(self.within)

    def reference(self, x):
        ends = np.cumsum(self.within)
        return np.concatenate(
            [
                np.broadcast_to(x[end - size : end].sum(0, keepdims=True), (size, *x.shape[1:]))
                for end, size in zip(ends, self.within, strict=True)
            ]
        )

    def gradient(self, F, dy, y, x):
        """dy[n]/dx[m] = 1 where n and m are in one part: dx[m] is the sum of dy over m's part."""
        return (F.sum_by_part(dy, within=self.within),)

    def launch_cpu(self, device, inputs, outputs):
        """Of one part: the sum goes to a workspace, and from there to every sample."""
        (x,), (y,) = inputs, outputs
        if len(self.within) > 1 or x.dtype != np.float32:
            return None
        total = reduction(device, "sum", x, (0,), y.dtype)
        spread = Operand(y.shape, y.dtype, (0, *row_major(y.shape)[1:]))
        copy = copy_kernel(spread, row_major(y.shape), 0, (2, 1))
        if total is None or copy is None:
            return None
        (kernel,) = total.kernels
        kernel = kernel._replace(buffers=(0, 2, 3)[: len(kernel.buffers)])
        return Launch((kernel, copy), (4 * y.size // y.shape[0], *total.workspaces))

    def cost(self, x):
        return Cost(float(math.prod(x)), 8.0 * math.prod(x))
