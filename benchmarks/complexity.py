"""How much there is to read, and what the compiler makes of it: figures to compare before and after
a change of structure.

    python benchmarks/complexity.py                   # prints them
    python benchmarks/complexity.py --column before   # and writes them into results/complexity.csv

Everything but the seconds is counted, from the source and from plans; nothing is run. A line of
code is one that holds more than a comment or a docstring.
"""

from __future__ import annotations

import argparse
import ast
import csv
import io
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator

from record import FOLDER, commit

import shoestring as ss
from shoestring.cli.plan import TrainingPlans
from shoestring.compile import pipeline
from shoestring.ir import OPS, Op, Output

PACKAGE = pathlib.Path(ss.__file__).parent
MIB = 2**20


def plans() -> Iterator[tuple[str, str, float]]:
    """Figures of plans on an outline of the CPU."""
    with ss.runtime.outlined("cpu"):
        for network, what in (("mnist_cnn", "an MNIST step"), ("resnet18_cifar", "resnet18_cifar")):
            plan = TrainingPlans(network).plan(32)
            yield f"kernels of {what}, batch 32", "", plan.kernel_count()
        network = TrainingPlans("resnet18")
        plan = network.plan(32)
        yield "kernels of resnet18 224, batch 32", "", plan.kernel_count()
        yield "resnet18 224, batch 32: peak", "MiB", plan.predicted_peak_bytes / MIB
        for limit in (460, 360):
            ratio = network.within(32, limit * MIB).recompute_flops_ratio
            yield f"resnet18 224, batch 32 in {limit} MiB: recomputed", "%", 100 * ratio


def planning(runs: int) -> Iterator[tuple[str, str, float]]:
    """Processor time of the whole command, started anew each time: medians."""
    for limit in ([], ["--memory", "460MiB"]):
        command = [sys.executable, "-m", "shoestring", "plan", "resnet18", "--batch", "32", *limit]
        seconds = []
        for _ in range(runs):
            before = os.times()
            subprocess.run(command, check=True, capture_output=True)
            after = os.times()
            seconds.append(after[2] + after[3] - before[2] - before[3])
        yield " ".join(["shoestring", *command[3:]]), "s", statistics.median(seconds)


def structure() -> Iterator[tuple[str, str, int]]:
    ops = PACKAGE / "ops"
    native = "\n".join(p.read_text() for p in files(PACKAGE, ".cpp", ".h"))
    yield "passes that fuse or merge", "", len(pipeline.FUSING)
    yield "op classes that only the compiler makes", "", len(list(made_by_passes(Op)))
    yield "declared attributes of Op", "", len(Op.__annotations__)
    yield (
        "tests of device.kind in ops/",
        "",
        sum(p.read_text().count("device.kind") for p in files(ops, ".py")),
    )
    yield "reads of integers by position in C++", "", len(re.findall(r"\bintegers\[\d+\]", native))
    yield "files in ops/", "", len(list(files(ops, ".py", ".pyi", ".cpp", ".h", ".cl")))


def made_by_passes(cls: type) -> Iterator[type]:
    """Classes of ops that have no name in the registry and are no family's common base."""
    for found in cls.__subclasses__():
        yield from made_by_passes(found)
        if not found.__subclasses__() and found is not Output and found not in OPS.values():
            yield found


def files(folder: pathlib.Path, *suffixes: str) -> Iterator[pathlib.Path]:
    return (p for p in folder.rglob("*") if p.suffix in suffixes)


def lines() -> Iterator[tuple[str, str, int]]:
    python = sum(len(code_lines(p.read_text())) for p in files(PACKAGE, ".py"))
    native = sum(len(native_lines(p.read_text())) for p in files(PACKAGE, ".cpp", ".h", ".cl"))
    yield "lines of code, Python", "", python
    yield "lines of code, C++ and card kernels", "", native
    yield "lines of code", "", python + native


def code_lines(text: str) -> set[int]:
    """Numbers of the lines that hold a token other than comments and docstrings."""
    nothing = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (*nothing, tokenize.ENDMARKER):
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                found -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def native_lines(text: str) -> list[str]:
    """Lines of C++ that hold more than a comment."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return [line for line in text.splitlines() if line.partition("//")[0].strip()]


def write(column: str, rows: Iterable[tuple[str, str, str]]) -> pathlib.Path:
    """Put `rows` under `column` of the table, beside the columns that are there."""
    path = FOLDER / "complexity.csv"
    old = list(csv.DictReader(path.open())) if path.exists() else []
    columns = list(dict.fromkeys([*(old[0] if old else ("figure", "unit")), column]))
    table = {row["figure"]: row for row in old}
    for figure, unit, value in rows:
        table.setdefault(figure, {"figure": figure, "unit": unit})[column] = value
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(table.values())
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--column", help="of results/complexity.csv, such as before or after")
    parser.add_argument("--runs", type=int, default=5, help="of each command that is timed")
    options = parser.parse_args()
    rows = [("commit", "", commit())]
    for figures in (plans(), planning(options.runs), structure(), lines()):
        rows += [(name, unit, f"{value:.5g}") for name, unit, value in figures]
    for name, unit, value in rows:
        print(f"{name:52} {value:>16} {unit}")
    if options.column:
        print(write(options.column, rows))


if __name__ == "__main__":
    main()
