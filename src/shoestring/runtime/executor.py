"""Runs a plan: binds addresses, calls kernels, reads the records of checks before the first store.

All or nothing: until the plan's point of no return a run may fail or be interrupted and nothing has
changed; after it Ctrl-C waits for the end. One arena per device serves all plans, since no value in
it outlives a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..backends import Operand
from ..backends.device import Device
from ..compile import Plan, Step
from ..compile.plan import launches_of, together
from ..errors import ShoestringError, TornStateError, fail
from ..ir import Spec
from .arena import arena, arena_bytes
from .guard import Uninterrupted
from .inspection import Comparison, Sample, inspect_ranges
from .session import session
from .usage import Meter


class Suspect(NamedTuple):
    """What a check's error needs to know of the node that asked for it."""

    spec: Spec
    layer: Any
    line: str


def looked_at(op: Any, array: Any) -> Any:
    """A view of a realized value, or the value itself behind a check or a store."""
    if isinstance(array, np.ndarray):
        return op.reference(array)
    if op.kind != "view":
        return array
    size = array.dtype.itemsize
    return array.view(*op.view(array.shape, tuple(s // size for s in array.strides)))


def whole(operand: Operand, offset: int, shape: tuple[int, ...]) -> bool:
    """Whether an operand is all of a contiguous array of this shape, element for element."""
    return offset == 0 and operand.shape == shape and operand.contiguous


class Segment:
    """Consecutive steps of one kind: kernels of the device as one program, or references one by
    one."""

    def __init__(self, steps: list[Step], device: Device) -> None:
        self.steps, self.native = steps, steps[0].kernels is not None
        self.device = device
        if self.native:
            self.launches = [(some, launches_of(some)) for some in together(steps)]
            self.program = device.program([x for _, found in self.launches for x in found])

    def run(self, memory: Memory) -> None:
        if self.native and session.recorder is None and not session.check:
            self.program.run(memory.bases())
        elif self.native:
            self.run_watched(memory.bases())
        else:
            for step in self.steps:
                try:
                    self.run_reference(step, memory)
                except Exception as problem:
                    vars(problem)["position"] = step.position
                    raise

    def run_watched(self, bases: list[Any]) -> None:
        """Launch by launch: recorded, and some compared with references."""
        end = 0
        for steps, launches in self.launches:
            first, end = end, end + len(launches)
            compared = session.check and Sample.takes(steps)
            comparison = Comparison(steps, self.device, bases) if compared else None
            self.program.run_range(bases, first, end)
            if comparison is not None:
                comparison.finish()
            if session.recorder is not None:
                session.recorder.extend([launch.kernel.entry for launch in launches])

    def run_reference(self, step: Step, memory: Memory) -> None:
        inputs = [memory.read(i) for i in step.ins]
        if session.recorder is not None:
            session.recorder.append(step.name)
        try:
            if step.op.kind == "check":
                memory.records[step.position] = step.op.record(inputs[0])
                return
            found = step.op.reference(*inputs)
            values = tuple(found) if step.op.outputs > 1 else (found,)
            for out, value in zip(step.outs, values, strict=True):
                target = memory.array(out) if step.home is None else memory.arrays[step.home]
                if np.shape(value) != target.shape:
                    raise ValueError(
                        f"it gave an array of shape {list(np.shape(value))}, "
                        f"the shape rule says {list(target.shape)}"
                    )
                memory.device.write(target, value)
        except ShoestringError:
            raise
        except Exception as problem:
            fail(
                "launch/reference.failed",
                f"its reference failed: {problem}",
                op=step.op.name,
                layer=step.layer,
                tensors={f"input {k}": f"{list(x.shape)} {x.dtype}" for k, x in enumerate(inputs)},
                source=problem,
                hint="run the op's reference by hand on these shapes",
            )


class Memory:
    """The buffers of one run. Arrays are made when a reference step or an output asks for them."""

    def __init__(self, plan: Plan, device: Device, values: Sequence[Any]) -> None:
        self.plan, self.values, self.device = plan, values, device
        self.arena = arena(device, plan)
        self.external = {
            root: device.empty(spec.shape, spec.dtype, *plan.names[root])
            for root, spec in plan.external.items()
        }
        self.records: dict[int, tuple[int, int]] = {}
        self.arrays: dict[int, Any] = dict(zip(plan.leaves, values, strict=True))
        self.arrays.update(self.external)
        self._bases: list[Any] | None = None
        if plan.staged:
            self.stage()

    def stage(self) -> None:
        """Copy numbers of the host to where the device's kernels read them: one transfer."""
        staged = self.plan.staged
        first = min(staged.values())
        end = max(offset + self.arrays[leaf].nbytes for leaf, offset in staged.items())
        data = np.zeros(end - first, np.uint8)
        for leaf, offset in staged.items():
            number = self.arrays[leaf]
            data[offset - first :][: number.nbytes] = number.reshape(-1).view(np.uint8)
        self.device.write(self.device.array(self.arena, data.shape, data.dtype, first), data)

    def bases(self) -> list[Any]:
        """What a program needs for each base: the arena, the leaves, what is left behind."""
        if self._bases is None:
            place = self.device.place
            self._bases = [place(a) for a in (self.arena, *self.values, *self.external.values())]
        return self._bases

    def read(self, i: int) -> np.ndarray:
        """The value of a position, where the host can compute with it."""
        return self.device.read(self.array(i))

    def array(self, i: int) -> Any:
        found = self.arrays.get(i)
        if found is None:
            plan, root = self.plan, self.plan.roots.get(i, i)
            if i in plan.views:
                op, source = plan.views[i]
                found = looked_at(op, self.array(source))
            elif plan.stores.get(root) is not None and root in plan.bases:
                found = self.arrays[plan.stores[root]]
            else:
                spec = plan.specs[i]
                found = (
                    self.device.array(self.arena, spec.shape, spec.dtype, plan.offsets[root])
                    if spec.nbytes
                    else np.empty(spec.shape, spec.dtype)
                )
            self.arrays[i] = found
        return found

    def value(self, i: int) -> Any:
        """The value of an asked position: the buffer itself, or a view of it."""
        root, operand, offset = self.plan.values[i]
        array = self.arrays[root] if root in self.arrays else self.array(root)
        if root in self.external and whole(operand, offset, array.shape):
            return array
        if root in self.external:
            size = array.dtype.itemsize
            strides = tuple(s * size for s in operand.strides)
            return self.device.array(array, operand.shape, array.dtype, offset * size, strides)
        return self.array(self.position_of(i))

    def position_of(self, i: int) -> int:
        return (
            i
            if i in self.plan.roots
            else next(j for j, v in self.plan.values.items() if v == self.plan.values[i])
        )


class Executable:
    """A plan, bound to its device's programs."""

    def __init__(self, plan: Plan, device: Device) -> None:
        self.plan, self.device = plan, device
        self.meter = Meter(plan, device)
        cut = plan.point_of_no_return
        self.before, self.after = self.segments(plan.steps[:cut]), self.segments(plan.steps[cut:])
        self.checks = [step for step in plan.steps if step.op.kind == "check"]

    def segments(self, steps: list[Step]) -> list[Segment]:
        runs: list[list[Step]] = []
        for step in steps:
            if runs and (runs[-1][0].kernels is None) == (step.kernels is None):
                runs[-1].append(step)
            else:
                runs.append([step])
        return [Segment(run, self.device) for run in runs]

    def run(
        self, values: Sequence[Any], guard: Uninterrupted, suspects: dict[int, Suspect]
    ) -> dict[int, Any]:
        """{asked position or store: its value}. `values`: one per leaf, in the plan's order."""
        self.meter.start(values, arena_bytes(self.device.name))
        memory = Memory(self.plan, self.device, values)
        self.meter.ready(memory.arena, arena_bytes(self.device.name))
        if session.check:
            inspect_ranges(self.plan, memory.arena, values, list(memory.external.values()))
        for segment in self.before:
            segment.run(memory)
        if self.checks:
            self.examine(memory, suspects)
        guard.hold()
        try:
            for segment in self.after:
                segment.run(memory)
            found = {i: memory.value(i) for i in self.plan.values}
        except BaseException as problem:
            if not self.plan.stores:
                raise
            fail(
                "launch/store.failed",
                "a kernel failed after parameters had begun to change",
                op="step",
                tensors={},
                source=problem,
                error=TornStateError,
                hint="load the last checkpoint",
            )
        for store, home in self.plan.stores.items():
            found[store] = memory.arrays[home] if home is not None else memory.external[store]
        return found

    def examine(self, memory: Memory, suspects: dict[int, Suspect]) -> None:
        """Raise for the first check that found an offender, in the order of the program."""
        for step in self.checks:
            if step.record is not None and step.kernels is not None:
                record = self.device.array(memory.arena, (2,), np.dtype(np.int64), step.record[1])
                position, found = self.device.read(record).tolist()
            else:
                position, found = memory.records[step.position]
            if position >= 0:
                suspect = suspects[step.position]
                again = partial(step.op.complain, suspect.spec.shape, position, found, suspect)
                del memory  # the traceback must not keep buffers alive
                try:
                    again()
                except Exception as problem:
                    vars(problem).update(position=step.position, again=again)
                    raise
