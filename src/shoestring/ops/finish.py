"""Arithmetic on the few results of a reduction, in the kernel that makes them.

    z_t[k] = g_t(y_1[k], y_2[k], ..., a[k], b, ...)      y: the reduction's results;  g: elementwise

The kernel reduces, then runs one small program over its results (the reciprocal root of a variance,
a product with a weight), which then costs no launch of its own. Every value comes from the same
instructions as alone: bits do not change. The program is attached to the kernel at "end". The
compiler makes these (compile/finish.py); like chains they have no gradient and no place in the
registry. What it does not do: broadcast along some axes of the results; inputs have as many
elements as they, or one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..backends import Launch, Operand
from ..ir import Cost, Op, Spec
from .elementwise_program import encode


class Finished(Op):
    """maker's results, and values of a chain that reads them and further inputs.

    inputs   how many inputs the maker has; the chain's own ones follow them
    chain    an elementwise chain of the maker's results, then its own inputs
    targets  (number of a value of the chain, its shape and type): outputs after the maker's
    """

    cheap_to_recompute, cases, gradient = False, (), None

    def __init__(
        self,
        maker: Op,
        inputs: int,
        made: Sequence[Spec],
        chain: Op,
        targets: Sequence[tuple[int, Spec]],
    ) -> None:
        self.maker, self.inputs, self.made = maker, inputs, tuple(made)
        self.chain, self.targets = chain, tuple(targets)
        self.kind = maker.kind  # type: ignore[misc]
        self.outputs = len(self.made) + len(self.targets)  # type: ignore[misc]
        self.name = f"{maker.name}+{chain.name}"  # type: ignore[misc]

    def takes_strides(self, k):
        return k < self.inputs and self.maker.takes_strides(k)

    def dtype(self, *dtypes):
        return tuple(spec.dtype for spec in (*self.made, *[spec for _, spec in self.targets]))

    def reference(self, *xs):
        made = self.maker.reference(*xs[: self.inputs])
        made = made if self.maker.outputs > 1 else (made,)
        flat = [np.reshape(x, () if np.size(x) == 1 else -1) for x in (*made, *xs[self.inputs :])]
        values = self.chain.results(flat)
        return (*made, *[np.reshape(values[v], spec.shape) for v, spec in self.targets])

    def launch(self, device, inputs, outputs):
        """The maker's launch with a program at its end."""
        n, m, given, more = self.inputs, len(self.made), len(inputs), len(self.targets)
        found = self.maker.launch(device, inputs[:n], outputs[:m])
        parts = self.chain.parts([x.dtype for x in (*outputs[:m], *inputs[n:])])
        if found is None or parts is None:
            return None
        instructions, constants, place = parts
        flat = [flattened(x) for x in (*outputs[:m], *inputs[n:])]
        results = [
            (place[v], flattened(x)) for (v, _), x in zip(self.targets, outputs[m:], strict=True)
        ]
        program = encode(instructions, flat, results, constants, self.chain.weight)
        if program is None:
            return None
        spaces = range(given + m + more, given + m + more + len(found.workspaces))
        number = [*range(n), *range(given, given + m), *spaces]
        *before, last = [kernel.renumbered(number) for kernel in found.kernels]
        program = program.renumbered(
            [*range(given, given + m), *range(n, given), *range(given + m, given + m + more)]
        )
        last = last._replace(attached=(*last.attached, *program.as_attached("end")))
        return Launch((*before, last), found.workspaces)

    def cost(self, *shapes):
        maker, size = self.maker.cost(*shapes[: self.inputs]), self.made[0].size
        moved = sum(math.prod(s) for s in shapes[self.inputs :]) + size * self.outputs
        return Cost(maker.flops + size * len(self.chain.links), maker.bytes + 4.0 * moved)


def flattened(x: Operand) -> Operand:
    """A contiguous operand as one row, or as one value."""
    size = math.prod(x.shape)
    return Operand((), x.dtype, ()) if size == 1 else Operand((size,), x.dtype, (1,))
