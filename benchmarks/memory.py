"""What a memory limit costs: for networks and batches, limits from the smallest that can be kept to
the one that costs nothing.

    python benchmarks/memory.py                     # all networks, results/memory.csv and .png
    python benchmarks/memory.py --networks resnet18 --batches 32 --points 9

Nothing is run or allocated: all figures are the plans' own (tests assert that a run needs exactly
the predicted peak). One row per network, batch and limit:

    limit_bytes              empty: none
    predicted_peak_bytes     resident + arena + results;  arena_bytes, arena_lower_bound_bytes
    recompute_flops_ratio    0.15: 15 % more arithmetic than without a limit
    added_bytes              bytes read and written more than without a limit
    planning_seconds         tracing, passes, the list of possible plans, and lowering this one
"""

from __future__ import annotations

import argparse
import csv
import datetime
import pathlib
import time
from typing import Any

import numpy as np
from record import FOLDER, commit, processor

import shoestring as ss
from shoestring.cli.plan import TrainingPlans

BATCHES = {
    "mnist_cnn": (32, 128),
    "resnet18": (16, 32),
    "resnet18_cifar": (64, 128),
    "vgg11": (16, 32),
}
COLUMNS = [
    *["date", "commit", "machine", "network", "batch", "limit_bytes", "predicted_peak_bytes"],
    *["arena_bytes", "arena_lower_bound_bytes", "recompute_flops_ratio", "added_bytes"],
    "planning_seconds",
]


def sweep(plans: TrainingPlans, batch: int, points: int) -> list[dict[str, Any]]:
    """Rows of one network and batch: without a limit, and at `points` limits down to the floor."""
    start = time.perf_counter()
    free = plans.plan(batch)
    planned = time.perf_counter() - start
    floor = free.floor_bytes
    start = time.perf_counter()
    free.options.found = None  # the list of points, once more and timed alone
    free.options.points()
    listed = time.perf_counter() - start
    rows = []
    for limit in (None, *np.linspace(free.predicted_peak_bytes, floor, points).astype(int)):
        free.options.plans = {0: free}  # nothing lowered before
        start = time.perf_counter()
        plan = plans.within(batch, limit)
        lowered = time.perf_counter() - start
        assert plan is not None, f"{plans.name}: no plan for {limit} bytes, the floor is {floor}"
        seconds = planned + (listed if limit is not None else 0) + lowered
        rows.append(
            dict(
                network=plans.name,
                batch=batch,
                limit_bytes="" if limit is None else int(limit),
                predicted_peak_bytes=plan.predicted_peak_bytes,
                arena_bytes=plan.arena_bytes,
                arena_lower_bound_bytes=plan.arena_lower_bound_bytes,
                recompute_flops_ratio=round(plan.recompute_flops_ratio, 5),
                added_bytes=round(plan.bytes_moved - free.bytes_moved),
                planning_seconds=round(seconds, 3),
                moved_bytes=free.bytes_moved,
            )
        )
    return rows


def draw(rows: list[dict[str, Any]], path: pathlib.Path) -> None:
    """One column per network: the peak, and what it costs, against the limit."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    networks = list(dict.fromkeys(row["network"] for row in rows))
    figure, axes = plt.subplots(
        2,
        len(networks),
        figsize=(4.2 * len(networks), 6.4),
        constrained_layout=True,
        squeeze=False,
        sharex="col",
    )
    for (above, below), network in zip(axes.T, networks, strict=True):
        batches = sorted({row["batch"] for row in rows if row["network"] == network})
        for batch, colour in zip(
            batches, ("#1f4e8c", "#b3541e", "#3d7a3d", "#7a3d7a"), strict=False
        ):
            found = [r for r in rows if (r["network"], r["batch"]) == (network, batch)]
            limited = [r for r in found if r["limit_bytes"] != ""]
            limits = [r["limit_bytes"] / 2**20 for r in limited]
            peaks = [r["predicted_peak_bytes"] / 2**20 for r in limited]
            above.plot(limits, peaks, "o-", color=colour, markersize=3.5, label=f"batch {batch}")
            above.plot(limits, limits, color=colour, linewidth=0.7, linestyle=":")
            flops = [100 * r["recompute_flops_ratio"] for r in limited]
            moved = [100 * r["added_bytes"] / r["moved_bytes"] for r in limited]
            below.plot(limits, flops, "o-", color=colour, markersize=3.5)
            below.plot(limits, moved, "s--", color=colour, markersize=3, linewidth=1)
        above.set(title=network, ylabel="predicted peak (MiB)")
        above.legend(frameon=False)
        below.set(xlabel="memory limit (MiB)", ylabel="added (%)")
        for ax in (above, below):
            ax.grid(alpha=0.25)
            ax.spines[["top", "right"]].set_visible(False)
    line, dashed = (
        plt.Line2D([], [], color="#555555", marker=m, linestyle=s, markersize=3.5)
        for m, s in (("o", "-"), ("s", "--"))
    )
    axes[1][0].legend([line, dashed], ["arithmetic", "bytes moved"], frameon=False)
    figure.suptitle("What a memory limit costs (dotted: the limit itself)")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=list(BATCHES), choices=list(BATCHES))
    parser.add_argument("--batches", nargs="+", type=int, help="default: two for each network")
    parser.add_argument("--points", type=int, default=13, help="limits for each batch")
    parser.add_argument("--out", type=pathlib.Path, default=FOLDER, help="folder of the results")
    options = parser.parse_args()
    rows = []
    with ss.runtime.outlined("cpu"):
        for network in options.networks:
            plans = TrainingPlans(network)
            for batch in options.batches or BATCHES[network]:
                rows += sweep(plans, batch, options.points)
                free, least = rows[-options.points - 1], rows[-1]
                print(
                    f"{network} {batch}: {free['predicted_peak_bytes'] / 2**20:,.0f} MiB, at least "
                    f"{least['predicted_peak_bytes'] / 2**20:,.0f} with "
                    f"{100 * least['recompute_flops_ratio']:.1f} % more arithmetic"
                )
    options.out.mkdir(parents=True, exist_ok=True)
    about = dict(date=datetime.date.today().isoformat(), commit=commit(), machine=processor())
    with open(options.out / "memory.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**about, **row} for row in rows)
    draw(rows, options.out / "memory.png")
    print(f"{options.out / 'memory.csv'}, {options.out / 'memory.png'}")


if __name__ == "__main__":
    main()
