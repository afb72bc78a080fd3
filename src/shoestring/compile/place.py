"""place: whose memory each position looks at, and with which strides. Views cost nothing.

    root[i]     the position that owns the memory (a leaf, a step's output, or a store)
    operand[i]  sizes and strides in elements;  offset[i]: elements from the root's first
    steps       positions that do work: everything but leaves, views and superseded stores

Copies appear only where they must: a reshape that its strides do not allow; a kernel that wants its
input contiguous; a view of a home that leaves the plan (the home is overwritten later), or of a
number staged for it; an output that would keep a larger buffer alive. A store takes over the step
that feeds only it, so that the value is computed in the home itself. An elementwise step may do so
even if it reads that home, at its own index only: no other view of it among its inputs.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..backends import Operand, row_major
from ..ir import Output, Spec
from .draft import Draft, copy_op, reachable


def place(draft: Draft) -> Draft:
    draft.root, draft.operand, draft.offset, draft.steps = {}, {}, {}, []
    draft.copies, draft.fused = {}, {}
    wanted = reachable(draft)
    for i in list(draft.topological()):
        if i in wanted:
            place_one(draft, i)
    compute_in_home(draft)
    return draft


def place_one(draft: Draft, i: int) -> None:
    op, ins = draft.ops[i], draft.ins[i]
    if op is None:
        own(draft, i, draft.strides.get(i))
    elif isinstance(op, Output):
        own(draft, i)
    elif i in draft.stores:
        own(draft, i)
        draft.steps.append(i)
    elif op.kind == "effect":  # a newer store supersedes it: it moves no data
        look_at(draft, i, ins[0])
    elif op.kind == "check":
        ensure_contiguous(draft, i, range(len(ins)))
        if i in draft.outputs and must_copy(draft, i, draft.root[ins[0]]):
            ins[0] = copied(draft, ins[0], i)
        look_at(draft, i, ins[0])
        draft.steps.append(i)
    elif op.kind == "view":
        place_view(draft, i)
    else:
        ensure_contiguous(draft, i, [k for k in range(len(ins)) if not op.takes_strides(k)])
        if op.outputs == 1:
            own(draft, i)
        draft.steps.append(i)


def own(draft: Draft, i: int, strides: tuple[int, ...] | None = None) -> None:
    spec = draft.specs[i]
    draft.root[i], draft.offset[i] = i, 0
    draft.operand[i] = Operand(spec.shape, spec.dtype, strides or row_major(spec.shape))


def look_at(draft: Draft, i: int, source: int) -> None:
    draft.root[i], draft.offset[i], draft.operand[i] = (
        draft.root[source],
        draft.offset[source],
        draft.operand[source],
    )


def place_view(draft: Draft, i: int) -> None:
    source = draft.ins[i][0]
    found = view_of(draft, i, source)
    if found is None:
        source = copied(draft, source, i)
        draft.ins[i] = [source]
        found = view_of(draft, i, source)
    root = draft.root[source]
    if i in draft.outputs and must_copy(draft, i, root):
        view = draft.add(draft.ops[i], [source], draft.specs[i], i)
        set_view(draft, view, source, found)
        draft.ops[i], draft.ins[i] = copy_op(), [view]
        own(draft, i)
        draft.steps.append(i)
    else:
        set_view(draft, i, source, found)


def view_of(draft: Draft, i: int, source: int):
    operand = draft.operand[source]
    return draft.ops[i].view(operand.shape, operand.strides)


def set_view(draft: Draft, i: int, source: int, found) -> None:
    shape, strides, offset = found
    draft.root[i], draft.offset[i] = draft.root[source], draft.offset[source] + offset
    draft.operand[i] = Operand(tuple(shape), draft.specs[i].dtype, tuple(strides))


def must_copy(draft: Draft, i: int, root: int) -> bool:
    if root in draft.homes or root in draft.stores or root in draft.staged:
        return True
    return (
        draft.ops[root] is not None
        and root not in draft.outputs
        and draft.specs[i].size < draft.specs[root].size
    )


def ensure_contiguous(draft: Draft, i: int, which: Iterable[int]) -> None:
    """which: numbers of the inputs."""
    for k in which:
        j = draft.ins[i][k]
        if not draft.operand[j].contiguous:
            draft.ins[i][k] = copied(draft, j, i)


def copied(draft: Draft, source: int, before: int) -> int:
    """A contiguous copy of `source`; one serves all who need it."""
    found = draft.copies.get(source)
    if found is None:
        spec = draft.specs[source]
        found = draft.copies[source] = draft.add(
            copy_op(), [source], Spec(spec.shape, spec.dtype, spec.device), before
        )
        own(draft, found)
        draft.steps.append(found)
    return found


def compute_in_home(draft: Draft) -> None:
    """Stores take over the steps that feed them (see the header). Who else reads such a step's
    result, to compute the new value of another state from it, reads it in the home."""
    consumers = draft.consumers()
    seen = {*draft.root, *draft.steps}
    readers = {s: [c for c in consumers[draft.ins[s][0]] if c in seen] for s in draft.stores}
    able = {s for s, home in draft.stores.items() if can_take_over(draft, s, home)}
    alone = {s for s in able if readers[s] == [s]}
    updates = {draft.ins[s][0] for s in alone if draft.stores[s] is not None}
    for store, home in draft.stores.items():
        source = draft.ins[store][0]
        others = set(readers[store]) - {store}
        shared = store in able and home is not None and others <= updates
        shared = shared and not any(draft.root[j] == home for c in others for j in draft.ins[c])
        if store not in alone and not shared:
            draft.ops[store] = copy_op()
            continue
        draft.ops[store], draft.ins[store] = draft.ops[source], draft.ins[source]
        draft.layers[store] = draft.layers[source]
        draft.fused[source] = store
        for i, root in draft.root.items():
            if root == source:
                draft.root[i] = store
    draft.steps = [i for i in draft.steps if i not in draft.fused]


def can_take_over(draft: Draft, store: int, home: int | None) -> bool:
    source = draft.ins[store][0]
    op = draft.ops[source]
    return (
        op is not None
        and op.outputs == 1
        and not isinstance(op, Output)
        and draft.root.get(source) == source
        and source not in draft.outputs
        and source not in draft.stores
        and source in draft.steps
        and (home is None or (op.kind == "expr" and aligned(draft, source, home)))
    )


def aligned(draft: Draft, source: int, home: int) -> bool:
    return all(j == home or draft.root[j] != home for j in draft.ins[source])
