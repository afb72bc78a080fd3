"""verify_plan: that a finished plan keeps what it promises about memory, whoever made it.

It runs the plan on paper. A ledger says which value every byte of every buffer holds: a write hands
bytes over, a read must find the value that it names. So a write over a value that a later step
still reads is found where that step reads, whatever the reason. Nothing is taken from the planner's
lifetimes; views, results computed over a dying input and stores in their homes are followed like
everything else. It holds besides that

- every byte lies inside its buffer: the arena, an input, a result
- a step's results, workspaces and inputs are apart; a result may lie on an input only where the op
  reads element by element, and both have the same address and strides
- steps that share a launch leave what the others write alone; only in a chain, piece by piece, may
  one touch it, where element k of the one is element k of the other
- inputs are never written; homes are, by their own store, and not before the point of no return
- at the end every result, and the newest version of every state, is where the plan says

SHOESTRING_CHECK=1 verifies every plan; tests always do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..backends import Operand, row_major
from ..backends.device import device
from ..errors import fail
from .plan import ARENA, RECORD_BYTES, Plan, Step, together


class Range(NamedTuple):
    """Bytes start..end of a base."""

    base: int
    start: int
    end: int

    def meets(self, other: Range) -> bool:
        return self.base == other.base and self.start < other.end and other.start < self.end


def reach(place: tuple[int, int], operand: Operand) -> Range:
    """The bytes that an array at this place touches; none if it is empty."""
    base, offset = place
    if operand.size == 0:
        return Range(base, offset, offset)
    steps = [(n - 1) * s for n, s in zip(operand.shape, operand.strides, strict=True)]
    size = operand.dtype.itemsize
    low, high = sum(min(s, 0) for s in steps), sum(max(s, 0) for s in steps) + 1
    return Range(base, offset + low * size, offset + high * size)


class Ledger:
    """held[base]: (start, end, value) of what lies there; lost: {value: the step that wrote over
    it}."""

    def __init__(self) -> None:
        self.held: dict[int, list[tuple[int, int, Any]]] = {}
        self.lost: dict[Any, int] = {}

    def write(self, where: Range, value: Any, step: int) -> None:
        if where.start == where.end:
            return
        kept = []
        for start, end, other in self.held.get(where.base, ()):
            if start < where.end and where.start < end:
                self.lost[other] = step
            else:
                kept.append((start, end, other))
        self.held[where.base] = [*kept, (where.start, where.end, value)]
        self.lost.pop(value, None)

    def holds(self, where: Range, value: Any) -> bool:
        return where.start == where.end or any(
            start <= where.start and where.end <= end and other == value
            for start, end, other in self.held.get(where.base, ())
        )

    def why(self, value: Any) -> str:
        step = self.lost.get(value)
        return "which nobody has written" if step is None else f"which step {step} has overwritten"


def verify_plan(plan: Plan) -> None:
    """Complain about the first step of `plan` that breaks one of the rules above."""
    ledger, bounds = Ledger(), bounds_of(plan)
    for leaf in plan.leaves:
        start, nbytes = plan.staged.get(leaf, 0), plan.specs[leaf].nbytes
        where = Range(ARENA, start, start + nbytes) if leaf in plan.staged else None
        ledger.write(where or bounds[plan.bases[leaf]], leaf, -1)
    for k, step in enumerate(plan.steps):
        if k == plan.point_of_no_return:
            verify_records(plan, ledger)
        verify_step(plan, k, step, ledger, bounds)
    if plan.point_of_no_return >= len(plan.steps):
        verify_records(plan, ledger)
    for steps in together(plan.steps):
        verify_launch(steps)
    for i, (root, operand, offset) in plan.values.items():
        place = plan.bases.get(root, ARENA), offset * operand.dtype.itemsize
        require(place[0] != ARENA, "end", f"result {i} lies in the arena")
        found = ledger.holds(reach(place, operand), root)
        require(found, "end", f"result {i} should hold value {root}, {ledger.why(root)}")
    for store, home in plan.stores.items():
        where = bounds[plan.bases[store if home is None else home]]
        found = ledger.holds(where, store)
        require(found, "end", f"the state stored at {store} is lost, {ledger.why(store)}")


def bounds_of(plan: Plan) -> dict[int, Range]:
    """The extent of every base."""
    bounds = {ARENA: Range(ARENA, 0, plan.arena_bytes)}
    for leaf in plan.leaves:
        if leaf in plan.staged:
            continue
        spec, base = plan.specs[leaf], plan.bases[leaf]
        strides = plan.strides.get(leaf, row_major(spec.shape))
        bounds[base] = reach((base, 0), Operand(spec.shape, spec.dtype, strides))
    for root, spec in plan.external.items():
        bounds[plan.bases[root]] = Range(plan.bases[root], 0, spec.nbytes)
    return bounds


def verify_step(plan: Plan, k: int, step: Step, ledger: Ledger, bounds: dict[int, Range]) -> None:
    at = f"step {k}, {step.op.name}"
    reads = [reach(p, o) for p, o in zip(step.reads, step.inputs, strict=True)]
    writes = [reach(p, o) for p, o in zip(step.writes, step.outputs, strict=True)]
    spare = [
        Range(base, offset, offset + nbytes)
        for (base, offset), nbytes in zip(step.workspaces, workspaces(plan, step), strict=True)
    ]
    if step.record is not None:
        spare.append(Range(*step.record, step.record[1] + RECORD_BYTES))
    for where in (*reads, *writes, *spare):
        limit = bounds[where.base]
        inside = (limit.start <= where.start and where.end <= limit.end) or where.start == where.end
        require(inside, at, f"bytes {where.start} to {where.end} are outside {limit}")
    for i, where in zip(step.ins, reads, strict=True):
        root = plan.roots[i]
        found = ledger.holds(where, root)
        require(found, at, f"it reads value {root}, {ledger.why(root)}")
    for n, where in enumerate(writes):
        may_write(plan, k, step, step.outs[n], where)
        others = [*writes[:n], *spare]
        require(not any(where.meets(o) for o in others), at, "it writes the same bytes twice")
        for m, source in enumerate(reads):
            same = step.reads[m] == step.writes[n] and step.inputs[m] == step.outputs[n]
            require(
                not where.meets(source) or (same and step.op.inplace),
                at,
                f"result {n} lies on input {m}",
            )
    for n, where in enumerate(spare):
        others = [*spare[:n], *reads]
        require(not any(where.meets(o) for o in others), at, "its workspace lies on what it reads")
    for n, where in enumerate(spare):
        mark = ("record" if step.record is not None else "workspace", step.position, n)
        ledger.write(where, mark, k)
    for out, where in zip(step.outs, writes, strict=True):
        ledger.write(where, out, k)


def verify_launch(steps: list[Step]) -> None:
    """Steps that run side by side, those of a chain piece by piece one after the other."""
    require(not steps[0].chained, f"step {steps[0].op.name}", "it is chained to nothing")
    number = 0
    chain = [number := number + (not step.chained) for step in steps]
    for k, two in enumerate(steps):
        for n, one in enumerate(steps[:k]):
            for place, operand, other, like in shared_bytes(one, two):
                aligned = chain[n] == chain[k] and place == other
                aligned = aligned and operand.contiguous and like.contiguous
                aligned = aligned and operand.size == like.size
                at = f"launch {two.group}, {one.op.name} and {two.op.name}"
                require(aligned, at, "the one writes what the other touches elsewhere")


def shared_bytes(one: Step, two: Step) -> Iterator[tuple]:
    """(place, operand, place, operand) of what the first and the second step have in common and at
    least one of them writes."""

    def touched(step: Step) -> list[tuple]:
        reads = [(p, o, False) for p, o in zip(step.reads, step.inputs, strict=True)]
        return reads + [(p, o, True) for p, o in zip(step.writes, step.outputs, strict=True)]

    for place, operand, writes in touched(one):
        for other, like, also in touched(two):
            if (writes or also) and reach(place, operand).meets(reach(other, like)):
                yield place, operand, other, like


def workspaces(plan: Plan, step: Step) -> tuple[int, ...]:
    """Bytes of the step's workspaces, asked of the op anew."""
    if step.kernels is None:
        return ()
    return step.op.launch(device(plan.device), step.inputs, step.outputs).workspaces


