"""What load_state_dict() of an optimiser accepts. All of it is judged before anything changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ..errors import fail
from .arguments import checked, is_flag, plain

if TYPE_CHECKING:
    from .optimizer import Optimizer

PARTS = ("kind", "numbers", "slots", "clocks")


def fitting(optimizer: Optimizer, saved: Any) -> tuple[list, dict[str, Any], dict[int, Any]]:
    """(slots of each parameter, numbers, clocks) of a state_dict of an optimiser like this one."""
    name = type(optimizer).__name__
    if not isinstance(saved, dict) or any(part not in saved for part in PARTS):
        refuse(f"this is no state of an optimiser, which has {', '.join(PARTS)}")
    if saved["kind"] != name:
        refuse(f"this was saved from {saved['kind']}, not from {name}")
    slots = fitting_slots(optimizer, saved["slots"])
    clocks = saved["clocks"]
    if hasattr(optimizer, "clocks"):
        clocks = fitting_clocks(clocks, {k for k, values in enumerate(slots) if values})
    return slots, fitting_numbers(optimizer, saved["numbers"]), clocks


def fitting_slots(optimizer: Optimizer, saved: list[dict]) -> list[dict[str, np.ndarray]]:
    if len(saved) != len(optimizer.parameters):
        refuse(
            f"{len(saved)} parameters were saved, this optimiser has {len(optimizer.parameters)}"
        )
    found = []
    for p, slots in zip(optimizer.parameters, saved, strict=True):
        own, values = set(optimizer.slots), {n: np.asarray(v) for n, v in slots.items()}
        if values and own and set(values) != own:
            refuse(f"{p.name} has the slots {sorted(values)}, not {sorted(own)}")
        for slot, value in values.items():
            if value.dtype.kind not in "fiub":
                refuse(f"slot {slot} of {p.name} holds {value.dtype}, not numbers")
            if value.shape != p.shape:
                fail(
                    "shape/optimizer.load",
                    f"slot {slot} of {p.name} is {list(value.shape)}, the parameter "
                    f"{list(p.shape)}",
                    op="load_state_dict",
                    tensors={},
                    hint="build it from the same model",
                )
        found.append({slot: value.astype(p.dtype) for slot, value in values.items()})
    return found


def fitting_numbers(optimizer: Optimizer, saved: dict[str, Any]) -> dict[str, Any]:
    own = optimizer.numbers()
    if set(saved) != set(own):
        refuse(f"the numbers {sorted(saved)} were saved, this optimiser has {sorted(own)}")
    for name, value in saved.items():
        if name in optimizer.ranges:
            checked("load_state_dict", name, value, *optimizer.ranges[name])
        elif is_flag(value) != is_flag(own[name]) or (not is_flag(value) and plain(value) is None):
            refuse(f"{name} was saved as {value!r}, here it is {own[name]!r}")
    return saved


def fitting_clocks(saved: dict[int, Any], stepped: set[int]) -> dict[int, tuple[float, float]]:
    """{position: (beta1^t, beta2^t)} of the parameters that have slots."""
    if set(saved) != stepped:
        refuse(f"there are clocks of parameters {list(saved)} and slots of {sorted(stepped)}")
    for k, powers in saved.items():
        if not isinstance(powers, (tuple, list)) or len(powers) != 2:
            refuse(f"the clock of parameter {k} is {powers!r}, not two numbers")
        for name, power in zip(("beta1^t", "beta2^t"), powers, strict=True):
            checked("load_state_dict", name, power, lambda v: 0 <= v <= 1, "in [0, 1]")
    return {k: tuple(powers) for k, powers in saved.items()}


def refuse(what: str) -> NoReturn:
    fail(
        "value/optimizer.load",
        what,
        op="load_state_dict",
        tensors={},
        hint="build it from the same model, as it was when it was saved",
    )
