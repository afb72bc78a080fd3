"""Where one compiled training step of the MNIST CNN spends its time, kernel by kernel.

    python benchmarks/profile_step.py [--rows 16]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from training import training_step

import shoestring as ss
from shoestring.compile.plan import launches_of, together
from shoestring.runtime import executor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=16)
    rows = parser.parse_args().rows
    ss.seed(0)
    model = ss.models.build("mnist_cnn")
    optimizer = ss.SGD(model.parameters(), lr=0.01)
    step = ss.compile(training_step(model, optimizer))
    times: dict[int, list[float]] = {}
    real = executor.Segment.run

    def run(segment, memory):
        addresses = memory.addresses()
        k = 0
        for steps in together(segment.steps):  # neighbours that share a launch count as their first
            for _ in launches_of(steps):
                start = time.perf_counter()
                segment.program.run_range(addresses, k, k + 1)
                times.setdefault(id(steps[0]), []).append(time.perf_counter() - start)
                k += 1

    x, y = ss.normal(32, 1, 28, 28), ss.tensor(np.arange(32) % 10)
    step(x, y)
    executor.Segment.run = run
    for _ in range(200):
        step(x, y)
    executor.Segment.run = real
    plan = step.plans()[0]
    found = [(float(np.median(times[id(s)])) * 1e6, s) for s in plan.steps if id(s) in times]
    total = sum(t for t, _ in found)
    for t, s in sorted(found, key=lambda f: -f[0])[:rows]:
        shapes = " ".join(str(list(o.shape)) for o in s.outputs)
        print(f"{t:8.1f} us {100 * t / total:5.1f} %  {s.op.name:28} {shapes:40} {s.layer or ''}")
    print(f"{total:8.1f} us in {len(found)} kernels")


if __name__ == "__main__":
    main()
