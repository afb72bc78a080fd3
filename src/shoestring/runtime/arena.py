"""One arena per device serves all plans, since no value in it outlives a run.

It only grows: a plan that needs more lets go of the old arena before it asks for a larger one, so
that the two never count together; a plan that needs less uses a part. Under a memory limit it also
shrinks, where the results of a plan need the room.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.device import RELEASE, Device
from ..compile import Plan

ARENAS: dict[str, Any] = {}
NOTHING = np.empty(0, np.uint8)


def arena(device: Device, plan: Plan) -> Any:
    """The device's arena, large enough for the plan. Another size lets go of the old one first:
    nothing lives in it. Under a memory limit it shrinks where the plan's results need the room."""
    found, nbytes = ARENAS.get(device.name), plan.arena_bytes
    if nbytes == 0 and device.keeps_values:  # an outline refuses to run anything
        return NOTHING
    if found is not None and found.size > nbytes and device.limit is not None:
        if device.allocated_bytes() + plan.external_bytes > device.limit:
            found = None
    if found is None or found.size < nbytes:
        found = None
        ARENAS.pop(device.name, None)
        found = ARENAS[device.name] = device.allocate(nbytes, "arena")
    return found


def arena_bytes(name: str) -> int:
    """Bytes of the device's arena now."""
    return ARENAS[name].size if name in ARENAS else 0


def release_arena(name: str) -> None:
    """Give the arena's memory back; the next plan asks for it again."""
    ARENAS.pop(name, None)


RELEASE.append(lambda device: release_arena(device.name))
