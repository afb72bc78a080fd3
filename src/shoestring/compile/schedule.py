"""schedule: in which order steps run.

The order of creation, with three exceptions. A large update (a store, and the elementwise nodes
that lead only to it) runs as soon as it can, so that its gradient's memory is free again. So does a
step that frees more memory than it takes: a weight gradient before the input gradient, since it is
the last to read the layer's input. A small update runs last: until the first store a plan may fail
or be interrupted and nothing has happened. Every store waits for all checks of data, and for all
other readers of the value it overwrites; stores that wait for each other (a swap) are computed into
memory of their own and written at the end: `late`.
"""

from __future__ import annotations

import heapq
from collections import defaultdict

from ..ir import Output
from .draft import Draft

HOIST_BYTES = 1 << 16  # updates at least this large run early


def schedule(draft: Draft) -> Draft:
    steps = set(draft.steps)
    awaits = producers(draft, steps)
    readers: dict[int, set[int]] = defaultdict(set)
    for i in steps:
        for j in draft.ins[i]:
            readers[draft.root[j]].add(i)
    checks = {i for i in steps if draft.ops[i].kind == "check"}
    need = {i: set().union(*[awaits[j] for j in draft.ins[i]]) for i in steps}
    for store in draft.stores:
        need[store] |= checks
    hold = {s: readers[h] - {s} for s, h in draft.stores.items() if h is not None}
    late = {s for s, h in draft.stores.items() if h is not None and reads_elsewhere(draft, s, h)}
    then: dict[int, list[int]] = defaultdict(list)
    for waiting in (need, hold):
        for i, before in waiting.items():
            for j in before:
                then[j].append(i)
    early = hoisted(draft)
    balance = Balance(draft, readers)
    done: set[int] = set()
    ready: list[tuple] = []
    order: list[int] = []

    def offer(i: int) -> None:
        if need[i] <= done and (i in late or i not in hold or hold[i] <= done):
            urgency = 0 if i in early else 3 if i in draft.stores else 1 if balance.frees(i) else 2
            heapq.heappush(ready, (urgency, early.get(i, 0), draft.rank[i], i))

    for i in steps:
        offer(i)
    while len(done) < len(steps):
        if not ready:  # only stores that wait for each other are left
            for s in [s for s in hold if s not in done and need[s] <= done]:
                late.add(s)
                offer(s)
        i = heapq.heappop(ready)[-1]
        if i not in done:
            done.add(i)
            order.append(i)
            for j in then[i]:
                offer(j)
            for j in balance.ran(i):
                if j not in done:
                    offer(j)
    draft.order, draft.late = order, sorted(late)
    return draft


class Balance:
    """Which steps give back more memory than they take, as the order grows."""

    def __init__(self, draft: Draft, readers: dict[int, set[int]]) -> None:
        self.draft = draft
        fixed = {*draft.leaves, *draft.stores, *[draft.root[i] for i in draft.outputs]}
        self.waiting = {root: set(found) for root, found in readers.items() if root not in fixed}

    def frees(self, i: int) -> bool:
        draft = self.draft
        last = {r for r in {draft.root[j] for j in draft.ins[i]} if self.waiting.get(r) == {i}}
        takes = sum(draft.specs[r].nbytes for r in written(draft, i))
        return sum(draft.specs[r].nbytes for r in last) > takes

    def ran(self, i: int) -> list[int]:
        """Step i has run: those that are now the only reader of something."""
        found = []
        for root in {self.draft.root[j] for j in self.draft.ins[i]}:
            left = self.waiting.get(root)
            if left is not None:
                left.discard(i)
                if len(left) == 1:
                    found += left
        return found


def written(draft: Draft, i: int) -> list[int]:
    """The positions whose memory step i writes."""
    op = draft.ops[i]
    if op.kind == "check":
        return []
    return [i] if op.outputs == 1 else [i + 1 + k for k in range(op.outputs)]


def producers(draft: Draft, steps: set[int]) -> dict[int, frozenset[int]]:
    """Which steps must have run before a position can be read. A check is one although it only
    looks."""
    found: dict[int, frozenset[int]] = {}
    for i in draft.topological():
        if i not in draft.root and i not in steps:
            continue
        if draft.ops[i] is None:
            found[i] = frozenset()
        elif i in steps:
            passes = draft.ops[i].kind == "check"
            found[i] = frozenset([i]) | (found[draft.ins[i][0]] if passes else frozenset())
        elif isinstance(draft.ops[i], Output):
            found[i] = frozenset(draft.ins[i])
        elif i in draft.fused:
            found[i] = frozenset([draft.fused[i]])  # the store that has taken it over
        else:
            found[i] = found[draft.ins[i][0]]
    return found


def reads_elsewhere(draft: Draft, store: int, home: int) -> bool:
    """A store that copies from another view of the very home it overwrites."""
    return draft.ops[store].kind == "copy" and any(
        draft.root[j] == home and j != home for j in draft.ins[store]
    )


def hoisted(draft: Draft) -> dict[int, float]:
    """{position that leads only to large updates: rank of the first of them}: one update is
    finished before the next begins. Only what comes after the gradient (an `effect`, the version
    that zero_grad() forgot): the gradient itself is computed in its turn, not before the forward
    pass."""
    early = {s: draft.rank[s] for s in draft.stores if draft.specs[s].nbytes >= HOIST_BYTES}
    consumers = draft.consumers()
    for i in reversed(range(len(draft))):
        op, readers = draft.ops[i], [c for c in consumers[i] if c not in draft.fused]
        if (
            op is not None
            and op.kind in ("expr", "view", "copy")
            and i not in draft.outputs
            and readers
            and i not in draft.stores
            and all(c in early for c in readers)
        ):
            early[i] = min(early[c] for c in readers)
    return early
