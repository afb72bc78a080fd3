"""byproduct: a sum over what another kernel reads anyway is computed by that kernel.

The gradient of a bias adds up what the gradient of the same layer's weight multiplies. An op says
which of its inputs it can add up, and over which axes (`byproduct`). Sums that share a kernel with
others, or compute what they add up, are left as they are. So is what a state takes over as it is:
a kernel with two results cannot write into its memory. The common kernel runs when the other would.
Its sums are added in another order: equal within rounding.
"""

from __future__ import annotations

from .draft import Draft, reachable
from .pair import depends, join


def byproduct(draft: Draft) -> Draft:
    for i in sorted(reachable(draft)):
        op = draft.ops[i]
        if op is None or op.summed is None:
            continue
        (x,) = draft.ins[i]
        readers = draft.readers()
        for r in sorted(readers[x]):
            if taken_over(draft, readers[i] | readers[r]):
                continue
            both = made(draft, i, r, x)
            if both is not None and not depends(draft, r, i):
                join(draft, r, i, r, both)
                break
    return draft


def made(draft: Draft, i: int, r: int, x: int):
    """The op that computes both the result at r and the sum i of its input x; None: it cannot."""
    op, ins = draft.ops[r], draft.ins[r]
    if op is None or op.byproduct is None or ins.count(x) != 1:
        return None
    return op.byproduct(ins.index(x), draft.ops[i], [draft.specs[j] for j in ins])


def taken_over(draft: Draft, readers: set[int]) -> bool:
    """Whether one of them is a state's first value, whose memory the result would be."""
    return any(r in draft.stores and draft.stores[r] is None for r in readers)
