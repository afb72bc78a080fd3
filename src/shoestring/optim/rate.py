"""Numbers of an optimiser as inputs of the plan, which are read again at every replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import runtime
from ..ir import Node
from .clock import Clock


class Rated(runtime.Watched):
    """What has a learning rate that may change at every step: no compiled step traces again for
    it, unless its own Python has read it."""

    @property
    def lr(self) -> Any:
        """The learning rate. step() reads it as an input of the plan; whatever else reads it in a
        trace depends on its value."""
        self._note_rate()
        return vars(self)["lr"]

    @lr.setter
    def lr(self, rate: Any) -> None:
        self._note_rate()
        vars(self)["lr"] = rate

    def _changed(self, name: str, before: Any) -> None:
        if name != "lr" or runtime.session.trace is not None:
            super()._changed(name, before)

    def _note_rate(self) -> None:
        if runtime.session.trace is not None:
            runtime.session.trace.seen.name(vars(self), "lr")


class Shared:
    """Nodes that all parameters of one step have in common: `shared(name, device)` is an attribute
    of the optimiser as an input of the plan, read again at every replay."""

    def __init__(self, optimizer: Rated, stepping: set[int]) -> None:
        self.optimizer, self.nodes, self.stepping = optimizer, {}, stepping
        self.ticking: list[Clock] = []  # that run, whether their parameters step or not

    def once(self, key: Any, build: Callable[[], Node]) -> Node:
        if key not in self.nodes:
            self.nodes[key] = build()
        return self.nodes[key]

    def __call__(self, name: str, device: str) -> Node:
        own = vars(self.optimizer)  # `optimizer.lr` would note what a trace reads

        def read(optimizer=self.optimizer):
            return own["lr"] if name == "lr" else getattr(optimizer, name)

        return self.once((name, device), lambda: runtime.scalar(read(), source=read, device=device))
