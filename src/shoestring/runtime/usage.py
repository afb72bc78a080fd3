"""What a run takes of its device, counted and predicted.

A plan says what it will need: predicted_peak_bytes = what its steps read from outside (parameters,
slots, inputs) + its arena + what it leaves behind. The device counts what is asked of the system.
All memory of a run is there before its first kernel, so the two are compared at that moment:

    counted = all that the device holds then - all that it held before and the plan does not use

The two are equal to the byte, but for two differences that are known and shown: the arena serves
all plans and is as large as the largest has needed (arena_spare_bytes), and an input may be part of
a larger allocation, such as one batch of a data set (input_spare_bytes; negative where two inputs
share an allocation). Numbers, such as a learning rate or a random key, are the host's and count in
neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..backends import memory_log
from ..backends.device import DEVICES, Device
from ..backends.device import device as open_device
from ..compile import MemoryReport, Plan
from ..errors import fail
from .arena import arena_bytes
from .devices import default_device


class Usage(NamedTuple):
    """One run: its plan; bytes counted for it, arena included; bytes of the device's other
    allocations;  arena: of the arena then;  inputs: of the allocations that it reads."""

    plan: Plan
    counted: int
    beside: int
    arena: int
    inputs: int


LAST: dict[str, Usage] = {}  # device -> its last run
LARGEST: dict[str, int] = {}  # device -> the largest predicted_peak_bytes that has run


class Meter:
    """Counts the runs of one plan: start() before its memory is asked for, ready() after."""

    def __init__(self, plan: Plan, device: Device) -> None:
        self.plan, self.device = plan, device
        resident = set(plan.resident)
        self.slots = [k for k, leaf in enumerate(plan.leaves) if leaf in resident]
        self.predicted = plan.predicted_peak_bytes
        self.logged = False

    def start(self, values: Sequence[Any], arena_bytes: int) -> None:
        owners = {
            id(owner): owner.nbytes for k in self.slots if (owner := values[k].base) is not None
        }
        self.inputs = sum(owners.values())
        self.beside = self.device.allocated_bytes() - arena_bytes - self.inputs

    def ready(self, arena: Any, arena_bytes: int) -> None:
        """arena_bytes: of the arena that is kept for the next plan; under a memory limit that may
        be none, while the plan has its own."""
        name = self.device.name
        counted = self.device.allocated_bytes() - self.beside
        LAST[name] = Usage(
            self.plan, counted, self.beside, max(arena.nbytes, arena_bytes), self.inputs
        )
        LARGEST[name] = max(LARGEST.get(name, 0), self.predicted)
        if memory_log.enabled and not self.logged:
            self.logged = True
            log_plan(self.plan, arena)


def memory_stats(device: str | None = None) -> dict[str, Any]:
    """What a device holds, and what its last run took: predicted by the plan, and counted where
    memory is asked of the system. All in bytes.

    device   the device; default: the default device
    returns  device                    its name
             allocated_bytes           held now
             peak_bytes                the most held at once since the start or reset_stats()
             limit_bytes               the memory limit, None without one
             arena_bytes               of the arena now; it is kept for the next plan
             predicted_peak_bytes      what the plan of the last run said it would need
             counted_peak_bytes        what was counted for it
             arena_spare_bytes         of that, the arena's part that only a larger plan needs
             input_spare_bytes         of that, parts of the inputs' allocations that the plan does
                                       not read (less what two inputs share)
             beside_bytes              held by others during the run, such as the user's tensors
             largest_predicted_peak_bytes   of all plans that have run since reset_stats()

    Always: counted_peak_bytes = predicted_peak_bytes + arena_spare_bytes + input_spare_bytes.

        print(ss.memory_stats()["predicted_peak_bytes"])
    """
    found = open_device(device or default_device())
    usage = LAST.get(found.name)
    plan = usage.plan if usage else None
    return {
        "device": found.name,
        "allocated_bytes": found.allocated_bytes(),
        "peak_bytes": found.peak_bytes(),
        "limit_bytes": found.limit,
        "arena_bytes": arena_bytes(found.name),
        "predicted_peak_bytes": plan.predicted_peak_bytes if plan else 0,
        "counted_peak_bytes": usage.counted if usage else 0,
        "arena_spare_bytes": usage.arena - plan.arena_bytes if usage else 0,
        "input_spare_bytes": usage.inputs - plan.resident_bytes if usage else 0,
        "beside_bytes": usage.beside if usage else 0,
        "largest_predicted_peak_bytes": LARGEST.get(found.name, 0),
    }


def memory_report(step: Any = None, device: str | None = None) -> MemoryReport:
    """Who has the memory at the peak of a plan, by layer and by kind; print it to see the table.

    step    a compiled step that has run or been planned (its newest plan), or a Plan; default: the
            plan that ran last on `device`
    device  the device; default: the default device
    Errors: there is no plan yet; something that has no plan.

        print(ss.memory_report())
    """
    if step is None:
        usage = LAST.get(open_device(device or default_device()).name)
        plan = usage.plan if usage else None
    elif isinstance(step, Plan):
        plan = step
    elif hasattr(step, "plans"):
        plan = next(reversed(step.plans()), None)
    else:
        fail(
            "type/memory_report.step",
            f"a compiled step or its plan has a report, got {type(step).__name__}",
            op="memory_report",
            tensors={},
            hint="step = ss.compile(step); step(x, y); ss.memory_report(step)",
        )
    if plan is None:
        fail(
            "value/memory_report.plan",
            "no plan has run yet" if step is None else "the step has no plan yet",
            op="memory_report",
            tensors={},
            hint="look at a value first"
            if step is None
            else "call the step first, or step.plan(x)",
        )
    return MemoryReport(plan)


def reset_peaks() -> None:
    LAST.clear()
    LARGEST.clear()
    for found in DEVICES.values():
        found.reset_peak()


def log_plan(plan: Plan, arena: Any) -> None:
    """A line for the plan, and one for each tenant of its arena, by address."""
    write, start = memory_log.write, memory_log.address_of(arena)
    facts = dict(bytes=plan.predicted_peak_bytes, arena=plan.arena_bytes, steps=len(plan.steps))
    write(plan.device, "plan", **facts)
    for t in sorted(plan.tenants, key=lambda t: (t.offset, t.first)):
        what, layer = plan.name_of(t)
        facts = dict(bytes=t.nbytes, address=hex(start + t.offset), steps=f"{t.first}-{t.last}")
        write(plan.device, "tenant", layer, what, **facts)
