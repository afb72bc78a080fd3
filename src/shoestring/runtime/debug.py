"""Hooks for whoever debugs: see every failure as it happens, and every kernel as it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import ShoestringError, hooks
from .session import session


@contextmanager
def on_failure(hook: Callable[[ShoestringError], object]) -> Iterator[None]:
    """Within the block, `hook(error)` is called for every error of this package before it is
    raised.

    with ss.debug.on_failure(lambda error: print(error.place)):
        train()
    """
    hooks.append(hook)
    try:
        yield
    finally:
        hooks.remove(hook)


@contextmanager
def record_kernels() -> Iterator[list[str]]:
    """Within the block, every kernel that runs appends its name to the list that the block is
    given."""
    before, session.recorder = session.recorder, []
    try:
        yield session.recorder
    finally:
        session.recorder = before
