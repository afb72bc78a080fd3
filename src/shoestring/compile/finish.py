"""finish: small arithmetic on a reduction's results runs in the kernel that makes them.

An op says whether its kernel can run a program over its results (`finished`). The pass gives it the
elementwise ops that read them, element by element, and nothing that is computed later by others:
for a batch normalisation the scale and shift of each channel, and in its gradient the factors of
the elementwise pass. What updates a state from its old value is left alone: updates run at the end
of a plan. Bits do not change.
"""

from __future__ import annotations

from heapq import heappop, heappush

from ..backends import row_major
from ..ir import OUTPUTS, Output, Spec
from .draft import Draft, reachable

MOST_ELEMENTS = 1 << 16  # of a result: what is computed early must be small
MOST_INPUTS, MOST_LINKS = 24, 24


def finish(draft: Draft) -> Draft:
    survey = Survey(draft)
    found = [
        made
        for i in sorted(survey.alive)
        if (op := draft.ops[i]) is not None
        and op.finished is not None
        and (made := Finish(survey, i).run()) is not None
    ]
    draft.redirect({i: m for made in found for i, m in made.items()})
    return draft


class Survey:
    """Of a draft, which stays as it is until all kernels have been looked at: a value joins one of
    them at most, since everything else that it reads comes before that kernel. order: positions,
    by age as far as inputs come first; number: the place of each in it."""

    def __init__(self, draft: Draft) -> None:
        self.draft, self.alive, self.readers = draft, reachable(draft), draft.readers()
        self.order = draft.by_age()
        self.number = {i: k for k, i in enumerate(self.order)}
        self.updates = self.find_updates()

    def before(self, j: int, maker: int) -> bool:
        """Whether j is known when the kernel starts. Older is not enough: a kernel that stands for
        several may be as old as one of them while j comes from another."""
        return self.number[j] < self.number[maker]

    def find_updates(self) -> set[int]:
        """What leads only to new versions of states, and reads an old one or is the new one."""
        draft, found, only = self.draft, set(), set(self.draft.stores)
        homes = {h for h in draft.stores.values() if h is not None}
        for i in reversed(self.order):
            op = draft.ops[i]
            if op is None or i not in self.alive or op.kind not in ("expr", "view", "copy"):
                continue
            if i not in draft.outputs and self.readers[i] and self.readers[i] <= only:
                only.add(i)
                reads = {self.behind(j) for j in draft.ins[i]}
                if reads & homes or self.readers[i] & set(draft.stores):
                    found.add(i)
        return found

    def behind(self, j: int) -> int:
        """The position that j looks at without a change of order: reshapes of what is
        contiguous."""
        draft = self.draft
        while (op := draft.ops[j]) is not None and op.kind == "view" and not isinstance(op, Output):
            (source,) = draft.ins[j]
            shape = draft.specs[source].shape
            if draft.specs[j].size == draft.specs[source].size:
                found = op.view(shape, row_major(shape))
                if found is not None and tuple(found[1]) == row_major(found[0]) and not found[2]:
                    j = source
                    continue
            break
        return j


class Finish:
    """The kernel at position `maker`. made: positions of its results; inside: what joins it, in
    order; others: what that reads besides."""

    def __init__(self, survey: Survey, maker: int) -> None:
        self.survey, self.draft, self.maker = survey, survey.draft, maker
        self.behind, self.readers = survey.behind, survey.readers
        count = self.draft.ops[maker].outputs
        self.made = [maker] if count == 1 else [maker + 1 + k for k in range(count)]
        self.size = self.draft.specs[self.made[0]].size
        self.inside: list[int] = []
        self.others: list[int] = []

    def run(self) -> dict[int, int] | None:
        """{value: what takes its place}, or None: the kernel stays as it is."""
        sizes = {self.draft.specs[i].size for i in self.made}
        if self.size > MOST_ELEMENTS or sizes != {self.size}:
            return None
        self.gather()
        while self.inside:
            found = self.built()
            if found is not None:
                return self.replace(*found)
            self.inside.pop()
            reads = {j for i in self.inside for j in self.draft.ins[i]}
            self.others = [j for j in self.others if j in reads]
        return None

    def gather(self) -> None:
        """Walk over what reads the results, and what joins them, oldest first."""
        waiting: list[int] = []
        seen: set[int] = set()

        def look_at(readers: set[int]) -> None:
            for r in readers - seen:
                seen.add(r)
                heappush(waiting, self.survey.number[r])

        for i in self.made:
            look_at(self.readers[i])
        while waiting:
            i = self.survey.order[heappop(waiting)]
            if self.behind(i) != i and self.known(i):
                look_at(self.readers[i])
            elif i not in self.survey.updates and self.fits(i):
                self.inside.append(i)
                self.others += [
                    j for j in self.draft.ins[i] if not self.known(j) and j not in self.others
                ]
                look_at(self.readers[i])

    def known(self, j: int) -> bool:
        j = self.behind(j)
        return j in self.made or j in self.inside

    def fits(self, i: int) -> bool:
        draft, op = self.draft, self.draft.ops[i]
        if op is None or op.joins is None or draft.specs[i].size != self.size:
            return False
        ins = draft.ins[i]
        if not any(self.known(j) for j in ins) or len(self.inside) >= MOST_LINKS:
            return False
        for j in ins:
            root = self.behind(j)
            early = draft.ops[root] is None or self.survey.before(root, self.maker)
            if not self.known(j) and not early:
                return False
        if any(draft.specs[j].size not in (1, self.size) for j in ins):
            return False
        if len({*self.others, *ins}) > MOST_INPUTS:
            return False
        return op.program([draft.specs[j].dtype for j in ins]) is not None

    def built(self):
        """(op, targets); None if no kernel could run it."""
        draft = self.draft
        values = [*self.made, *self.others, *self.inside]
        number = {j: k for k, j in enumerate(values)}
        links = [
            (
                draft.ops[i],
                tuple(number[j if j in number else self.behind(j)] for j in draft.ins[i]),
            )
            for i in self.inside
        ]
        count = len(self.made) + len(self.others)
        chain = draft.ops[self.inside[0]].joins(count, links)
        if chain.program([draft.specs[j].dtype for j in values[:count]]) is None:
            return None
        inside = set(self.inside)
        targets = [i for i in inside if i in draft.outputs or self.wanted(i, inside)]
        targets.sort()
        if len(self.made) + len(targets) > len(OUTPUTS):
            return None
        maker = self.maker
        op = draft.ops[maker].finished(
            [draft.specs[j] for j in draft.ins[maker]],
            [draft.specs[j] for j in self.made],
            chain,
            [(number[i], draft.specs[i]) for i in targets],
        )
        return None if op is None else (op, targets)

    def wanted(self, i: int, inside: set[int]) -> bool:
        """Whether somebody outside reads i, or a view of it."""
        for r in self.readers[i]:
            if r in inside:
                continue
            if self.behind(r) != i or r in self.draft.outputs or self.wanted(r, inside):
                return True
        return False

    def replace(self, op, targets: list[int]) -> dict[int, int]:
        draft, maker = self.draft, self.maker
        old = [*self.made, *targets]
        specs: tuple[Spec, ...] = tuple(draft.specs[i] for i in old)
        new = draft.add(op, [*draft.ins[maker], *self.others], specs, maker)
        moved = {}
        for k, i in enumerate(old):
            moved[i] = draft.add(OUTPUTS[k], [new], specs[k], maker)
            draft.layers[moved[i]] = draft.layers[i]
            draft.rank[i] = draft.rank[maker]
        draft.rank[new] = draft.rank[maker]
        return moved
