"""Evaluates plans: states, what is alive, the plan cache, compiled steps, errors' hooks."""

from . import debug
from .arena import arena_bytes, release_arena
from .call import Call
from .compiled import Compiled
from .devices import default_device, set_threads, threads
from .executor import looked_at
from .flush import compact, flush, guarded, settle_pending
from .guard import Uninterrupted
from .limits import MemoryLimit, memory_limit, read_limit
from .number import Number
from .outline import outlined
from .seen import Watched, unchanged
from .session import DIRTY, HANDLES, MAX_HANDLES, PLANS, random, reset_stats, scalar, session, stats
from .state import State, clear, present
from .update import add_gradients, assign, read
from .usage import memory_report, memory_stats

__all__ = [
    "DIRTY",
    "HANDLES",
    "MAX_HANDLES",
    "MemoryLimit",
    "PLANS",
    "Call",
    "Compiled",
    "Number",
    "State",
    "Uninterrupted",
    "Watched",
    "add_gradients",
    "arena_bytes",
    "assign",
    "clear",
    "compact",
    "debug",
    "default_device",
    "flush",
    "guarded",
    "looked_at",
    "memory_limit",
    "memory_report",
    "memory_stats",
    "outlined",
    "present",
    "random",
    "read",
    "read_limit",
    "release_arena",
    "reset_stats",
    "scalar",
    "session",
    "set_threads",
    "settle_pending",
    "stats",
    "threads",
    "unchanged",
]
