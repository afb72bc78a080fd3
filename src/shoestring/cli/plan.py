"""shoestring plan NETWORK: what a training step will need, without running or even allocating it.

The step is forward, cross entropy, backward and SGD with momentum. Everything is planned on an
outline of the device (backends/outline.py), so a network that this machine could not hold is
planned as fast as any other.
"""

from __future__ import annotations

import argparse
import itertools
import math
import pathlib
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from .. import SGD, compile, config, cross_entropy, default_device, memory_limit, runtime
from ..backends.device import FACTORIES
from ..backends.device import device as open_device
from ..compile import Plan
from ..errors import MemoryBudgetError, ShapeError, fail, nearest
from ..ir import leaf
from ..models import MODELS, build, input_shape, recipe
from ..runtime.limits import at_least, size, tenants
from ..tensor import wrap
from .train import file_can_be_made, number, whole, write_json

GUESSES = 6  # from a straight line, before the search for the largest batch doubles and halves


def network(text: str) -> str:
    if text not in MODELS:
        close = nearest(text, MODELS)
        instead = f"; did you mean {close}?" if close else ""
        raise argparse.ArgumentTypeError(
            f"there is no network {text!r}{instead} There are {', '.join(MODELS)}"
        )
    return text


def at_most(limit: int) -> Callable[[str], int]:
    """Reads a whole number from 1 to `limit`: what no network needs more of, nor could be planned
    in a reasonable time."""

    def read(text: str) -> int:
        value = whole(text)
        if value > limit:
            raise argparse.ArgumentTypeError(f"must be at most {limit:,}, got {text}")
        return value

    return read


def factor(text: str) -> float:
    value = number(text)
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most 100, got {text}")
    return value


def budget(text: str) -> int:
    try:
        value = config.bytes_of(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 2**60:
        raise argparse.ArgumentTypeError(
            f"must be a size such as 460MiB, 1.8GB or a number of bytes, got {text!r}"
        )
    return value


def known_device(text: str) -> str:
    if text not in FACTORIES:
        raise argparse.ArgumentTypeError(
            f"there is no device {text!r}, this installation has {', '.join(sorted(FACTORIES))}"
        )
    return text


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "plan",
        help="memory, kernels and arithmetic of a training step, without running it",
        description="Plans one training step (cross entropy, SGD with momentum) and runs nothing.",
    )
    parser.add_argument("network", type=network, help=", ".join(MODELS))
    parser.add_argument(
        "--batch", type=at_most(10**6), default=32, help="samples per step (default 32)"
    )
    parser.add_argument("--image", type=at_most(10**4), help="side of the images")
    parser.add_argument("--width", type=factor, default=1.0, help="times as many channels")
    parser.add_argument("--depth", type=at_most(1000), help="blocks or layers in each stage")
    parser.add_argument("--classes", type=at_most(10**7), help="size of the result")
    parser.add_argument(
        "--memory",
        type=budget,
        metavar="LIMIT",
        help="460MiB, 1.8GB or bytes; default: SHOESTRING_MEMORY_LIMIT, if it is set",
    )
    parser.add_argument("--device", type=known_device, help=", ".join(sorted(FACTORIES)))
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--verbose", action="store_true", help="print every step of the plan")
    parser.set_defaults(run=run, parser=parser)


