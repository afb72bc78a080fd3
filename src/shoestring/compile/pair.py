"""pair: two kernels that read the same become one that reads it once.

An op says with which other op it can share a kernel (`pairs`): the losses of a cross entropy and
their gradient. Its inputs must be the last ones of the other's, and what the other reads besides
must not depend on its result. The common kernel runs when the other would; bits do not change. It
comes before sums are grouped, which would make the one depend on the other.
"""

from __future__ import annotations

from ..ir import OUTPUTS
from .draft import Draft, reachable


def pair(draft: Draft) -> Draft:
    for i in sorted(reachable(draft)):
        op, ins = draft.ops[i], draft.ins[i]
        if op is None or op.pairs is None:
            continue
        for r in sorted(draft.readers()[ins[-1]]):
            both = op.pairs(draft.ops[r])
            if both is not None and draft.ins[r][-len(ins) :] == ins and not depends(draft, r, i):
                join(draft, i, r, r, both)
                break
    return draft


def join(draft: Draft, first: int, second: int, at: int, both) -> None:
    """`both` in place of two positions; it computes their results in this order, at the turn of
    position `at`, and reads what that one read."""
    specs = draft.specs[first], draft.specs[second]
    new = draft.add(both, draft.ins[at], specs, at)
    moved = {}
    for k, j in enumerate((first, second)):
        moved[j] = draft.add(OUTPUTS[k], [new], specs[k], at)
        draft.layers[moved[j]] = draft.layers[j]
        if j in draft.twins:
            draft.twins[moved[j]] = draft.twins[j]
    draft.redirect(moved)


def depends(draft: Draft, i: int, other: int) -> bool:
    """Whether position i is computed from `other`."""
    stack, seen = [i], set()
    while stack:
        j = stack.pop()
        if j == other:
            return True
        if j not in seen:
            seen.add(j)
            stack += draft.ins[j]
    return False
