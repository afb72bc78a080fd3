"""Values, gradients and second gradients against PyTorch's, kept in golden/golden.npz (see
golden/write.py)."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import shoestring as ss
from shoestring.backends.device import device as open_device
from shoestring.ir import leaf
from shoestring.tensor import wrap

with np.load(pathlib.Path(__file__).parent / "golden" / "golden.npz", allow_pickle=False) as file:
    GOLDEN = {key: file[key] for key in file.files}


def batch_norm(x, weight, bias, running=False):
    layer = ss.BatchNorm2D(3)
    for name in ("running_mean", "running_var"):
        setattr(layer, name, ss.Variable(getattr(layer, name).numpy(), device=x.device))
    layer.weight, layer.bias = weight, bias
    y = layer(x)
    return ss.stack([layer.running_mean, layer.running_var]) if running else y


def differentiable(array, device):
    """A tensor of any float type that takes a gradient."""
    return wrap(leaf(open_device(device).upload(array), needs_grad=True, device=device))


def plain(x, value):
    return ss.tensor(np.full(3, value, np.float32), x.dtype, x.device)


CASES = {
    "matmul": ss.matmul,
    "matmul_batched": ss.matmul,
    "linear": ss.linear,
    "conv2d": ss.conv2d,
    "conv2d_strided": lambda x, w: ss.conv2d(x, w, stride=(2, 1), padding=(1, 2)),
    "conv2d_same": lambda x, w: ss.conv2d(x, w, padding="same"),
    "max_pool2d": lambda x: ss.max_pool2d(x, 2),
    "max_pool2d_overlapping": lambda x: ss.max_pool2d(x, 3, stride=2, padding=1, ceil_mode=True),
    "avg_pool2d": lambda x: ss.avg_pool2d(x, 2),
    "avg_pool2d_padded": lambda x: ss.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True),
    "avg_pool2d_inside": lambda x: ss.avg_pool2d(
        x, 3, stride=2, padding=1, count_include_pad=False
    ),
    "batch_norm": batch_norm,
    "batch_norm_running": lambda x: batch_norm(x, plain(x, 1), plain(x, 0), running=True),
    "softmax": lambda x: ss.softmax(x, 1),
    "log_softmax": lambda x: ss.log_softmax(x, 1),
    "cross_entropy": ss.cross_entropy,
    "cross_entropy_sum": lambda x, t: ss.cross_entropy(x, t, reduction="sum"),
    "cross_entropy_none": lambda x, t: ss.cross_entropy(x, t, reduction="none"),
    "cross_entropy_weighted": lambda x, t: ss.cross_entropy(
        x, t, weight=ss.tensor([0.5, 1.0, 0.25, 2.0], x.dtype, x.device), label_smoothing=0.125
    ),
    "cross_entropy_images": ss.cross_entropy,
    "mse_loss": ss.mse_loss,
    **{
        name: getattr(ss, name)
        for name in (
            "relu",
            "gelu",
            "silu",
            "softplus",
            "sigmoid",
            "tanh",
            "exp",
            "erf",
            "sin",
            "cos",
            "abs",
            "maximum",
            "minimum",
        )
    },
    "leaky_relu": lambda x: ss.leaky_relu(x, 0.1),
    "log": lambda x: ss.log(x * x + 1),
    "sqrt": lambda x: ss.sqrt(x * x + 1),
    "rsqrt": lambda x: ss.rsqrt(x * x + 1),
    "pow": lambda x: x**3,
    "clip": lambda x: ss.clip(x, -0.5, 0.75),
    "div": lambda a, b: a / (b * b + 1),
    "where": lambda x: ss.where(x <= 0, ss.exp(x), 1 + x),
    "sum": lambda x: x.sum((0, 2)),
    "mean": lambda x: x.mean(1, keepdims=True),
    "var": lambda x: x.var((0, 1)),
    "var_biased": lambda x: x.var(1, correction=0),
    "max": lambda x: x.max(1),
    "min": lambda x: x.min(0),
    "slice": lambda x: x[1:4, ::2],
    "take": lambda x, i: x[i],
    "concat": lambda a, b: ss.concat([a, b], 1),
    "pad": lambda x: ss.pad(x, [(0, 1), (2, 0)]),
}
# float64 on the reference device against float32 files; float32 kernels
DEVICES = [
    pytest.param("reference", "float64", 5e-7, id="reference"),
    pytest.param("cpu", "float32", 2e-5, id="cpu"),
]


def test_every_golden_case_is_compared():
    assert {key.partition("/")[0] for key in GOLDEN} == set(CASES)


@pytest.mark.parametrize(("device", "dtype", "allowed"), DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_golden(name, device, dtype, allowed):
    golden = {
        key.partition("/")[2]: array for key, array in GOLDEN.items() if key.startswith(name + "/")
    }
    arrays = [golden[f"x_{i}"] for i in range(10) if f"x_{i}" in golden]
    if name.startswith("batch_norm"):  # its running statistics are float32 everywhere
        dtype, allowed = "float32", 2e-5
    xs = [
        differentiable(a.astype(dtype), device)
        if a.dtype.kind == "f"
        else ss.tensor(a, None, device)
        for a in arrays
    ]
    y = CASES[name](*xs)

    def compare(found, key):
        want = golden[key]
        error = np.abs(found.numpy() - want).max() / max(np.abs(want).max(), 1e-3)
        assert found.shape == want.shape and found.dtype == dtype and error <= allowed, (key, error)

    compare(y, "y")
    if "g_0" not in golden:
        return
    floats = [x for x in xs if x.requires_grad]
    grads = ss.grad((y * ss.tensor(golden["dy"], dtype, device)).sum(), floats)
    for i, g in enumerate(grads):
        compare(g, f"g_{i}")
    seconds = [g for g in grads if g.requires_grad]
    if not seconds:
        assert all(not golden[f"h_{i}"].any() for i in range(len(floats)))
        return
    squares = sum(((g * g).sum() for g in seconds[1:]), (seconds[0] * seconds[0]).sum())
    for i, h in enumerate(ss.grad(squares, floats, allow_unused=True)):
        if h is None:  # the gradient does not depend on it: PyTorch's second one is 0
            assert not golden[f"h_{i}"].any()
        else:
            compare(h, f"h_{i}")
