"""Where the largest or smallest value is.

    argmax   y[k] = the first r with x[k, r] = max_r x[k, r]
    argmin   y[k] = the first r with x[k, r] = min_r x[k, r]

One axis; positions are int64. A NaN counts as larger and as smaller than everything, as in NumPy,
so that argmax points at what max returns. Positions have no gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..ir import MIXED, Case, Cost, Op, int64
from .layout import reduction, resolve


@dataclass(frozen=True, eq=False)
class PositionOp(Op):
    """axis: the axis searched; keepdims: it stays, with size 1."""

    kind, cheap_to_recompute, strided = "reduce", False, True
    gradient = None
    axis: int = -1
    keepdims: bool = False
    cases = (
        Case([(3, 5)], dict(axis=1)),
        Case([(4, 3)], dict(axis=0, keepdims=True)),
        Case([(2, 70, 3)], dict(axis=1)),
        Case([(6,)], domains="=2"),
        Case([(3, 40)], dict(), "labels 9", "int64"),
        Case([(3, 4)], dict(), "bool", "bool"),
    )

    def shape(self, x):
        (axis,) = resolve(self, (self.axis,), len(x))
        if x[axis] == 0:
            self.fail(
                "shape/position.empty",
                f"axis {axis} is empty: there is no place to point at",
                hint="if x.size: x.argmax(-1)",
            )
        return (*x[:axis], *((1,) if self.keepdims else ()), *x[axis + 1 :])

    def dtype(self, x):
        return int64

    def batch_axis(self, axes, x):
        (axis,), batch = resolve(self, (self.axis,), len(x)), axes[0]
        if not isinstance(batch, int):
            return None if batch is None else MIXED
        return MIXED if batch == axis else batch - (batch > axis and not self.keepdims)

    def launch_cpu(self, device, inputs, outputs):
        (x,) = inputs
        return reduction(
            device, self.name, x, resolve(self, (self.axis,), len(x.shape)), int64, cut=False
        )

    def cost(self, x):
        return Cost(float(math.prod(x)), 4.0 * math.prod(x) + 8.0 * math.prod(self.shape(x)))


@dataclass(frozen=True, eq=False)
class ArgMax(PositionOp):
    """y[k] = the first r along `axis` at which x[k, r] is largest; NaN is largest."""

    name = "argmax"

    def reference(self, x):
        return np.argmax(x, self.axis, keepdims=self.keepdims)


@dataclass(frozen=True, eq=False)
class ArgMin(PositionOp):
    """y[k] = the first r along `axis` at which x[k, r] is smallest; NaN is smallest."""

    name = "argmin"

    def reference(self, x):
        return np.argmin(x, self.axis, keepdims=self.keepdims)