class TrainingPlans:
    """Plans of a network's training step for any batch. Use it inside `runtime.outlined()`, so that
    nothing is allocated.

    name, options  as in models.build
    """

    def __init__(self, name: str, image: int | None = None, **options: Any) -> None:
        self.name, self.image = name, image
        self.network = build(name, image=image, **options)
        self.optimizer = SGD(self.network.parameters(), lr=0.1, momentum=0.9)
        self.step = compile(self.train_step)
        self.plans: dict[int, Plan] = {}

    def train_step(self, x: Any, y: Any) -> Any:
        loss = cross_entropy(self.network(x), y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def plan(self, batch: int) -> Plan:
        """The plan that keeps all it can; `plan.options` has those that need less memory."""
        if batch not in self.plans:
            x = nothing(input_shape(self.name, batch, self.image), "float32")
            self.plans[batch] = self.step.plan(x, nothing((batch,), "int64"))
        return self.plans[batch]

    def within(self, batch: int, limit: int | None) -> Plan | None:
        """The cheapest plan that needs at most `limit` bytes; None if there is none."""
        plan = self.plan(batch)
        return plan if limit is None else plan.options.within(limit - plan.resident_bytes)

    def largest(self, limit: int, batch: int) -> int:
        """The largest batch that fits into `limit` bytes, 0 if none does; `batch`: where to begin.

        The floor is nearly a straight line over the batch, so a few guesses from its last two
        points find the answer and the neighbour that proves it; else doubling and halving do. What
        to compute again is searched for at `batch` only, and tried on the others."""
        start = self.plan(batch)
        inputs = 4 * math.prod(input_shape(self.name, 1, self.image))
        most = limit // inputs + 1  # its inputs alone are too many
        before, here = (0, start.resident_bytes), (batch, start.floor_bytes)
        low, high = 0, None
        for probe in itertools.count(1):
            if here[1] <= limit:
                low = here[0]
            else:
                high = here[0]
            if high is not None and high - low <= 1:
                return low if low in self.plans else 0
            slope = (here[1] - before[1]) / (here[0] - before[0])
            if probe <= GUESSES and slope > 0:
                guess = here[0] + math.floor((limit - here[1]) / slope)
            else:
                guess = 2 * low if high is None else (low + high) // 2
            guess = min(max(guess, low + 1), most)
            guess = guess if high is None else min(guess, high - 1)
            before, here = here, (guess, self.floor(guess, start))
        return low

    def floor(self, batch: int, like: Plan) -> int:
        """The fewest bytes that a step needs with the choices found for `like`. A batch too small
        for its layers (a BatchNorm of one value per channel) counts as one that fits."""
        try:
            plan = self.plan(batch)
        except ShapeError:
            return 0
        plan.options.adopt(like.options)
        return plan.floor_bytes


def nothing(shape: tuple[int, ...], dtype: str) -> Any:
    """A tensor of that shape on an outlined default device: it has no values."""
    name = default_device()
    return wrap(leaf(open_device(name).empty(shape, np.dtype(dtype)), device=name))


def run(options: Any) -> int:
    least = recipe(options.network).smallest
    if options.image is not None and options.image < least:
        options.parser.error(f"argument --image: {options.network} needs at least {least}")
    if options.depth is not None and not recipe(options.network).depth:
        options.parser.error(f"argument --depth: {options.network} has only one")
    if options.json:
        file_can_be_made(pathlib.Path(options.json))
    limit = options.memory or memory_limit().bytes
    with runtime.outlined(options.device):
        plans = TrainingPlans(
            options.network,
            options.image,
            width=options.width,
            depth=options.depth,
            classes=options.classes,
        )
        plan = plans.within(options.batch, limit)
        largest = None if limit is None else plans.largest(limit, options.batch)
        if plan is None:
            refuse(options, limit, plans.plan(options.batch).options.smallest(), largest)
        figures = figures_of(options, plans, plan, limit, largest)
        print(summary(figures, plan))
        if options.verbose:
            print(f"\n{plan}")
    if options.json:
        write_json(pathlib.Path(options.json), figures)
        print(f"figures: {options.json}", file=sys.stderr)
    return 0


def refuse(options: Any, limit: int, smallest: Plan, largest: int) -> NoReturn:
    """Raise MemoryBudgetError: what would fit, and the command that asks for it."""
    floor = smallest.predicted_peak_bytes
    given = [(name, getattr(options, name)) for name in ("image", "width", "depth", "classes")]
    network = "".join(f" --{name} {value}" for name, value in given if value not in (None, 1.0))
    command = f"shoestring plan {options.network} --batch"
    lines = [f"{command} {options.batch}{network} --memory {at_least(floor)}"]
    lines += [f"{command} {largest}{network} --memory {exactly(limit)}"] if largest else []
    try:
        fail(
            "launch/plan.memory",
            f"{options.network} with a batch of {options.batch} does not fit into {size(limit)}",
            tensors={
                what.replace("there before the plan", "parameters, slots and inputs"): size(nbytes)
                for what, nbytes in tenants(smallest, smallest.resident_bytes).items()
            },
            cause=f"the smallest plan, with all that can be computed again, needs {size(floor)}; "
            + (f"the largest batch that fits is {largest}" if largest else "no batch fits"),
            hint="\n        ".join(lines),
            error=MemoryBudgetError,
        )
    except MemoryBudgetError as problem:
        problem.limit_bytes, problem.floor_bytes = limit, floor
        raise


def exactly(nbytes: int) -> str:
    """That size, to type."""
    return f"{nbytes // 2**20}MiB" if nbytes % 2**20 == 0 else str(nbytes)


def figures_of(
    options: Any, plans: TrainingPlans, plan: Plan, limit: int | None, largest: int | None
) -> dict[str, Any]:
    """What --json writes. Bytes are whole numbers; recompute_flops_ratio: 0.15 is 15 % more
    arithmetic than without a limit; largest_feasible_batch: None without a limit."""
    x = input_shape(options.network, options.batch, options.image)
    return dict(
        network=options.network,
        batch=options.batch,
        input_shape=list(x),
        width=options.width,
        device=plan.device,
        memory_limit_bytes=limit,
        parameters=sum(p.size for p in plans.network.parameters()),
        predicted_peak_bytes=plan.predicted_peak_bytes,
        lower_bound_bytes=plan.lower_bound_bytes,
        floor_bytes=plan.floor_bytes,
        resident_bytes=plan.resident_bytes,
        arena_bytes=plan.arena_bytes,
        arena_lower_bound_bytes=plan.arena_lower_bound_bytes,
        kernels=plan.kernel_count(),
        flops=round(plan.flops),
        bytes_moved=round(plan.bytes_moved),
        recompute_flops_ratio=plan.recompute_flops_ratio,
        largest_feasible_batch=largest,
    )


def summary(figures: dict[str, Any], plan: Plan) -> str:
    """The figures in words, and what takes most of the memory."""
    limit, largest = figures["memory_limit_bytes"], figures["largest_feasible_batch"]
    again = f", {100 * plan.recompute_flops_ratio:.1f} % of it a second time"
    rows = [
        ("parameters", f"{figures['parameters']:,}"),
        ("peak", size(plan.predicted_peak_bytes)),
        ("  resident", f"{size(plan.resident_bytes)}: parameters, momentum, statistics, inputs"),
        ("  arena", f"{size(plan.arena_bytes)}, at least {plan.arena_lower_bound_bytes:,}"),
        ("  results", size(plan.external_bytes)),
        ("floor", f"{size(plan.floor_bytes)}: the least that recomputation can reach"),
        *([("limit", size(limit)), ("largest batch", f"{largest} within it")] if limit else []),
        ("kernels", f"{plan.kernel_count():,}"),
        ("arithmetic", f"{plan.flops / 1e9:,.3f} GFLOP{again if limit else ''}"),
        ("moved", f"{size(round(plan.bytes_moved))}, if nothing stays in a cache"),
    ]
    shape = "x".join(map(str, figures["input_shape"][1:]))
    lines = [
        f"{figures['network']}: a training step of {figures['batch']} x {shape} on {plan.device}",
        "",
        *[f"{name:14} {text}" for name, text in rows],
        "",
        "most memory at the peak",
        *[
            f"  {size(nbytes):>36}  {what}"
            for what, nbytes in tenants(plan, plan.resident_bytes).items()
        ],
    ]
    return "\n".join(lines).replace("there before the plan", "resident")
