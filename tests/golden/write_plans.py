"""Writes plans.txt: every plan of the networks in one line, to which tests/test_plan_snapshots.py
holds the compiler.

    python tests/golden/write_plans.py                 # plans.txt anew: its diff shows what changed
    python tests/golden/write_plans.py --full FOLDER   # the printed plans, a file each, to compare

Columns: kernels and steps; bytes of the arena and of the predicted peak; floating-point operations,
and those done a second time; `printed` and `memory`, the first digits of two SHA-256. The one is of
the printed plan. The other, of addresses and lifetimes alone, stays where ops or kernels have only
got other names. Nothing is run or allocated, and nothing depends on the machine.
"""

from __future__ import annotations

import argparse
import hashlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import shoestring as ss
from shoestring.cli.plan import nothing
from shoestring.compile import Plan
from shoestring.runtime import session

PATH = pathlib.Path(__file__).with_name("plans.txt")
COLUMNS = "plan kernels steps arena peak flops again printed memory".split()
Plans = Iterator[tuple[str, Plan]]
MIB = 2**20


def sgd(parameters: Any) -> Any:
    return ss.SGD(parameters, lr=0.1, momentum=0.9)


def training(
    network: str, batch: int, optimizer: Callable = sgd, parts: int = 1, **options: Any
) -> Plan:
    """The plan of one step of cross entropy."""
    net = ss.models.build(network, **options)
    update = optimizer(net.parameters())

    def step(x, y):
        loss = ss.cross_entropy(net(x), y)
        loss.backward()
        update.step()
        update.zero_grad()
        return loss

    x = nothing(ss.models.input_shape(network, batch, options.get("image")), "float32")
    compiled = ss.compile(step, micro_batches=parts, allow_batchnorm_split=parts > 1)
    return compiled.plan(x, nothing((batch,), "int64"))


def evaluation(network: str, batch: int, **options: Any) -> Plan:
    net = ss.models.build(network, **options)
    net.eval()
    shape = ss.models.input_shape(network, batch, options.get("image"))
    return ss.compile(lambda x: net(x)).plan(nothing(shape, "float32"))


def limited(plan: Plan, *fractions: float) -> Plans:
    """Plans of the same work within budgets between the least (0) and what it takes freely (1)."""
    for fraction in fractions:
        least = plan.options.smallest().own_bytes
        room = least + int(fraction * (plan.own_bytes - least))
        yield f"within {fraction:.0%}", plan.options.within(room)


def network(name: str, batch: int, **options: Any) -> Plans:
    free = training(name, batch, **options)
    yield "train", free
    for what, plan in limited(free, 0.5, 0.0):
        yield f"train {what}", plan
    yield "train adam", training(name, batch, ss.Adam, **options)
    yield "eval", evaluation(name, batch, **options)
    parts = training(name, batch, parts=2, **options)
    yield "train parts", parts
    for what, plan in limited(parts, 0.3):
        yield f"train parts {what}", plan


def resnet18() -> Plans:
    """The figures of docs/performance.md."""
    free = training("resnet18", 32)
    yield "train", free
    for mib in (460, 360):
        yield f"train {mib} MiB", free.options.within(mib * MIB - free.resident_bytes)
    yield "train adam", training("resnet18", 32, ss.Adam)
    yield "eval", evaluation("resnet18", 32)


def plain() -> Plans:
    """Without fusing, and without sharing memory."""
    for flag in ("fuse", "reuse"):
        setattr(session, flag, False)
        try:
            yield f"no {flag}", training("mnist_cnn", 32)
        finally:
            setattr(session, flag, True)


