"""memory: where each temporary buffer lies in the arena.

A buffer lives from the step that writes it to the last that reads it. Two buffers that live at the
same time must not overlap. Finding the smallest arena is bin packing in two dimensions (NP-hard);
greedy placement in a good order comes close: the best of four orders is taken, each improved by
placing what sticks out first; for few buffers branch and bound decides. The lower bound is the
largest number of bytes alive at one step.

    Source: Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020
    (greedy by size)
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

FEW, NODES, RAISES = 16, 20_000, 24  # buffers for branch and bound; its steps; greedy retries
ALIGNMENT = 64  # bytes: a cache line, and an AVX-512 vector
Placed = tuple[
    int, int, int, int
]  # a buffer with an offset: its start and end, first and last step


class Interval(NamedTuple):
    """One buffer: its bytes, the first and the last step (inclusive) at which it is alive."""

    nbytes: int
    first: int
    last: int


class Layout(NamedTuple):
    """offsets: one per buffer; total: the arena's bytes; lower_bound: no arena can be smaller."""

    offsets: list[int]
    total: int
    lower_bound: int


def rounded(nbytes: int) -> int:
    return (nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def assign_offsets(buffers: Sequence[Interval]) -> Layout:
    """Offsets for all buffers, such that no two that live at the same time overlap."""
    sizes = [rounded(b.nbytes) for b in buffers]
    orders = (
        lambda i: (-sizes[i], buffers[i].first),  # large first
        lambda i: (
            -(buffers[i].last - buffers[i].first + 1) * sizes[i],
            buffers[i].first,
        ),  # large areas first
        lambda i: (-(buffers[i].last - buffers[i].first), -sizes[i]),  # long lives first
        lambda i: (buffers[i].first, -sizes[i]),  # as they come
    )
    bound = lower_bound(buffers)
    best: tuple[int, list[int]] | None = None
    for key in orders:
        order = sorted(range(len(buffers)), key=key)
        found = raised(buffers, sizes, order, bound, RAISES if best is None else RAISES // 4)
        if best is None or found[0] < best[0]:
            best = found
        if best[0] == bound:
            break
    assert best is not None
    if best[0] > bound and len(buffers) <= FEW:
        best = branch_and_bound(buffers, sizes, best, bound)
    return Layout(best[1], best[0], bound)


def raised(
    buffers: Sequence[Interval], sizes: list[int], order: list[int], bound: int, tries: int
) -> tuple[int, list[int]]:
    """(total, offsets) of greedy placement; while it misses the bound, the buffer that sticks out
    most is placed first, a few times."""
    best: tuple[int, list[int]] | None = None
    for _ in range(tries):
        offsets = greedy(buffers, sizes, order)
        ends = [o + s for o, s in zip(offsets, sizes, strict=True)]
        total = max(ends, default=0)
        if best is None or total < best[0]:
            best = total, offsets
        if total == bound:
            break
        top = ends.index(total)
        if order[0] == top:
            break
        order = [top, *[i for i in order if i != top]]
    assert best is not None
    return best


def branch_and_bound(
    buffers: Sequence[Interval], sizes: list[int], best: tuple[int, list[int]], bound: int
) -> tuple[int, list[int]]:
    """Tries orders of placement, each buffer as low as it can go: the best arena is among them,
    since any arena can be pressed down in the order of its offsets. Gives up after NODES."""
    left = [NODES]
    offsets = [0] * len(buffers)
    largest_first = sorted(range(len(buffers)), key=lambda i: -sizes[i])

    def extend(done: frozenset[int], placed: list[Placed], total: int) -> None:
        nonlocal best
        if len(done) == len(buffers):
            best = total, offsets.copy()
            return
        for i in largest_first:
            if i in done:
                continue
            left[0] -= 1
            if left[0] < 0 or best[0] == bound:
                return
            _, first, last = buffers[i]
            offsets[i] = lowest(placed, sizes[i], first, last)
            end = offsets[i] + sizes[i]
            if max(total, end) < best[0]:
                more = sorted([*placed, (offsets[i], end, first, last)])
                extend(done | {i}, more, max(total, end))

    extend(frozenset(), [], 0)
    return best


def greedy(buffers: Sequence[Interval], sizes: list[int], order: list[int]) -> list[int]:
    """Each buffer in turn goes to the lowest offset that is free for all of its life."""
    offsets = [0] * len(buffers)
    placed: list[Placed] = []
    for i in order:
        _, first, last = buffers[i]
        at = offsets[i] = lowest(placed, sizes[i], first, last)
        insort(placed, (at, at + sizes[i], first, last))
    return offsets


def lowest(placed: list[Placed], size: int, first: int, last: int) -> int:
    """The lowest offset at which `size` bytes that live from `first` to `last` meet none of
    `placed`, which is sorted."""
    at = 0
    for start, end, begins, ends in placed:
        if begins <= last and first <= ends:
            if at + size <= start:
                break
            if end > at:
                at = end
    return at


def lower_bound(buffers: Sequence[Interval]) -> int:
    """The most bytes alive at one step."""
    change: dict[int, int] = {}
    for b in buffers:
        change[b.first] = change.get(b.first, 0) + rounded(b.nbytes)
        change[b.last + 1] = change.get(b.last + 1, 0) - rounded(b.nbytes)
    live = most = 0
    for step in sorted(change):
        live += change[step]
        most = max(most, live)
    return most
