"""Writes golden.npz: values, gradients and second gradients by PyTorch, which tests/test_golden.py
compares ours with.

    pip install torch==2.13.0 numpy
    python tests/golden/write.py

Run once, by hand; the tests never need torch. It guards against a mistake that a formula, its
reference and its gradient would share. Computed in float64, stored as float32. For a case f(x_0,
x_1, ...) with random weights dy of its result:

    <case>/x_i      inputs, rounded to 1/64 so that every type holds them
    <case>/y        f(x)
    <case>/dy       random weights
    <case>/g_i      gradients of sum(y dy) by the inputs that are floats
    <case>/h_i      gradients of sum_i sum(g_i^2): they reach the second derivatives
"""

from __future__ import annotations

import pathlib

import numpy as np
import torch
import torch.nn.functional as f

PATH = pathlib.Path(__file__).with_name("golden.npz")
LABELS = np.array([2, 0, -100, 3, 1])


def batch_norm(x, weight, bias):
    return f.batch_norm(x, None, None, weight, bias, training=True, eps=1e-5)


def running_variance(x):
    mean, variance = torch.zeros(3, dtype=x.dtype), torch.ones(3, dtype=x.dtype)
    f.batch_norm(x.detach(), mean, variance, training=True, momentum=0.1)
    return torch.stack([mean, variance])


# name: (shapes of float inputs, other inputs, function of both)
CASES = {
    "matmul": ([(4, 5), (5, 3)], [], torch.matmul),
    "matmul_batched": ([(2, 1, 3, 4), (3, 4, 2)], [], torch.matmul),
    "linear": ([(4, 5), (3, 5), (3,)], [], f.linear),
    "conv2d": ([(2, 3, 5, 6), (4, 3, 3, 2), (4,)], [], f.conv2d),
    "conv2d_strided": (
        [(2, 2, 7, 6), (3, 2, 3, 3)],
        [],
        lambda x, w: f.conv2d(x, w, stride=(2, 1), padding=(1, 2)),
    ),
    "conv2d_same": ([(1, 2, 5, 4), (2, 2, 3, 3)], [], lambda x, w: f.conv2d(x, w, padding="same")),
    "max_pool2d": ([(2, 2, 6, 5)], [], lambda x: f.max_pool2d(x, 2)),
    "max_pool2d_overlapping": (
        [(1, 2, 6, 7)],
        [],
        lambda x: f.max_pool2d(x, 3, stride=2, padding=1, ceil_mode=True),
    ),
    "avg_pool2d": ([(2, 2, 6, 5)], [], lambda x: f.avg_pool2d(x, 2)),
    "avg_pool2d_padded": (
        [(1, 2, 6, 7)],
        [],
        lambda x: f.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True),
    ),
    "avg_pool2d_inside": (
        [(1, 2, 6, 7)],
        [],
        lambda x: f.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False),
    ),
    "batch_norm": ([(4, 3, 2, 3), (3,), (3,)], [], batch_norm),
    "batch_norm_running": ([(4, 3, 2, 3)], [], running_variance),
    "softmax": ([(3, 5)], [], lambda x: f.softmax(x, 1)),
    "log_softmax": ([(3, 5)], [], lambda x: f.log_softmax(x, 1)),
    "cross_entropy": ([(5, 4)], [LABELS], f.cross_entropy),
    "cross_entropy_sum": ([(5, 4)], [LABELS], lambda x, t: f.cross_entropy(x, t, reduction="sum")),
    "cross_entropy_none": (
        [(5, 4)],
        [LABELS],
        lambda x, t: f.cross_entropy(x, t, reduction="none"),
    ),
    "cross_entropy_weighted": (
        [(5, 4)],
        [LABELS],
        lambda x, t: f.cross_entropy(
            x, t, weight=torch.tensor([0.5, 1.0, 0.25, 2.0], dtype=x.dtype), label_smoothing=0.125
        ),
    ),
    "cross_entropy_images": (
        [(2, 3, 2, 2)],
        [np.array([[[0, 1], [2, 0]], [[1, 1], [2, 2]]])],
        f.cross_entropy,
    ),
    "mse_loss": ([(3, 4), (3, 4)], [], f.mse_loss),
    **{
        name: ([(3, 4)], [], function)
        for name, function in {
            "relu": f.relu,
            "gelu": f.gelu,
            "silu": f.silu,
            "softplus": f.softplus,
            "sigmoid": torch.sigmoid,
            "tanh": torch.tanh,
            "exp": torch.exp,
            "erf": torch.erf,
            "sin": torch.sin,
            "cos": torch.cos,
            "abs": torch.abs,
            "leaky_relu": lambda x: f.leaky_relu(x, 0.1),
            "log": lambda x: torch.log(x * x + 1),
            "sqrt": lambda x: torch.sqrt(x * x + 1),
            "rsqrt": lambda x: torch.rsqrt(x * x + 1),
            "pow": lambda x: x**3,
            "clip": lambda x: torch.clip(x, -0.5, 0.75),
        }.items()
    },
    "div": ([(3, 4), (4,)], [], lambda a, b: a / (b * b + 1)),
    "maximum": ([(3, 4), (3, 1)], [], torch.maximum),
    "minimum": ([(3, 4), (3, 1)], [], torch.minimum),
    "where": ([(3, 4)], [], lambda x: torch.where(x <= 0, torch.exp(x), 1 + x)),
    "sum": ([(3, 4, 2)], [], lambda x: x.sum((0, 2))),
    "mean": ([(3, 4, 2)], [], lambda x: x.mean(1, keepdim=True)),
    "var": ([(3, 4, 2)], [], lambda x: x.var((0, 1))),
    "var_biased": ([(3, 4)], [], lambda x: x.var(1, correction=0)),
    "max": ([(3, 4)], [], lambda x: x.amax(1)),
    "min": ([(3, 4)], [], lambda x: x.amin(0)),
    "slice": ([(5, 4)], [], lambda x: x[1:4, ::2]),
    "take": ([(5, 4)], [np.array([3, 0, 3])], lambda x, i: x[i]),
    "concat": ([(3, 2), (3, 4)], [], lambda a, b: torch.cat([a, b], 1)),
    "pad": ([(3, 2)], [], lambda x: f.pad(x, (2, 0, 0, 1))),
}


