"""What the running program has pending: handles, changed states, plans.

Several threads may build at the same time, each its own graph; they evaluate and assign in turn
(TURN). What is pending belongs to the thread that assigned it last, and another thread computes it
only where its own values depend on it: so a step is one plan, whatever other threads do meanwhile.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir import Node, leaf
from . import usage
from .number import Number

MAX_HANDLES, MAX_PLANS, MAX_PENDING = 20_000, 256, 4

# (thread, weak references to handles that it made, whose node is not computed, or has a graph
# behind it)
HANDLES: list[tuple[threading.Thread, list]] = []
# state whose newest version is not computed yet -> the thread that assigned it (in order of their
# change)
DIRTY: dict[Any, threading.Thread] = {}
PLANS: dict = {}  # key -> Executable


class Session(threading.local):
    """Of each thread:

    thread     the running one;  handles: its entry in HANDLES
    settle     a gradient or an update is pending: the next forward computes it first
    trace      the Trace that is recording, if any
    split_batchnorm  sizes of the micro-batches of the step that is traced, if its batch
               normalisations may be cut

    Of all:

    keep       keep what a later backward() would compute again (off under a memory limit)
    structure  changes with the settings of modules and optimisers: compiled steps look again
    recorder   a list that receives the name of every kernel as it runs, or None
    check      verify drafts after each pass, and plans;  fuse: join elementwise ops
    reuse      let the planner give the same memory to buffers that do not live at the same time
    limit      bytes that all allocations on a device may take together, or None"""

    # slots of a threading.local are shared by all threads
    __slots__ = ("check", "fuse", "keep", "limit", "recorder", "reuse", "structure")

    def __init__(self) -> None:
        """Runs in each thread, at its first use."""
        self.thread, self.handles = threading.current_thread(), []
        self.settle, self.trace, self.split_batchnorm = False, None, ()
        HANDLES.append((self.thread, self.handles))


session = Session()
session.keep = session.fuse = session.reuse = True
session.check, session.structure, session.recorder, session.limit = False, 0, None, None
counts = dict(plans=0, runs=0)


class Random(threading.local):
    """Keys for random ops: (seed, number of the draw since the seed was set). Each thread counts
    its own draws. One that has set no seed takes the main thread's, from the number n * 2^40 on if
    it is the n-th thread to draw."""

    latest = 0  # seed of the main thread
    starts = itertools.count(0, 2**40)

    def __init__(self) -> None:
        self.seed, self.draws = Random.latest, next(self.starts)

    def start(self, seed: int, draws: int = 0) -> None:
        self.seed, self.draws = seed, draws
        if session.thread is threading.main_thread():
            Random.latest = seed

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
