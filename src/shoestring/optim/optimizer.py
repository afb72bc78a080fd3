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

from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import runtime
from ..backends.device import device as open_device
from ..errors import fail
from ..ir import F, Node
from ..runtime import State
from ..variable import Parameter, Variable


class Optimizer:
    """Base: the parameters, the learning rate, and named slots per parameter (momentum ...)."""

    slots: tuple[str, ...] = ()

    def __init__(self, parameters: Iterable[Parameter], lr: float) -> None:
        name = type(self).__name__
        if isinstance(parameters, Variable):
            parameters = [parameters]  # pyright: ignore
        if not isinstance(parameters, Iterable):
            fail(
                "type/optimizer.parameters",
                f"needs a list of parameters, got {type(parameters).__name__}",
                op=name,
                tensors={},
                hint=f"ss.{name}(model.parameters(), lr={lr})",
            )
        found = {id(p.state): p for p in parameters if self.accepts(p)}
        if not found:
            fail(
                "value/optimizer.empty",
                "there are no parameters to train",
                op=name,
                tensors={},
                cause="the model has none, or an iterator had been used up",
                hint=f"ss.{name}(model.parameters(), lr={lr})",
            )
        self.check("lr", lr, lr >= 0, "not below 0")
        self.parameters, self.lr, self.steps = list(found.values()), lr, 0
        self.state: list[dict[str, State]] = [{} for _ in self.parameters]

    def accepts(self, p: Any) -> bool:
        if not isinstance(p, Variable) or not p.requires_grad:
            fail(
                "type/optimizer.parameter",
                f"an optimiser trains Parameters, got {type(p).__name__}",
                op=type(self).__name__,
                tensors={},
                hint="model.parameters(), or ss.parameters(thing)",
            )
        return True

    def check(self, name: str, value: Any, holds: bool, what: str) -> None:
        if not holds:
            fail(
                "value/optimizer.number",
                f"{name} must be {what}, got {value}",
                op=type(self).__name__,
                tensors={},
                hint=f"{name}={0.1 if name == 'lr' else 0.9}",
            )

    def number(self, name: str, device: str) -> Node:
        """An attribute as an input of the plan, read again at every replay."""
        return runtime.scalar(
            getattr(self, name), source=lambda: getattr(self, name), device=device
        )

    def slot(self, k: int, name: str) -> State:
        """Slot `name` of parameter k: zeros at first, and on the parameter's device."""
        p, slots = self.parameters[k].state, self.state[k]
        device = p.node.device
        if name not in slots or slots[name].node.device != device:
            old = slots.get(name)
            value = np.zeros(p.node.shape, p.node.dtype) if old is None else np.array(old.home)
            slots[name] = State(
                f"{name} of {p.name}", open_device(device).upload(value), device=device
            )
        return slots[name]

    def step(self) -> None:
        """Give every parameter that has a gradient its next version."""
        updates: list[tuple[State, Node]] = []
        shared: dict[tuple[str, str], Node] = {}

        def number(name: str, device: str) -> Node:
            if (name, device) not in shared:
                shared[name, device] = self.number(name, device)
            return shared[name, device]

        for k, p in enumerate(self.parameters):
            gradient = p.state.grad.node
            if gradient is not None:
                updates += self.update(k, p.state, gradient, number)
        runtime.assign(updates + self.clock(number) if updates else updates, settle=True)

    def clock(self, number: Any) -> list[tuple[State, Node]]:
        """Updates that belong to the step as a whole."""
        return []

    def update(self, k: int, p: State, g: Node, number: Any) -> list[tuple[State, Node]]:
        """[(state, new version)] for parameter k; `number(name, device)`: an attribute as a
        node."""
        raise NotImplementedError

    def zero_grad(self) -> None:
        """Forget all gradients; their memory is free."""
        for p in self.parameters:
            p.state.grad.clear()

    def state_dict(self) -> dict[str, Any]:
        """Snapshot: the numbers, and the slots of each parameter by position."""
        runtime.flush()
        numbers = {n: v for n, v in vars(self).items() if isinstance(v, (int, float, bool))}
        return {
            "numbers": numbers,
            "slots": [{n: s.home.copy() for n, s in slots.items()} for slots in self.state],
            "clock": {n: s.home.copy() for n, s in vars(self).items() if isinstance(s, State)},
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on where state_dict() was taken; the parameters must be the same ones in the same
        order."""
        if len(saved["slots"]) != len(self.parameters):
            fail(
                "value/optimizer.load",
                f"{len(saved['slots'])} parameters were saved, this optimiser has "
                f"{len(self.parameters)}",
                op="load_state_dict",
                tensors={},
                hint="build it from the same model",
            )
        for k, (p, slots) in enumerate(zip(self.parameters, saved["slots"], strict=True)):
            for name, value in slots.items():
                if tuple(value.shape) != p.shape:
                    fail(
                        "shape/optimizer.load",
                        f"slot {name} of {p.name} is {list(value.shape)}, the parameter "
                        f"{list(p.shape)}",
                        op="load_state_dict",
                        tensors={},
                        hint="build it from the same model",
                    )
                self.slot(k, name).home[...] = value
        for name, value in saved.get("clock", {}).items():
            getattr(self, name).home[...] = value
        vars(self).update(saved["numbers"])


class SGD(Optimizer):
    """Stochastic gradient descent.

    parameters    what to train;  lr: learning rate
    momentum      how much of the last direction is kept, from 0 to 1;  nesterov: look ahead along
                  it
    weight_decay  L2: weight_decay * p is added to the gradient
    """

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr)
        self.check("momentum", momentum, 0 <= momentum <= 1, "in [0, 1]")
        self.check("weight_decay", weight_decay, weight_decay >= 0, "not below 0")
        if nesterov and not momentum:
            fail(
                "value/sgd.nesterov",
                "Nesterov needs a momentum",
                op="SGD",
                tensors={},
                hint="momentum=0.9, nesterov=True",
            )
        self.momentum, self.nesterov, self.weight_decay = momentum, nesterov, weight_decay

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

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr)
        for beta in betas:
            self.check("beta", beta, 0 <= beta < 1, "in [0, 1)")
        self.check("weight_decay", weight_decay, weight_decay >= 0, "not below 0")
        self.beta1, self.beta2 = betas
        self.eps, self.weight_decay = eps, weight_decay
        device = self.parameters[0].device
        self.power1 = State(
            "beta1 to the power of the step",
            open_device(device).upload(np.ones((), np.float32)),
            device=device,
        )
        self.power2 = State(
            "beta2 to the power of the step",
            open_device(device).upload(np.ones((), np.float32)),
            device=device,
        )

    def clock(self, number):
        return [
            (s, F.mul(s.node, number(n, s.node.device)))
            for s, n in ((self.power1, "beta1"), (self.power2, "beta2"))
        ]

    def correction(self, power: State, beta: str, number: Any, device: str) -> Node:
        """1 - beta^t of the step being built."""
        return F.sub(runtime.scalar(1.0, device=device), F.mul(power.node, number(beta, device)))

    def update(self, k, p, g, number):
        device = p.node.device
        one, b1, b2 = (
            runtime.scalar(1.0, device=device),
            number("beta1", device),
            number("beta2", device),
        )
        value = p.node
        if self.weight_decay and self.decoupled:  # of the old weight, before the step
            value = F.sub(
                value, F.mul(value, F.mul(number("lr", device), number("weight_decay", device)))
            )
        elif self.weight_decay:
            g = F.add(g, F.mul(value, number("weight_decay", device)))
        first, second = self.slot(k, "mean"), self.slot(k, "square")
        m = F.add(F.mul(first.node, b1), F.mul(g, F.sub(one, b1)))
        v = F.add(F.mul(second.node, b2), F.mul(F.mul(g, g), F.sub(one, b2)))
        root = F.sqrt(F.div(v, self.correction(self.power2, "beta2", number, device)))
        rate = F.div(number("lr", device), self.correction(self.power1, "beta1", number, device))
        step = F.div(F.mul(m, rate), F.add(root, number("eps", device)))
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
