"""Is this card right, and what does a launch cost on it?

    python benchmarks/card_check.py --device cuda:0
    python benchmarks/card_check.py --device opencl:0 --only ops --names conv2d,matmul

    device    what the driver says about it, and the compiler in use
    ops       every op that has kernels for cards, over all of its cases and the layouts it takes,
              against its NumPy reference in float64; twice, for the same bits
    programs  chains, an MLP's and a convolutional network's training steps, plain and compiled:
              losses and parameters against the CPU; memory counted against memory predicted
    launches  microseconds per kernel of a program: launched one by one, and replayed

Prints a line per failure and a table; exits with 1 if something differs or fails. Parts survive
each other's failures.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import shoestring as ss
from shoestring.backends import Kernel, placed
from shoestring.backends.device import device as open_device
from shoestring.backends.source import define
from shoestring.ir import OPS
from shoestring.runtime import release_arena
from shoestring.testing import distance, run_launch
from shoestring.testing.run import LAYOUTS, laid_out, reference


class Report:
    """Lines of the table, and how many of them are failures."""

    def __init__(self) -> None:
        self.failed = 0

    def line(self, part: str, what: str, told: str, ok: bool = True) -> None:
        self.failed += not ok
        print(f"{part:9} {what:34} {'ok ' if ok else 'BAD'} {told}", flush=True)

    def attempt(self, part: str, what: str, work: Callable[[], str]) -> None:
        """work() returns what to say, or raises."""
        try:
            self.line(part, what, work())
        except Exception as problem:
            place = traceback.extract_tb(problem.__traceback__)[-1]
            text = " | ".join(str(problem).splitlines()[:4])[:300]
            kind = type(problem).__name__
            self.line(part, what, f"{kind}: {text} ({place.name}:{place.lineno})", False)


def facts(name: str) -> str:
    card = open_device(name)
    told = f"{card.model}, {card.cores} cores, {card.total_bytes / 2**30:.1f} GiB"
    if name.startswith("cuda"):
        from shoestring.backends.cuda import nvrtc

        chosen = nvrtc.choose(card.capability, card.driver.version)
        compiler = f"{nvrtc.spelt(chosen[0])} for {chosen[1]}" if chosen else "no compiler"
        told += f", driver of CUDA {card.driver.version // 1000}, {compiler}"
    return told


# ---- ops -----------------------------------------------------------------------------------------
def check_op(name: str, device: str) -> tuple[int, float]:
    """(launches that were compared, the largest share of the tolerance); raises at a mismatch."""
    cls, card, count, worst = OPS[name], open_device(device), 0, 0.0
    for case in cls.cases:
        op, arrays = cls(**case.attributes), case.inputs()
        layouts = (None, *LAYOUTS) if op.strided and case is cls.cases[0] else (None,)
        for layout in layouts:
            given = [laid_out(a, layout) if layout else a for a in arrays]
            found = run_launch(op, given, card)
            if found is None:
                continue
            again = run_launch(op, given, card)
            wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in given]
            want = [op.record(given[0])] if op.kind == "check" else reference(op, wide)
            allowed = op.tolerance(*[a.shape for a in arrays])
            for y, twice, w in zip(found, again, want, strict=True):
                what = f"{op} of {[list(a.shape) for a in given]} {layout or ''}"
                error = distance(y, np.asarray(w, np.int64 if op.kind == "check" else None))
                assert error <= allowed, f"{what}: error {error:.3g}, allowed {allowed:.3g}"
                same = np.array_equal(y, twice, equal_nan=y.dtype.kind == "f")
                assert same, f"{what}: other bits the second time"
                worst = max(worst, error / allowed if allowed else 0.0)
            count += 1
    return count, worst


def ops(report: Report, device: str, names: list[str]) -> None:
    without = []
    for name in names:
        cls = OPS[name]
        if not hasattr(cls, "launch_card") or not cls.cases:
            continue
        try:
            count, worst = check_op(name, device)
        except Exception as problem:
            kind, text = type(problem).__name__, " | ".join(str(problem).splitlines()[:4])[:300]
            report.line("ops", name, f"{kind}: {text}", False)
            continue
        if count:
            report.line("ops", name, f"{count} launches, {100 * worst:.0f} % of the tolerance")
        else:
            without.append(name)
    if without:
        report.line("ops", "without kernels here", ", ".join(without))


# ---- whole programs ------------------------------------------------------------------------------
def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def chain(device: str) -> list[np.ndarray]:
    x, y = ss.tensor(noise(37, 65), device=device), ss.tensor(noise(65), device=device)
    a = (((x * y).sigmoid() + y) * 0.3 - (x.exp() + 1).log()).tanh()
    return [a.numpy(), (a.T[3:, ::2] * 2).numpy(), (x > y).float().numpy(), a.sum(axis=0).numpy()]


def training(device: str, build: Callable[[], Any], shape: tuple, compiled: bool) -> list:
    """Losses of a few steps, then the parameters."""
    ss.seed(0)
    net = build().to(device)
    optimizer = ss.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)

    def step(x: Any, y: Any) -> Any:
        loss = ss.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    run = ss.compile(step) if compiled else step
    rng, found = np.random.default_rng(0), []
    for _ in range(6):
        x = rng.standard_normal(shape).astype(np.float32)
        y = rng.integers(0, 10, shape[0])
        found.append(run(ss.tensor(x, device=device), ss.tensor(y, device=device)).numpy())
    stats = ss.memory_stats(device)
    spare = stats["arena_spare_bytes"] + stats["input_spare_bytes"]
    counted, predicted = stats["counted_peak_bytes"], stats["predicted_peak_bytes"]
    assert counted == predicted + spare, f"{counted:,} bytes counted, {predicted:,} predicted"
    return [*found, *[p.numpy() for p in net.parameters()]]


def mlp() -> Any:
    return ss.Sequential(ss.Linear(20, 32), ss.ReLU(), ss.Linear(32, 10))


def convolutions() -> Any:
    return ss.models.build("mnist_cnn")


PROGRAMS: dict[str, Callable[[str], list]] = {
    "elementwise chains and views": chain,
    "MLP, plain loop": lambda d: training(d, mlp, (16, 20), False),
    "MLP, compiled": lambda d: training(d, mlp, (16, 20), True),
    "MNIST CNN, plain loop": lambda d: training(d, convolutions, (8, 1, 28, 28), False),
    "MNIST CNN, compiled": lambda d: training(d, convolutions, (8, 1, 28, 28), True),
}


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """Relative to the largest value; values that would be 0 but for rounding, such as a bias before
    BatchNorm, count as 0.01."""
    return float(np.max(np.abs(a - b))) / max(float(np.max(np.abs(b))), 0.01)


def compared(program: Callable[[str], list], device: str) -> str:
    there, here = program(device), program("cpu")
    errors = [difference(np.asarray(a), np.asarray(b)) for a, b in zip(there, here, strict=True)]
    assert max(errors) < 1e-3, f"value {int(np.argmax(errors))} is {max(errors):.3g} off the CPU's"
    again = program(device)
    same = all(np.array_equal(a, b) for a, b in zip(there, again, strict=True))
    assert same, "other bits the second time"
    return f"{len(there)} values within {max(errors):.2g} of the CPU's, the same bits twice"


# ---- launches ------------------------------------------------------------------------------------
def seconds(run: Callable[[], Any], wait: Callable[[], Any], times: int) -> tuple[float, float]:
    """Per call: (what the caller waits, until all of it is done)."""
    for _ in range(4):
        run()
    wait()
    start = time.perf_counter()
    for _ in range(times):
        run()
    asked = time.perf_counter() - start
    wait()
    return asked / times, (time.perf_counter() - start) / times


def launches(report: Report, device: str, count: int = 50, times: int = 50) -> None:
    card = open_device(device)
    base = card.place(card.empty((4096,), np.dtype(np.float32)))
    kernel = Kernel(
        "zero",
        (0,),
        source="copy.cl",
        defines=define(TYPE="float", SIZE=4096, THREADS=256, POSITIONS="", FROM="i", TO="i"),
        grid=(16,),
        block=(256,),
    )
    program = card.program([placed(kernel, [(0, 0)])] * count)
    ways = {
        "one by one": lambda: program.run_range([base], 0, count),
        "replayed": lambda: program.run([base]),
    }
    for way, run in ways.items():
        asked, done = seconds(run, card.synchronize, times)
        told = f"{1e6 * asked / count:7.2f} us asked, {1e6 * done / count:7.2f} us done"
        report.line("launches", f"{count} small kernels, {way}", f"{told}, per kernel")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0", help="cuda:0, opencl:0 (default cuda:0)")
    parser.add_argument("--only", default="device,ops,programs,launches", help="parts, by comma")
    parser.add_argument("--names", default="", help="ops, by comma; default: all")
    options = parser.parse_args()
    report, parts, device = Report(), options.only.split(","), options.device
    if "device" in parts:
        report.attempt("device", device, lambda: facts(device))
    if "ops" in parts:
        ops(report, device, options.names.split(",") if options.names else sorted(OPS))
    if "programs" in parts:
        for name, program in PROGRAMS.items():
            report.attempt("programs", name, lambda p=program: compared(p, device))
            release_arena(open_device(device).name)
    if "launches" in parts:
        launches(report, device)
    print(f"{report.failed} failed" if report.failed else "all right")
    return min(report.failed, 1)


if __name__ == "__main__":
    sys.exit(main())
