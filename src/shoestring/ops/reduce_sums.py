"""Several sums over the same axes, in one kernel.

    y_j[k] = sum_r x_j[k, r] / divisor_j

The compiler puts it in place of sums of one index space (compile/fuse.py). Its kernel reads nothing
but a program that computes all x_j as they are added up, so that what several of them need is read
once; it has a port at its end. Kernel: reduce_program.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..backends import Kernel, Launch
from ..ir import ALL, Cost, Op, Port
from .card import plain_load
from .reduce_card import sums_card

MOST_SUMS = 8
TASK, PIECE = 4096, 65_536  # elements of a task at least; of one slice of a long sum


class Sums(Op):
    """ends: the sums, one per input."""

    kind, cheap_to_recompute, loads_all = "reduce", False, True
    cases, gradient = (), None

    def __init__(self, ends: Sequence[Any]) -> None:
        self.ends = tuple(ends)
        self.outputs = len(self.ends)  # type: ignore[misc]
        self.name = "+".join(end.name for end in self.ends)  # type: ignore[misc]

    def takes_strides(self, k):
        return True

    def shape(self, *xs):
        return self.of_each([end.shape(x) for end, x in zip(self.ends, xs, strict=True)])

    def dtype(self, *dtypes):
        return self.of_each([end.dtype(d) for end, d in zip(self.ends, dtypes, strict=True)])

    def reference(self, *xs):
        return self.of_each([end.reference(x) for end, x in zip(self.ends, xs, strict=True)])

    def of_each(self, found: list) -> Any:
        return tuple(found) if self.outputs > 1 else found[0]

    def ports_cpu(self, device, inputs, outputs):
        return Port("load", ALL), Port("end")

    ports_card = ports_cpu

    def launch_card(self, device, inputs, outputs):
        space, n = inputs[0].shape, len(inputs)
        layout, divisors = self.ends[0].layout(space), [end.divisor(space) for end in self.ends]
        return sums_card(device, layout, divisors, plain_load(inputs[0].dtype), -1, n)

    def launch_cpu(self, device, inputs, outputs):
        space, n = inputs[0].shape, len(inputs)
        outer, kept, inner, total, group, slices = self.cut(space)
        divisors = [int(end.divisor(space)) for end in self.ends]
        numbers = (outer, kept, inner, total, group, slices, *divisors)
        kernel = Kernel("program_sums", tuple(range(n, 2 * n + 1)), numbers)
        return Launch((kernel,), (8 * slices * n * kept,))

    def cut(self, space: tuple[int, ...]) -> tuple[int, ...]:
        """outer, kept, inner, total, group, slices: how the work is cut, from shapes alone."""
        outer, kept, inner = self.ends[0].layout(space)
        total = outer * kept * inner
        if kept == 1:
            outer, inner = -(-total // TASK), min(TASK, total)
        group = min(kept, -(-TASK // inner))
        slices = max(1, min(outer, -(-total // PIECE), -(-32 * group // kept)))
        return outer, kept, inner, total, group, slices

    def cost(self, *shapes):
        size = sum(math.prod(s) for s in shapes)
        kept = sum(math.prod(end.shape(s)) for end, s in zip(self.ends, shapes, strict=True))
        return Cost(float(size), 4.0 * (size + kept))
