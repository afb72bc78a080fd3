"""merge: two kernels that read the same become one that reads it once.

An op says with which other it can share a kernel (`merge`): the losses of a cross entropy with
their gradient. Its inputs must be the last ones of the other's, and what the other reads besides
must not depend on its result. The common kernel runs when the other would; bits do not change. It
comes before sums are grouped, which would make the one depend on the other.
"""

from __future__ import annotations

from ..ir import OUTPUTS, Op
from .draft import Draft, reachable


def merge(draft: Draft) -> Draft:
    readers = draft.readers()
    for i in sorted(reachable(draft)):
        op, ins = draft.ops[i], draft.ins[i]
        if op is None or op.kind == "reduce" or not ins:  # sums are grouped by fuse
            continue
        for r in sorted(readers[ins[-1]]):
            both = op.merge([draft.ops[r]])
            if both is not None and draft.ins[r][-len(ins) :] == ins and not draft.depends(r, i):
                replace(draft, [i, r], both, draft.ins[r], r)
                readers = draft.readers()
                break
    return draft


def replace(draft: Draft, old: list[int], op: Op, inputs: list[int], before: int) -> None:
    """One op in place of the results at `old`, in this order; it runs when `before` would."""
    specs = tuple(draft.specs[j] for j in old)
    new = draft.add(op, inputs, specs, before)
    moved = {}
    for k, j in enumerate(old):
        moved[j] = draft.add(OUTPUTS[k], [new], specs[k], before)
        draft.layers[moved[j]] = draft.layers[j]
        if j in draft.twins:
            draft.twins[moved[j]] = draft.twins[j]
    draft.redirect(moved)