class Layers(ss.Module):
    """What the networks lack: other activations, pooling and norms, branches that meet."""

    def __init__(self) -> None:
        self.conv, self.side = ss.Conv2D(3, 8, 3, padding=1), ss.Conv2D(3, 8, 1, bias=False)
        self.bn, self.norm = ss.BatchNorm2D(8), ss.BatchNorm1D(24)
        self.hidden, self.last = ss.Linear(8 * 4 * 4, 24), ss.Linear(24, 5)
        self.drop = ss.Dropout(0.25)

    def forward(self, x):
        y = ss.gelu(self.bn(self.conv(x))) + ss.silu(self.side(x)) * 0.5
        y = ss.avg_pool2d(ss.max_pool2d(y, 3, stride=2, padding=1), 2)
        y = self.drop(ss.tanh(self.norm(self.hidden(y.flatten(1)))))
        return self.last(ss.leaky_relu(y))


def layers() -> Plans:
    net = Layers()
    update = ss.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)

    def step(x, y):
        logits = net(x)
        penalty = ss.mse_loss(logits, logits.mean(1, keepdims=True) * ss.ones(16, 5))
        loss = ss.cross_entropy(logits, y, label_smoothing=0.1) + 0.01 * penalty
        loss.backward()
        ss.clip_grad_norm_(net.parameters(), 1.0)
        update.step()
        update.zero_grad()
        return loss, ss.softmax(logits, 1).max(1), logits.argmax(1)

    x, y = nothing((16, 3, 16, 16), "float32"), nothing((16,), "int64")
    free = ss.compile(step).plan(x, y)
    yield "train", free
    for what, plan in limited(free, 0.0):
        yield f"train {what}", plan
    regression = ss.compile(lambda x, y: ss.mse_loss(ss.sigmoid(net(x)), y))
    yield "loss", regression.plan(x, nothing((16, 5), "float32"))


GROUPS: dict[str, Callable[[], Plans]] = {
    "mnist_cnn": lambda: network("mnist_cnn", 32),
    "mlp": lambda: network("mlp", 32),
    "vgg11": lambda: network("vgg11", 4),
    "resnet18_cifar": lambda: network("resnet18_cifar", 8, width=0.25, depth=1),
    "resnet18": resnet18,
    "resnet18_cifar, whole": lambda: iter([("train", training("resnet18_cifar", 128))]),
    "plain": plain,
    "layers": layers,
}


def plans(group: str) -> Plans:
    """(name, plan) of one group."""
    with ss.runtime.outlined("cpu"):
        for name, plan in GROUPS[group]():
            yield f"{group}: {name}", plan


def line(name: str, plan: Plan) -> list[str]:
    """One row of plans.txt."""
    memory = [
        (step.reads, step.writes, step.workspaces, step.record, step.home) for step in plan.steps
    ]
    tenants = sorted(tuple(t)[2:] for t in plan.tenants)
    again = sum(step.cost().flops for step in plan.steps if step.recomputed)
    return [
        name,
        *[
            f"{n:,.0f}"
            for n in (
                plan.kernel_count(),
                len(plan.steps),
                plan.arena_bytes,
                plan.predicted_peak_bytes,
                plan.flops,
                again,
            )
        ],
        digest(str(plan)),
        digest(f"{plan.point_of_no_return} {memory} {tenants}"),
    ]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def table(rows: list[list[str]]) -> str:
    """The rows under their columns, names to the left and numbers to the right."""
    rows = [COLUMNS, *rows]
    widths = [max(len(row[c]) for row in rows) for c in range(len(COLUMNS))]
    lines = [
        "  ".join(
            cell.rjust(w) if c else cell.ljust(w)
            for c, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def stored() -> dict[str, list[str]]:
    """{name of a plan: its row in plans.txt}"""
    rows = [line.rsplit(None, len(COLUMNS) - 1) for line in PATH.read_text().splitlines()[1:]]
    return {row[0]: row for row in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--full", type=pathlib.Path, metavar="FOLDER")
    folder = parser.parse_args().full
    rows = []
    for group in GROUPS:
        for name, plan in plans(group):
            rows.append(line(name, plan))
            if folder:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{name.replace(': ', '-').replace(' ', '_')}.txt").write_text(
                    f"{plan}\n"
                )
    if folder is None:
        PATH.write_text(table(rows))
    print(table(rows), end="")


if __name__ == "__main__":
    main()
