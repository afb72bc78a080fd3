"""repeat: a scheduled draft as a timeline, and a timeline's runs as a scheduled draft.

A repeated step is a position of its own: the same op with the same kernels on the same operands,
writing memory of its own. It reads repeated values where they are, and views of them through views
of its own. Random ops read the same key again, so they give the same numbers; effects and checks
are never repeated.
"""

from __future__ import annotations

from ..ir import OUTPUTS
from .draft import Draft
from .memory import rounded
from .schedule import written
from .timeline import Run, Timeline

BYTE = 10.0  # floating-point operations in the time that moving a byte takes, on cards and CPUs


def timeline(draft: Draft, outside: set[int]) -> Timeline:
    """outside: roots that are not in the arena."""
    when = {i: k for k, i in enumerate(draft.order)}
    reads, writes, takeover, extra, cost, pure, deadline = [], [], [], [], [], [], []
    arena: set[int] = set()
    for i in draft.order:
        op = draft.ops[i]
        outs = written(draft, i)
        mine = [r for r in outs if r not in outside]
        roots = list(dict.fromkeys(draft.root[j] for j in draft.ins[i]))
        reads.append([r for r in roots if r in arena])
        writes.append(mine)
        arena.update(mine)
        takeover.append(may_take(draft, i) if mine == [i] else None)
        extra.append(sum(rounded(n) for n in draft.launches[i][1]))
        price = op.cost(*[draft.operand[j].shape for j in draft.ins[i]])
        cost.append(price.flops + BYTE * price.bytes)
        pure.append(mine == outs and op.kind not in ("effect", "check") and i not in draft.stores)
        overwritten = [s for s, h in draft.stores.items() if h in roots or s in roots]
        deadline.append(min([when[s] for s in overwritten if s in when], default=len(draft.order)))
    sizes = {r: rounded(draft.specs[r].nbytes) for r in arena}
    late = {s for s in draft.late if s in arena}
    twins = {r: draft.twins[r] for r in arena if r in draft.twins}
    return Timeline(reads, writes, takeover, sizes, extra, cost, pure, deadline, late, twins)


def may_take(draft: Draft, i: int) -> tuple[int, list[int]] | None:
    """(the result of step i, the inputs whose memory it could take if they end there): read element
    by element as the result is written."""
    op, mine = draft.ops[i], draft.operand[i]
    if not op.inplace or op.outputs > 1:
        return None
    found = []
    for j in draft.ins[i]:
        root = draft.root[j]
        alike = [draft.operand[m] == mine for m in draft.ins[i] if draft.root[m] == root]
        if all(alike) and draft.specs[root].nbytes == draft.specs[i].nbytes:
            found.append(root)
    return (i, found) if found else None


def repeat(draft: Draft, runs: list[Run]) -> None:
    """Make the draft's order that of `runs`, adding a position for every repetition."""
    order, copies = list(draft.order), {}
    twins: dict[tuple[int, int], int] = {}
    draft.order = []
    for run in runs:
        i = order[run.step]
        if run.repeated:
            i = copies[run] = clone(draft, i)
        if run.sources:
            made = {}
            for root, source in run.sources.items():
                origin, copy = order[source.step], copies[source]
                made[root] = copy + (root - origin)
            draft.ins[i] = [redirected(draft, j, made, twins) for j in draft.ins[i]]
        draft.order.append(i)
    draft.steps = list(draft.order)


def clone(draft: Draft, i: int) -> int:
    """A position that computes what i does, into memory of its own."""
    copy = draft.add(draft.ops[i], list(draft.ins[i]), draft.specs[i], i)
    draft.launches[copy] = draft.launches[i]
    draft.repeated.add(copy)
    for k, out in enumerate(written(draft, i)):
        twin = copy if out == i else draft.add(OUTPUTS[k], [copy], draft.specs[out], i)
        place(draft, twin, out, twin)
    return copy


def place(draft: Draft, copy: int, origin: int, root: int) -> None:
    draft.root[copy] = root
    draft.operand[copy], draft.offset[copy] = draft.operand[origin], draft.offset[origin]


def redirected(
    draft: Draft, j: int, made: dict[int, int], twins: dict[tuple[int, int], int]
) -> int:
    """What position j becomes where its root has been made again."""
    root = draft.root[j]
    if root not in made:
        return j
    if j == root:
        return made[root]
    key = j, made[root]
    if key not in twins:
        source = redirected(draft, draft.ins[j][0], made, twins)
        twins[key] = draft.add(draft.ops[j], [source], draft.specs[j], j)
        place(draft, twins[key], j, made[root])
    return twins[key]
