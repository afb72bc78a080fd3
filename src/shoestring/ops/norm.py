"""Mean and variance over some axes in one op: what normalisation layers need of a batch.

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

from ..backends import Kernel, Launch
from ..ir import MIXED, Case, Cost, Op, leaf, promote_float
from .finish import Finished


@dataclass(frozen=True, eq=False)
class Moments(Op):
    """mean = sum_axes x / M;  variance = sum_axes (x - mean)^2 / M"""

    name, kind, outputs, cheap_to_recompute = "moments", "reduce", 2, False
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
        mean = x.mean(self.axes, keepdims=True)
        return mean, ((x - mean) ** 2).mean(self.axes, keepdims=True)

    def gradient(self, F, dy, y, x):
        """mean: every x has the weight 1/M. variance: d/dx_i sum_j (x_j - mean)^2 / M = 2 (x_i -
        mean) / M, as the distances from the mean add up to 0, so that the mean's own change
        contributes nothing."""
        dmean, dvariance = dy
        share = leaf(np.asarray(1 / self.count(x.shape), x.dtype), device=x.device)
        double = leaf(np.asarray(2 / self.count(x.shape), x.dtype), device=x.device)
        parts = []
        if dvariance is not None:
            parts.append(F.mul(F.sub(x, y[0]), F.mul(dvariance, double)))
        if dmean is not None:
            parts.append(F.mul(dmean, share))
        if not parts:
            return (None,)
        dx = parts[0] if len(parts) == 1 else F.add(parts[0], parts[1])
        return (dx if dx.shape == x.shape else F.expand(dx, to=x.shape),)

    def finished(self, inputs, made, chain, targets):
        if self.layout(inputs[0].shape) is None:
            return None
        return Finished(self, len(inputs), made, chain, targets)

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

    def launch(self, device, inputs, outputs):
        (x,) = inputs
        layout = self.layout(x.shape)
        if device != "cpu" or x.dtype != np.float32 or layout is None:
            return None
        return Launch((Kernel("moments", (0, 1, 2), (*layout, 0)),))

    def cost(self, x):
        return Cost(4.0 * math.prod(x), 4.0 * math.prod(x))
