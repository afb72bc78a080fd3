"""plan(): runs the passes in order and puts their findings into a Plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..backends import Operand, row_major
from ..backends.device import Device
from ..errors import ShoestringError, fail
from ..ir import Op
from .budget import Options
from .draft import Draft, copy_op
from .fuse import fuse
from .graph import Graph
from .group import group
from .memory import Interval, assign_offsets, rounded
from .merge import merge
from .place import place
from .plan import ARENA, RECORD_BYTES, Plan, Step, Tenant
from .ports import ports
from .repeat import may_take
from .schedule import schedule, written
from .simplify import simplify
from .verify import verify
from .verify_plan import verify_plan

PASSES: tuple[Callable[[Draft], Draft], ...] = (
    simplify,
    merge,
    fuse,
    ports,
    place,
    schedule,
)
NUMBER_BYTES = 16  # numbers of the host begin at multiples, on a device with memory of its own
FUSING = (merge, fuse, ports)


def plan(
    graph: Graph,
    outputs: Sequence[int],
    device: Device,
    check: bool = False,
    fused: bool = True,
    reuse: bool = True,
    room: int | None = None,
) -> Plan:
    """The plan that computes `outputs` and the graph's stores on `device`.

    check  verify the draft after every pass, and every plan;  fused: join elementwise ops
    reuse  let buffers that are not needed at the same time have the same memory
    room   bytes that arena and results may take together; None: as many as they need. If no plan
           is small enough the smallest is returned
    """
    draft = Draft(graph, outputs, device)
    draft.staged = set() if device.host else set(draft.numbers)
    for run in PASSES:
        if run in FUSING and not fused:
            continue
        draft = run(draft)
        if check:
            verify(draft, run.__name__)
    draft.launches = {i: kernels_of(draft, i, device) for i in draft.order}
    if fused:
        group(draft)

    def lowered(changed: Draft) -> Plan:
        found = lower(changed, outputs, device, reuse)
        if check:
            verify_plan(found)
        return found

    options = Options(draft, lowered)
    return options.within(room) or options.smallest()


def lower(
    draft: Draft,
    asked: Sequence[int],
    device: Device,
    reuse: bool = True,
) -> Plan:
    """Steps with addresses: bases for what outlives the plan, arena offsets for the rest."""
    external = outliving(draft)
    staged = [i for i in draft.leaves if i in draft.staged]
    bases = {i: base for i, base in bases_of(draft).items() if i not in staged}
    steps = [make_step(draft, i) for i in draft.order]
    end = len(steps)
    first, last = lifetimes(draft, bases)
    owner = shared(draft, first, last) if reuse else {r: r for r in first}
    owners = [r for r in first if owner[r] == r]
    buffers = [Interval(draft.specs[r].nbytes, first[r], last[r]) for r in owners]
    names = [("value", r) for r in owners]
    for k, (step, i) in enumerate(zip(steps, draft.order, strict=True)):
        for nbytes in draft.launches[i][1]:
            buffers.append(Interval(nbytes, k, k))
            names.append(("workspace", i))
        if step.op.kind == "check":
            buffers.append(Interval(RECORD_BYTES, k, end))
            names.append(("record", i))
    sizes = [-(-draft.specs[i].nbytes // NUMBER_BYTES) * NUMBER_BYTES for i in staged]
    if staged:
        buffers.append(Interval(sum(sizes), 0, end))
        names.append(("numbers", -1))
    lives = buffers if reuse else [Interval(b.nbytes, 0, end) for b in buffers]
    layout = assign_offsets(lives)
    tenants = [
        Tenant(what, i, rounded(b.nbytes), b.first, b.last, offset)
        for (what, i), b, offset in zip(names, buffers, layout.offsets, strict=True)
    ]
    offsets = {t.root: t.offset for t in tenants if t.what == "value"}
    offsets = {r: offsets[owner[r]] for r in first}
    start = next((t.offset for t in tenants if t.what == "numbers"), 0)
    numbers = {i: start + sum(sizes[:k]) for k, i in enumerate(staged)}
    offsets.update(numbers)
    for t in tenants:
        if t.what == "workspace":
            steps[t.first].workspaces.append((ARENA, t.offset))
        elif t.what == "record":
            steps[t.first].record = ARENA, t.offset
    shared_launches(draft, steps, device)
    final = steps + [write_late(draft, s, device) for s in draft.late]
    for step in final:
        step.reads = [address(draft, bases, offsets, j) for j in step.ins]
        step.writes = [address(draft, bases, offsets, j) for j in step.outs]
    for step, s in zip(final[end:], draft.late, strict=True):
        step.writes = [(bases[draft.stores[s]], 0)]
    stops = [k for k, step in enumerate(final) if step.home is not None]
    values = {}
    for i in asked:
        source = draft.same.get(i, i)
        values[i] = draft.root[source], draft.operand[source], draft.offset[source]
    views = {
        i: (op, draft.ins[i][0])
        for i, op in enumerate(draft.ops)
        if op is not None and draft.root.get(i, i) != i and i not in draft.fused
    }
    return Plan(
        device.name,
        final,
        min(stops, default=len(final)),
        list(draft.leaves),
        {root: draft.specs[root] for root in external},
        bases,
        values,
        dict(draft.stores),
        layout.total,
        layout.lower_bound,
        views,
        dict(draft.root),
        draft.specs,
        offsets,
        dict(draft.strides),
        [i for i in draft.leaves if i not in draft.numbers],
        tenants,
        labels(draft),
        numbers,
    )


def labels(draft: Draft) -> dict[int, tuple[str, str]]:
    """{root: (kind, name) of the state that it belongs to}"""
    found = {i: draft.labels[i] for i in draft.labels if draft.root.get(i) == i}
    for i, label in draft.labels.items():
        root = draft.root.get(draft.same.get(i, i))
        if root is not None and draft.specs[root].nbytes == draft.specs[i].nbytes:
            found.setdefault(root, label)
    return found


def bases_of(draft: Draft) -> dict[int, int]:
    """The base of every root that is not in the arena: leaves, what outlives the plan, and stores,
    which write into their homes."""
    bases = {leaf: 1 + k for k, leaf in enumerate(draft.leaves)}
    bases.update({root: 1 + len(draft.leaves) + k for k, root in enumerate(outliving(draft))})
    bases.update(
        {s: bases[h] for s, h in draft.stores.items() if h is not None and s not in draft.late}
    )
    return bases


def outliving(draft: Draft) -> list[int]:
    """Roots in memory of their own: they live longer than the plan."""
    found = {draft.root[i] for i in draft.outputs if draft.ops[draft.root[i]] is not None}
    found = {r for r in found if draft.stores.get(r) is None}
    return sorted(found | {s for s, home in draft.stores.items() if home is None})


def lifetimes(draft: Draft, bases: dict[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    """First and last step of every buffer in the arena."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for k, i in enumerate(draft.order):
        for j in written(draft, i):
            if j not in bases:
                first[j] = last[j] = k
        for j in draft.ins[i]:
            root = draft.root[j]
            if root in first:
                last[root] = k
    for s in draft.late:
        last[s] = len(draft.order)
    return first, last


