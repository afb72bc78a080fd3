"""fuse: an elementwise op that only one other reads, in the same shape, is computed inside it.

Two passes over memory become one, and the result in between needs no buffer. Bits do not change:
each value comes from the same instruction as before. Ops say how they join (`joins`); the pass
knows none of them. It does not join across a value that leaves the plan or that a state keeps, nor
into a reduction, a convolution or a matrix product.
"""

from __future__ import annotations

from collections import defaultdict

from .draft import Draft
from .place import reachable

MOST_INPUTS = 12


def fuse(draft: Draft) -> Draft:
    for i, op in enumerate(draft.ops):
        if op is not None and op.kind != "effect":
            draft.ins[i] = [behind(draft, j) for j in draft.ins[i]]
    readers: dict[int, set[int]] = defaultdict(set)
    for i in reachable(draft):
        for j in draft.ins[i]:
            readers[j].add(i)
    kept = {*draft.outputs, *draft.stores}
    for i in sorted(reachable(draft)):
        refused: set[int] = set()
        while (j := candidate(draft, i, readers, kept, refused)) is not None:
            if not join(draft, i, j):
                refused.add(j)
                continue
            for k in draft.ins[j]:
                readers[k] = readers[k] - {j} | {i}
            draft.ins[j] = []
    return draft


def behind(draft: Draft, j: int) -> int:
    """The position whose value j is: versions that a newer store supersedes move no data."""
    while (op := draft.ops[j]) is not None and op.kind == "effect" and j not in draft.stores:
        if j in draft.outputs:
            break
        j = draft.ins[j][0]
    return j


def candidate(
    draft: Draft, i: int, readers: dict[int, set[int]], kept: set[int], refused: set[int]
) -> int | None:
    """An input of i that could be computed inside it."""
    op = draft.ops[i]
    if op is None or op.joins is None:
        return None
    for j in draft.ins[i]:
        source = draft.ops[j]
        if source is None or source.joins is not op.joins or j in kept or j in refused:
            continue
        if readers[j] == {i} and draft.specs[j].shape == draft.specs[i].shape:
            return j
    return None


def join(draft: Draft, i: int, j: int) -> bool:
    """Compute j inside i, if a kernel can."""
    inputs = list(draft.ins[j])
    wiring: list[int | None] = []
    for k in draft.ins[i]:
        if k == j:
            wiring.append(None)
            continue
        if k not in inputs:
            inputs.append(k)
        wiring.append(inputs.index(k))
    if len(inputs) > MOST_INPUTS:
        return False
    op = draft.ops[i].joins(draft.ops[j], draft.ops[i], wiring, len(draft.ins[j]))
    if op.program([draft.specs[k].dtype for k in inputs]) is None:
        return False
    draft.ops[i], draft.ins[i] = op, inputs
    return True
