"""MNIST: 70,000 handwritten digits of 28x28 pixels (LeCun, Cortes and Burges, 1998).

Looked for in SHOESTRING_DATA, then in the cache, then downloaded (checked by SHA-256). Without a
network a small set of real digits that comes with scikit-learn stands in, and says so: 1,797 digits
of 8x8 pixels, enlarged.
"""

from __future__ import annotations

import os
import pathlib
import sys
from typing import NamedTuple

import numpy as np

from ..config import cache_folder
from ..errors import DataError, fail

SHA256 = "06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64"
URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
SHAPES = {
    "x_train": (60000, 28, 28),
    "y_train": (60000,),
    "x_test": (10000, 28, 28),
    "y_test": (10000,),
}


class Digits(NamedTuple):
    """x: uint8 [N, 28, 28], 0 is black;  y: uint8 [N];  name: which set it is."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    name: str


def mnist() -> Digits:
    """The digits, from wherever they can be had first (see the header)."""
    folder = os.environ.get("SHOESTRING_DATA")
    if folder and (pathlib.Path(folder) / "mnist.npz").exists():
        return read(pathlib.Path(folder) / "mnist.npz")
    cached = cache_folder() / "mnist.npz"
    if cached.exists():
        return read(cached)
    reason = download(cached)
    return read(cached) if not reason else small_digits(reason)


def read(path: pathlib.Path) -> Digits:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in SHAPES}
    except Exception as problem:  # damage can strike the archive, its compression, or a header
        damaged(path, str(problem), problem)
    for name, shape in SHAPES.items():
        if arrays[name].shape != shape or arrays[name].dtype != np.uint8:
            damaged(path, f"{name} is {list(arrays[name].shape)} {arrays[name].dtype}")
    return Digits(**arrays, name="MNIST")


def damaged(path: pathlib.Path, what: str, source: BaseException | None = None) -> None:
    fail(
        "data/mnist.damaged",
        f"{path} is not MNIST: {what}",
        op="mnist",
        tensors={},
        source=source,
        error=DataError,
        expected=f"an .npz with x_train uint8 [60000, 28, 28] and so on, SHA-256 {SHA256}",
        hint=f"delete {path}; it will be downloaded again",
    )


def download(target: pathlib.Path) -> str:
    """Fetch the file into the cache; "" or the reason why not."""
    try:
        import pooch
    except ImportError:
        return "pooch is not installed (pip install 'shoestring[data]')"
    try:
        import logging

        pooch.get_logger().setLevel(logging.ERROR)
        pooch.retrieve(
            URL,
            known_hash=f"sha256:{SHA256}",
            path=target.parent,
            fname=target.name,
            progressbar=False,
        )
    except Exception as problem:  # whatever a network can do wrong
        return f"it could not be downloaded ({type(problem).__name__})"
    return ""


def small_digits(reason: str) -> Digits:
    """scikit-learn's digits, enlarged to 28x28: the last 297 are for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as problem:
        fail(
            "data/mnist.nowhere",
            f"there is no MNIST here, and {reason}",
            op="mnist",
            tensors={},
            source=problem,
            error=DataError,
            cause="the small stand-in needs scikit-learn, which is not installed",
            hint="pip install 'shoestring[data]', or set SHOESTRING_DATA to mnist.npz's folder",
        )
    print(
        f"MNIST is not here and {reason}: training on scikit-learn's 1,797 small digits instead",
        file=sys.stderr,
    )
    digits = load_digits()
    small = np.clip(digits.images * (255 / 16), 0, 255)
    large = np.zeros((len(small), 28, 28), np.uint8)
    large[:, 2:26, 2:26] = small.repeat(3, 1).repeat(3, 2).round().astype(np.uint8)
    y = digits.target.astype(np.uint8)
    return Digits(large[:1500], y[:1500], large[1500:], y[1500:], "scikit-learn's digits")
