"""ports: what a kernel reads or gives is computed inside it, where it has a port for that.

A kernel says which ports it has on a device (`Op.ports`); region.py says what runs at each. They
are filled in this order, each seen from the reader: which large value would be written or read no
more?

    load     An elementwise step that one kernel alone reads is computed as that kernel reads it.
    inline   What all its readers can compute block by block, as they read it, is never written, if
             its inputs are together at most half as large: reading them twice moves no more bytes
             than writing the result and reading it once.
    store    An elementwise step runs inside the kernel whose result it alone reads. Of several such
             results (a shortcut that is added) it joins the one that is computed last. A step that
             overwrites a state's home stays alone, since the kernel would write its raw result
             there first; so does one that waits for something large from later than the kernel,
             whose inputs would wait too.
    also     A sum over what another kernel reads anyway is computed by that kernel. Sums that share
             a kernel with others stay, and so does what a state takes over as it is: a kernel with
             two results cannot write into its memory.
    end      Arithmetic on the few results of a reduction runs in the kernel that makes them
             (ports_end.py).

Bits do not change but for `also`, whose sums are added in another order.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import Port
from .draft import Draft, reachable
from .fuse import elementwise
from .merge import replace
from .ports_end import end
from .region import Region, fused

LARGE = 0.25  # of a result


def ports_of(draft: Draft, i: int, where: str) -> list[Port]:
    """The ports of one kind that the kernel at position i has."""
    op = draft.ops[i]
    if op is None:
        return []
    outputs = draft.specs[i] if op.outputs > 1 else (draft.specs[i],)
    found = op.ports(draft.device, [draft.specs[j] for j in draft.ins[i]], outputs)
    return [port for port in found if port.where == where]


def join(
    draft: Draft, i: int, members: Sequence[tuple[int, Port | None]], inputs: Sequence[int]
) -> None:
    """Position i becomes a region of members, whose last gives its results."""
    inputs = list(dict.fromkeys(inputs))
    last, _ = members[-1]
    outputs = draft.ops[last].outputs
    results = [last] if outputs == 1 else [last + 1 + k for k in range(outputs)]
    draft.ops[i], draft.ins[i] = fused(draft, inputs, members, results), inputs


def load(draft: Draft) -> None:
    readers, kept = draft.readers(), {*draft.outputs, *draft.stores}
    for i in sorted(reachable(draft)):
        for port in ports_of(draft, i, "load"):
            j = draft.ins[i][port.index]
            alone = readers[j] == {i} and draft.ins[i].count(j) == 1 and j not in kept
            if alone and elementwise(draft, j):
                rest = [k for k in draft.ins[i] if k != j]
                join(draft, i, [(j, port), (i, None)], [*draft.ins[j], *rest])


def inline(draft: Draft) -> None:
    readers, kept = draft.readers(), {*draft.outputs, *draft.stores}
    for j in sorted(reachable(draft)):
        if j in kept or not readers[j] or not ports_of(draft, j, "inline"):
            continue
        small = 2 * sum(draft.specs[k].nbytes for k in draft.ins[j]) <= draft.specs[j].nbytes
        if small and all(reads_in_program(draft, i, j) for i in readers[j]):
            for i in readers[j]:
                rest = [k for k in draft.ins[i] if k != j]
                join(draft, i, [(j, Port("inline")), (i, None)], [*rest, *draft.ins[j]])


def reads_in_program(draft: Draft, i: int, j: int) -> bool:
    """Whether i reads j once, element by element, in a program over the sizes of j."""
    op = draft.ops[i]
    if op is None or draft.ins[i].count(j) != 1:
        return False
    if isinstance(op, Region):
        return op.space(draft.ins[i].index(j)) == draft.specs[j].shape
    return elementwise(draft, i) and draft.specs[i].shape == draft.specs[j].shape


def store(draft: Draft) -> None:
    readers, kept = draft.readers(), {*draft.outputs, *draft.stores}
    for i in sorted(reachable(draft)):
        overwrites = any(draft.stores.get(r) is not None for r in readers[i])
        if overwrites or i in draft.stores or not elementwise(draft, i):
            continue
        for j in dict.fromkeys(draft.ins[i]):  # of two results the later one: see `early`
            alone = readers[j] == {i} and j not in kept
            if alone and stores_into(draft, j, i) and early(draft, j, i):
                layer, rest = draft.layers[j], [k for k in draft.ins[i] if k != j]
                join(draft, i, [(j, None), (i, Port("store"))], [*draft.ins[j], *rest])
                draft.layers[i], draft.ins[j] = layer, []
                break


def stores_into(draft: Draft, j: int, i: int) -> bool:
    """Whether kernel j can run a program over its result, in the order in which step i walks."""
    made, spec = draft.specs[j], draft.specs[i]
    found = draft.ops[j] is not None and draft.ops[j].outputs == 1 and ports_of(draft, j, "store")
    return bool(found) and made.shape == spec.shape and made.dtype == spec.dtype


def early(draft: Draft, j: int, i: int) -> bool:
    """What step i reads besides is small, or there before kernel j."""
    return all(
        draft.ops[k] is None
        or draft.rank[k] < draft.rank[j]
        or draft.specs[k].size < LARGE * draft.specs[j].size
        for k in draft.ins[i]
        if k != j
    )


def also(draft: Draft) -> None:
    for i in sorted(reachable(draft)):
        op = draft.ops[i]
        if op is None or op.kind != "reduce" or isinstance(op, Region):
            continue
        layout = op.sums(draft.device, draft.specs[draft.ins[i][0]])
        if layout is None or op.divisor(draft.specs[draft.ins[i][0]].shape) != 1:
            continue
        (x,) = draft.ins[i]
        readers = draft.readers()
        for r in sorted(readers[x]):
            taken = any(draft.stores.get(s, x) is None for s in readers[i] | readers[r])
            if taken or draft.ins[r].count(x) != 1:
                continue
            at = draft.ins[r].index(x)
            found = [p for p in ports_of(draft, r, "also") if (p.index, p.layout) == (at, layout)]
            if found and not draft.depends(r, i):
                inputs = draft.ins[r]
                region = fused(draft, inputs, [(r, None), (i, Port("also", at))], [r, i])
                replace(draft, [r, i], region, inputs, r)
                break


FILLS = (load, inline, store, also, end)


def ports(draft: Draft) -> Draft:
    for fill in FILLS:
        fill(draft)
    return draft
