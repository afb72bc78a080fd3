"""A sum over an input of a kernel, computed by that kernel.

    y = g(a, b, ...),    s[k] = sum_r a[k, r]        g: a matrix product or a weight gradient

A layer's bias is added to many elements of its result, so its gradient adds up dy over them; the
gradient of the layer's weight reads dy as well, and has it in cache, packed in the order that
suits it. A buffer for the sums is attached to such a kernel at "also". They are added in another
order than by the kernel of sums: equal within rounding, and independent of threads. The compiler
makes these (compile/byproduct.py); like chains they have no gradient and no place in the registry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..backends import Attached, Launch
from ..ir import Cost, Op, Spec


class Byproduct(Op):
    """The results of `maker`, then the sum `end` of its input number `at`."""

    kind, outputs, cheap_to_recompute, cases, gradient = "kernel", 2, False, (), None

    def __init__(self, maker: Op, inputs: int, at: int, end: Op) -> None:
        self.maker, self.at, self.end = maker, at, end
        self.name = f"{maker.name}+{end.name}"  # type: ignore[misc]

    def takes_strides(self, k):
        return self.maker.takes_strides(k)

    @classmethod
    def of(
        cls,
        maker: Op,
        inputs: Sequence[Spec],
        at: int,
        end: Op,
        layout: tuple[int, int, int] | None,
    ) -> Byproduct | None:
        """None where `end` does more than add up outer and inner of input `at`, seen as `layout`
        (outer, kept, inner); or the inputs are not float32."""
        x = inputs[at].shape
        fits = layout is not None and end.layout(x) == layout and end.divisor(x) == 1
        fits = fits and all(spec.dtype == np.float32 for spec in inputs)
        return cls(maker, len(inputs), at, end) if fits else None

    def shape(self, *shapes):
        return self.maker.shape(*shapes), self.end.shape(shapes[self.at])

    def dtype(self, *dtypes):
        return self.maker.dtype(*dtypes), self.end.dtype(dtypes[self.at])

    def reference(self, *xs):
        return self.maker.reference(*xs), self.end.reference(xs[self.at])

    def launch(self, device, inputs, outputs):
        """The maker's launch with a buffer for the sums."""
        found = self.maker.launch(device, inputs, outputs[:1])
        if found is None:
            return None
        (kernel,) = found.kernels
        sums = len(inputs) + 1
        spaces = range(sums + 1, sums + 1 + len(found.workspaces))
        kernel = kernel.renumbered([*range(sums), *spaces])
        attached = (*kernel.attached, Attached("also", self.at, (sums,)))
        return Launch((kernel._replace(attached=attached),), found.workspaces)

    def cost(self, *shapes):
        maker, x = self.maker.cost(*shapes), shapes[self.at]
        more = 4.0 * math.prod(self.end.shape(x))
        return Cost(maker.flops + math.prod(x), maker.bytes + more)
