"""States: what lasts and changes. Parameters, running statistics, optimiser slots and gradients.

A state owns one `home` buffer, whose address never changes, and points at the node that is its
newest version. No handle ever points at a home: reading a state through a handle is a node that
reads the version.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..backends.device import TURN
from ..backends.device import device as open_device
from ..errors import fail
from ..ir import F, Node, Spec, leaf
from .guard import Uninterrupted
from .session import DIRTY, MAX_PENDING, session


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

    def read(self) -> np.ndarray:
        """A copy of the newest version, computed if need be."""
        with TURN:
            if DIRTY or session.trace is not None:
                from .flush import flush

                flush([self.node])
            return np.array(open_device(self.node.device).read(self.home))

    def revert(self) -> None:
        """Forget the versions that are not computed yet."""
        DIRTY.pop(self, None)
        self.node, self.pending = self.leaf, []

    def __reduce__(self) -> tuple:
        """For copy.deepcopy and pickle: the newest version, in a home of its own on the same
        device; a gradient is not copied."""
        assert self.node is not None, "only gradients are ever empty, and nobody copies them"
        return restored, (self.name, self.read(), self.needs_grad, self.node.device, self.kind)


def restored(name: Any, value: np.ndarray, needs_grad: bool, device: str, kind: str) -> State:
    """A state from what `State.__reduce__` gave."""
    return State(name, open_device(device).upload(value, str(name)), needs_grad, device, kind)


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


def assign(updates: list[tuple[State, Node]], settle: bool = False) -> None:
    """Give each state a new version: all of them or none. settle: the next forward computes them
    first."""
    full = [state.node for state, _ in updates if len(state.pending) >= MAX_PENDING]
    if full and session.trace is None:
        from .flush import flush

        flush(full)
    stores, token = [], object() if len(updates) > 1 else None
    for state, node in updates:
        if state.node is not None and node.spec is not state.node.spec:
            mismatch(state, node.spec)
        store = F.store(node)
        store.state, store.needs_grad = state, state.needs_grad
        if token is not None:
            store.together = token
        stores.append((state, store))
    thread, trace = session.thread, session.trace
    with TURN, Uninterrupted() as guard:
        guard.hold()
        for state, store in stores:
            if trace is not None:
                touch(state)
            state.node = store
            state.pending.append(store)
            DIRTY[state] = thread
        if settle:
            session.settle = True


def mismatch(state: State, spec: Spec) -> None:
    fail(
        "shape/assign.spec",
        f"{state.name} is {state.node.spec}, the new value is {spec}",
        op="assign",
        tensors={"state": state.node.spec, "value": spec},
        hint=f"value.reshape({list(state.node.shape)})",
    )


def add_gradients(found: list[tuple[State, Node]]) -> None:
    """[(state, gradient node)]: what backward() found is added to what is there."""
    assign(
        [(s.grad, g if s.grad.node is None else F.add(s.grad.node, g)) for s, g in found],
        settle=True,
    )
