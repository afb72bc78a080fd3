"""Whether what is built is recorded for backward()."""

from __future__ import annotations

import functools
from typing import Any

from .errors import context


class no_grad:
    """Within the block nothing is recorded for backward(). Also a decorator.

    with ss.no_grad():
        accuracy = (model(x).argmax(1) == y).float().mean()
    """

    def __enter__(self) -> None:
        now = context()
        now.before.append(now.grad_enabled)
        now.grad_enabled = False

    def __exit__(self, *problem: Any) -> None:
        now = context()
        now.grad_enabled = now.before.pop()

    def __call__(self, function: Any) -> Any:
        @functools.wraps(function)
        def without(*arguments: Any, **named: Any) -> Any:
            with no_grad():
                return function(*arguments, **named)

        return without
