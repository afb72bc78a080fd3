"""Reductions over axes that multiply: the Euclidean norm, the product. See reduce.py."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..ir import Case, int64
from .layout import halves
from .reduce import CASES, AxesOp


@dataclass(frozen=True, eq=False)
class Norm(AxesOp):
    """y[k] = sqrt(sum_r x[k, r]^2); its gradient at 0 is 0."""

    name, entry = "norm", "norm"
    cases = CASES

    def dtype(self, x):
        if x.kind != "f":
            self.fail("type/norm.dtype", f"needs floats, got {x}", hint="x.float()")
        return x

    def reference(self, x):
        return np.sqrt((x * x).sum(self.over(x.shape), keepdims=self.keepdims))

    def gradient(self, F, dy, y, x):
        """y^2 = sum_r x[r]^2 gives dy/dx[r] = x[r] / y, so dx[k, r] = x[k, r] dy[k] / y[k].

        Where y = 0 every x is 0 and y has a kink: of the slopes possible there, 0 is taken
        (`absorb` gives 0 where its first argument is 0).
        """
        return (F.absorb(x, self.spread(F, F.div(dy, y), x)),)


@dataclass(frozen=True, eq=False)
class Prod(AxesOp):
    """y[k] = product over r of x[k, r]."""

    name, entry = "prod", "prod"
    cases = (*CASES, Case([(3, 0)], dict(axes=(1,))), Case([(7,)]))

    def dtype(self, x):
        return x if x.kind == "f" else int64

    def reference(self, x):
        return x.prod(self.over(x.shape), dtype=self.dtype(x.dtype), keepdims=self.keepdims)

    def gradient(self, F, dy, y, x):
        """dx[r] = dy * product of x[s] over s != r.

        (y / x[r] would be 0/0 where some x is 0.) The terms stand at the leaves of a binary tree
        whose nodes are products of their two children; from the root down, each child gets what its
        parent has, times its sibling. An odd one out goes up, and gets down, unchanged.
        """
        over = self.over(x.shape)
        order = tuple(k for k in range(len(x.shape)) if k not in over) + over
        kept, n = tuple(x.shape[k] for k in order[: len(order) - len(over)]), self.terms(x.shape)
        levels = [F.reshape(F.transpose(x, axes=order), to=(*kept, n))]
        while levels[-1].shape[-1] > 1:
            pairs, odd = halves(F, levels[-1])
            products = F.prod(pairs, axes=(-1,))
            levels.append(F.concat(products, odd, axis=len(kept)) if odd is not None else products)
        dx = F.reshape(dy, to=(*kept, 1)) if n else levels[0]
        for level in reversed(levels[:-1]):
            pairs, odd = halves(F, level)
            above = F.slice(dx, index=(*[(0, k, 1) for k in kept], (0, pairs.shape[-2], 1)))
            above = F.expand(F.reshape(above, to=(*above.shape, 1)), to=pairs.shape)
            down = F.mul(above, F.flip(pairs, axes=(len(kept) + 1,)))
            down = F.reshape(down, to=(*kept, 2 * pairs.shape[-2]))
            rest = (*[(0, k, 1) for k in kept], (dx.shape[-1] - 1, dx.shape[-1], 1))
            dx = (
                F.concat(down, F.slice(dx, index=rest), axis=len(kept)) if odd is not None else down
            )
        dx = F.reshape(dx, to=tuple(x.shape[k] for k in order))
        return (F.transpose(dx, axes=tuple(int(k) for k in np.argsort(order))),)

    def launch_cpu(self, device, inputs, outputs):
        floats = inputs[0].dtype == np.float32
        return super().launch_cpu(device, inputs, outputs) if floats else None
