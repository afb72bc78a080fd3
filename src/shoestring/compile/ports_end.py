"""The port at the end of a reduction: small arithmetic on its results runs in its kernel.

The elementwise ops that read the results, element by element, and nothing that is computed later by
others, join the kernel: for a batch normalisation the scale and shift of each channel, and in its
gradient the factors of the elementwise pass. What updates a state from its old value is left alone:
updates run at the end of a plan. Bits do not change.
"""

from __future__ import annotations

from heapq import heappop, heappush

from ..backends import row_major
from ..ir import OUTPUTS, Output, Port
from .draft import Draft, reachable
from .fuse import elementwise
from .region import Region, fused

MOST_ELEMENTS = 1 << 16  # of a result: what is computed early must be small
MOST_INPUTS, MOST_LINKS = 24, 24
END = Port("end")


def end(draft: Draft) -> None:
    survey = Survey(draft)
    found = [
        made
        for i in sorted(survey.alive)
        if survey.has_end(i) and (made := Finish(survey, i).run()) is not None
    ]
    draft.redirect({i: m for made in found for i, m in made.items()})


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

    def has_end(self, i: int) -> bool:
        draft, op = self.draft, self.draft.ops[i]
        if op is None:
            return False
        outputs = draft.specs[i] if op.outputs > 1 else (draft.specs[i],)
        found = op.ports(draft.device, [draft.specs[j] for j in draft.ins[i]], outputs)
        return any(port.where == "end" for port in found)

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
        draft, ins = self.draft, self.draft.ins[i]
        if not elementwise(draft, i) or draft.specs[i].size != self.size:
            return False
        if not any(self.known(j) for j in ins) or len(self.inside) >= MOST_LINKS:
            return False
        for j in ins:
            root = self.behind(j)
            early = draft.ops[root] is None or self.survey.before(root, self.maker)
            if not self.known(j) and not early:
                return False
        if any(draft.specs[j].size not in (1, self.size) for j in ins):
            return False
        return len({*self.others, *ins}) <= MOST_INPUTS

    def built(self) -> tuple[Region, list[int], list[int]] | None:
        """(region, its inputs, its results after the kernel's own); None if no kernel could run
        it."""
        draft, maker = self.draft, self.maker
        inside = set(self.inside)
        targets = sorted(i for i in inside if i in draft.outputs or self.wanted(i, inside))
        if len(self.made) + len(targets) > len(OUTPUTS):
            return None
        inputs = list(dict.fromkeys([*draft.ins[maker], *self.others]))
        members = [(maker, None), *[(i, END) for i in self.inside]]
        region = fused(draft, inputs, members, [*self.made, *targets], self.behind)
        return (region, inputs, targets) if region.part_runs(END) else None

    def wanted(self, i: int, inside: set[int]) -> bool:
        """Whether somebody outside reads i, or a view of it."""
        for r in self.readers[i]:
            if r in inside:
                continue
            if self.behind(r) != i or r in self.draft.outputs or self.wanted(r, inside):
                return True
        return False

    def replace(self, region: Region, inputs: list[int], targets: list[int]) -> dict[int, int]:
        draft, maker = self.draft, self.maker
        old = [*self.made, *targets]
        new = draft.add(region, inputs, tuple(draft.specs[i] for i in old), maker)
        moved = {}
        for k, i in enumerate(old):
            moved[i] = draft.add(OUTPUTS[k], [new], draft.specs[i], maker)
            draft.layers[moved[i]] = draft.layers[i]
            draft.rank[i] = draft.rank[maker]
        draft.rank[new] = draft.rank[maker]
        return moved
