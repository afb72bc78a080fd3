"""A chain of elementwise ops as one op: one kernel, one pass over memory.

    y = f_n(... f_2(f_1(a, b), c) ...), elementwise

Links are computed one after the other for a block of elements that stays in the first-level cache,
each by the same instruction as alone: a chain has the bits of its links. The compiler makes chains
(compile/fuse.py); they have no gradient and no place in the registry, since both belong to their
links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..ir import Cost, Op
from .elementwise_program import MOST_VALUES, Instruction
from .elementwise_rules import Elementwise, launched


class Link(NamedTuple):
    """One op of a chain. sources: numbers of values, the chain's inputs first, then one per
    link."""

    op: Op
    sources: tuple[int, ...]


class Chain(Op):
    """count inputs, and links of which the last gives the result."""

    kind, cheap_to_recompute, strided, inplace = "expr", True, True, True
    cases, gradient, shares = (), None, "elementwise_group"

    def __init__(self, count: int, links: Sequence[Link]) -> None:
        self.count, self.links = count, tuple(links)
        self.name = "+".join(link.op.name for link in self.links)  # type: ignore[misc]
        self.weight = sum(link.op.weight for link in self.links)

    def dtypes(self, inputs: Sequence[np.dtype]) -> list[np.dtype]:
        """The types of all values."""
        found = list(inputs)
        for op, sources in self.links:
            found.append(np.dtype(op.dtype(*[found[s] for s in sources])))
        return found

    def dtype(self, *dtypes):
        return self.dtypes(dtypes)[-1]

    def results(self, xs) -> list:
        """All values: the inputs, then what each link gives."""
        values = list(xs)
        for op, sources in self.links:
            values.append(op.reference(*[values[s] for s in sources]))
        return values

    def program_shape(self, y):
        return y.shape

    def reference(self, *xs):
        return self.results(xs)[-1]

    def parts(self, dtypes):
        """(instructions, constants, where in the program each value of the chain is); None where a
        link has no program, or they are too long."""
        types = self.dtypes(dtypes)
        parts = [op.program([types[s] for s in sources]) for op, sources in self.links]
        if any(part is None for part in parts):
            return None
        constants = tuple(c for _, found in parts for c in found)
        # the number of the first instruction's value
        first = self.count + len(constants)
        if first + sum(len(found) for found, _ in parts) > MOST_VALUES:
            return None
        place = list(range(self.count))  # chain's value -> program's value
        instructions: list[Instruction] = []
        constant = self.count
        for (_, sources), (found, own) in zip(self.links, parts, strict=True):
            names = [place[s] for s in sources] + list(range(constant, constant + len(own)))
            constant += len(own)
            for operation, reads in found:
                instructions.append(Instruction(operation, tuple(names[r] for r in reads)))
                names.append(first + len(instructions) - 1)
            place.append(names[-1])
        return instructions, constants, place

    def program(self, dtypes):
        """The programs of all links as one (see Elementwise.program)."""
        found = self.parts(dtypes)
        return None if found is None else found[:2]

    def launch(self, device, inputs, outputs):
        found = self.program([x.dtype for x in inputs])
        return None if found is None else launched(device, *found, inputs, outputs, self.weight)

    def cost(self, *shapes):
        size = max(int(np.prod(s)) for s in shapes)
        return Cost(
            float(size * len(self.links)), 4.0 * (size + sum(int(np.prod(s)) for s in shapes))
        )


def chain(count: int, links: Sequence[tuple[Op, tuple[int, ...]]]) -> Chain:
    """The chain of some ops: see Link."""
    return Chain(count, [Link(op, tuple(sources)) for op, sources in links])


Chain.joins = Elementwise.joins = staticmethod(chain)
