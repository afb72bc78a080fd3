"""What the running program has pending: handles, changed states, plans. One thread builds and
runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir import Node, leaf
from . import usage
from .number import Number

MAX_HANDLES, MAX_PLANS, MAX_PENDING = 20_000, 256, 4

# weak references to handles whose node is not computed, or has a graph behind it
HANDLES: list = []
DIRTY: dict = {}  # states whose newest version is not computed yet (in order of their change)
PLANS: dict = {}  # key -> Executable


class Session:
    """settle     a gradient or an update is pending: the next forward computes it first
    trace      the Trace that is recording, if any
    keep       keep what a later backward() would compute again (off under a memory limit)
    structure  changes with the settings of modules and optimisers: compiled steps look again
    recorder   a list that receives the name of every kernel as it runs, or None
    check      verify drafts after each pass, and plans;  fuse: join elementwise ops
    reuse      let the planner give the same memory to buffers that do not live at the same time
    limit      bytes that all allocations on a device may take together, or None
    split_batchnorm  sizes of the micro-batches of the step that is traced, if its batch
               normalisations may be cut"""

    settle = False
    trace: Any = None
    keep = True
    structure = 0
    recorder: list | None = None
    check = False
    fuse = True
    reuse = True
    limit: int | None = None
    split_batchnorm: tuple[int, ...] = ()


session = Session()
counts = dict(plans=0, runs=0)


class Random:
    """Keys for random ops: (seed, number of the draw since the seed was set)."""

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.draws = seed, 0

    def key(self, device: str = "cpu") -> Node:
        """A fresh key, as an input of the plan. Recomputation sees the same key, the next draw and
        replays another."""
        node = leaf(self.at(self.draws), source=("draw", self.draws), device=device)
        self.draws += 1
        return node

    def at(self, draw: int) -> np.ndarray:
        return np.array([self.seed, draw], np.uint64)


random = Random()


def scalar(
    value: Any,
    dtype: Any = np.float32,
    source: Callable[[], Any] | None = None,
    device: str = "cpu",
) -> Node:
    """A Python number as an input of the plan. `source()` is read again when a compiled step is
    replayed."""
    if type(value) is Number:
        return leaf(np.asarray(value.value, dtype), source=("number", value.place), device=device)
    return leaf(np.asarray(value, dtype), source=source, device=device)


def stats() -> dict[str, int]:
    """plans: how many have been compiled; runs: how many have been run, since the program began or
    reset_stats()."""
    return dict(counts)


def reset_stats() -> None:
    """Let stats() and the peaks of memory_stats() count from now on."""
    usage.reset_peaks()
    counts.update(plans=0, runs=0)
