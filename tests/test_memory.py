"""What a plan predicts is what the device counts; the report adds up to it; the log says all."""

import gc
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from common import training_step

import shoestring as ss
from shoestring import models
from shoestring.backends import memory_log
from shoestring.backends.device import device as open_device
from shoestring.errors import MemoryBudgetError

SMALL = {"mlp": {"width": 0.1}, "vgg11": {"width": 0.05, "image": 32}}
SMALL |= {"resnet18": {"width": 0.1, "image": 40}, "resnet18_cifar": {"width": 0.1, "image": 8}}


def small(name, device):
    """(network, images) with few channels."""
    options = SMALL.get(name, {"width": 0.25})
    net = models.build(name, classes=10, **options).to(device)
    rng = np.random.default_rng(0)
    shape = models.input_shape(name, 4, options.get("image"))
    return net, ss.tensor(rng.normal(size=shape).astype(np.float32), device=device)


def settled(device):
    """The device without garbage and without the arena of an earlier plan."""
    ss.reset_stats()
    ss.runtime.PLANS.clear()
    gc.collect()
    ss.runtime.release_arena(device)
    found = open_device(device)
    found.reset_peak()
    return found


def exact(found, beside=None):
    """The last run took what its plan predicted, counted at the lowest call."""
    s = ss.memory_stats(found.name)
    spare = s["arena_spare_bytes"] + s["input_spare_bytes"]
    assert s["counted_peak_bytes"] == s["predicted_peak_bytes"] + spare
    assert s["predicted_peak_bytes"] > 0
    report = ss.memory_report(device=found.name)
    assert report.total == s["predicted_peak_bytes"] == sum(report.by_kind().values())
    if beside is not None:
        assert found.peak_bytes() - beside == s["predicted_peak_bytes"] and spare == 0
    return s


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("name", models.MODELS)
def test_predicted_is_counted_for_every_network(name, device):
    """Compiled training under no limit and under a tight one, a plain loop, evaluation: nothing but
    the plan's own memory is there, so the device's peak itself is the prediction."""
    net, x = small(name, device)
    y = ss.tensor(np.arange(4), device=device)
    optimizer = ss.SGD(net.parameters(), lr=0.01, momentum=0.9)
    step = ss.compile(training_step(net, optimizer))
    plan = step.plan(x, y)
    found = settled(device)
    beside = found.allocated_bytes() - plan.resident_bytes
    step(x, y).item()
    s = exact(found, beside)
    assert s["predicted_peak_bytes"] == plan.predicted_peak_bytes
    step(x, y).item()
    exact(found, beside)

    found = settled(device)
    budget = beside + (plan.floor_bytes + plan.predicted_peak_bytes) // 2
    with ss.memory_limit(budget):
        step(x, y).item()
        s = exact(found)
        assert found.peak_bytes() <= budget and s["predicted_peak_bytes"] <= budget - beside

    found = settled(device)
    plain = training_step(net, optimizer)
    for _ in range(3):
        plain(x, y).item()
        s = exact(found)
        assert found.peak_bytes() == s["beside_bytes"] + s["counted_peak_bytes"]
    net.eval()
    predict = ss.compile(lambda x: net(x).argmax(1))
    predict.plan(x)
    found = settled(device)
    everything = found.allocated_bytes()
    predict(x).numpy()
    s = exact(found)
    assert found.peak_bytes() == s["beside_bytes"] + s["counted_peak_bytes"]
    assert everything == s["beside_bytes"] + ss.memory_report(predict).total - own(predict)
    net.train()


def own(step):
    return step.plans()[-1].own_bytes


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_the_differences_are_known_and_shown(device):
    """An arena that a larger plan has needed; an input that is part of a data set; two inputs in
    one allocation; the user's own tensors."""
    data = ss.tensor(np.ones((100, 50), np.float32), device=device)
    other = ss.tensor(np.ones(1000, np.float32), device=device)
    work = ss.compile(lambda a: ((a @ a.T).relu() @ a).sum())
    found = settled(device)
    work(data).item()
    large = exact(found, found.allocated_bytes() - 20_000 - ss.runtime.arena_bytes(device))
    assert large["beside_bytes"] >= other.size * 4
    work(data[:10]).item()
    s = exact(found)
    assert s["arena_bytes"] == large["arena_bytes"]
    plan = work.plan(data[:10])
    assert s["arena_spare_bytes"] == large["arena_bytes"] - plan.arena_bytes > 0
    assert s["input_spare_bytes"] == 20_000 - 2_000
    assert s["largest_predicted_peak_bytes"] == large["predicted_peak_bytes"]
    pair = ss.compile(lambda a, b: (a + b).relu().sum())
    pair(data, data[:1]).item()
    assert exact(found)["input_spare_bytes"] == -200


