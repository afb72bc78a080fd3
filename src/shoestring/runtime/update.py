"""Giving states new versions, and reading them: what needs a flush.

assign() computes nothing: a state points at its new version, which the next flush computes. read()
is a snapshot, and so is a copy of a state, by copy.deepcopy or pickle.
"""

from __future__ import annotations

import copyreg
from typing import Any

import numpy as np

from ..backends.device import TURN
from ..backends.device import device as open_device
from ..errors import fail
from ..ir import F, Node, Spec
from .flush import flush
from .guard import Uninterrupted
from .session import DIRTY, MAX_PENDING, session
from .state import State, touch


def read(state: State) -> np.ndarray:
    """A copy of the newest version, computed if need be."""
    with TURN:
        if DIRTY or session.trace is not None:
            flush([state.node])
        return np.array(open_device(state.node.device).read(state.home))


def taken_apart(state: State) -> tuple:
    """For copy.deepcopy and pickle: the newest version, in a home of its own on the same device; a
    gradient is not copied."""
    assert state.node is not None, "only gradients are ever empty, and nobody copies them"
    return restored, (state.name, read(state), state.needs_grad, state.node.device, state.kind)


def restored(name: Any, value: np.ndarray, needs_grad: bool, device: str, kind: str) -> State:
    """A state from what taken_apart() gave."""
    return State(name, open_device(device).upload(value, str(name)), needs_grad, device, kind)


copyreg.pickle(State, taken_apart)  # type: ignore[arg-type]


def assign(updates: list[tuple[State, Node]], settle: bool = False) -> None:
    """Give each state a new version: all of them or none. settle: the next forward computes them
    first."""
    full = [state.node for state, _ in updates if len(state.pending) >= MAX_PENDING]
    if full and session.trace is None:
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
