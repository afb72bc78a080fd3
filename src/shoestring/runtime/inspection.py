"""What SHOESTRING_CHECK=1 looks at while a plan runs: addresses always, results by sample.

- Every byte that a launch can reach, at the strides that it was told, lies inside what its operand
  owns: the arena, the result's buffer, the input's allocation. An input lies as its plan says.
- Of some launches the inputs are copied as they lie, and the results compared with the op's
  reference on them. The bound is loose: it is there to find numbers from a wrong place, while
  `testing.check_op` measures rounding.

The plan is verified on paper as well (compile/verify_plan.py), but that sees operands only as the
plan describes them; this sees the values that came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backends import Operand
from ..backends.device import Device
from ..compile import Plan, Step
from ..compile.verify_plan import Range, reach
from ..errors import fail

MOST_WORK = 4e6  # operations and bytes of a launch that is compared: references are slow
FLOAT_ERROR = 1e-3  # of the largest value of the result
INPUT_ERROR = 1e-4  # of the largest value of the inputs: what cancels in a sum
AT_A_THRESHOLD = 0.02  # of the elements of a comparison or position, which rounding may turn


class Sample:
    """share  of the launches that are compared;  credit: what has added up to the next one"""

    share = 0.1
    credit = 0.5

    @classmethod
    def takes(cls, steps: Sequence[Step]) -> bool:
        """Whether a launch of these steps is compared; one by one in turn, not at random."""
        costs = [step.cost() for step in steps]
        if sum(cost.flops + cost.bytes for cost in costs) > MOST_WORK:
            return False
        cls.credit += cls.share
        if cls.credit < 1:
            return False
        cls.credit -= 1
        return True


def strides_of(value: Any) -> tuple[int, ...]:
    return tuple(s // value.dtype.itemsize for s in value.strides)


def allocation(value: Any) -> tuple[int, int]:
    """(bytes before the first element, bytes from there to the end) of what a value lies in."""
    if not isinstance(value, np.ndarray):
        return value.offset, value.base.nbytes - value.offset
    owner = value
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    start = owner.__array_interface__["data"][0]
    where = value.__array_interface__["data"][0]
    return where - start, start + owner.nbytes - where


def require(holds: bool, at: str, what: str) -> None:
    if not holds:
        fail(
            "launch/inspection.layout",
            f"a launch would touch memory that is not its own, at {at}: {what}",
            tensors={},
            hint="this is a bug in the compiler; please report it with the program that shows it",
        )


def inspect_ranges(plan: Plan, arena: Any, values: Sequence[Any], external: Sequence[Any]) -> None:
    """Complain about an input that lies otherwise than planned, or a step that reaches beyond its
    operands."""
    extents = {0: Range(0, 0, arena.nbytes)}
    for k, (leaf, value) in enumerate(zip(plan.leaves, values, strict=True)):
        if leaf in plan.staged or value.nbytes == 0:
            continue
        planned = plan.strides.get(leaf)
        lies = None if value.flags.c_contiguous else strides_of(value)
        require(planned == lies, f"input {k}", f"planned for strides {planned}, it has {lies}")
        low, high = allocation(value)
        whole = reach((1 + k, 0), Operand(value.shape, value.dtype, strides_of(value)))
        extents[1 + k] = whole
        inside = -low <= whole.start and whole.end <= high
        require(inside, f"input {k}", f"it spans {whole}, its allocation {-low} to {high}")
    first = 1 + len(values)
    for k, value in enumerate(external):
        extents[first + k] = Range(first + k, 0, value.nbytes)
    for k, step in enumerate(plan.steps):
        for place, operand in zip(
            [*step.reads, *step.writes], [*step.inputs, *step.outputs], strict=True
        ):
            if operand.size:
                found, whole = reach(place, operand), extents[place[0]]
                inside = whole.start <= found.start and found.end <= whole.end
                require(inside, f"step {k}, {step.op.name}", f"{found} is outside {whole}")


class Comparison:
    """The inputs of one launch as they lie before it, and whether its results are right after
    it."""

    def __init__(self, steps: Sequence[Step], device: Device, bases: Sequence[Any]) -> None:
        self.steps, self.device, self.bases = steps, device, bases
        self.inputs = [
            [self.read(place, x) for place, x in zip(step.reads, step.inputs, strict=True)]
            for step in steps
        ]

    def read(self, place: tuple[int, int], operand: Operand) -> np.ndarray:
        """A copy of what lies there, at the operand's strides."""
        if operand.size == 0:
            return np.empty(operand.shape, operand.dtype)
        return self.device.lying(self.bases[place[0]], place[1], operand)

    def finish(self) -> None:
        """Complain about the first result that its reference does not give. Steps of one launch may
        read what those before them have made."""
        made: dict[tuple, np.ndarray] = {}
        for step, inputs in zip(self.steps, self.inputs, strict=True):
            if step.op.kind == "check":
                continue
            xs = [
                made[place, x.size].reshape(x.shape) if (place, x.size) in made else x
                for place, operand, x in zip(step.reads, step.inputs, inputs, strict=True)
            ]
            with np.errstate(all="ignore"):
                found = step.op.reference(*xs)
            wanted = found if step.op.outputs > 1 else (found,)
            for place, operand, want in zip(step.writes, step.outputs, wanted, strict=True):
                want = np.asarray(want).reshape(operand.shape)
                made[place, want.size] = want  # whatever shape a later step sees it in
                got = self.read(place, operand)
                if not alike(got, want, xs):
                    self.complain(step, got, want)

    def complain(self, step: Step, got: np.ndarray, want: np.ndarray) -> None:
        with np.errstate(all="ignore"):
            differ = np.flatnonzero(~np.isclose(got, want, equal_nan=True))
        at = int(differ[0]) if differ.size else 0
        fail(
            "launch/inspection.result",
            f"its kernel gave other values than its reference: {len(differ)} of {got.size}",
            op=step.op.name,
            layer=step.layer,
            tensors={
                f"input {k}": f"{list(o.shape)} {o.dtype} strides {list(o.strides)}"
                for k, o in enumerate(step.inputs)
            },
            expected=f"{want.reshape(-1)[at]} at flat position {at}, got {got.reshape(-1)[at]}",
            hint="this is a bug in a kernel; please report it with the program that shows it",
        )


def alike(got: np.ndarray, want: np.ndarray, inputs: Sequence[np.ndarray]) -> bool:
    """Whether a kernel's result may be the reference's, rounding apart."""
    if got.dtype.kind != "f":
        return np.count_nonzero(got != want) <= 1 + AT_A_THRESHOLD * got.size * (got.size > 1)
    finite = np.isfinite(want)
    if not np.array_equal(np.where(finite, 0, got), np.where(finite, 0, want), equal_nan=True):
        return False
    floats = [x for x in inputs if x.dtype.kind == "f"]
    with np.errstate(all="ignore"):
        allowed = FLOAT_ERROR * largest(want) + INPUT_ERROR * max(map(largest, floats), default=0)
        error = np.abs(got[finite].astype(np.float64) - want[finite].astype(np.float64))
    return bool(np.max(error, initial=0) <= allowed)


def largest(x: np.ndarray) -> float:
    """The largest finite absolute value."""
    return float(np.max(np.abs(x[np.isfinite(x)]), initial=0))