def main() -> None:
    rng, found = np.random.default_rng(0), {}
    for name, (shapes, others, function) in CASES.items():
        arrays = [np.round(rng.normal(size=shape) * 64) / 64 for shape in shapes]
        xs = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays]
        y = function(*xs, *[torch.tensor(o) for o in others])
        dy = torch.tensor(np.round(rng.normal(size=tuple(y.shape)) * 64) / 64, dtype=torch.float64)
        record = {f"x_{i}": a for i, a in enumerate([*arrays, *others])} | {
            "y": y.detach().numpy(),
            "dy": dy.numpy(),
        }
        if y.requires_grad:
            grads = torch.autograd.grad((y * dy).sum(), xs, create_graph=True)
            squares = sum((g * g).sum() for g in grads)
            second = (
                torch.autograd.grad(squares, xs, allow_unused=True)
                if squares.requires_grad
                else [None] * len(xs)
            )
            record |= {f"g_{i}": g.detach().numpy() for i, g in enumerate(grads)}
            record |= {
                f"h_{i}": np.zeros(x.shape) if h is None else h.numpy(force=True)
                for i, (x, h) in enumerate(zip(xs, second, strict=True))
            }
        for key, array in record.items():
            found[f"{name}/{key}"] = array.astype(
                np.float32 if array.dtype.kind == "f" else np.int64
            )
    np.savez_compressed(PATH, **found)
    print(f"{PATH}: {len(CASES)} cases, {PATH.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
