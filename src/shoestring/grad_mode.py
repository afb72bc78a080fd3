"""Whether what is built is recorded for backward()."""

from __future__ import annotations

import functools
from typing import Any

from .ir import F


class no_grad:
    """Within the block nothing is recorded for backward(). Also a decorator.

    with ss.no_grad():
        accuracy = (model(x).argmax(1) == y).float().mean()
    """

    def __enter__(self) -> None:
        self.before, F.grad_enabled = F.grad_enabled, False

    def __exit__(self, *problem: Any) -> None:
        F.grad_enabled = self.before

    def __call__(self, function: Any) -> Any:
        @functools.wraps(function)
        def without(*arguments: Any, **named: Any) -> Any:
            with no_grad():
                return function(*arguments, **named)

        return without
