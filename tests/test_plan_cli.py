"""shoestring plan, and the outline of a device on which it plans."""

import csv
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import shoestring as ss
from shoestring.backends.device import device
from shoestring.cli import main
from shoestring.cli.plan import TrainingPlans, nothing
from shoestring.errors import ArgumentError, DeviceError, MemoryBudgetError

SMALL = {
    "mnist_cnn": ["--width", "0.5"],
    "mlp": ["--width", "0.1"],
    "resnet18": ["--width", "0.1", "--image", "32"],
    "resnet18_cifar": ["--width", "0.1", "--image", "16", "--depth", "1"],
    "vgg11": ["--width", "0.1", "--image", "32", "--classes", "7"],
}
FIELDS = (
    "predicted_peak_bytes lower_bound_bytes kernels flops bytes_moved recompute_flops_ratio "
    "floor_bytes largest_feasible_batch arena_bytes arena_lower_bound_bytes"
).split()


@pytest.fixture
def figures(tmp_path, capsys):
    """figures("resnet18", "--batch", "8") -> what it wrote and what it printed."""

    def run(*arguments):
        file = tmp_path / "figures.json"
        file.unlink(missing_ok=True)
        assert main(["plan", *map(str, arguments), "--json", str(file)]) == 0
        return json.loads(file.read_text()), capsys.readouterr().out

    return run


def shoestring(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "shoestring", *arguments],
        capture_output=True,
        text=True,
        env=dict(os.environ, **environment),
    )


@pytest.mark.parametrize("name", SMALL)
def test_every_network_has_all_figures(name, figures):
    found, printed = figures(name, "--batch", 4, *SMALL[name])
    assert set(FIELDS) <= set(found)
    assert found["largest_feasible_batch"] is None and found["recompute_flops_ratio"] == 0
    assert found["floor_bytes"] <= found["predicted_peak_bytes"]
    assert found["lower_bound_bytes"] <= found["predicted_peak_bytes"]
    assert found["arena_lower_bound_bytes"] <= found["arena_bytes"]
    assert found["arena_bytes"] <= 1.02 * found["arena_lower_bound_bytes"]
    assert found["kernels"] > 0 and found["flops"] > 0 and found["bytes_moved"] > 0
    assert f"{found['predicted_peak_bytes']:,} bytes" in printed
    assert f"{found['floor_bytes']:,} bytes" in printed and "MiB" in printed


@pytest.mark.parametrize("name", SMALL)
def test_an_outline_gives_the_plan_that_will_run(name):
    """Step by step, address by address; and the peak is what a run allocates."""
    image = {"mnist_cnn": 28, "mlp": 28}.get(name, 32)
    with ss.runtime.outlined("cpu"):
        outlined = TrainingPlans(name, image, width=0.1, classes=5).plan(4)
    real = TrainingPlans(name, image, width=0.1, classes=5)
    x, y = ss.zeros(*ss.models.input_shape(name, 4, image)), ss.zeros(4, dtype="int64")
    plan = real.step.plan(x, y)
    assert str(plan) == str(outlined)
    assert plan.predicted_peak_bytes == outlined.predicted_peak_bytes
    assert plan.floor_bytes == outlined.floor_bytes


