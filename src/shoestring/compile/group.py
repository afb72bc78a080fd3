"""group: updates that stand together share a launch.

A training step ends with an update for every small parameter, slot and running statistic, each
worth a microsecond or less, so that starting them would cost more than doing them. Where one reads,
element by element, what another has just written (a parameter its momentum), the two form a chain:
both run on a piece before the next piece, while it is in cache. A chain that waits for others in
any other way is one level above them, and each level runs as one launch of several programs. The
plan keeps a row for each. A kernel says by which other it can
share a launch (`batched_by`); bits do not change.

    groups   lists of positions: launches
    chained  positions that run piece by piece behind the position before them
"""

from __future__ import annotations

from collections.abc import Iterator

from .draft import Draft

MOST = 64  # steps of one launch
Chain = list[int]


def group(draft: Draft) -> Draft:
    old, draft.order, draft.groups, draft.chained = draft.order, [], [], set()
    updates: list[int] = []
    for i in [*old, None]:
        if i is not None and is_update(draft, i):
            updates.append(i)
            continue
        for chains in levels(draft, updates):
            for launch in launches(draft, chains):
                draft.order += launch
                draft.groups.append(launch)
        updates = []
        draft.order += [] if i is None else [i]
    return draft


def is_update(draft: Draft, i: int) -> bool:
    home = draft.stores.get(i)
    return home is not None and i not in draft.late and bool(batched_by(draft, i))


def batched_by(draft: Draft, i: int) -> str:
    """The kernel that runs several launches like that of step i as one; "" if there is none."""
    kernels, _ = draft.launches[i]
    one = kernels is not None and len(kernels) == 1 and not kernels[0].attached
    return kernels[0].batched_by if one else ""


def levels(draft: Draft, updates: list[int]) -> list[list[Chain]]:
    """Chains of neighbouring updates, in the order in which they may run. An update goes to the end
    of those chains of the highest level for which it waits, or one level higher."""
    found: list[list[Chain]] = []
    for i in updates:
        level: int = 0
        before: list[Chain] = []
        for k, chains in enumerate(found):
            waiting = [c for c in chains if any(waits(draft, i, j) for j in c)]
            if waiting:
                level, before = k + 1, waiting
        joint = [j for chain in before for j in chain]
        if joint and len(joint) < MOST and all(aligned(draft, i, j) for j in joint):
            found[level - 1] = [c for c in found[level - 1] if c not in before] + [[*joint, i]]
        elif level == len(found):
            found.append([[i]])
        else:
            found[level].append([i])
    return found


def launches(draft: Draft, chains: list[Chain]) -> Iterator[list[int]]:
    """Chains of one level as launches of at most MOST steps."""
    open_ones: dict[str, list[int]] = {}
    for chain in chains:
        kernel = batched_by(draft, chain[0])
        launch = open_ones.setdefault(kernel, [])
        if launch and len(launch) + len(chain) > MOST:
            yield launch
            launch = open_ones[kernel] = []
        launch += chain
        draft.chained.update(chain[1:])
    yield from open_ones.values()


def waits(draft: Draft, i: int, j: int) -> bool:
    """Whether update i must run after update j, which stands before it."""
    mine = {draft.root[k] for k in draft.ins[i]}
    theirs = {draft.root[k] for k in draft.ins[j]}
    return j in mine or draft.stores[i] in theirs or draft.stores[j] in mine


def aligned(draft: Draft, i: int, j: int) -> bool:
    """Whether update i may follow update j piece by piece: in what both touch, element k of each
    belongs to element k of the other."""
    if draft.specs[i].size != draft.specs[j].size or batched_by(draft, i) != batched_by(draft, j):
        return False
    reads = [k for k in draft.ins[i] if draft.root[k] in (j, draft.stores[j])]
    reads += [k for k in draft.ins[j] if draft.root[k] == draft.stores[i]]
    return all(
        draft.operand[k].contiguous and draft.specs[k].size == draft.specs[i].size for k in reads
    )
