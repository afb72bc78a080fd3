"""prologue: an elementwise step is computed inside the kernel that alone reads its result.

An op says whether its kernel can run a program for its first input (`prologue`). The step's result
is never written; its inputs are read instead. Bits do not change.
"""

from __future__ import annotations

from .draft import Draft, reachable


def prologue(draft: Draft) -> Draft:
    readers = draft.readers()
    kept = {*draft.outputs, *draft.stores}
    for i in sorted(reachable(draft)):
        op, ins = draft.ops[i], draft.ins[i]
        if op is None or op.prologue is None:
            continue
        j, *rest = ins
        maker = draft.ops[j]
        if maker is None or maker.joins is None or j in kept or j in rest or readers[j] != {i}:
            continue
        types = [draft.specs[k].dtype for k in draft.ins[j]]
        if maker.program(types) is None:
            continue
        found = op.prologue(maker, len(types), draft.specs[j])
        if found is not None:
            draft.ops[i], draft.ins[i] = found, [*draft.ins[j], *rest]
    return draft
