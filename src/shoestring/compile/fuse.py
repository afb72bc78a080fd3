"""fuse: elementwise ops are computed where their results are used.

What must be in memory is what leaves the plan, what a state keeps and what a kernel reads. Each
such value that is elementwise, and each group of sums over one index space, becomes a host: one
kernel that computes everything elementwise between its inputs and its result, in one pass over
memory. Hosts are found from the end of the graph to its beginning, and a host absorbs what it reads

    if nobody else reads that;
    or if everything large that this needs is an input of the host anyway: computing it again moves
    fewer bytes than reading it, and its memory is free earlier (ReLU in front of a batch
    normalisation, seen from the backward pass);
    or if all its readers can absorb it for at most one large input: then it is never written.

Bits do not change: each value comes from the same instructions as before. Ops say what they can do
(`program`, `sums`); the pass knows none of them. It does not join into a convolution or a matrix
product.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from ..ir import ALL, OUTPUTS, Port
from .draft import Draft, reachable
from .region import fused

MOST_INPUTS, MOST_LINKS, MOST_SUMS = 12, 30, 4
CHEAP = 4.0  # operations per element that may be done twice
SMALL = 4096  # elements: sums of so few share a kernel whatever they read
LARGE = 0.25  # of the index space: what broadcasts from less costs nothing to read


def fuse(draft: Draft) -> Draft:
    for i, op in enumerate(draft.ops):
        if op is not None and op.kind != "effect":
            draft.ins[i] = [behind(draft, j) for j in draft.ins[i]]
    Cover(draft).run()
    return draft


def behind(draft: Draft, j: int) -> int:
    """The position whose value j is: versions that a newer store supersedes move no data."""
    while (op := draft.ops[j]) is not None and op.kind == "effect" and j not in draft.stores:
        if j in draft.outputs:
            break
        j = draft.ins[j][0]
    return j


def elementwise(draft: Draft, i: int) -> bool:
    """Whether a program can compute position i."""
    op = draft.ops[i]
    if op is None or op.kind != "expr" or op.serves == "add_up":
        return False
    return op.program([draft.specs[j].dtype for j in draft.ins[i]]) is not None


class Cover:
    """readers  who reads each position;  kept: what must be in memory whoever reads it
    turn     place of each position in an order with inputs first
    needed   what a host found so far reads
    groups   {sum: all sums that are computed with it}
    able     which positions asked about are joinable"""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.turn = {i: k for k, i in enumerate(draft.topological())}
        self.wanted = sorted(reachable(draft), key=self.turn.__getitem__)
        self.readers = draft.readers()
        self.kept = {*draft.outputs, *draft.stores}
        self.needed = set(self.kept)
        self.moved: dict[int, int] = {}
        self.able: dict[int, bool] = {}
        self.groups = self.grouped()

    def run(self) -> None:
        draft, done = self.draft, set()
        for i in reversed(self.wanted):
            if i in done or (i not in self.needed and not self.required(i)):
                continue
            if i in self.groups:
                done.update(self.groups[i])
                self.needed.update(self.sum(self.groups[i]))
                continue
            if self.joinable(i):
                self.join(i)
            self.needed.update(draft.ins[i])
        draft.redirect(self.moved)

    def required(self, i: int) -> bool:
        """A check, or one of several outputs."""
        op = self.draft.ops[i]
        return op is not None and (op.kind == "check" or op.outputs > 1)

    def joinable(self, i: int) -> bool:
        """Whether a kernel can compute it with others. A host stays what it was."""
        if i not in self.able:
            self.able[i] = elementwise(self.draft, i)
        return self.able[i]

    def join(self, i: int) -> None:
        """Make i a host of what it can absorb."""
        draft = self.draft
        shape = draft.specs[i].shape
        inside = self.absorbed([i], shape, {i})
        if len(inside) > 1:
            found = self.region(inside, [i])
            if found is not None:
                draft.ops[i], draft.ins[i] = found

    # ---- what a host absorbs ---------------------------------------------------------------------
    def absorbed(self, targets: Sequence[int], shape: tuple, hosts: set[int]) -> list[int]:
        """Positions that are computed inside, in order. `targets` are, where they can be."""
        inside = {t for t in targets if t in hosts or self.welcome(t, shape, set(), set(), hosts)}
        front, changed = self.frontier(inside, targets), True
        while changed:
            changed = False
            for j in sorted(front, reverse=True):
                if len(inside) < MOST_LINKS and self.welcome(j, shape, front, inside, hosts):
                    grown = self.frontier(inside | {j}, targets)
                    if len(grown) <= MOST_INPUTS:
                        inside, front, changed = inside | {j}, grown, True
        return sorted(inside)

    def frontier(self, inside: Iterable[int], targets: Sequence[int]) -> set[int]:
        """What a kernel reads that computes `inside`."""
        inside = set(inside)
        reads = {j for i in inside for j in self.draft.ins[i]}
        return (reads | set(targets)) - inside

    def welcome(self, j: int, shape: tuple, front: set, inside: set, hosts: set) -> bool:
        if not self.joinable(j) or self.draft.specs[j].shape != shape:
            return False
        if j not in self.kept and self.readers[j] <= inside | hosts:
            return True
        if not front or self.price(j) > CHEAP:
            return False
        more = self.more(j, shape, front - {j}, inside)
        return more == 0 or (more == 1 and j not in self.kept and self.all_absorb(j, shape))

    def price(self, j: int) -> float:
        """Operations per element."""
        draft = self.draft
        cost = draft.ops[j].cost(*[draft.specs[k].shape for k in draft.ins[j]])
        return cost.flops / max(draft.specs[j].size, 1)

    def more(self, j: int, shape: tuple, front: set, inside: set, depth: int = 3) -> int:
        """How many large inputs a host that reads `front` needs more, if it absorbs j."""
        found = 0
        for k in set(self.draft.ins[j]):
            if k in front or k in inside or self.draft.specs[k].size < LARGE * math.prod(shape):
                continue
            free = (
                depth > 0
                and self.joinable(k)
                and self.draft.specs[k].shape == shape
                and self.price(k) <= CHEAP
                and self.more(k, shape, front, inside, depth - 1) == 0
            )
            found += not free
        return found

    def all_absorb(self, j: int, shape: tuple) -> bool:
        return all(
            r in self.groups or (self.joinable(r) and self.draft.specs[r].shape == shape)
            for r in self.readers[j]
        )

    def region(self, inside: Sequence[int], targets: Sequence[int], sums: Sequence[int] = ()):
        """(region, inputs) of everything inside; None if no kernel could run it. sums: add up the
        targets."""
        draft = self.draft
        inputs = sorted(self.frontier(inside, targets))
        if not sums:
            found = fused(draft, inputs, [(i, None) for i in inside], targets)
        else:
            ends = [draft.ops[i] for i in sums]
            both = ends[0].merge(ends[1:])
            specs = [draft.specs[i] for i in sums]
            load = [(i, Port("load", ALL)) for i in inside]
            found = fused(draft, inputs, load, (), anchor=(both, targets, specs))
        return (found, inputs) if found.runs() else None

    # ---- sums ------------------------------------------------------------------------------------
    def grouped(self) -> dict[int, list[int]]:
        """Sums over the same axes of one index space that read something in common."""
        draft = self.draft
        alike: dict[tuple, list[int]] = defaultdict(list)
        for i in self.wanted:
            op = draft.ops[i]
            if op is None or op.kind != "reduce" or i in self.kept:
                continue
            spec = draft.specs[draft.ins[i][0]]
            layout = op.sums(draft.device, spec)
            if layout is not None:
                alike[spec.shape, layout].append(i)
        self.groups = {i: [i] for found in alike.values() for i in found}
        groups: dict[int, list[int]] = {}
        for (shape, _), found in alike.items():
            open_groups: list[tuple[list[int], set[int]]] = []
            for i in found:
                reads = self.sources(draft.ins[i][0], shape)
                for group, seen in open_groups:
                    if (
                        len(group) < MOST_SUMS
                        and (seen & reads or (math.prod(shape) <= SMALL and not self.added_up(i)))
                        and not any(self.follows(i, other) for other in group)
                    ):
                        group.append(i)
                        seen |= reads
                        break
                else:
                    open_groups.append(([i], reads))
            groups.update({i: group for group, _ in open_groups for i in group})
        return groups

    def added_up(self, i: int, steps: int = 2) -> bool:
        """Whether i is a micro-batch's part of a sum: together with those of the others it would
        keep what all of them are computed from."""
        return steps > 0 and any(
            (op := self.draft.ops[r]) is not None
            and (op.serves == "add_up" or self.added_up(r, steps - 1))
            for r in self.readers[i]
        )

    def sources(self, x: int, shape: tuple) -> set[int]:
        """The large values from which x is computed elementwise, x itself included."""
        found, stack = set(), [x]
        while stack:
            j = stack.pop()
            if j not in found and self.draft.specs[j].shape == shape:
                found.add(j)
                if self.joinable(j):
                    stack += self.draft.ins[j]
        return found

    def follows(self, i: int, other: int) -> bool:
        """Whether i is computed from `other`."""
        stack, seen = [i], set()
        while stack:
            j = stack.pop()
            if j == other:
                return True
            if self.turn[j] > self.turn[other] and j not in seen:
                seen.add(j)
                stack += self.draft.ins[j]
        return False

    def sum(self, group: list[int]) -> Iterable[int]:
        """Compute a group of sums, and what they add up, in one kernel; what is read for it."""
        draft = self.draft
        targets = [draft.ins[i][0] for i in group]
        shape = draft.specs[targets[0]].shape
        inside = self.absorbed(list(dict.fromkeys(targets)), shape, set(group))
        single = draft.specs[group[0]].size == 1 and math.prod(shape) <= SMALL
        alone = len(group) == 1 and not single  # a single number's kernel goes on: see ports.py
        alone = alone and (not inside or self.readers[targets[0]] == {group[0]})
        found = None if alone else self.region(inside, targets, group)
        if found is None:  # what only one sum reads: see ports.py
            return targets
        op, inputs = found
        if len(group) == 1:
            draft.ops[group[0]], draft.ins[group[0]] = op, inputs
            return inputs
        specs = tuple(draft.specs[i] for i in group)
        new = draft.add(op, inputs, specs, max(group))
        for k, i in enumerate(group):
            self.moved[i] = draft.add(OUTPUTS[k], [new], draft.specs[i], i)
            draft.layers[self.moved[i]] = draft.layers[i]
        return inputs
