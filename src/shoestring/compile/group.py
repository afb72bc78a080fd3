"""group: small updates at the end of a plan that do not wait for each other share one launch.

A training step ends with an update for every small parameter, slot and running statistic, each
worth a microsecond or less, so that starting them would cost more than doing them. They are sorted
into levels (a step is one level above those whose result it reads, or whose old value it still has
to see) and each level runs as one launch of several programs. The plan keeps a row for each. Ops
say what can share a launch (`shares`); bits do not change.
"""

from __future__ import annotations

from .draft import Draft

MOST = 64  # steps of one launch


def group(draft: Draft) -> Draft:
    order = draft.order
    start = len(order)
    while start > 0 and is_update(draft, order[start - 1]):
        start -= 1
    last = order[start:]
    levels: dict[int, int] = {}
    for i in last:
        before = [levels[j] for j in levels if waits(draft, i, j)]
        levels[i] = max(before, default=-1) + 1
    draft.order = order[:start] + sorted(last, key=lambda i: levels[i])
    draft.groups = []
    for level in range(max(levels.values(), default=-1) + 1):
        alike: dict[str, list[int]] = {}
        for i in last:
            if levels[i] == level:
                alike.setdefault(draft.ops[i].shares, []).append(i)
        for found in alike.values():
            draft.groups += [found[k : k + MOST] for k in range(0, len(found), MOST)]
    return draft


def is_update(draft: Draft, i: int) -> bool:
    home = draft.stores.get(i)
    return home is not None and i not in draft.late and bool(draft.ops[i].shares)


def waits(draft: Draft, i: int, j: int) -> bool:
    """Whether update i must run after update j, which stands before it."""
    mine = {draft.root[k] for k in draft.ins[i]}
    theirs = {draft.root[k] for k in draft.ins[j]}
    return j in mine or draft.stores[i] in theirs or draft.stores[j] in mine