def test_a_smaller_arena_is_released_before_the_larger_is_asked_for():
    work = ss.compile(lambda a: ((a @ a.T).relu() @ a).sum())
    small, large = ss.ones(50, 50), ss.ones(200, 50)
    small.numpy(), large.numpy()
    peaks = [work.plan(a).predicted_peak_bytes for a in (small, large)]
    found = settled("cpu")
    beside = found.allocated_bytes() - small.size * 4 - large.size * 4
    work(small).item()
    work(large).item()
    assert found.peak_bytes() == beside + small.size * 4 + peaks[1]


def test_numbers_of_the_host_count_in_neither():
    """A learning rate and a random key are inputs of the plan, and no memory of the device."""
    net = ss.Sequential(ss.Linear(20, 20), ss.Dropout(0.5), ss.Linear(20, 3))
    optimizer = ss.Adam(net.parameters(), lr=0.01)
    step = ss.compile(training_step(net, optimizer))
    x, y = ss.tensor(np.ones((8, 20), np.float32)), ss.tensor(np.zeros(8, np.int64))
    plan = step.plan(x, y)
    assert len(plan.leaves) - len(plan.resident) >= 2
    found = settled("cpu")
    beside = found.allocated_bytes() - plan.resident_bytes
    step(x, y).item()
    exact(found, beside)


def test_a_plan_without_an_arena_asks_for_none():
    found = settled("cpu")
    x = ss.tensor(np.ones(100, np.float32))
    (x + 1).numpy()
    assert ss.memory_stats()["arena_bytes"] == 0
    exact(found)


def test_a_variable_as_an_argument_is_memory_of_the_device():
    v = ss.Variable(np.ones((10, 10), np.float32))
    work = ss.compile(lambda a: (a @ a).sum())
    found = settled("cpu")
    work(v).item()
    assert exact(found)["input_spare_bytes"] == 0


def test_stats_of_a_device_on_which_nothing_has_run():
    ss.reset_stats()
    s = ss.memory_stats()
    assert s["predicted_peak_bytes"] == s["counted_peak_bytes"] == 0
    assert s["device"] == "cpu" and s["limit_bytes"] is None
    with ss.memory_limit("1GB"):
        assert ss.memory_stats()["limit_bytes"] == 10**9


# ---- the report ----------------------------------------------------------------------------------


def reported(keep_gradients=False):
    ss.seed(0)
    net = models.build("mnist_cnn")
    optimizer = ss.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x = ss.tensor(np.zeros((8, 1, 28, 28), np.float32))
    y = ss.tensor(np.zeros(8, np.int64))

    def step(x, y):
        loss = ss.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        if not keep_gradients:
            optimizer.zero_grad()
        return loss

    step = ss.compile(step)
    plan = step.plan(x, y)
    return net, step, plan


@pytest.mark.parametrize("keep_gradients", [False, True])
def test_the_report_says_who_has_how_much(keep_gradients):
    net, step, plan = reported(keep_gradients)
    report = ss.memory_report(step)
    kinds, layers = report.by_kind(), report.by_layer()
    parameters = sum(p.size for p in net.parameters()) * 4
    assert kinds["parameters"] == kinds["optimizer state"] == parameters
    assert kinds["buffers"] == 2 * (16 + 32) * 4
    assert kinds["inputs"] == 8 * 28 * 28 * 4 + 8 * 8
    assert kinds["outputs"] == 4
    assert kinds["activations"] > 0
    if keep_gradients:
        assert kinds["gradients"] == parameters
    assert layers["fc"]["parameters"] == (800 * 10 + 10) * 4
    assert layers["conv2"]["optimizer state"] == (32 * 16 * 9 + 32) * 4
    assert layers["bn1"]["buffers"] == 2 * 16 * 4
    assert report.total == plan.predicted_peak_bytes
    assert sum(n for sizes in layers.values() for n in sizes.values()) == report.total
    tenants = plan.at_peak()
    assert sum(t.nbytes for t in tenants) == plan.arena_lower_bound_bytes
    assert plan.steps[report.step] is report.at


