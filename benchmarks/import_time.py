"""What `import shoestring` costs beyond NumPy's own import, and what an installation weighs.

python benchmarks/import_time.py        (with the installed package: bytecode is cached)
"""

from __future__ import annotations

import pathlib
import statistics
import subprocess
import sys

from record import record

CODE = (
    "import numpy, time; t = time.perf_counter(); import shoestring; "
    "print(time.perf_counter() - t, shoestring.__file__)"
)


def main() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", CODE], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(16)
    ][1:]
    seconds = statistics.median(float(r[0]) for r in runs)
    folder = pathlib.Path(runs[0][1]).parent
    files = [p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    size = sum(p.stat().st_size for p in files)
    cached = sum(p.stat().st_size for p in folder.rglob("*.pyc"))
    record(
        "import",
        [
            ("import shoestring beyond numpy", seconds * 1e3, "ms", "", ""),
            ("installed size without bytecode", size / 1e6, "MB", "", ""),
            ("installed size with bytecode", (size + cached) / 1e6, "MB", "", ""),
        ],
    )


if __name__ == "__main__":
    main()
