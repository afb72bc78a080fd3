"""The memory limit: a promise in bytes that every plan and every tensor keeps.

Everything allocated on a device counts: parameters, slots, inputs, the user's tensors, the arena,
results. A plan may use what the limit leaves beside all that is allocated already, the arena
excepted, which is made anew when another plan needs another size. What cannot fit is refused before
anything runs.
"""

from __future__ import annotations

import gc
from functools import partial
from typing import Any, NoReturn

from ..backends.device import Device
from ..compile import Plan
from ..config import limit_of
from ..errors import MemoryBudgetError, fail
from .session import session

TENANTS = 5  # that an error names


class MemoryLimit:
    """What `ss.memory_limit()` returns. bytes: the limit, None without one. As a context manager it
    restores what was before."""

    def __init__(self, before: Any) -> None:
        self.bytes, self.before = session.limit, before

    def __enter__(self) -> MemoryLimit:
        return self

    def __exit__(self, *problem: Any) -> None:
        set_limit(self.before)

    def __repr__(self) -> str:
        return "no memory limit" if self.bytes is None else f"memory limit {size(self.bytes)}"


def memory_limit(limit: Any = ...) -> MemoryLimit:
    """Keep everything that is allocated on each device within `limit` bytes from now on.

    limit    "1.8GB" (decimal), "460MiB" (binary), a number of bytes, "auto" (what is free at first
             use, less a tenth), or None for no limit; without it nothing changes
    returns  what is in force; in a `with` statement the limit ends with the block

        ss.memory_limit("1.8GB")

    Plans then compute activations again instead of keeping them where they must (results are equal
    bit for bit), and a plan that cannot fit is refused before anything runs.
    Errors: MemoryBudgetError when more is allocated already; a size that cannot be read.
    """
    before = session.limit
    if limit is not ...:
        set_limit(read_limit(limit))
    return MemoryLimit(before)


def set_limit(limit: int | None) -> None:
    session.limit = Device.limit = limit
    session.keep = limit is None


def read_limit(limit: Any) -> int | None:
    """Bytes of what the user wrote."""
    from ..backends.device import device
    from .devices import default_device

    try:
        found = limit_of(limit) if isinstance(limit, str) else limit
        whole = isinstance(found, int) and not isinstance(found, bool) and found > 0
        if not (found is None or found == "auto" or whole):
            raise ValueError
    except ValueError:
        fail(
            "value/memory_limit.size",
            f"{limit!r} is no amount of memory",
            op="memory_limit",
            tensors={},
            expected=f'a size such as "1.8GB" or "460MiB", bytes, "auto" or None, got {limit!r}',
            hint='ss.memory_limit("1.8GB")',
        )
    if found == "auto":
        open_device = device(default_device())
        return open_device.allocated_bytes() + int(0.9 * open_device.free_bytes())
    return found


def room(device: Device, arena_bytes: int, limit: int | None, wanted: int = 0) -> int | None:
    """Bytes that a plan's arena and results may take. Where less than `wanted` is free, garbage
    that Python has not collected yet goes first."""
    if limit is None:
        return None
    free = limit - (device.allocated_bytes() - arena_bytes)
    if free < wanted:
        gc.collect()
        free = limit - (device.allocated_bytes() - arena_bytes)
    return free


def require(plan: Plan, free: int | None, limit: int | None) -> Plan:
    """`plan`, if it fits."""
    if free is not None and limit is not None and plan.own_bytes > free:
        refuse(plan, free, limit)
    return plan


def refuse(
    plan: Plan, free: int, limit: int, batch: tuple[int, int] | None = None, parts: int = 1
) -> NoReturn:
    """Raise MemoryBudgetError. batch: the one asked for, and the largest that fits (0: none);
    parts: micro-batches that the plan has."""
    floor = limit - free + plan.own_bytes
    lines = [f'ss.memory_limit("{at_least(floor)}")', "batch_size = ...  # a smaller one"]
    cause = f"the smallest plan, with all that can be computed again, needs {size(floor)}"
    if parts > 1:
        cause += f", the batch in {parts} parts"
    if batch is not None:
        asked, fits = batch
        lines[1:] = [f"batch_size = {fits}  # instead of {asked}"] if fits else []
        cause += "; "
        cause += f"the largest batch that fits is {fits}" if fits else "not even one sample fits"
    try:
        fail(
            "launch/memory.budget",
            f"no plan fits the memory limit of {size(limit)}",
            op="memory_limit",
            tensors={name: size(n) for name, n in tenants(plan, limit - free).items()},
            cause=cause,
            hint="\n        ".join(lines),
            error=MemoryBudgetError,
        )
    except MemoryBudgetError as problem:
        problem.limit_bytes, problem.floor_bytes = limit, floor
        problem.again = partial(refuse, plan, free, limit)
        raise


def tenants(plan: Plan, present: int) -> dict[str, int]:
    """What takes most of the memory at the plan's peak: {what: bytes}."""
    found: dict[str, int] = {}
    for tenant in plan.at_peak():
        step = plan.steps[tenant.first]
        what = f"{step.layer or 'no layer'}, {step.op.name}"
        found[what] = found.get(what, 0) + tenant.nbytes
    largest = sorted(found.items(), key=lambda item: -item[1])[:TENANTS]
    return {"there before the plan": present, **dict(largest)}


def size(nbytes: int) -> str:
    """`460.0 MiB (482,344,960 bytes)`"""
    return f"{nbytes / 2**20:,.1f} MiB ({nbytes:,} bytes)"


def at_least(nbytes: int) -> str:
    """A size to type that is not smaller."""
    unit = ("MiB", 2**20) if nbytes >= 2**25 else ("KiB", 2**10)
    return f"{-(-nbytes // unit[1])}{unit[0]}"
