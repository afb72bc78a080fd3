"""The plan: every step, every buffer and the exact peak, known before anything runs.

A buffer is addressed as (base, byte offset). Base 0 is the arena; then one base per leaf, in the
graph's order; then one per buffer that outlives the plan (outputs, and new homes). Printing a plan
shows what will run, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..backends import Attached, Kernel, Operand, Placed, placed
from ..ir import Cost, Op, Spec

ARENA = 0
RECORD_BYTES = 16  # what a check has found: position and value


@dataclass
class Step:
    """One row of the plan.

    position       its position in the graph;  op, layer: what runs, and the layer that asked for it
    ins, outs      positions read and written;  reads, writes: their (base, byte offset)
    inputs, outputs  their operands;  specs: shapes for printing
    kernels        the kernels, None when the op's reference runs;  places: (base, offset) of every
                   kernel buffer
    record         (base, offset) of a check's record;  home: the position of the home it overwrites
    group          number of the launch that it shares with its neighbours;  chained: it runs in
                   pieces, each right behind that of the step before it
    recomputed     a second time: a budget did not allow to keep the first result
    """

    position: int
    op: Op
    layer: Any
    ins: list[int]
    outs: list[int]
    inputs: list[Operand]
    outputs: list[Operand]
    reads: list[tuple[int, int]]
    writes: list[tuple[int, int]]
    kernels: tuple[Kernel, ...] | None = None
    workspaces: list[tuple[int, int]] = field(default_factory=list)
    record: tuple[int, int] | None = None
    home: int | None = None
    recomputed: bool = False
    group: int | None = None
    chained: bool = False

    def cost(self) -> Cost:
        """Floating-point operations, and bytes read and written."""
        return self.op.cost(*[o.shape for o in self.inputs])

    @property
    def name(self) -> str:
        return "+".join(k.entry for k in self.kernels) if self.kernels else "its reference"

    @property
    def batched_by(self) -> str:
        """The kernel that runs several launches like its one as one; "" if there is none."""
        kernels = self.kernels or ()
        return kernels[0].batched_by if len(kernels) == 1 and not kernels[0].attached else ""

    def launches(self) -> list[Placed]:
        """Its kernels, as a device's program takes them."""
        places = (
            [*self.reads, *self.writes, *self.workspaces]
            if self.record is None
            else [self.reads[0], self.record]
        )
        return [placed(kernel, places) for kernel in self.kernels or ()]


def layer_of(state: str) -> str:
    """The layer that a state called `conv1.weight`, `conv1.weight.grad` or `momentum of
    conv1.weight` belongs to."""
    return state.rpartition(" of ")[2].removesuffix(".grad").rpartition(".")[0]


class Tenant(NamedTuple):
    """A buffer in the arena. what: "value", "workspace" or a check's "record"; root: the position
    of a value. It is alive from step `first`, which makes it, to step `last`."""

    what: str
    root: int
    nbytes: int
    first: int
    last: int
    offset: int