def test_the_table_adds_up_as_it_is_printed():
    _, step, plan = reported()
    lines = [line for line in str(ss.memory_report(step)).splitlines() if "---" not in line]
    head, *rows, total, foot = lines
    kinds = re.split(r"\s{2,}", head)
    ends = [re.search(rf"(?<=\s){k}$|(?<=\s){k}(?=\s\s)", head).end() for k in kinds[1:]]
    starts = [ends[0] - 20, *ends[:-1]]

    def number(line, k):
        text = line.ljust(len(head))[max(starts[k], 12) : ends[k]].strip().replace(",", "")
        return int(text or 0)

    for k in range(len(ends)):
        assert sum(number(row, k) for row in rows) == number(total, k)
    for row in (*rows, total):
        assert sum(number(row, k) for k in range(len(ends) - 1)) == number(row, len(ends) - 1)
    assert number(total, len(ends) - 1) == plan.predicted_peak_bytes
    assert foot == f"bytes on cpu at the peak, at step {plan.peak_step} of {len(plan.steps)}, " + (
        plan.steps[plan.peak_step].op.name
    )


def test_the_report_of_a_plan_and_of_the_last_run():
    _, step, plan = reported()
    (ss.ones(3, 3) @ ss.ones(3, 3)).numpy()
    assert str(ss.memory_report(plan)) == str(ss.memory_report(step)) != str(ss.memory_report())
    small = ss.memory_report(plan.options.smallest())
    assert small.total == plan.floor_bytes < plan.predicted_peak_bytes
    with pytest.raises(ss.errors.ArgumentError, match="the step has no plan yet"):
        ss.memory_report(ss.compile(lambda x: x))


# ---- the log -------------------------------------------------------------------------------------

LINE = re.compile(r"memory device=(\w+) event=(\w+) (.*)")
WORD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)')


def read_log(text):
    found = []
    for line in text.splitlines():
        device, event, rest = LINE.fullmatch(line).groups()
        facts = {k: json.loads(v) if v[0] == '"' else v for k, v in WORD.findall(rest)}
        found.append((device, event, facts))
    return found


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_the_log_holds_every_allocation_and_release(device, capsys, monkeypatch):
    monkeypatch.setattr(memory_log, "enabled", True)
    found = settled(device)
    now = before = found.allocated_bytes()
    net, x = small("mnist_cnn", device)
    y = ss.tensor(np.arange(4), device=device)
    optimizer = ss.SGD(net.parameters(), lr=0.01, momentum=0.9)
    step = ss.compile(training_step(net, optimizer))
    for _ in range(2):
        step(x, y).item()
    plan = step.plan(x, y)
    del step, net, x, y, optimizer
    settled(device)
    events = [e for e in read_log(capsys.readouterr().err) if e[0] == device]
    held = {}
    for _, event, facts in events:
        if event == "allocate":
            now += int(facts["bytes"])
            held[facts["address"]] = facts
            assert int(facts["total"]) == now
        elif event == "release":
            now -= int(facts["bytes"])
            same = held.pop(facts["address"])
            assert {**facts, "total": 0} == {**same, "total": 0}
            assert int(facts["total"]) == now
    assert now - before == sum(int(f["bytes"]) for f in held.values())
    assert now == found.allocated_bytes()
    named = {f["what"] for _, e, f in events if e == "allocate"}
    weight = "parameter" if device == "cpu" else "conv1.weight"  # moved there by its name
    assert {"arena", "tensor", weight, "momentum of conv1.weight"} <= named
    (summary,) = [f for _, e, f in events if e == "plan"]  # once, though it ran twice
    assert int(summary["bytes"]) == plan.predicted_peak_bytes
    assert int(summary["arena"]) == plan.arena_bytes
    tenants = [f for _, e, f in events if e == "tenant"]
    arena = next(f for _, e, f in events if e == "allocate" and f["what"] == "arena")
    places = [(int(f["address"], 16) - int(arena["address"], 16), f) for f in tenants]
    assert len(tenants) == len(plan.tenants)
    assert max(offset + int(f["bytes"]) for offset, f in places) == plan.arena_bytes
    makers = {(f["layer"], f["what"].split("+")[0]) for f in tenants}  # the bias is part of them
    assert makers >= {("conv1", "conv2d"), ("fc", "matmul")}


