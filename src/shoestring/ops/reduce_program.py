"""Several sums over the same axes of what elementwise ops compute, in one kernel.

    y_j[k] = sum_r f_j(a[k, r], b[k, r], ...) / divisor_j

The compiler makes these (compile/fuse.py): the results of the f_j are never written, and values
that several of them read are read once. Like chains they have no gradient and no place in the
registry. Kernel: reduce_program.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..backends import Kernel, Launch, Operand, row_major
from ..ir import Cost, Op, Shape
from .elementwise_program import Instruction, encode
from .finish import Finished

MOST_SUMS = 8
TASK, PIECE = 4096, 65_536  # elements of a task at least; of one slice of a long sum


class Sums(Op):
    """chain: computes the values, from `space`-shaped inputs, or None where the inputs themselves
    are summed; values: numbers of those that are summed; ends: the reductions, one per value."""

    kind, cheap_to_recompute, strided = "reduce", False, True
    cases, gradient = (), None

    def __init__(
        self, chain: Op | None, values: Sequence[int], ends: Sequence[Op], space: Shape
    ) -> None:
        self.chain, self.values, self.ends, self.space = chain, tuple(values), tuple(ends), space
        self.outputs = len(self.ends)  # type: ignore[misc]
        self.links = () if chain is None else chain.links
        links = [link.op.name for link in self.links]
        self.name = "+".join([*links, *[end.name for end in ends]])  # type: ignore[misc]

    def program_shape(self, y):
        return self.space

    def dtype(self, *dtypes):
        found = tuple(end.dtype(np.dtype("float32")) for end in self.ends)
        return found[0] if self.outputs == 1 else found

    def reference(self, *xs):
        values = list(xs) if self.chain is None else self.chain.results(xs)
        full = [np.broadcast_to(values[v], self.space) for v in self.values]
        found = tuple(end.reference(x) for end, x in zip(self.ends, full, strict=True))
        return found[0] if self.outputs == 1 else found

    def parts(self, dtypes):
        """The chain's program, see Chain.parts."""
        if self.chain is None:
            return [], (), list(range(len(dtypes)))
        return self.chain.parts(dtypes)

    def fits(self, dtypes) -> bool:
        """Whether a kernel can run it."""
        found = self.parts(dtypes)
        most = found is not None and len(found[0]) + len(self.ends) <= 40
        return most and len(self.ends) <= MOST_SUMS

    def finished(self, inputs, made, chain, targets):
        return Finished(self, len(inputs), made, chain, targets)

    def launch(self, device, inputs, outputs):
        found = self.parts([x.dtype for x in inputs]) if device.kind == "cpu" else None
        if found is None:
            return None
        instructions, constants, place = found
        first, taken = len(inputs) + len(constants), set()
        results, full = [], Operand(self.space, np.dtype("float32"), row_major(self.space))
        for v in self.values:
            number = place[v]
            if number < first or number in taken:  # an output is an instruction's, and its alone
                instructions.append(Instruction("maximum_f32", (number, number)))
                number = first + len(instructions) - 1
            taken.add(number)
            results.append((number, full))
        kernel = encode(instructions, inputs, results, constants, self.weight())
        if kernel is None:
            return None
        numbers = self.cut()
        slices, sums, kept = numbers[5], len(self.ends), numbers[1]
        divisors = [int(end.divisor(self.space)) for end in self.ends]
        n = len(inputs)
        program = kernel.renumbered([*range(n), *[-1] * sums]).as_attached("load")
        own = tuple(range(n, n + sums + 1))
        total = Kernel("program_sums", own, (*numbers, *divisors), attached=program)
        return Launch((total,), (8 * slices * sums * kept,))

    def weight(self) -> float:
        return 1.0 + sum(link.op.weight for link in self.links)

    def cut(self) -> tuple[int, ...]:
        """outer, kept, inner, total, group, slices: how the work is cut, from shapes alone."""
        outer, kept, inner = self.ends[0].layout(self.space)
        total = outer * kept * inner
        if kept == 1:
            outer, inner = -(-total // TASK), min(TASK, total)
        group = min(kept, -(-TASK // inner))
        slices = max(1, min(outer, -(-total // PIECE), -(-32 * group // kept)))
        return outer, kept, inner, total, group, slices

    def cost(self, *shapes):
        size = math.prod(self.space)
        kept = sum(math.prod(end.shape(self.space)) for end in self.ends)
        read = sum(math.prod(s) for s in shapes)
        return Cost((self.weight() + len(self.ends) - 1) * size, 4.0 * (read + kept))
