"""The command line, as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest


def shoestring(*arguments, **named):
    return subprocess.run(
        [sys.executable, "-m", "shoestring", *arguments], capture_output=True, text=True, **named
    )


def test_training_writes_figures_weights_and_a_curve(tmp_path):
    done = shoestring(
        "train",
        "mnist",
        "--epochs",
        "1",
        "--limit",
        "1280",
        "--out",
        str(tmp_path),
        "--json",
        str(tmp_path / "r.json"),
        "--device",
        "cpu",
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert {
        "test_accuracy",
        "train_loss",
        "seconds_per_epoch",
        "images_per_second",
        "device",
        "seed",
        "parameters",
        "peak_bytes",
    } <= set(report)
    assert (
        report["parameters"] == 12906 and report["test_accuracy"] > 0.6 and report["peak_bytes"] > 0
    )
    assert f"test accuracy {100 * report['test_accuracy']:.2f} %" in done.stdout
    assert "conv1.weight" in np.load(tmp_path / "weights.npz").files
    assert (tmp_path / "curve.png").stat().st_size > 5000


def test_the_same_seed_gives_the_same_bits_in_two_processes_and_with_any_threads(tmp_path):
    bits = []
    for threads in ("1", "2"):
        out = tmp_path / threads
        done = shoestring(
            "train",
            "mnist",
            "--epochs",
            "1",
            "--limit",
            "640",
            "--threads",
            threads,
            "--out",
            str(out),
        )
        assert done.returncode == 0, done.stderr
        with np.load(out / "weights.npz") as file:
            bits.append({n: file[n].tobytes() for n in file.files})
    assert bits[0] == bits[1]


def test_without_network_and_data_it_trains_on_the_small_digits_and_says_so(tmp_path):
    pytest.importorskip("sklearn")
    nowhere = {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "HTTPS_PROXY")}
    direct = ("no_proxy", "all_proxy")
    environment = {n: v for n, v in os.environ.items() if n.lower() not in direct}
    environment |= nowhere | dict(SHOESTRING_DATA=str(tmp_path), SHOESTRING_CACHE=str(tmp_path))
    done = shoestring(
        "train", "mnist", "--epochs", "1", "--out", str(tmp_path / "run"), env=environment
    )
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "1,797 small digits instead" in line]
    assert len(told) == 1 and "could not be downloaded" in told[0]
    assert "test accuracy" in done.stdout and not list(tmp_path.glob("*.npz"))


def test_ctrl_c_keeps_the_best_weights(tmp_path):
    run = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "shoestring",
            "train",
            "mnist",
            "--epochs",
            "500",
            "--limit",
            "640",
            "--out",
            str(tmp_path),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(600):
        if (tmp_path / "weights.npz").exists():
            break
        time.sleep(0.1)
    run.send_signal(signal.SIGINT)
    error = run.communicate(timeout=60)[1]
    assert run.returncode == 130 and "stopped: the best weights so far" in error
    assert "conv1.weight" in np.load(tmp_path / "weights.npz").files


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["train", "cifar"], "invalid choice"),
        (["train", "mnist", "--epochs", "0"], "must be at least 1"),
        (["train", "mnist", "--epochs", "two"], "must be a whole number, got 'two'"),
        (["train", "mnist", "--json", "/"], "/ is a folder"),
        (["train", "mnist", "--lr", "-1"], "must be above 0"),
        (["train", "mnist", "--device", "gpu"], "there is no device 'gpu'"),
        (["train", "mnist", "--out", "/proc/nowhere"], "nothing can be written"),
        (["ops", "conv3d"], "there is no op 'conv3d'"),
    ],
)
def test_bad_arguments_get_a_clear_error(arguments, message):
    done = shoestring(*arguments)
    assert done.returncode in (1, 2) and message in done.stderr and "Traceback" not in done.stderr


def test_the_table_of_ops():
    done = shoestring("ops")
    assert done.returncode == 0 and "conv2d  (kernel)" in done.stdout and "formula" in done.stdout
    rows = json.loads(shoestring("ops", "--json", "conv2d", "relu").stdout)
    assert [r["name"] for r in rows] == ["conv2d", "relu"] and all(
        r["formula"] and r["kernels"] for r in rows
    )


def test_version_help_and_a_mistyped_switch():
    assert shoestring("--version").stdout.startswith("shoestring 0.1")
    assert shoestring().returncode == 2
    done = shoestring("--version", env=dict(os.environ, SHOESTRING_DEVCE="cpu"))
    assert "SHOESTRING_DEVICE=..." in done.stderr
