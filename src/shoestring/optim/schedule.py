"""Learning-rate schedules: each sets `optimizer.lr` for the step that comes next.

    schedule = ss.optim.CosineDecay(optimizer, steps=1000)
    for ...:
        optimizer.step(); schedule.step()

A schedule is a formula lr(t), t counted in calls of step(). The rate is an input of the plan:
nothing is compiled anew. state_dict() has all that the formula reads, so a resumed run goes on at
the same rates, bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import runtime
from ..errors import TraceError, fail
from .arguments import checked, is_flag, plain
from .optimizer import NOT_NEGATIVE, Optimizer


class Schedule:
    """Base: sets the rate for t = 0 now, for t + 1 at each step().

    A subclass defines lr(t). Attributes that are numbers are saved; `least` says which are whole,
    and from where on, `ranges` what the others may be (as in an optimiser)."""

    least: dict[str, int] = {"t": 0}
    ranges: dict[str, tuple[Callable[[float], bool], str]] = {"base": NOT_NEGATIVE}

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            fail(
                "type/schedule.optimizer",
                f"a schedule sets the rate of an optimiser, got {type(optimizer).__name__}",
                op=type(self).__name__,
                tensors={},
                hint=f"ss.optim.{type(self).__name__}(ss.SGD(model.parameters(), lr=0.1), ...)",
            )
        self.optimizer, self.base, self.t = optimizer, optimizer.lr, 0
        optimizer.lr = self.lr(0)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, self.fitting(name, value))

    def fitting(self, name: str, value: Any) -> Any:
        """A value for attribute `name`, if it may have it."""
        if name in self.ranges:
            return checked(type(self).__name__, name, value, *self.ranges[name])
        if name not in self.least:
            return value
        whole = isinstance(value, (int, np.integer)) and not is_flag(value)
        if not whole or value < self.least[name]:
            fail(
                "value/schedule.steps",
                f"{name} must be a whole number of at least {self.least[name]}, got {value!r}",
                op=type(self).__name__,
                tensors={},
                hint=f"{name}=len(loader) * epochs",
            )
        return int(value)

    def lr(self, t: int) -> float:
        """The rate at step t."""
        raise NotImplementedError

    def step(self) -> None:
        """The optimiser has taken a step: set the rate of the next."""
        if runtime.session.trace is not None:
            fail(
                "compile/schedule.step",
                "a schedule cannot step inside a compiled step: it would only while that is traced",
                op=type(self).__name__,
                tensors={},
                error=TraceError,
                hint="schedule.step() after the call of the compiled step",
            )
        rate = self.lr(self.t + 1)
        self.optimizer.lr = rate
        self.t += 1

    def state_dict(self) -> dict[str, Any]:
        """Snapshot: kind, all numbers of the formula, and the optimiser's rate now."""
        return {
            "kind": type(self).__name__,
            "numbers": self.numbers(),
            "lr": self.optimizer.lr,
        }

    def numbers(self) -> dict[str, int | float]:
        """All attributes that are numbers."""
        found = {name: plain(value) for name, value in vars(self).items()}
        return {name: value for name, value in found.items() if value is not None}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on where state_dict() was taken, and set the optimiser's rate. The saved numbers
        replace those that it was built with. If something does not fit, nothing changes."""
        name, own = type(self).__name__, self.numbers()
        if not isinstance(saved, dict) or set(saved) != {"kind", "numbers", "lr"}:
            self.refuse("this is no state of a schedule, with kind, numbers, lr")
        if saved["kind"] != name:
            self.refuse(f"this was saved from {saved['kind']}, not from {name}")
        if set(saved["numbers"]) != set(own):
            self.refuse(f"{sorted(saved['numbers'])} were saved, this has {sorted(own)}")
        for key, value in saved["numbers"].items():
            if plain(self.fitting(key, value)) is None:
                self.refuse(f"{key} was saved as {value!r}, here it is {own[key]!r}")
        self.optimizer.lr = saved["lr"]  # judges it too
        vars(self).update({k: self.fitting(k, v) for k, v in saved["numbers"].items()})

    def refuse(self, what: str) -> None:
        fail(
            "value/schedule.load",
            what,
            op="load_state_dict",
            tensors={},
            hint=f"a state of ss.optim.{type(self).__name__}, from its state_dict()",
        )


class Decay(Schedule):
    """Base of what goes down from the optimiser's rate to `end` in `steps` steps, and stays there;
    in the first `warmup` of them it comes up from 0."""

    least = {**Schedule.least, "steps": 1, "warmup": 0}
    ranges = {**Schedule.ranges, "end": NOT_NEGATIVE}

    def __init__(self, optimizer: Optimizer, steps: int, end: float = 0.0, warmup: int = 0) -> None:
        self.steps, self.end, self.warmup = steps, end, warmup
        if self.warmup > self.steps:
            fail(
                "value/schedule.warmup",
                f"a warm-up of {warmup} steps does not fit into {steps}",
                op=type(self).__name__,
                tensors={},
                hint=f"warmup={self.steps // 10}, which are part of steps={self.steps}",
            )
        super().__init__(optimizer)

    def lr(self, t):
        if t < self.warmup:
            return self.base * (t + 1) / (self.warmup + 1)
        return self.after(min((t - self.warmup) / max(self.steps - self.warmup, 1), 1.0))

    def after(self, done: float) -> float:
        """The rate after the warm-up, when a part `done`, from 0 to 1, of the rest is over."""
        raise NotImplementedError


class LinearDecay(Decay):
    """From the optimiser's rate to `end`, along a line, in `steps` steps; then it stays. warmup:
    steps from 0 up first."""

    def after(self, done):
        return self.base + (self.end - self.base) * done


class CosineDecay(Decay):
    """end + (base - end) (1 + cos(pi t / steps)) / 2 (Loshchilov and Hutter, 2017); then it stays.
    warmup as above."""

    def after(self, done):
        return self.end + (self.base - self.end) * (1 + math.cos(math.pi * done)) / 2


class StepDecay(Schedule):
    """base * factor^(t // every)."""

    least = {**Schedule.least, "every": 1}
    ranges = {**Schedule.ranges, "factor": NOT_NEGATIVE}

    def __init__(self, optimizer: Optimizer, every: int, factor: float = 0.1) -> None:
        self.every, self.factor = every, factor
        super().__init__(optimizer)

    def lr(self, t):
        return self.base * self.factor ** (t // self.every)


class CosineWarmRestarts(Schedule):
    """Cosine from base to `end` over `first` steps, then again from base over periods that grow by
    `growth`.

    Restart i lasts first * growth^i steps (Loshchilov and Hutter, 2017)."""

    least = {**Schedule.least, "first": 1, "growth": 1}
    ranges = {**Schedule.ranges, "end": NOT_NEGATIVE}

    def __init__(self, optimizer: Optimizer, first: int, growth: int = 1, end: float = 0.0) -> None:
        self.first, self.growth, self.end = first, growth, end
        super().__init__(optimizer)

    def lr(self, t):
        period = self.first
        while t >= period:
            t, period = t - period, period * self.growth
        return self.end + (self.base - self.end) * (1 + math.cos(math.pi * t / period)) / 2
