"""What Python costs in one step of the mission's MNIST CNN: the plain loop, phase by phase, and a
compiled replay.

Kernels are replaced by nothing: programs run no launch. What remains is building nodes, the survey
of handles, the key, the cache hit, binding addresses and the commit. Medians over many steps.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from record import record

import shoestring as ss
from shoestring import runtime


class Nothing:
    def run(self, addresses: Any) -> None:
        pass


def without_kernels() -> None:
    for executable in runtime.PLANS.values():
        for segment in [*executable.before, *executable.after]:
            if segment.native:
                segment.program = Nothing()
        # their records would hold whatever the arena held
        executable.checks = []


def main() -> None:
    ss.seed(0)
    model = ss.models.build("mnist_cnn")
    optimizer = ss.SGD(model.parameters(), lr=0.01)
    x, y = ss.tensor(np.zeros((640, 1, 28, 28), np.float32)), ss.tensor(np.arange(640) % 10)
    phases: dict[str, list[float]] = {}

    def timed(name: str, fn: Any) -> Any:
        start = time.perf_counter()
        found = fn()
        phases.setdefault(name, []).append(time.perf_counter() - start)
        return found

    def step(k: int) -> None:
        i = k * 32 % 640
        a, b = timed("slice", lambda: (x[i : i + 32], y[i : i + 32]))
        logits = timed("forward", lambda: model(a))
        loss = timed("loss", lambda: ss.cross_entropy(logits, b))
        timed("backward", loss.backward)
        timed("update", lambda: (optimizer.step(), optimizer.zero_grad()))
        timed("survey, key, binding, commit", runtime.flush)

    for k in range(10):
        step(k)
    without_kernels()
    phases.clear()
    start = time.perf_counter()
    steps = 300
    for k in range(steps):
        step(k)
    total = (time.perf_counter() - start) / steps
    rows = [
        (f"plain loop, MNIST step: {name}", statistics.median(v) * 1e6, "us", "", "")
        for name, v in phases.items()
    ]
    rows.append(("plain loop, MNIST step: all of Python", total * 1e6, "us", "to reach", 1000.0))

    def whole(a: Any, b: Any) -> Any:
        loss = ss.cross_entropy(model(a), b)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    compiled = ss.compile(whole)
    compiled(x[:32], y[:32])
    without_kernels()
    a, b = x[:32], y[:32]
    times = []
    for _ in range(1000):
        start = time.perf_counter()
        compiled(a, b)
        times.append(time.perf_counter() - start)
    rows.append(
        ("compiled replay, MNIST step: all of Python", statistics.median(times) * 1e6, "us", "", "")
    )
    record("overhead", rows)


if __name__ == "__main__":
    main()