def may_write(plan: Plan, k: int, step: Step, out: int, where: Range) -> None:
    """The arena; a result's own buffer; the home of its own state, once nothing can fail."""
    if where.base == ARENA:
        return
    home = plan.stores.get(out)
    own = where.base == plan.bases.get(out if home is None else home)
    own = own and (home is not None or out in plan.external)
    require(own, f"step {k}, {step.op.name}", f"value {out} is written over somebody's input")
    late = home is None or (step.home == home and k >= plan.point_of_no_return)
    require(late, f"step {k}, {step.op.name}", "it overwrites a home while the plan may still fail")


def verify_records(plan: Plan, ledger: Ledger) -> None:
    """What checks have found is read here: it must still be there."""
    for step in plan.steps[: plan.point_of_no_return]:
        if step.record is not None:
            where = Range(*step.record, step.record[1] + RECORD_BYTES)
            mark = "record", step.position, 0
            found = ledger.holds(where, mark)
            require(found, "point of no return", f"the record of a check, {ledger.why(mark)}")


def require(holds: bool, at: str, what: str) -> None:
    if not holds:
        fail(
            "compile/verify.plan",
            f"the plan is wrong at {at}: {what}",
            tensors={},
            hint="this is a bug in a pass; please report it with the program that shows it",
        )
