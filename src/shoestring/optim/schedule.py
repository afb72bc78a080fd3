"""Learning-rate schedules: each sets `optimizer.lr` for the step that comes next.

    schedule = ss.optim.CosineDecay(optimizer, steps=1000)
    for ...:
        optimizer.step(); schedule.step()

A schedule is a formula lr(t), t counted in calls of step(). The rate is an input of the plan:
nothing is compiled anew.
"""

from __future__ import annotations

import math

from ..errors import fail
from .optimizer import Optimizer


class Schedule:
    """Base: sets the rate for t = 0 now, for t + 1 at each step()."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer, self.base, self.t = optimizer, optimizer.lr, 0
        optimizer.lr = self.lr(0)

    def lr(self, t: int) -> float:
        """The rate at step t."""
        raise NotImplementedError

    def step(self) -> None:
        self.t += 1
        self.optimizer.lr = self.lr(self.t)

    def positive(self, name: str, value: int) -> int:
        if not isinstance(value, int) or value < 1:
            fail(
                "value/schedule.steps",
                f"{name} must be a whole number of at least 1, got {value!r}",
                op=type(self).__name__,
                tensors={},
                hint=f"{name}=len(loader) * epochs",
            )
        return value


class LinearDecay(Schedule):
    """From the optimiser's rate to `end`, along a line, in `steps` steps; then it stays. warmup:
    steps from 0 up first."""

    def __init__(self, optimizer: Optimizer, steps: int, end: float = 0.0, warmup: int = 0) -> None:
        self.steps, self.end, self.warmup = self.positive("steps", steps), end, warmup
        super().__init__(optimizer)

    def lr(self, t):
        if t < self.warmup:
            return self.base * (t + 1) / (self.warmup + 1)
        done = min((t - self.warmup) / max(self.steps - self.warmup, 1), 1.0)
        return self.base + (self.end - self.base) * done


class CosineDecay(Schedule):
    """end + (base - end) (1 + cos(pi t / steps)) / 2 (Loshchilov and Hutter, 2017); then it stays.
    warmup as above."""

    def __init__(self, optimizer: Optimizer, steps: int, end: float = 0.0, warmup: int = 0) -> None:
        self.steps, self.end, self.warmup = self.positive("steps", steps), end, warmup
        super().__init__(optimizer)

    def lr(self, t):
        if t < self.warmup:
            return self.base * (t + 1) / (self.warmup + 1)
        done = min((t - self.warmup) / max(self.steps - self.warmup, 1), 1.0)
        return self.end + (self.base - self.end) * (1 + math.cos(math.pi * done)) / 2


class StepDecay(Schedule):
    """base * factor^(t // every)."""

    def __init__(self, optimizer: Optimizer, every: int, factor: float = 0.1) -> None:
        self.every, self.factor = self.positive("every", every), factor
        super().__init__(optimizer)

    def lr(self, t):
        return self.base * self.factor ** (t // self.every)


class CosineWarmRestarts(Schedule):
    """Cosine from base to `end` over `first` steps, then again from base over periods that grow by
    `growth`.

    Restart i lasts first * growth^i steps (Loshchilov and Hutter, 2017)."""

    def __init__(self, optimizer: Optimizer, first: int, growth: int = 1, end: float = 0.0) -> None:
        self.first, self.growth, self.end = (
            self.positive("first", first),
            self.positive("growth", growth),
            end,
        )
        super().__init__(optimizer)

    def lr(self, t):
        period = self.first
        while t >= period:
            t, period = t - period, period * self.growth
        return self.end + (self.base - self.end) * (1 + math.cos(math.pi * t / period)) / 2
