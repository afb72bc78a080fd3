"""simplify: the same op on the same inputs is computed once.

Random ops included (the same key gives the same numbers); stores and checks excluded. Positions
that become unused are left for `schedule`, which never visits them. Bits do not change: one of two
equal values is as good as the other.
"""

from __future__ import annotations

from .draft import Draft


def simplify(draft: Draft) -> Draft:
    first: dict[tuple, int] = {}
    same = draft.same
    for i, op in enumerate(draft.ops):
        draft.ins[i] = [same.get(j, j) for j in draft.ins[i]]
        if op is None or op.kind in ("effect", "check"):
            continue
        twin = first.setdefault((op, *draft.ins[i]), i)
        if twin != i:
            same[i] = twin
    draft.outputs = [same.get(i, i) for i in draft.outputs]
    return draft
