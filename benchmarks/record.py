"""Results as CSV, one row per figure, so that runs on different days and machines can be laid side
by side.

Columns: date, commit, device, driver, work, figure, unit, peer, peer_value. `driver` is the
kernel's version on a CPU.
"""

from __future__ import annotations

import csv
import datetime
import pathlib
import platform
import subprocess

FOLDER = pathlib.Path(__file__).parent / "results"
COLUMNS = ["date", "commit", "device", "driver", "work", "figure", "unit", "peer", "peer_value"]


def commit() -> str:
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            check=True,
            cwd=pathlib.Path(__file__).parent,
        )
        return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def processor() -> str:
    """The processor's name and how many cores this process may use."""
    name = platform.processor() or platform.machine()
    for line in (
        pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        if pathlib.Path("/proc/cpuinfo").exists()
        else []
    ):
        if line.startswith("model name"):
            name = line.split(":", 1)[1].strip()
            break
    import os

    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def record(file: str, rows: list[tuple[str, float, str, str, float | str]]) -> None:
    """Append rows (work, figure, unit, peer, peer's value) to results/<file>.csv, and print
    them."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{file}.csv"
    fresh = not path.exists()
    with open(path, "a", newline="") as out:
        writer = csv.writer(out)
        if fresh:
            writer.writerow(COLUMNS)
        for work, figure, unit, peer, value in rows:
            shown = f"{value:.6g}" if isinstance(value, float) else value
            writer.writerow(
                [
                    datetime.date.today().isoformat(),
                    commit(),
                    processor(),
                    platform.release(),
                    work,
                    f"{figure:.6g}",
                    unit,
                    peer,
                    shown,
                ]
            )
            print(f"{work:60} {figure:12.6g} {unit:12} {peer} {shown}")
