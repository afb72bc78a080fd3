"""Gradient accumulation: one step of an optimiser from the gradients of several micro-batches.

    gradient of a window = sum over its micro-batches i of count_i (gradient of loss_i)
                           / sum of count_i

loss_i is a mean over count_i samples (or labels that are not ignored). So the window's gradient is
that of the mean over all its samples, however they are cut: a micro-batch of 1 sample with loss 10
and one of 3 with loss 2 make a loss of 4, not of 6. A window whose counts are all 0 has the
gradient 0, not 0/0. To cut the batch of one compiled step use ss.compile(step, micro_batches=...).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from .. import runtime
from ..backends.device import device as open_device
from ..errors import TraceError, fail
from ..ir import F, Node, leaf
from ..runtime import State, Uninterrupted
from ..tensor import Tensor, wrap
from ..variable import Variable
from .optimizer import WINDOWS, Optimizer, window_of

PLACES = ("device", "cpu")


class accumulate:
    """Windows of `steps` micro-batches, each of which is one step of the optimiser.

    optimizer  takes a step, and forgets its gradients, at the end of each window
    steps      micro-batches of a window; None: the whole `with` block is one
    grads_on   where gradients wait for the end of the window: "device", where they are computed, or
               "cpu", in the host's memory, which costs a copy per micro-batch and leaves the device
               room for more samples

        with ss.accumulate(optimizer, steps=4) as window:
            for x, y in batches:
                window.backward(ss.cross_entropy(model(x), y), count=len(y))
                window.step()

    A last window with fewer micro-batches is applied when the block ends. After an error or an
    interrupt it is not: gradients are again what they were before it. Gradients from before the
    block are added to those of its first window, as backward() adds to what is there.
    """

    def __init__(
        self, optimizer: Optimizer, steps: int | None = None, grads_on: str = "device"
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            fail(
                "type/accumulate.optimizer",
                f"needs an optimiser, got {type(optimizer).__name__}",
                op="accumulate",
                tensors={},
                hint="ss.accumulate(ss.SGD(model.parameters()), steps=4)",
            )
        whole = isinstance(steps, int) and not isinstance(steps, bool)
        if steps is not None and not (whole and steps > 0):
            fail(
                "value/accumulate.steps",
                f"steps is a whole number above 0, or None, got {steps!r}",
                op="accumulate",
                tensors={},
                hint="ss.accumulate(optimizer, steps=4)",
            )
        if grads_on not in PLACES:
            fail(
                "value/accumulate.place",
                f"gradients can be kept on {' or '.join(map(repr, PLACES))}, not {grads_on!r}",
                op="accumulate",
                tensors={},
                hint='grads_on="cpu"',
            )
        self.optimizer, self.steps, self.grads_on = optimizer, steps, grads_on
        self.waiting = 0  # micro-batches of the window so far
        self.totals: dict[str, State] = {}  # device -> sum of counts
        self.kept: dict[State, np.ndarray] = {}  # gradients that wait on the host
        self.before: dict[Variable, Tensor] = {}  # gradients from before the window
        self.trace: Any = None  # in which the block was entered

    def __enter__(self) -> accumulate:
        states = {p.state for p in self.optimizer.parameters}
        for optimizer in WINDOWS:
            if not states.isdisjoint(p.state for p in optimizer.parameters):
                fail(
                    "value/accumulate.nested",
                    "a window for these parameters is open already",
                    op="accumulate",
                    tensors={},
                    cause="both would add to the same gradients",
                    hint="one `with ss.accumulate(...)` at a time",
                )
        with Uninterrupted() as guard:
            guard.hold()
            WINDOWS[self.optimizer], self.trace = self, runtime.session.trace
            for p in self.optimizer.parameters:
                if p.grad is not None:
                    self.before[p], p.grad = p.grad, None
        return self

    def __exit__(self, kind: Any, *problem: Any) -> None:
        whole = False
        try:
            if kind is None:
                self.finish()
                whole = True
        finally:
            with Uninterrupted() as guard:
                guard.hold()
                del WINDOWS[self.optimizer]
                self.trace = None
                if not whole or self.before:
                    self.roll_back()

    def finish(self) -> None:
        """Apply a last window with fewer micro-batches."""
        if self.waiting:
            self.apply()
        elif any(p.grad is not None for p in self.optimizer.parameters):
            fail(
                "value/accumulate.step",
                "the block ends with gradients of which no window.step() has been told",
                op="accumulate",
                tensors={},
                hint="window.step() after every window.backward()",
            )

    def roll_back(self) -> None:
        """Nothing of the window remains: gradients are those from before it."""
        for p in self.optimizer.parameters:
            p.grad = self.before.get(p)
        self.forget()

    def forget(self) -> None:
        """Counts and what waits start anew. Compiled steps go on with the same states of counts."""
        runtime.assign(
            [(total, runtime.scalar(0.0, device=name)) for name, total in self.totals.items()]
        )
        self.before, self.kept, self.waiting = {}, {}, 0

    def check_open(self, what: str, trace: Any) -> None:
        if window_of(self.optimizer) is not self:
            fail(
                "value/accumulate.closed",
                f"{what} belongs into the block of its window",
                op="accumulate",
                tensors={},
                hint="with ss.accumulate(optimizer, steps=4) as window: ...",
            )
        if trace is not self.trace:
            fail(
                "compile/accumulate.step",
                f"{what} inside a compiled step would count only while that is traced",
                op="accumulate",
                tensors={},
                error=TraceError,
                hint="window.backward() inside the compiled step, window.step() after its call",
            )

    def __reduce__(self) -> tuple:
        """For copy.deepcopy and pickle: a window that has not begun."""
        if self.waiting:
            fail(
                "value/accumulate.copy",
                f"{self.waiting} micro-batches of the window wait in gradients, which no copy has",
                op="accumulate",
                tensors={},
                hint="copy it between windows, or window.apply() first",
            )
        return type(self), (self.optimizer, self.steps, self.grads_on)

    def backward(self, loss: Tensor, count: Any) -> None:
        """Add count times the gradient of `loss` to the window. May be part of a compiled step.

        loss   a mean over `count` samples or labels: a scalar
        count  a number not below 0, or a scalar tensor such as (labels != ignored).sum()
        """
        number = isinstance(count, (int, float, np.integer, np.floating))
        if not (isinstance(count, Tensor) and count.shape == ()) and not (
            number and 0 <= count < math.inf
        ):
            fail(
                "value/accumulate.count",
                f"count is how many samples the loss is a mean over, got {count!r}"
                if not isinstance(count, Tensor)
                else f"count is one number, got a tensor {list(count.shape)}",
                op="accumulate",
                tensors={},
                hint="window.backward(loss, count=len(y))",
            )
        self.check_open("window.backward()", self.trace)
        weight = weight_of(count, loss)
        loss.backward(wrap(weight))
        total = self._total(loss.device)
        runtime.assign([(total, F.add(total.node, weight))])

    def _total(self, device: str) -> State:
        if device not in self.totals:
            home = open_device(device).upload(np.zeros((), np.float32), "count of samples")
            self.totals[device] = State("count of samples", home, device=device)
        return self.totals[device]

    def step(self) -> bool:
        """A micro-batch is done. Whether it was the last of its window, which is applied then."""
        self.check_open("window.step()", runtime.session.trace)
        self.waiting += 1
        if self.grads_on == "cpu":
            self._move()
        if self.waiting == self.steps:
            self.apply()
            return True
        return False

    def _states(self) -> list[State]:
        return [p.state for p in self.optimizer.parameters if p.state.grad is not None]

    def _move(self) -> None:
        """Gradients go to the host, and are added to those that wait there."""
        runtime.flush([g.node for s in self._states() if (g := s.grad).node is not None])
        for state in self._states():
            assert state.grad is not None
            if state.grad.node is not None:
                if state in self.kept:
                    self.kept[state] += state.grad.home
                else:
                    self.kept[state] = np.array(state.grad.home)
                state.grad.clear()

    def apply(self) -> None:
        """Divide the window's gradients by its counts, take a step, forget them."""
        self.check_open("window.apply()", runtime.session.trace)
        scales = {name: inverse(total) for name, total in self.totals.items()}
        updates = []
        for p in self.optimizer.parameters:
            state = p.state
            g = state.grad.node if state.grad is not None else None
            if state in self.kept:
                name = state.node.device
                value = open_device(name).upload(self.kept[state], str(state.grad.name))
                g = leaf(value, device=name)
            found = [F.mul(g, scales[g.device])] if g is not None and g.device in scales else []
            found += [self.before[p].node] if p in self.before else []
            if found:
                updates.append((state.grad, functools.reduce(F.add, found)))
        runtime.assign(updates, settle=True)
        del WINDOWS[self.optimizer]  # which lets it step
        try:
            self.optimizer.step()
            self.optimizer.zero_grad()
        finally:
            WINDOWS[self.optimizer] = self
        self.forget()


def weight_of(count: Any, loss: Tensor) -> Node:
    if isinstance(count, Tensor):
        node = count.node
        return node if node.dtype == loss.dtype else F.cast(node, to=loss.dtype.name)
    return runtime.scalar(float(count), loss.dtype, device=loss.device)


def inverse(total: State) -> Node:
    """1 / count; 0 where nothing was counted."""
    nothing = runtime.scalar(0.0, device=total.node.device)
    return F.where(F.equal(total.node, nothing), nothing, F.reciprocal(total.node))
