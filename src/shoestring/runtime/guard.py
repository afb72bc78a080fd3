"""Ctrl-C is delivered at once until hold(); from then on it waits for the end of the block."""

from __future__ import annotations

import _signal  # what `signal` wraps: its enums cost more than the calls, five times a step
import threading
import traceback
from typing import Any

SIGINT = int(_signal.SIGINT)


class Uninterrupted:
    """with Uninterrupted() as guard: ... guard.hold() ... : after hold() a SIGINT is kept and
    delivered at the end."""

    held = False
    hit: tuple | None = None

    def __enter__(self) -> Uninterrupted:
        return self

    def hold(self) -> None:
        if not self.held and threading.current_thread() is threading.main_thread():
            old = _signal.getsignal(SIGINT)
            if callable(old):
                self.old, self.held = old, True
                _signal.signal(SIGINT, self._note)

    def _note(self, *arguments: Any) -> None:
        self.hit = arguments

    def __exit__(self, *problem: Any) -> None:
        if self.held:
            _signal.signal(SIGINT, self.old)
            if self.hit:
                self.old(*self.hit)


def let_go(problem: BaseException, all: bool = False) -> None:
    """Clear the frames below the caller that tracebacks of the error and its causes would keep, and
    the arrays in them: who keeps the error keeps no memory. all: the topmost frame has ended
    too."""
    found: BaseException | None = problem
    while found is not None:
        below = found.__traceback__
        if below is not None:
            traceback.clear_frames(below if all or found is not problem else below.tb_next)
        found = found.__cause__
