"""shoestring train mnist: the main job, from data to saved weights and a picture of the curve.

The recipe: SGD with Nesterov momentum, a cosine decay of the learning rate to 0, batches in a new
order every epoch. Each step is compiled once and replayed. The best weights by test accuracy are
kept on disk after every epoch, so that Ctrl-C, or a power cut, costs at most the epoch that was
running.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
import time
from typing import Any

import numpy as np

from .. import SGD, compile, cross_entropy, default_device, no_grad, save, seed, set_threads, tensor
from ..backends.device import device as open_device
from ..data import mnist
from ..errors import DataError, fail
from ..io.whole import written_whole
from ..models import build
from ..optim import CosineDecay
from ..viz.curves import save_curves


def whole(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}")
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}")


def rate(text: str) -> float:
    value = number(text)
    if not 0 < value < 100:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return value


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "train", help="train a network", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("network", choices=["mnist"], help="what to train")
    parser.add_argument("--epochs", type=whole, default=2, help="passes over the training set")
    parser.add_argument("--batch", type=whole, default=32, help="images per step")
    parser.add_argument("--lr", type=rate, default=0.02, help="learning rate at the start")
    parser.add_argument("--seed", type=int, default=0, help="of weights and order")
    parser.add_argument(
        "--device", default=None, help="cpu or reference; default: the best there is"
    )
    parser.add_argument("--threads", type=whole, default=None, help="threads of the CPU kernels")
    parser.add_argument(
        "--limit", type=whole, default=None, help="train on the first LIMIT images only"
    )
    parser.add_argument(
        "--json", default=None, metavar="FILE", help="write the figures of the run to FILE"
    )
    parser.add_argument(
        "--out", default="runs/mnist", metavar="DIR", help="where weights and the curve go"
    )
    parser.set_defaults(run=run)


class Training:
    """One run: data, network, compiled steps, and what has been measured so far."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self.out = writable_folder(pathlib.Path(options.out))
        if options.json:
            file_can_be_made(pathlib.Path(options.json))
        default_device(options.device or default_device())
        if options.threads:
            set_threads(options.threads)
        seed(options.seed)
        digits = mnist()
        self.data_name = digits.name
        count = min(options.limit or len(digits.x_train), len(digits.x_train))
        if options.batch > count:
            fail(
                "value/train.batch",
                f"a batch of {options.batch} is more than the {count} images",
                tensors={},
                hint=f"--batch {min(32, count)}",
            )
        self.x, self.y = scaled(digits.x_train[:count]), digits.y_train[:count].astype(np.int64)
        self.x_test, self.y_test = (
            tensor(scaled(digits.x_test)),
            tensor(digits.y_test.astype(np.int64)),
        )
        self.model = build("mnist_cnn")
        self.optimizer = SGD(self.model.parameters(), lr=options.lr, momentum=0.9, nesterov=True)
        self.steps = count // options.batch
        self.schedule = CosineDecay(self.optimizer, steps=self.steps * options.epochs)
        self.step, self.predict = compile(self.train_step), compile(self.correct)
        self.losses: list[float] = []
        self.accuracies: list[float] = []
        self.seconds: list[float] = []
        self.best = -1.0

    def train_step(self, x: Any, y: Any) -> Any:
        logits = self.model(x)
        loss = cross_entropy(logits, y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss, (logits.argmax(axis=1) == y).float().mean()

    def correct(self, x: Any, y: Any) -> Any:
        return (self.model(x).argmax(axis=1) == y).sum()

    def epoch(self, number: int) -> None:
        order = np.random.default_rng([self.options.seed, number]).permutation(len(self.x))
        bar = progress(self.steps, f"epoch {number + 1}/{self.options.epochs}")
        start, recent = time.perf_counter(), 0.0
        for k in range(self.steps):
            places = order[k * self.options.batch : (k + 1) * self.options.batch]
            loss, accuracy = self.step(tensor(self.x[places]), tensor(self.y[places]))
            self.schedule.step()
            self.losses.append(loss.item())
            recent += (accuracy.item() - recent) * max(0.02, 1 / (k + 1))
            bar.update(
                loss=self.losses[-1],
                accuracy=recent,
                speed=(k + 1) * self.options.batch / (time.perf_counter() - start),
            )
        self.seconds.append(time.perf_counter() - start)
        bar.close()

    def test(self) -> float:
        self.model.eval()
        with no_grad():
            right = sum(
                int(self.predict(self.x_test[i : i + 500], self.y_test[i : i + 500]).item())
                for i in range(0, len(self.x_test), 500)
            )
        self.model.train()
        return right / len(self.x_test)

    def finish(self, accuracy: float) -> None:
        self.accuracies.append(accuracy)
        if accuracy > self.best:
            self.best = accuracy
            save(self.model, self.out / "weights.npz")

    def report(self) -> dict[str, Any]:
        done = len(self.seconds)
        per_epoch = [
            float(np.mean(self.losses[k * self.steps : (k + 1) * self.steps])) for k in range(done)
        ]
        device = default_device()
        return dict(
            test_accuracy=self.accuracies[-1] if self.accuracies else None,
            best_test_accuracy=max(self.best, 0.0),
            train_loss=per_epoch,
            seconds_per_epoch=self.seconds,
            images_per_second=self.steps * self.options.batch * done / sum(self.seconds)
            if done
            else None,
            device=device,
            seed=self.options.seed,
            data=self.data_name,
            epochs=done,
            batch=self.options.batch,
            parameters=sum(p.size for p in self.model.parameters()),
            peak_bytes=open_device(device).peak_bytes(),
        )


def run(options: Any) -> int:
    training = Training(options)
    print(
        f"training {training.model.__class__.__name__} on {training.data_name}: "
        f"{len(training.x):,} images, "
        f"{default_device()}",
        file=sys.stderr,
    )
    code = 0
    try:
        for number in range(options.epochs):
            training.epoch(number)
            training.finish(training.test())
            print(
                f"epoch {number + 1}: test accuracy {100 * training.accuracies[-1]:.2f} %, "
                f"{training.seconds[-1]:.1f} s",
                file=sys.stderr,
            )
    except KeyboardInterrupt:
        code = 130
        kept = (
            f"the best weights so far are in {training.out / 'weights.npz'}"
            if training.best >= 0
            else "no epoch was finished, so no weights were saved"
        )
        print(f"\nstopped: {kept}", file=sys.stderr)
    report = training.report()
    if training.losses:
        title = f"MNIST CNN on {training.data_name}, batch {options.batch}, seed {options.seed}"
        picture = training.out / "curve.png"
        if save_curves(picture, training.losses, training.accuracies, training.steps, title):
            print(f"curve: {picture}", file=sys.stderr)
        else:
            print(
                "no picture of the curve: matplotlib is not installed "
                "(pip install 'shoestring[plots]')",
                file=sys.stderr,
            )
    if training.accuracies:
        print(f"weights: {training.out / 'weights.npz'}", file=sys.stderr)
        print(f"test accuracy {100 * training.accuracies[-1]:.2f} %")
    if options.json:
        write_json(pathlib.Path(options.json), report)
    return code


def scaled(x: np.ndarray) -> np.ndarray:
    """uint8 [N, 28, 28] -> float32 [N, 1, 28, 28] in [0, 1]"""
    return x[:, None].astype(np.float32) / np.float32(255)


def writable_folder(folder: pathlib.Path) -> pathlib.Path:
    """The folder, made if need be; complains before any training if there is no right or no room
    to write a megabyte, which weights and curve together stay below."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:  # gone with the process, however it ends
            probe.write(bytes(1 << 20))
            probe.flush()
    except OSError as problem:
        fail(
            "data/train.folder",
            f"nothing can be written to {folder}: {problem.strerror}",
            tensors={},
            source=problem,
            error=DataError,
            hint="another folder, or room on the disk",
        )
    return folder


def file_can_be_made(path: pathlib.Path) -> None:
    """Complains before any training if the figures could not be written to `path`."""
    if path.is_dir():
        fail(
            "data/train.json_folder",
            f"{path} is a folder",
            tensors={},
            error=DataError,
            expected="the name of a file",
            hint=f"--json {path / 'figures.json'}",
        )
    writable_folder(path.absolute().parent)


def write_json(path: pathlib.Path, report: dict[str, Any]) -> None:
    try:
        with written_whole(path) as file:
            file.write((json.dumps(report, indent=1) + "\n").encode())
    except OSError as problem:
        fail(
            "data/train.json",
            f"{path} could not be written: {problem.strerror}",
            tensors={},
            source=problem,
            error=DataError,
            hint="--json with another file",
        )


class Plain:
    """A progress line now and then, where tqdm is not installed."""

    def __init__(self, total: int, title: str) -> None:
        self.total, self.title, self.done, self.text = total, title, 0, ""

    def update(self, loss: float, accuracy: float, speed: float) -> None:
        self.done += 1
        self.text = f"loss {loss:.4f}  accuracy {accuracy:.3f}  {speed:,.0f} images/s"
        if self.done % max(1, self.total // 10) == 0:
            print(f"{self.title}  {self.done}/{self.total}  {self.text}", file=sys.stderr)

    def close(self) -> None:
        pass


class Bar:
    """tqdm's bar; its text changes ten times a second at most, so that it costs nothing."""

    def __init__(self, tqdm: Any, total: int, title: str) -> None:
        self.bar, self.next = (
            tqdm(total=total, desc=title, unit="step", mininterval=0.1, file=sys.stderr),
            0.0,
        )

    def update(self, loss: float, accuracy: float, speed: float) -> None:
        now = time.perf_counter()
        if now >= self.next:
            self.bar.set_postfix_str(
                f"loss {loss:.4f}, accuracy {accuracy:.3f}, {speed:,.0f} images/s", refresh=False
            )
            self.next = now + 0.1
        self.bar.update()

    def close(self) -> None:
        self.bar.close()


def progress(total: int, title: str) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        return Plain(total, title)
    return Bar(tqdm, total, title)
