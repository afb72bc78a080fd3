"""How far an optimiser's running means have come: powers of its betas, as states of the plan."""

from __future__ import annotations

import numpy as np

from ..backends.device import device as open_device
from ..runtime import State


def value_of(state: State) -> np.ndarray:
    """A snapshot of a state of which nothing is pending."""
    return np.array(open_device(state.node.device).read(state.home))


class Clock:
    """beta1^t and beta2^t, t the steps since a parameter's first gradient. Those that had it in the
    same step share one; it ticks at every step."""

    def __init__(self, values: tuple[float, float] = (1.0, 1.0)) -> None:
        self.values, self.powers, self.started = values, {}, False

    def begun(self) -> bool:
        """Whether a step has counted. One that was traced, or refused, has not: then the powers are
        1, and no version of them is pending."""
        states = [state for pair in self.powers.values() for state in pair]
        self.started = self.started or any(float(value_of(s)) != 1 for s in states)
        return self.started or any(s.node is not s.leaf for s in states)

    def on(self, device: str) -> tuple[State, State]:
        if device not in self.powers:
            known = next(iter(self.powers.values()), None)
            values = self.values if known is None else [value_of(s) for s in known]
            self.powers[device] = tuple(
                State(
                    name,
                    open_device(device).upload(np.array(v, np.float32), name),
                    device=device,
                    kind="optimizer state",
                )
                for name, v in zip(("beta1^t", "beta2^t"), values, strict=True)
            )
        return self.powers[device]

    def read(self) -> tuple[float, float]:
        return tuple(float(value_of(s)) for s in next(iter(self.powers.values())))
