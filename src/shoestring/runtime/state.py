"""States: what lasts and changes. Parameters, running statistics, optimiser slots and gradients.

A state owns one `home` buffer, whose address never changes, and points at the node that is its
newest version. No handle ever points at a home: reading a state through a handle is a node that
reads the version.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..backends.device import TURN
from ..ir import Node, leaf
from .session import DIRTY, session


class State:
    """home  the buffer;  leaf: the version whose value is in the home;  node: the newest version.
    `node is None`: empty
    (a gradient before backward() and after zero_grad()).  pending: versions not computed yet, the
    newest last.
    kind  what reports call it: "parameters", "gradients", "optimizer state" or "buffers"."""

    __slots__ = (
        "__weakref__",
        "grad",
        "home",
        "kind",
        "leaf",
        "name",
        "needs_grad",
        "node",
        "pending",
    )

    def __init__(
        self,
        name: Any,
        home: Any = None,
        needs_grad: bool = False,
        device: str = "cpu",
        kind: str = "",
    ) -> None:
        self.kind = kind or ("parameters" if needs_grad else "buffers")
        self.name, self.needs_grad = name, needs_grad
        self.pending: list[Node] = []
        self.home = self.leaf = self.node = None
        self.grad = (
            State(GradientName(self), device=device, kind="gradients") if needs_grad else None
        )
        if home is not None:  # memory of our own, always: the caller has copied
            self.home = home
            self.node = self.leaf = leaf(home, self, needs_grad=needs_grad, device=device)

    def clear(self) -> None:
        """Forget value and memory."""
        clear((self,))

    def revert(self) -> None:
        """Forget the versions that are not computed yet."""
        DIRTY.pop(self, None)
        self.node, self.pending = self.leaf, []


class GradientName:
    """`conv1.weight.grad`, whatever the parameter is called by the time somebody asks."""

    def __init__(self, state: State) -> None:
        import weakref

        self.state = weakref.ref(state)

    def __str__(self) -> str:
        state = self.state()
        return f"{state.name if state is not None else 'parameter'}.grad"


def clear(states: Iterable[State]) -> None:
    """Forget values and memory of all of them."""
    tracing = session.trace is not None
    with TURN:
        for state in states:
            if tracing:
                touch(state)
            DIRTY.pop(state, None)
            state.home = state.leaf = state.node = None
            state.pending = []


def touch(state: State) -> None:
    """Remember what a trace must undo."""
    if session.trace is not None:
        session.trace.log.setdefault(state, (state.node, state.leaf, state.home))


def present(state: State | None) -> Node | None:
    """The newest version of a gradient, None if there is none; a trace remembers which."""
    if state is None:
        return None
    touch(state)
    return state.node