def test_the_switch_turns_the_log_on():
    code = "import shoestring as ss; (ss.ones(8, 8) @ ss.ones(8, 8)).numpy()"
    for value, lines in (("1", True), ("0", False)):
        run = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "SHOESTRING_LOG_MEMORY": value},
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0 and bool(read_log(run.stderr)) == lines, run.stderr


# ---- out of memory -------------------------------------------------------------------------------


@pytest.mark.parametrize("images", ["array", "tensor"])
@pytest.mark.parametrize("compiled", [True, False])
def test_after_out_of_memory_a_smaller_batch_fits_though_the_error_is_kept(compiled, images):
    """The error and its traceback hold no memory; the step has not happened; the next one does."""
    ss.seed(0)
    net = models.build("mnist_cnn")
    optimizer = ss.SGD(net.parameters(), lr=0.01, momentum=0.9)
    step = training_step(net, optimizer)
    step = ss.compile(step) if compiled else step
    x, y = np.ones((256, 1, 28, 28), np.float32), np.zeros(256, np.int64)
    if images == "tensor" or not compiled:
        x, y = ss.tensor(x), ss.tensor(y)
    step(x[:4], y[:4]).item()
    before = net.state_dict()
    found = settled("cpu")
    held = found.allocated_bytes()
    with ss.memory_limit(held + 5_000_000):
        with pytest.raises(MemoryBudgetError) as kept:
            step(x, y).item()
        after = net.state_dict()
        assert all(np.array_equal(before[k], after[k]) for k in before)
        if not compiled:
            optimizer.zero_grad()
        ss.runtime.release_arena("cpu")
        assert found.allocated_bytes() == held
        assert np.isfinite(step(x[:4], y[:4]).item())
        exact(found)
        assert found.peak_bytes() <= held + 5_000_000
    assert any(not np.array_equal(before[k], v) for k, v in net.state_dict().items())
    assert kept.value.place.startswith("launch/memory.")


def test_after_out_of_memory_no_gradient_is_left():
    """backward() and step() were refused: the parameter, gradient and slot are as before."""
    p = ss.Parameter(np.ones((300, 300), np.float32))
    optimizer = ss.SGD([p], lr=0.1, momentum=0.9)
    with ss.memory_limit(settled("cpu").allocated_bytes() + 500_000):
        for _ in range(5):
            loss = ((p @ p) @ (p @ p)).sum()
            loss.backward()
            optimizer.step()
            with pytest.raises(MemoryBudgetError):
                loss.item()
            assert p.grad is None and p.numpy().max() == 1
    with pytest.raises(MemoryBudgetError):  # its update was dropped: the step has to run again
        loss.item()
    ((p * p).sum()).backward()
    np.testing.assert_array_equal(p.grad.numpy(), 2)


def test_a_value_that_changes_no_state_can_be_looked_at_again():
    x = ss.ones(300, 300)
    y = (x @ x).sum()
    with ss.memory_limit(settled("cpu").allocated_bytes() + 300_000):
        with pytest.raises(MemoryBudgetError):
            y.item()
    assert y.item() == 300**3


def test_what_the_system_cannot_give_is_an_error_and_costs_nothing():
    x, y = ss.ones(1 << 24, 1), ss.ones(1, 1 << 24)
    x.numpy(), y.numpy()
    found = settled("cpu")
    held = found.allocated_bytes()
    with pytest.raises(ss.errors.DeviceError, match="could not provide") as kept:
        (x @ y).numpy()  # 2^48 numbers
    ss.runtime.release_arena("cpu")
    assert found.allocated_bytes() == held and kept.value.place == "launch/memory.out"
    (ss.ones(8, 8) @ ss.ones(8, 8)).numpy()