def test_an_outline_takes_no_memory_draws_nothing_and_ends_with_its_block():
    x = ss.tensor(np.arange(6.0))
    assert (x + x).sum().item() == 30
    before, draws = device("cpu").allocated_bytes(), ss.runtime.random.draws
    plans = dict(ss.runtime.PLANS)
    with ss.runtime.outlined("cpu") as outline:
        assert device("cpu") is outline
        layer = ss.Linear(10**6, 10**6)  # 4 TB, and momentum as large
        optimizer = ss.SGD(layer.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            layer(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        plan = ss.compile(step).plan(nothing((8, 10**6), "float32"))
        assert plan.resident_bytes == 4 * (2 * (10**12 + 10**6) + 8 * 10**6)
    assert ss.runtime.random.draws == draws and ss.runtime.PLANS == plans
    assert device("cpu").allocated_bytes() == before and device("cpu") is not outline
    assert (x + x).sum().item() == 30


def test_what_is_pending_is_computed_before_and_what_is_left_over_is_forgotten():
    p = ss.Parameter(np.ones(3, np.float32))
    pending = p * 2
    (p * p).sum().backward()
    with ss.runtime.outlined():
        left = ss.Parameter(np.ones(3, np.float32))
        unknown = left + 1
        with pytest.raises(DeviceError, match="a value was asked of an outline of cpu"):
            unknown.numpy()
        (left * left).sum().backward()
    assert p.grad.numpy().tolist() == pending.numpy().tolist() == [2, 2, 2]
    assert (p + 1).numpy().tolist() == [2, 2, 2]
    assert unknown.shape == (3,)


def test_after_an_error_the_real_device_is_back():
    with pytest.raises(ArgumentError), ss.runtime.outlined("cpu"):
        ss.models.build("nothing")
    assert device("cpu").keeps_values
    with pytest.raises(ArgumentError, match="there is no device 'gpu'"), ss.runtime.outlined("gpu"):
        pass
    assert ss.ones(2).numpy().tolist() == [1, 1]


def test_more_memory_is_never_dearer_and_never_larger():
    with ss.runtime.outlined():
        plans = TrainingPlans("mnist_cnn", width=0.5)
        free = plans.plan(8)
        rows = []
        for budget in np.linspace(free.floor_bytes, free.predicted_peak_bytes, 5).astype(int):
            plan = plans.within(8, budget)
            assert plan.predicted_peak_bytes <= budget and plan.floor_bytes == free.floor_bytes
            largest = plans.largest(budget, 8)
            rows.append((-plan.recompute_flops_ratio, largest))
        assert plans.within(8, free.floor_bytes - 1) is None
    for values in zip(*rows, strict=True):
        assert list(values) == sorted(values)
    assert rows[0][0] < 0 == rows[-1][0] and rows[0][1] >= 8


def test_a_limit_is_kept_and_reported(figures):
    free, _ = figures("mnist_cnn", "--width", 0.5, "--batch", 8)
    budget = (free["floor_bytes"] + free["predicted_peak_bytes"]) // 2
    found, printed = figures("mnist_cnn", "--width", 0.5, "--batch", 8, "--memory", budget)
    assert found["predicted_peak_bytes"] <= budget == found["memory_limit_bytes"]
    assert found["recompute_flops_ratio"] > 0 and found["kernels"] > free["kernels"]
    assert found["largest_feasible_batch"] >= 8
    assert f"largest batch  {found['largest_feasible_batch']} within it" in printed
    assert "of it a second time" in printed


@pytest.mark.parametrize("start", [1, 3, 40])
def test_the_largest_batch_fits_and_the_next_does_not(start):
    """As plans say that search anew for each batch; `largest` searches at `start` only."""
    with ss.runtime.outlined():
        judge = TrainingPlans("mnist_cnn", width=0.5)
        fixed, seven = judge.plan(2).resident_bytes, judge.plan(7).floor_bytes
        for limit in (fixed, seven, judge.plan(300).floor_bytes + 1000):
            plans = TrainingPlans("mnist_cnn", width=0.5)
            largest = plans.largest(limit, start)
            assert largest == 0 or judge.within(largest, limit) is not None
            assert judge.within(largest + 1, limit) is None
            assert (largest == 7) == (limit == seven) and (largest == 0) == (limit == fixed)
            assert len(plans.plans) < 9, "too many plans were made"


def test_choices_for_one_batch_are_measured_anew_for_another():
    with ss.runtime.outlined():
        plans, fresh = (TrainingPlans("resnet18_cifar", 16, width=0.2, depth=1) for _ in range(2))
        here, there, own = plans.plan(4).options, plans.plan(8).options, fresh.plan(8).options
        there.adopt(here)
        assert there.draft.order == here.draft.order
        peaks = [point.peak for point in there.points()]
        assert len(peaks) > 2 and peaks == sorted(set(peaks), reverse=True)
        costs = [point.added for point in there.points()]
        assert costs == sorted(costs) and costs[0] == 0
        for k, point in enumerate(there.points()):
            plan = there.plan(k)
            # a list does not count the records of checks, 64 bytes each
            assert 0 <= plan.arena_lower_bound_bytes - point.peak <= 64
            assert plan.arena_bytes < 1.1 * point.peak
        assert there.smallest().own_bytes <= 1.02 * own.smallest().own_bytes
        other = TrainingPlans("mnist_cnn").plan(8).options
        other.adopt(here)
        assert other.found is None, "these are other steps"


def test_a_batch_that_is_too_small_for_its_layers_is_not_the_largest():
    with ss.runtime.outlined("cpu"):
        plans = TrainingPlans("resnet18", 32, width=0.1)  # one pixel is left at its end
        assert plans.largest(plans.plan(2).floor_bytes - 1, 2) == 0
        assert plans.largest(plans.plan(2).floor_bytes, 2) == 2


def test_an_impossible_limit_says_what_would_fit(capsys, tmp_path):
    small, file = ["mnist_cnn", "--batch", "8", "--width", "0.5"], tmp_path / "f.json"
    assert main(["plan", *small, "--memory", "40KiB", "--json", str(file)]) == 1
    message = capsys.readouterr().err
    assert "mnist_cnn with a batch of 8 does not fit into 0.0 MiB (40,960 bytes)" in message
    assert "parameters, slots and inputs" in message and "no batch fits" in message
    assert not file.exists() and "Traceback" not in message
    found = message.rpartition("try:  shoestring ")[2].split()
    assert found[:-1] == ["plan", *small, "--memory"] and main(found) == 0
    with ss.runtime.outlined():
        enough = TrainingPlans("mnist_cnn", width=0.5).plan(4).floor_bytes
    capsys.readouterr()
    assert main(["plan", *small, "--memory", str(enough)]) == 1
    message = capsys.readouterr().err
    assert "the largest batch that fits is 4" in message
    assert f"shoestring plan mnist_cnn --batch 4 --width 0.5 --memory {enough}" in message


def test_the_environment_s_limit_holds_too(figures):
    with ss.memory_limit("1GB"):
        found, _ = figures("mnist_cnn", "--width", 0.5)
    assert found["memory_limit_bytes"] == 10**9 and found["largest_feasible_batch"] > 1000
    found, _ = figures("mnist_cnn", "--width", 0.5, "--memory", "1GiB", "--device", "reference")
    assert found["memory_limit_bytes"] == 2**30 and found["device"] == "reference"


def test_sizes_that_no_machine_has_are_planned_too(figures):
    found, _ = figures("vgg11", "--batch", 10**6, "--image", 10**4, "--width", 100)
    assert found["predicted_peak_bytes"] > 10**18
    found, _ = figures("mlp", "--memory", 2**60)
    assert found["largest_feasible_batch"] > 10**13


def test_verbose_prints_every_step(figures):
    _, printed = figures("mlp", *SMALL["mlp"], "--verbose")
    assert "step  op" in printed and "cross_entropy" in printed


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["resnet"], "there is no network 'resnet'; did you mean resnet18? There are mnist_cnn,"),
        (["resnet18", "--batch", "0"], "argument --batch: must be at least 1"),
        (["resnet18", "--batch", "many"], "argument --batch: must be a whole number, got 'many'"),
        (["resnet18", "--batch", "2000000"], "must be at most 1,000,000, got 2000000"),
        (["resnet18", "--width", "-1"], "argument --width: must be above 0"),
        (["resnet18", "--width", "nan"], "argument --width: must be above 0"),
        (["resnet18", "--width", "x"], "argument --width: must be a number, got 'x'"),
        (["vgg11", "--image", "31"], "argument --image: vgg11 needs at least 32"),
        (["mnist_cnn", "--depth", "2"], "argument --depth: mnist_cnn has only one"),
        (
            ["resnet18", "--memory", "2 apples"],
            "460MiB, 1.8GB or a number of bytes, got '2 apples'",
        ),
        (["resnet18", "--memory", "auto"], "460MiB, 1.8GB or a number of bytes, got 'auto'"),
        (["resnet18", "--memory", "0"], "got '0'"),
        (["resnet18", "--memory", "2000000TiB"], "got '2000000TiB'"),
        (["resnet18", "--device", "gpu"], "there is no device 'gpu', this installation has cpu"),
        ([], "the following arguments are required: network"),
    ],
)
def test_bad_arguments_get_one_line_and_exit_code_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["plan", *arguments])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and message in said and len(said.splitlines()) == 1


