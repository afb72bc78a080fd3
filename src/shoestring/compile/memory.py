"""memory: where each temporary buffer lies in the arena.

A buffer lives from the step that writes it to the last that reads it. Two buffers that live at the
same time must not overlap. Finding the smallest arena is bin packing in two dimensions (NP-hard);
greedy placement in a good order comes close: the best of four orders is taken. The lower bound is
the largest number of bytes alive at one step.

    Source: Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020
    (greedy by size)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ALIGNMENT = 64  # bytes: a cache line, and an AVX-512 vector


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
    for order in orders:
        offsets = greedy(buffers, sizes, sorted(range(len(buffers)), key=order))
        total = max((o + s for o, s in zip(offsets, sizes, strict=True)), default=0)
        if best is None or total < best[0]:
            best = total, offsets
        if total == bound:
            break
    assert best is not None
    return Layout(best[1], best[0], bound)


def greedy(buffers: Sequence[Interval], sizes: list[int], order: list[int]) -> list[int]:
    """Each buffer in turn goes to the lowest offset that is free for all of its life."""
    offsets = [0] * len(buffers)
    placed: list[int] = []
    for i in order:
        first, last, at = buffers[i].first, buffers[i].last, 0
        neighbours = sorted(
            (offsets[j], sizes[j])
            for j in placed
            if buffers[j].first <= last and first <= buffers[j].last
        )
        for offset, size in neighbours:
            if at + sizes[i] <= offset:
                break
            at = max(at, offset + size)
        offsets[i] = at
        placed.append(i)
    return offsets


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
