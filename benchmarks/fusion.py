"""What fusing buys: kernels, bytes moved and time of a compiled training step with and without.

    python benchmarks/fusion.py [--rounds 9] [--steps 40]

Both versions are compiled in one process and run in turn, block by block; medians over rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from record import record
from training import training_step

import shoestring as ss
from shoestring.runtime import session

WORK = {
    "mnist_cnn, batch 32": ("mnist_cnn", {}, (32, 1, 28, 28)),
    "resnet18_cifar, width 0.25, batch 16": ("resnet18_cifar", dict(width=0.25), (16, 3, 32, 32)),
}


def training(name: str, options: dict, shape: tuple[int, ...]):
    """(compiled step, its arguments)."""
    ss.seed(0)
    model = ss.models.build(name, **options)
    optimizer = ss.SGD(model.parameters(), lr=0.01, momentum=0.9)
    rng = np.random.default_rng(0)
    x = ss.tensor(rng.normal(size=shape).astype(np.float32))
    y = ss.tensor(rng.integers(0, 10, shape[0]))
    return ss.compile(training_step(model, optimizer)), (x, y)


def block(run, arguments, fused: bool, steps: int) -> float:
    """Seconds per step."""
    session.fuse = fused
    start = time.perf_counter()
    for _ in range(steps):
        loss = run(*arguments)
    loss.item()
    return (time.perf_counter() - start) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    for work, (name, settings, shape) in WORK.items():
        versions, plans, times = {}, {}, {True: [], False: []}
        for fused in times:
            session.fuse = fused
            versions[fused] = training(name, settings, shape)
            plans[fused] = versions[fused][0].plan(*versions[fused][1])
            block(*versions[fused], fused, 5)
        for _ in range(options.rounds):
            for fused, found in times.items():
                found.append(block(*versions[fused], fused, options.steps))
        fast, slow = statistics.median(times[True]), statistics.median(times[False])
        one, other = plans[True], plans[False]
        peer = "not fused"
        record(
            "fusion",
            [
                (f"{work}: step", 1e3 * fast, "ms", peer, 1e3 * slow),
                (f"{work}: times faster", slow / fast, "ratio", peer, 1.0),
                (f"{work}: kernels", one.kernel_count(), "kernels", peer, other.kernel_count()),
                (f"{work}: moved", one.bytes_moved / 2**20, "MiB", peer, other.bytes_moved / 2**20),
                (f"{work}: arena", one.arena_bytes / 2**20, "MiB", peer, other.arena_bytes / 2**20),
            ],
        )


if __name__ == "__main__":
    main()
