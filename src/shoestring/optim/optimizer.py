"""Optimisers. step() computes nothing: it gives every parameter (and slot) a new version, all at
once, as graph.

    SGD     g += weight_decay p;  v = momentum v + g;  p -= lr v   (Nesterov: p -= lr (g + momentum
            v))
    Adam    m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  p -= lr (m / (1-b1^t)) / (sqrt(v /
            (1-b2^t)) + eps)
    AdamW   the same, but first p -= lr weight_decay p   (Loshchilov and Hutter, 2019)

Rates are inputs of the plan: `optimizer.lr = ...` takes effect at the next step and compiles
nothing anew. A parameter without a gradient is left alone, as are its slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .. import runtime
from ..backends.device import device as open_device
from ..errors import fail
from ..ir import F, Node
from ..runtime import State, Uninterrupted
from ..variable import Parameter, Variable
from .arguments import checked, is_flag, parameter_list, plain
from .clock import Clock, value_of
from .rate import Rated, Shared
from .saved import fitting

NOT_NEGATIVE = (lambda v: v >= 0, "not below 0")
POSITIVE = (lambda v: v > 0, "above 0, also in float32")
WINDOWS: dict[Any, Any] = {}  # optimiser -> the open window of ss.accumulate, which steps it
BETA = (lambda v: 0 <= v < 1, "in [0, 1), also in float32")


def window_of(optimizer: Any) -> Any:
    """The open window that steps this optimiser, or None; a trace remembers which."""
    if runtime.session.trace is not None:
        runtime.session.trace.seen.name(WINDOWS, optimizer)
    return WINDOWS.get(optimizer)


class Optimizer(Rated):
    """Base: the parameters, the learning rate, and named slots per parameter (momentum ...)."""

    slots: tuple[str, ...] = ()
    ranges: dict[str, tuple[Callable[[float], bool], str]] = {"lr": NOT_NEGATIVE}
    _bookkeeping = ("_seen", "clocks", "fresh", "state")

    def __init__(self, parameters: Iterable[Parameter], lr: float) -> None:
        name = type(self).__name__
        hint = f"ss.{name}(model.parameters(), lr={lr})"
        self.parameters = parameter_list(parameters, name, hint)
        if not self.parameters:
            fail(
                "value/optimizer.empty",
                "there are no parameters to train",
                op=name,
                tensors={},
                cause="the model has none, or it was asked before its layers were made",
                hint=hint,
            )
        for p in self.parameters:
            self.accept(p, hint)
        self.lr = lr
        self.state: list[dict[str, State]] = [{} for _ in self.parameters]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.ranges:
            value = checked(type(self).__name__, name, value, *self.ranges[name])
        super().__setattr__(name, value)

    def accept(self, p: Variable, hint: str) -> None:
        frozen = isinstance(p, Parameter)  # may take gradients later
        if not (p.requires_grad or frozen) or p.dtype.kind != "f":
            fail(
                "type/optimizer.trains",
                f"{p.name} has no gradient to be trained with",
                op=type(self).__name__,
                tensors={p.name: p.spec},
                expected="Parameters, or float variables with requires_grad",
                hint=hint,
            )

    def slot(self, k: int, name: str) -> State:
        """Slot `name` of parameter k: zeros at first, and on the parameter's device."""
        p, slots = self.parameters[k].state, self.state[k]
        old = slots.get(name)
        if old is None or old.node.device != p.node.device:
            zeros = np.broadcast_to(np.zeros((), p.node.dtype), p.node.shape)
            slots[name] = self.new_slot(k, name, zeros if old is None else value_of(old))
        return slots[name]

    def new_slot(self, k: int, name: str, value: np.ndarray) -> State:
        p = self.parameters[k].state
        what, device = f"{name} of {p.name}", p.node.device
        home = open_device(device).upload(value, what)
        return State(what, home, device=device, kind="optimizer state")

    def step(self) -> None:
        """Give every parameter that has a gradient its next version. Without any gradient nothing
        happens."""
        if runtime.session.trace is not None:
            runtime.session.trace.seen.look(self)
        self.check_free("step")
        found = [
            (k, p.state, g)
            for k, p in enumerate(self.parameters)
            if (g := runtime.present(p.state.grad)) is not None and p.requires_grad
        ]
        if found:
            number = Shared(self, {k for k, _, _ in found})
            self.prepare(number)
            updates = [u for k, p, g in found for u in self.update(k, p, g, number)]
            runtime.assign(updates + self.tick(number), settle=True)

    def prepare(self, number: Shared) -> None:
        """Called before the updates of a step; `number.stepping`: positions of its parameters."""

    def check_free(self, what: str) -> None:
        if window_of(self) is not None:
            fail(
                "value/optimizer.window",
                f"{what}() inside a window of ss.accumulate, which does it at its end",
                op=type(self).__name__,
                tensors={},
                cause="gradients there are sums over samples, not yet divided by their count",
                hint=f"window.step() in place of optimizer.{what}()",
            )

    def tick(self, number: Shared) -> list[tuple[State, Node]]:
        """Updates that belong to the step as a whole."""
        return []

    def update(self, k: int, p: State, g: Node, number: Shared) -> list[tuple[State, Node]]:
        """[(state, new version)] for parameter k; `number(name, device)`: an attribute as a
        node."""
        raise NotImplementedError

    def zero_grad(self) -> None:
        """Forget all gradients; their memory is free."""
        self.check_free("zero_grad")
        gradients = [p.state.grad for p in self.parameters]
        runtime.clear([g for g in gradients if g is not None])

    def state_dict(self) -> dict[str, Any]:
        """Snapshot: the numbers, and the slots of each parameter by position. Plain Python and
        NumPy, which pickle can write."""
        self._finish()
        return {
            "kind": type(self).__name__,
            "numbers": self.numbers(),
            "slots": [{n: value_of(s) for n, s in slots.items()} for slots in self.state],
            "clocks": self.read_clocks(),
        }

    def _finish(self) -> None:
        """Compute a step that is pending, whichever thread took it."""
        runtime.flush([p.state.node for p in self.parameters])

    def numbers(self) -> dict[str, int | float | bool]:
        """All attributes that are numbers, as Python's."""
        found = {n: bool(v) if is_flag(v) else plain(v) for n, v in vars(self).items()}
        return {n: v for n, v in found.items() if v is not None}

    def read_clocks(self) -> dict[int, tuple[float, float]]:
        """{parameter's position: its clock}, for optimisers that count steps."""
        return {}

    def set_clocks(self, saved: dict[int, tuple[float, float]]) -> None:
        """What read_clocks() gave."""

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on where state_dict() was taken, with the same parameters in the same order. The saved
        numbers replace those that it was built with. If something does not fit, nothing changes."""
        slots, numbers, clocks = fitting(self, saved)
        self._finish()  # a step still pending must not overwrite what is loaded
        state = [
            {name: self.new_slot(k, name, value) for name, value in values.items()}
            for k, values in enumerate(slots)
        ]
        with Uninterrupted() as guard:
            guard.hold()
            runtime.session.structure += 1  # compiled steps must not go on with the old slots
            self.state = state
            self.set_clocks(clocks)
            for name, value in numbers.items():
                setattr(self, name, value)


class SGD(Optimizer):
    """Stochastic gradient descent.

    parameters    what to train;  lr: learning rate
    momentum      how much of the last direction is kept, from 0 to 1;  nesterov: look ahead along
                  it
    weight_decay  L2: weight_decay * p is added to the gradient
    """

    slots = ("momentum",)
    ranges = {
        **Optimizer.ranges,
        "momentum": (lambda v: 0 <= v <= 1, "in [0, 1]"),
        "weight_decay": NOT_NEGATIVE,
    }

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr)
        self.momentum, self.weight_decay = momentum, weight_decay
        if not is_flag(nesterov):
            fail(
                "type/sgd.nesterov",
                f"nesterov is True or False, got {nesterov!r}",
                op="SGD",
                tensors={},
                hint="momentum=0.9, nesterov=True",
            )
        if nesterov and not self.momentum:
            fail(
                "value/sgd.nesterov",
                "Nesterov needs a momentum",
                op="SGD",
                tensors={},
                hint="momentum=0.9, nesterov=True",
            )
        self.nesterov = bool(nesterov)

    def update(self, k, p, g, number):
        device = p.node.device
        updates = []
        if self.weight_decay:
            g = F.add(g, F.mul(p.node, number("weight_decay", device)))
        if self.momentum:
            slot, momentum = self.slot(k, "momentum"), number("momentum", device)
            v = F.add(F.mul(slot.node, momentum), g)
            updates.append((slot, v))
            g = F.add(g, F.mul(v, momentum)) if self.nesterov else v
        updates.append((p, F.sub(p.node, F.mul(g, number("lr", device)))))
        return updates


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015).

    parameters    what to train;  lr: learning rate;  betas: decay of the means of g and g^2
    eps           added to the root, not scaled by the bias correction
    weight_decay  L2: weight_decay * p is added to the gradient (AdamW instead shrinks p itself)
    """

    decoupled = False
    slots = ("mean", "square")
    ranges = {
        **Optimizer.ranges,
        "beta1": BETA,
        "beta2": BETA,
        "eps": POSITIVE,
        "weight_decay": NOT_NEGATIVE,
    }

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr)
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay
        self.clocks: dict[int, Clock] = {}
        self.fresh = Clock()  # of parameters that have their first gradient in this step

    @property
    def betas(self) -> tuple[float, float]:
        """(beta1, beta2)."""
        return self.beta1, self.beta2

    @betas.setter
    def betas(self, values: Any) -> None:
        if not isinstance(values, (tuple, list, np.ndarray)) or len(values) != 2:
            fail(
                "type/adam.betas",
                f"betas are two numbers, got {values!r}",
                op=type(self).__name__,
                tensors={},
                hint="betas=(0.9, 0.999)",
            )
        for name, value in zip(("beta1", "beta2"), values, strict=True):
            checked(type(self).__name__, name, value, *BETA)
        self.beta1, self.beta2 = values

    def prepare(self, number):
        clocks: dict[Clock, set[int]] = {}
        for k, clock in self.clocks.items():
            clocks.setdefault(clock, set()).add(k)
        number.ticking = [clock for clock in clocks if clock.begun()]
        for clock, shared in clocks.items():
            # given out by a trace, or a refused step, to parameters that now begin apart
            if (
                clock not in number.ticking
                and shared & number.stepping
                and shared - number.stepping
            ):
                self.clocks = {k: c for k, c in self.clocks.items() if c is not clock}
                runtime.session.structure += 1  # compiled steps must not go on with it

    def tick(self, number):
        if self.fresh.powers:
            self.fresh = Clock()
        stepping = [self.clocks[k] for k in sorted(number.stepping)]
        return [
            (state, F.mul(state.node, number(beta, device)))
            for clock in dict.fromkeys([*number.ticking, *stepping])
            for device, states in clock.powers.items()
            for state, beta in zip(states, ("beta1", "beta2"), strict=True)
        ]

    def read_clocks(self):
        return {k: clock.read() for k, clock in self.clocks.items()}

    def set_clocks(self, saved):
        same = {values: Clock(values) for values in saved.values()}
        self.clocks = {k: same[values] for k, values in saved.items()}
        for k, clock in self.clocks.items():
            clock.on(self.parameters[k].device)

    def update(self, k, p, g, number):
        device = p.node.device
        if k not in self.clocks:
            self.clocks[k] = self.fresh
        power1, power2 = self.clocks[k].on(device)

        def rest(name: str) -> Node:
            """1 - beta"""
            one = runtime.scalar(1.0, device=device)
            return number.once(("rest", name, device), lambda: F.sub(one, number(name, device)))

        def correction(power: State, name: str) -> Node:
            """1 - beta^t of the step being built"""
            one = runtime.scalar(1.0, device=device)
            return F.sub(one, F.mul(power.node, number(name, device)))

        value = p.node
        if self.weight_decay and self.decoupled:  # of the old weight, before the step
            decay = number.once(
                ("decay", device),
                lambda: F.mul(number("lr", device), number("weight_decay", device)),
            )
            value = F.sub(value, F.mul(value, decay))
        elif self.weight_decay:
            g = F.add(g, F.mul(value, number("weight_decay", device)))
        b1, b2 = number("beta1", device), number("beta2", device)
        first, second = self.slot(k, "mean"), self.slot(k, "square")
        m = F.add(F.mul(first.node, b1), F.mul(g, rest("beta1")))
        v = F.add(F.mul(second.node, b2), F.mul(F.mul(g, g), rest("beta2")))
        rate = number.once(power1, lambda: F.div(number("lr", device), correction(power1, "beta1")))
        scale = number.once(power2, lambda: correction(power2, "beta2"))
        step = F.div(F.mul(m, rate), F.add(F.sqrt(F.div(v, scale)), number("eps", device)))
        return [(first, m), (second, v), (p, F.sub(value, step))]


class AdamW(Adam):
    """Adam whose weight decay shrinks the old weight itself: p -= lr * weight_decay * p."""

    decoupled = True

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay)