def shared(draft: Draft, first: dict[int, int], last: dict[int, int]) -> dict[int, int]:
    """{root: whose memory it has}: the result of an elementwise step takes over the memory of an
    input that ends there. `last` of the one grows to that of the other."""
    owner = {r: r for r in first}
    for k, i in enumerate(draft.order):
        chance = may_take(draft, i) if i in first else None
        for source in chance[1] if chance else ():
            if source in first and last[owner[source]] == k:
                owner[i] = owner[source]
                last[owner[i]] = last[i]
                break
    return owner


def make_step(draft: Draft, i: int) -> Step:
    inputs, outputs = operands(draft, i)
    home = draft.stores.get(i) if i not in draft.late else None
    return Step(
        i,
        draft.ops[i],
        draft.layers[i],
        list(draft.ins[i]),
        written(draft, i),
        inputs,
        outputs,
        [],
        [],
        draft.launches[i][0],
        home=home,
        recomputed=i in draft.repeated,
    )


def shared_launches(draft: Draft, steps: list[Step], device: Device) -> None:
    """Number the launches that several steps share, where these still stand together."""
    where = {i: k for k, i in enumerate(draft.order)}
    for number, members in enumerate(draft.groups):
        found = sorted(where[i] for i in members)
        together = found == list(range(found[0], found[0] + len(found)))
        native = all(steps[k].batched_by for k in found) and device.has(steps[found[0]].batched_by)
        if len(found) > 1 and together and native:
            for k in found:
                steps[k].group, steps[k].chained = number, draft.order[k] in draft.chained


def operands(draft: Draft, i: int) -> tuple[list[Operand], list[Operand]]:
    """What step i reads and writes. A copy writes the shape of what it copies."""
    op, outs = draft.ops[i], written(draft, i)
    inputs = [draft.operand[j] for j in draft.ins[i]]
    if outs == [i] and op.kind == "copy" and draft.operand[i].size == inputs[0].size:
        return inputs, [Operand(inputs[0].shape, inputs[0].dtype, row_major(inputs[0].shape))]
    return inputs, [draft.operand[j] for j in outs]


def kernels_of(draft: Draft, i: int, device: Device):
    """Kernels and workspaces of step i. An error says at which position it was."""
    inputs, outputs = operands(draft, i)
    op = draft.ops[i]
    try:
        try:
            return choose(op, device, inputs, outputs)
        except (ShoestringError, MemoryError):
            raise
        except Exception as problem:
            fail(
                "compile/launch.failed",
                f"its launch failed: {type(problem).__name__}: {problem}",
                op=op.name,
                layer=draft.layers[i],
                tensors={f"input {k}": f"{list(x.shape)} {x.dtype}" for k, x in enumerate(inputs)},
                source=problem,
                hint=f"ss.testing.check_op({type(op).__name__})",
            )
    except ShoestringError as problem:
        vars(problem)["position"] = i
        raise


def choose(op: Op, device: Device, inputs: list[Operand], outputs: list[Operand]):
    """The op's kernels for this device, or (None, ()) where its reference runs."""
    if op.launch is None or any(o.size == 0 for o in [*inputs, *outputs]):
        return None, ()
    launch = op.launch(device, inputs, outputs)
    if launch is None:
        return None, ()
    for kernel in launch.kernels:
        if not device.has(kernel.entry):
            fail(
                "compile/kernel.missing",
                f"the {device.name} device has no kernel {kernel.entry!r}",
                op=op.name,
                tensors={},
                hint="rebuild the native extension: pip install --force-reinstall .",
            )
    return launch.kernels, launch.workspaces


def write_late(draft: Draft, s: int, device: Device) -> Step:
    """A store that waited for others: from its own memory into the home, after everything else."""
    operand = draft.operand[s]
    kernels, _ = choose(copy_op(), device, [operand], [operand])
    return Step(
        s,
        copy_op(),
        draft.layers[s],
        [s],
        [s],
        [operand],
        [operand],
        [],
        [],
        kernels,
        home=draft.stores[s],
    )


def address(
    draft: Draft, bases: dict[int, int], offsets: dict[int, int], i: int
) -> tuple[int, int]:
    root = draft.root[i]
    start = draft.offset[i] * np.dtype(draft.operand[i].dtype).itemsize
    return (bases[root], start) if root in bases else (ARENA, offsets[root] + start)
