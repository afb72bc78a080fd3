"""generate: what its readers can compute block by block, as they read it, is never written.

An op says how its result is generated inside a reader (`generated`), and a reader that it runs a
program over its inputs (`program_shape`). If all readers of a value do, and its inputs are together
at most half as large, each reader generates it for itself: reading the inputs twice moves no more
bytes than writing the result and reading it once. Bits do not change.
"""

from __future__ import annotations

from .draft import Draft, reachable


def generate(draft: Draft) -> Draft:
    readers = draft.readers()
    kept = {*draft.outputs, *draft.stores}
    for j in sorted(reachable(draft)):
        op = draft.ops[j]
        if op is None or op.generated is None or j in kept or not readers[j]:
            continue
        if all(takes(draft, i, j) for i in readers[j]) and small(draft, j):
            for i in readers[j]:
                rest = [k for k in draft.ins[i] if k != j]
                draft.ops[i] = op.generated(draft.ops[i], draft.ins[i].index(j), op, len(rest) + 1)
                draft.ins[i] = rest + draft.ins[j]
    return draft


def takes(draft: Draft, i: int, j: int) -> bool:
    """Reader i can generate its input j: it reads it once, element by element."""
    op = draft.ops[i]
    return (
        op is not None
        and draft.ins[i].count(j) == 1
        and op.program_shape(draft.specs[i]) == draft.specs[j].shape
    )


def small(draft: Draft, j: int) -> bool:
    return 2 * sum(draft.specs[k].nbytes for k in draft.ins[j]) <= draft.specs[j].nbytes