def test_a_file_that_cannot_be_written_is_said_before_planning(capsys):
    assert main(["plan", "resnet18", "--json", "/"]) == 1
    assert "/ is a folder" in capsys.readouterr().err


def test_no_traceback_reaches_the_user():
    for variable in ("DEVCE", "MEMORY_LIMIT"):
        done = shoestring("plan", "mlp", **{f"SHOESTRING_{variable}": "2 apples"})
        assert done.returncode == 2 and f"SHOESTRING_{variable}" in done.stderr
        assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr
        assert "  try:  " in done.stderr and "\n    at  " not in done.stderr
    done = shoestring("plan", "mlp", "--memory", "20kB", SHOESTRING_DEVICE="cpu")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    done = shoestring("plan", "mlp", SHOESTRING_DEVICE="opencl:99")
    assert done.returncode == 1 and "no OpenCL device number 99" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_of_the_user_still_gets_the_exception():
    code = (
        "import sys; sys.argv = ['train.py']\n"
        "try: import shoestring\n"
        "except ValueError as problem: print(type(problem).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=dict(os.environ, SHOESTRING_DEVCE="cpu"),
    )
    assert done.stdout.strip() == "ConfigError", done.stderr


def test_a_closed_pipe_is_no_error_to_show():
    command = f"{sys.executable} -m shoestring plan mlp --verbose | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr


