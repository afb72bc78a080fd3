"""Whole training steps, ours and PyTorch's, in turn in one process: the same network, batch,
threads and data.

    python benchmarks/end_to_end.py --compare torch [--steps 100] [--rounds 7] [--threads 2]

Each round times a block of steps of ours, then one of PyTorch's; medians over rounds, after a
warm-up of each. PyTorch's time depends on whether its allocator gives memory back to the system, so
it is measured twice, in child processes: as it comes, and with MALLOC_MMAP_THRESHOLD_ and
MALLOC_TRIM_THRESHOLD_ raised.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

import numpy as np
from record import record

RAISED = {"MALLOC_MMAP_THRESHOLD_": "1000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000"}


def data(batch: int, count: int = 64) -> tuple[np.ndarray, np.ndarray]:
    import shoestring as ss

    digits = ss.data.mnist()
    n = batch * count
    return digits.x_train[:n, None].astype(np.float32) / 255, digits.y_train[:n].astype(np.int64)


def ours(kind: str, x: np.ndarray, y: np.ndarray, batch: int):
    from training import training_step

    import shoestring as ss

    ss.seed(0)
    model = (
        ss.models.build("mnist_cnn") if kind.startswith("cnn") else ss.models.mlp(784, 512, 512, 10)
    )
    optimizer = ss.SGD(model.parameters(), lr=0.01)
    xs, ys = ss.tensor(x if kind.startswith("cnn") else x.reshape(len(x), -1)), ss.tensor(y)

    step = training_step(model, optimizer)
    run = step if kind.endswith("loop") else ss.compile(step)

    def block(steps: int) -> float:
        start = time.perf_counter()
        for k in range(steps):
            i = k * batch % len(x)
            loss = run(xs[i : i + batch], ys[i : i + batch])
        loss.item()
        return time.perf_counter() - start

    return block


def theirs(kind: str, x: np.ndarray, y: np.ndarray, batch: int):
    import torch
    from torch import nn

    torch.manual_seed(0)
    if kind.startswith("cnn"):
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(800, 10),
        )
    else:
        model = nn.Sequential(
            nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    xs, ys = (
        torch.from_numpy(x if kind.startswith("cnn") else x.reshape(len(x), -1)),
        torch.from_numpy(y),
    )

    def block(steps: int) -> float:
        start = time.perf_counter()
        for k in range(steps):
            i = k * batch % len(x)
            loss = nn.functional.cross_entropy(model(xs[i : i + batch]), ys[i : i + batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        loss.item()
        return time.perf_counter() - start

    return block


def measure(kind: str, batch: int, options: argparse.Namespace, regime: str) -> None:
    import torch

    import shoestring as ss

    torch.set_num_threads(options.threads)
    ss.set_threads(options.threads)
    x, y = data(batch)
    a, b = ours(kind, x, y, batch), theirs(kind, x, y, batch)
    a(20), b(20)
    times = [(a(options.steps), b(options.steps)) for _ in range(options.rounds)]
    mine = statistics.median(t[0] for t in times) / options.steps * 1e3
    other = statistics.median(t[1] for t in times) / options.steps * 1e3
    ratio = statistics.median(t[1] / t[0] for t in times)
    work = f"{kind}, batch {batch}, {options.threads} threads, {regime}"
    record(
        "end_to_end",
        [(work, mine, "ms/step", "torch 2.13.0", other), (work, ratio, "torch/ours", "", "")],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compare", choices=["torch"], default="torch")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--regime", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.regime:
        for kind, batch in (("cnn compiled", 32), ("cnn plain loop", 32), ("mlp compiled", 128)):
            measure(kind, batch, options, options.regime)
        return
    for regime, extra in (("allocator as it comes", {}), ("allocator keeps memory", RAISED)):
        subprocess.run(
            [
                sys.executable,
                __file__,
                "--regime",
                regime,
                "--steps",
                str(options.steps),
                "--rounds",
                str(options.rounds),
                "--threads",
                str(options.threads),
            ],
            env={**os.environ, **extra},
            check=True,
        )


if __name__ == "__main__":
    main()
