"""The promises of the main job, measured: accuracy of the command line's recipe and of the
mission's program.

    python benchmarks/accuracy.py       (some minutes)
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from record import record

import shoestring as ss


def recipe() -> float:
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "r.json"
        command = [
            sys.executable,
            "-m",
            "shoestring",
            "train",
            "mnist",
            "--epochs",
            "2",
            "--seed",
            "0",
        ]
        subprocess.run(
            [*command, "--out", folder, "--json", str(report)], check=True, capture_output=True
        )
        return json.loads(report.read_text())["test_accuracy"]


def mission(epochs: int = 5) -> float:
    """The plain loop: SGD 0.01, batch 32, gradients checked and clipped to norm 1."""
    digits = ss.data.mnist()
    x = ss.tensor(digits.x_train[:, None].astype(np.float32) / 255)
    y = ss.tensor(digits.y_train.astype(np.int64))
    ss.seed(0)
    model = ss.models.build("mnist_cnn")
    optimizer = ss.SGD(model.parameters(), lr=0.01)
    for _ in range(epochs):
        for i in range(0, len(x), 32):
            loss = ss.cross_entropy(model(x[i : i + 32]), y[i : i + 32])
            loss.backward()
            ss.check_nan_gradients(model.parameters())
            ss.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    x_test = ss.tensor(digits.x_test[:, None].astype(np.float32) / 255)
    y_test = ss.tensor(digits.y_test.astype(np.int64))
    with ss.no_grad():
        right = sum(
            int((model(x_test[i : i + 500]).argmax(1) == y_test[i : i + 500]).sum().item())
            for i in range(0, len(x_test), 500)
        )
    return right / len(x_test)


def main() -> None:
    record(
        "accuracy",
        [
            ("shoestring train mnist --epochs 2 --seed 0", recipe(), "accuracy", "to reach", 0.985),
            ("the mission's program, 5 epochs", mission(), "accuracy", "to reach", 0.982),
        ],
    )


if __name__ == "__main__":
    main()
