"""A memory limit is kept, changes no bit, and is refused in words before anything runs."""

import gc
import os
import subprocess
import sys

import numpy as np
import pytest
from common import training_step

import shoestring as ss
from shoestring.backends.device import device
from shoestring.errors import MemoryBudgetError

CPU = device("cpu")


class Net(ss.Module):
    """Convolutions, batch normalisation, dropout, a residual: everything that could go wrong when a
    value is computed twice."""

    def __init__(self):
        self.first = ss.Conv2D(3, 8, 3, padding=1)
        self.norms = [ss.BatchNorm2D(8) for _ in range(6)]
        self.convs = [ss.Conv2D(8, 8, 3, padding=1) for _ in range(6)]
        self.drop = ss.Dropout(0.3)
        self.fc = ss.Linear(8, 5)

    def forward(self, x):
        x = self.first(x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = self.drop(ss.relu(norm(conv(x)))) + x
        return self.fc(x.mean((2, 3)))


def training(limit=None, steps=3, batch=8, plain=False, device="cpu"):
    """(all states and losses after some steps, the step)."""
    ss.seed(0)
    rng = np.random.default_rng(0)
    net = Net()
    optimizer = ss.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x = ss.tensor(rng.normal(size=(batch, 3, 32, 32)).astype(np.float32))
    y = ss.tensor(rng.integers(0, 5, batch))

    step = training_step(net, optimizer)
    run = step if plain else ss.compile(step, memory_limit=limit)
    losses = [run(x, y).item() for _ in range(steps)]
    return {**net.state_dict(), "losses": np.array(losses)}, run, (x, y)


def same(one, other):
    for name, value in one.items():
        assert np.asarray(value).tobytes() == np.asarray(other[name]).tobytes(), name


def others(plan):
    """Bytes that are allocated now and not the plan's."""
    ss.runtime.release_arena("cpu")
    gc.collect()
    return CPU.allocated_bytes() - plan.resident_bytes


def test_every_budget_is_kept_and_no_bit_changes():
    free, run, arguments = training()
    plan = run.plan(*arguments)
    more = others(plan)
    assert plan.floor_bytes < 0.8 * plan.predicted_peak_bytes
    peaks, ratios = [], []
    for share in (0.0, 0.1, 0.25, 0.5, 0.75, 1.0):
        budget = int(plan.floor_bytes + share * (plan.predicted_peak_bytes - plan.floor_bytes))
        del run, arguments
        found, run, arguments = training(budget + more)
        same(free, found)
        small = run.plan(*arguments)
        assert small.predicted_peak_bytes <= budget
        peaks.append(small.predicted_peak_bytes)
        ratios.append(small.recompute_flops_ratio)
    assert peaks == sorted(peaks) and ratios == sorted(ratios, reverse=True)
    assert ratios[0] > 0 == ratios[-1]


def test_the_predicted_peak_is_what_the_allocator_counts():
    _, run, arguments = training()
    plan = run.plan(*arguments)
    for budget in (None, plan.floor_bytes):
        more = others(plan)
        with ss.memory_limit(budget and budget + more):
            small = run.plan(*arguments)
            CPU.reset_peak()
            run(*arguments)
            assert CPU.peak_bytes() - more == small.predicted_peak_bytes


def test_a_plain_loop_keeps_the_limit_too():
    ss.runtime.PLANS.clear()
    free, _, _ = training(plain=True)
    plan = max((e.plan for e in ss.runtime.PLANS.values()), key=lambda p: p.predicted_peak_bytes)
    gc.collect()
    limit = CPU.allocated_bytes() - ss.runtime.arena_bytes("cpu")
    limit += (plan.floor_bytes + plan.predicted_peak_bytes) // 2
    ss.runtime.PLANS.clear()
    ss.runtime.release_arena("cpu")
    with ss.memory_limit(limit):
        CPU.reset_peak()
        found, _, _ = training(plain=True)
        assert CPU.peak_bytes() <= limit
    same(free, found)


def test_an_impossible_budget_is_refused_before_anything_runs_and_nothing_is_lost():
    _, run, arguments = training()
    plan = run.plan(*arguments)
    limit = others(plan) + plan.floor_bytes - 1000
    runs = ss.stats()["runs"]
    with ss.memory_limit(limit):
        with pytest.raises(MemoryBudgetError) as caught:
            run(*arguments)
        text = str(caught.value)
        assert caught.value.limit_bytes == limit
        assert caught.value.floor_bytes == limit + 1000
        fits = int(text.split("batch_size = ")[1].split()[0])
        assert 0 < fits < 8 and f"the largest batch that fits is {fits}" in text
        assert "there before the plan" in text and "convs." in text
        assert ss.stats()["runs"] == runs
        x, y = arguments
        run(x[:fits], y[:fits]).item()
    run(*arguments).item()


def test_the_limit_that_the_error_proposes_is_enough():
    _, run, arguments = training()
    plan = run.plan(*arguments)
    with ss.memory_limit(plan.floor_bytes // 2), pytest.raises(MemoryBudgetError) as caught:
        run(*arguments)
    proposed = str(caught.value).split('ss.memory_limit("')[1].split('"')[0]
    del caught
    with ss.memory_limit(proposed):
        run(*arguments).item()


def test_batchnorm_statistics_change_once_under_recomputation():
    """x = [[1], [3]], momentum 0.1: mean 2, unbiased variance 2 -> 0.2 and 1.1."""

    def run(limit):
        norm = ss.BatchNorm1D(1, momentum=0.1)
        w = ss.Parameter(np.ones((1, 50_000), np.float32))

        def step(x):
            y = norm(x) * w
            for _ in range(6):
                y = ss.softmax(y, -1) * 1.5
            y.sum().backward()
            return y.sum()

        step = ss.compile(step, memory_limit=limit)
        x = ss.tensor(np.array([[1.0], [3.0]], np.float32))
        plan = step.plan(x)
        step(x).item()
        return plan, float(norm.running_mean.numpy()[0]), float(norm.running_var.numpy()[0])

    plan, mean, var = run(None)
    assert (mean, var) == pytest.approx((0.2, 1.1))
    small, mean, var = run(others(plan) + plan.resident_bytes + plan.floor_bytes)
    assert any(s.recomputed for s in small.steps)
    assert (mean, var) == pytest.approx((0.2, 1.1))


def test_memory_limit_says_what_is_in_force_and_ends_with_its_block():
    assert ss.memory_limit().bytes is None
    with ss.memory_limit("460MiB") as limit:
        assert limit.bytes == 460 * 2**20 == ss.memory_limit().bytes
        with ss.memory_limit("1.8GB"):
            assert ss.memory_limit().bytes == 1_800_000_000
        assert ss.memory_limit().bytes == 460 * 2**20
    assert ss.memory_limit().bytes is None
    with ss.memory_limit("auto") as limit:
        assert limit.bytes > 2**20


@pytest.mark.parametrize("text", ["", "x", "1 apple", "-5", "1.2.3MB", True, 0, 1.5])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ss.errors.ArgumentError, match="is no amount of memory"):
        ss.memory_limit(text)


def test_the_environment_sets_the_limit():
    code = "import shoestring as ss; print(ss.memory_limit().bytes)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "SHOESTRING_MEMORY_LIMIT": "1.5 KiB"},
        capture_output=True,
        text=True,
    )
    assert run.stdout.strip() == "1536", run.stderr