def test_planning_vgg11_takes_neither_its_memory_nor_its_time():
    code = (
        "import resource, shoestring.cli\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "assert shoestring.cli.main(['plan', 'vgg11', '--batch', '64']) == 0\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "132,863,336" in done.stdout
    assert int(done.stdout.split()[-1]) < 100 * 1024, "KiB more than before"


def test_the_error_carries_its_numbers():
    class Chosen:
        network, batch, image, width, depth, classes = "mlp", 4, None, 1.0, None, None

    from shoestring.cli.plan import refuse

    with ss.runtime.outlined():
        smallest = TrainingPlans("mlp").plan(4).options.smallest()
    with pytest.raises(MemoryBudgetError) as caught:
        refuse(Chosen, 1000, smallest, 0)
    assert caught.value.limit_bytes == 1000
    assert caught.value.floor_bytes == smallest.predicted_peak_bytes


def test_the_benchmark_sweeps_limits_and_draws(tmp_path):
    pytest.importorskip("matplotlib")
    script = pathlib.Path(__file__).parent.parent / "benchmarks" / "memory.py"
    chosen = ["--networks", "mnist_cnn", "--batches", "4", "--points", "4"]
    done = subprocess.run(
        [sys.executable, str(script), *chosen, "--out", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "memory.csv", newline="") as file:
        free, *limited = csv.DictReader(file)
    assert free["limit_bytes"] == "" and float(free["recompute_flops_ratio"]) == 0
    peaks = [int(row["predicted_peak_bytes"]) for row in limited]
    assert len(peaks) == 4 and peaks[0] == int(free["predicted_peak_bytes"])
    assert peaks == sorted(peaks, reverse=True)
    assert all(int(row["predicted_peak_bytes"]) <= int(row["limit_bytes"]) for row in limited)
    assert int(limited[-1]["added_bytes"]) > 0 == int(limited[0]["added_bytes"])
    assert (tmp_path / "memory.png").stat().st_size > 10_000
