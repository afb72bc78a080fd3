"""epilogue: an elementwise step runs inside the kernel whose result it alone reads.

An op says whether its kernel can run a program over its result (`epilogue`): convolutions and
matrix products can. The raw result is never a value of its own; bits do not change. Where a step
reads several such results (a shortcut that is added) it joins the one that is computed last. A step
that overwrites a state's home stays alone, since the kernel would write its raw result there first;
so does one that waits for something large from later than the kernel, whose inputs would wait too.
"""

from __future__ import annotations

from .draft import Draft, reachable

LARGE = 0.25  # of the result


def epilogue(draft: Draft) -> Draft:
    readers = draft.readers()
    kept = {*draft.outputs, *draft.stores}
    for i in sorted(reachable(draft)):
        if not joins(draft, i, readers[i]):
            continue
        for j in dict.fromkeys(draft.ins[i]):  # of two results the later one: see `early`
            alone = readers[j] == {i} and j not in kept
            if alone and takes(draft, j, i) and early(draft, j, i) and join(draft, j, i):
                break
    return draft


def joins(draft: Draft, i: int, readers: set[int]) -> bool:
    """A step with a program that fills memory of its own."""
    op = draft.ops[i]
    if op is None or op.joins is None or i in draft.stores:
        return False
    if any(draft.stores.get(r) is not None for r in readers):
        return False
    types = [draft.specs[k].dtype for k in draft.ins[i]]
    return op.program(types) is not None


def takes(draft: Draft, j: int, i: int) -> bool:
    """Kernel j can run a program over its result, in the order in which step i walks over it."""
    op, made, spec = draft.ops[j], draft.specs[j], draft.specs[i]
    if op is None or op.epilogue is None:
        return False
    return made.shape == spec.shape and made.dtype == spec.dtype


def early(draft: Draft, j: int, i: int) -> bool:
    """What step i reads besides is small, or there before kernel j."""
    return all(
        draft.ops[k] is None
        or draft.rank[k] < draft.rank[j]
        or draft.specs[k].size < LARGE * draft.specs[j].size
        for k in draft.ins[i]
        if k != j
    )


def join(draft: Draft, j: int, i: int) -> bool:
    op, ins = draft.ops[i], draft.ins[i]
    inputs = list(dict.fromkeys(ins))
    if len(inputs) < len(ins):  # a program reads each input once
        op = op.joins(len(inputs), [(op, tuple(inputs.index(k) for k in ins))])
    found = draft.ops[j].epilogue([draft.specs[k] for k in draft.ins[j]], op, inputs.index(j))
    if found is None:
        return False
    inputs.remove(j)
    draft.ops[i], draft.ins[i] = found, [*draft.ins[j], *inputs]
    draft.layers[i] = draft.layers[j]
    draft.ins[j] = []
    return True