@dataclass(repr=False)
class Plan:
    """steps in the order in which they run; point_of_no_return: the first that overwrites a home.

    outputs[i] = (position, view of which root, strides, offset) tells how to make each asked value
    from its buffer. external: (base, spec) of buffers that outlive the plan; leaves: specs of the
    inputs, base 1 + k each.
    """

    device: str
    steps: list[Step]
    point_of_no_return: int
    leaves: list[int]
    external: dict[int, Spec]  # root position -> spec
    bases: dict[int, int]  # root position -> base
    values: dict[int, tuple[int, Operand, int]]  # asked position -> (root, operand, offset)
    stores: dict[int, int | None]
    arena_bytes: int
    arena_lower_bound_bytes: int
    views: dict[int, tuple[Op, int]]  # position of a view -> (op, source)
    roots: dict[int, int]
    specs: list[Any]
    offsets: dict[int, int]  # arena offset of each root in it
    strides: dict[int, tuple[int, ...]]  # leaves that are not contiguous, in elements
    resident: list[int]  # leaves in the device's memory (the rest are numbers of the host)
    tenants: list[Tenant]  # of the arena
    labels: dict[int, tuple[str, str]]  # roots that belong to states -> (kind, name)
    staged: dict[int, int]  # numbers of the host that the device needs a copy of -> arena offset
    options: Any = None  # how the same work can be done in less memory: see budget.py

    @cached_property
    def names(self) -> dict[int, tuple[str, str]]:
        """{position that a step writes, or leaf: (what it is, its layer)}."""
        found = {leaf: ("input", "") for leaf in self.leaves}
        for step in self.steps:
            found.update({out: (step.op.name, str(step.layer or "")) for out in step.outs})
        found.update({i: (name, layer_of(name)) for i, (_, name) in self.labels.items()})
        return found

    def name_of(self, tenant: Tenant) -> tuple[str, str]:
        """(what it is, its layer)"""
        if tenant.what == "value":
            return self.names[tenant.root]
        if tenant.what == "numbers":
            return "numbers of the host", ""
        step = self.steps[tenant.first]
        return f"{tenant.what} of {step.op.name}", str(step.layer or "")

    @property
    def floor_bytes(self) -> int:
        """predicted_peak_bytes of the smallest plan that recomputation can make of this graph."""
        return self.options.smallest().predicted_peak_bytes

    @property
    def own_bytes(self) -> int:
        """Bytes that a run adds to what is there: the arena, and what it leaves behind."""
        return self.arena_bytes + self.external_bytes

    @property
    def external_bytes(self) -> int:
        """Bytes of the buffers that it leaves behind."""
        return sum(spec.nbytes for spec in self.external.values())

    @property
    def resident_bytes(self) -> int:
        """Bytes of what is there before it runs: parameters, slots, statistics, inputs."""
        return sum(self.specs[i].nbytes for i in self.resident)

    @property
    def predicted_peak_bytes(self) -> int:
        """Bytes that a run needs of the device: what is there before, the arena, and what it leaves
        behind."""
        return self.resident_bytes + self.own_bytes

    @property
    def lower_bound_bytes(self) -> int:
        """No assignment of addresses could need less, in this order of steps."""
        return self.resident_bytes + self.arena_lower_bound_bytes + self.external_bytes

    @property
    def flops(self) -> float:
        """Floating-point operations of one run."""
        return sum(step.cost().flops for step in self.steps)

    @property
    def bytes_moved(self) -> float:
        """Bytes that the steps read and write, if nothing stays in a cache."""
        return sum(step.cost().bytes for step in self.steps)

    @property
    def recompute_flops_ratio(self) -> float:
        """What recomputation adds: 0.15 is 15 % more floating-point operations than without."""
        again = sum(step.cost().flops for step in self.steps if step.recomputed)
        return again / max(self.flops - again, 1.0)

    def at_peak(self) -> list[Tenant]:
        """The tenants alive at the step that needs the most bytes of the arena."""
        at = self.peak_step
        return [t for t in self.tenants if t.first <= at <= t.last]

    @property
    def peak_step(self) -> int:
        """The first step that needs the most bytes of the arena."""
        change: dict[int, int] = {}
        for t in self.tenants:
            change[t.first] = change.get(t.first, 0) + t.nbytes
            change[t.last + 1] = change.get(t.last + 1, 0) - t.nbytes
        now = most = at = 0
        for step in sorted(change):
            now += change[step]
            if now > most:
                most, at = now, step
        return at

    def kernel_count(self) -> int:
        """How many kernels a run starts; a launch that steps share counts once."""
        return sum(len(launch) for launch in map(launches_of, together(self.steps)))

    def __repr__(self) -> str:
        return (
            f"<plan of {self.kernel_count()} kernels on {self.device}, "
            f"{self.predicted_peak_bytes:,} bytes>"
        )

    def __str__(self) -> str:
        rows = [("step", "op", "kernel", "layer", "reads", "writes", "at")]
        for k, step in enumerate(self.steps):
            at = ", ".join(
                f"{'arena' if base == ARENA else f'buffer {base}'}+{offset:,}"
                for base, offset in step.writes
            )
            note = " in place of its old value" if step.home is not None else ""
            rows.append(
                (
                    str(k),
                    step.op.name,
                    step.name if step.group is None else f"{step.batched_by} {step.group}",
                    str(step.layer or ""),
                    ", ".join(show(o) for o in step.inputs),
                    ", ".join(show(o) for o in step.outputs),
                    at + note,
                )
            )
            if k + 1 == self.point_of_no_return < len(self.steps):
                rows.append(("", "", "-- from here on states are overwritten --", "", "", "", ""))
        widths = [max(len(r[c]) for r in rows) for c in range(7)]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        lines.append(
            f"{self.kernel_count()} kernels on {self.device}; "
            f"arena {self.arena_bytes:,} bytes (lower bound "
            f"{self.arena_lower_bound_bytes:,}), left behind {self.external_bytes:,}"
        )
        return "\n".join(lines)


def together(steps: Sequence[Step]) -> list[list[Step]]:
    """Neighbours that share a launch; the others alone."""
    found: list[list[Step]] = []
    for step in steps:
        if found and step.group is not None and found[-1][0].group == step.group:
            found[-1].append(step)
        else:
            found.append([step])
    return found


def launches_of(steps: list[Step]) -> list[Any]:
    """The launches of steps that stand together, as a device's program takes them: of those that
    share one the programs are its parts. One launch, of nothing, where a reference runs."""
    if len(steps) == 1:
        return steps[0].launches() if steps[0].kernels is not None else [()]
    found = [step.launches()[0] for step in steps]
    parts = tuple(
        Attached("part", int(step.chained), kernel.buffers, kernel.integers, kernel.reals)
        for step, (kernel, _, _) in zip(steps, found, strict=True)
    )
    kernel = Kernel(steps[0].batched_by, (), attached=parts)
    return [Placed(kernel, [], [places for _, places, _ in found])]


def show(operand: Operand) -> str:
    short = {
        "float32": "",
        "float64": " f64",
        "int64": " i64",
        "int32": " i32",
        "uint8": " u8",
        "bool": " bool",
    }
    return f"{list(operand.shape)}{short.get(np.dtype(operand.dtype).name, '')}"
