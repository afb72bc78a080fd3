"""Edges of shapes and values: empty batches, constants, single elements."""

import numpy as np
import pytest

import shoestring as ss
from shoestring.backends.opencl import devices
from shoestring.errors import ShapeError
from shoestring.ir import F
from shoestring.tensor import wrap

DEVICES = ("cpu", "reference")


def gradient(f, values, device="cpu"):
    """(f(x), df/dx) at x = values."""
    x = ss.tensor(values, device=device, requires_grad=True)
    y = f(x)
    y.sum().backward()
    return y.numpy(), x.grad.numpy()


# ---- batch normalisation -------------------------------------------------------------------------
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 3, 0, 4)])
def test_batchnorm_refuses_an_empty_batch_in_training_and_keeps_its_statistics(shape, compiled):
    net = ss.Sequential(ss.BatchNorm2D(3), ss.BatchNorm2D(3))
    net(ss.normal(4, 3, 2, 2))
    before = {k: v.copy() for k, v in net.state_dict().items()}
    step = ss.compile(net.forward) if compiled else net
    with pytest.raises(ShapeError, match=r"BatchNorm2D: an empty batch(.|\n)*layer 0") as problem:
        step(ss.zeros(*shape))
    assert problem.value.place == "shape/batchnorm.empty"
    after = net.state_dict()
    assert all(np.array_equal(before[k], after[k]) for k in before)
    net.eval()
    assert net(ss.zeros(*shape)).shape == shape


# ---- pooling -------------------------------------------------------------------------------------
POOLS = {
    "max": lambda x: ss.max_pool2d(x, 2),
    "max, overlapping": lambda x: ss.max_pool2d(x, 3, stride=1, padding=1),
    "mean": lambda x: ss.avg_pool2d(x, 2),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(0, 2, 4, 4), (2, 0, 4, 4)])
@pytest.mark.parametrize("pool", POOLS)
def test_pooling_an_empty_batch_has_an_empty_gradient(pool, shape, device):
    y, dx = gradient(POOLS[pool], np.zeros(shape, np.float32), device)
    assert y.shape[:2] == shape[:2]
    assert dx.shape == shape


@pytest.mark.parametrize("device", DEVICES)
def test_a_network_trains_on_an_empty_batch_without_a_change(device):
    ss.default_device(device)
    try:
        conv = ss.Conv2D(2, 3, 3)
        ss.max_pool2d(conv(ss.zeros(0, 2, 8, 8)), 2).sum().backward()
        assert conv.weight.grad.shape == conv.weight.shape
        assert not conv.weight.grad.numpy().any()
    finally:
        ss.default_device("cpu")


# ---- slopes that are infinite at 0 ---------------------------------------------------------------
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("correction", [0, 1])
def test_the_gradient_of_the_standard_deviation_of_a_constant_is_zero(correction, device):
    y, dx = gradient(lambda x: x.std(correction=correction), [2.0, 2.0, 2.0], device)
    assert y == 0
    assert dx.tolist() == [0, 0, 0]
    rows = [[3.0, 3.0], [1.0, 2.0]]
    y, dx = gradient(lambda x: x.std(1, correction=correction), rows, device)
    want = np.std(rows, 1, ddof=correction)
    np.testing.assert_allclose(y, want, rtol=1e-6)
    np.testing.assert_allclose(dx[1], [-0.5 / (2 - correction) / want[1], -dx[1][0]], rtol=1e-6)
    assert dx[0].tolist() == [0, 0]


def test_the_standard_deviation_of_one_element():
    y, dx = gradient(lambda x: x.std(correction=0), [2.0])
    assert (y, dx.tolist()) == (0, [0])
    y, dx = gradient(lambda x: x.std(), [2.0])  # 0/0, as in NumPy and PyTorch
    assert np.isnan(y)
    assert np.isnan(dx).all()


def test_the_standard_deviation_passes_nan_on():
    y, dx = gradient(lambda x: x.std(), [1.0, np.nan])
    assert np.isnan(y)
    assert np.isnan(dx).all()


def test_gradients_of_a_gradient_of_the_standard_deviation_of_a_constant_are_zero():
    x = ss.tensor([2.0, 2.0, 2.0], requires_grad=True)
    first = ss.grad(x.std(), x)
    assert ss.grad(first.sum(), x).tolist() == [0, 0, 0]


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_the_gradient_of_a_power_at_zero(power):
    _, dx = gradient(lambda x: x**power, [0.0])
    assert dx.tolist() == [1.0 if power == 1 else 0.0]


def test_clipping_gradients_of_zero_leaves_zero():
    p = ss.tensor([1.0, 2.0], requires_grad=True)
    (p * 0).sum().backward()
    assert ss.clip_grad_norm_([p], 1.0).item() == 0
    assert p.grad.tolist() == [0, 0]


# ---- results that are views of what a plan does not own ------------------------------------------
@pytest.mark.parametrize("device", [*DEVICES, *["opencl:0"] * bool(devices())])
def test_a_gradient_that_is_a_view_of_its_seed_lives_on_the_device(device):
    x = ss.tensor([[1.0, 2.0]], device=device, requires_grad=True)
    g = ss.grad(x.reshape(2).sum(), x)
    assert g.tolist() == [[1, 1]]
    assert type(g.realize()) is type(ss.tensor([1.0], device=device).realize())
    assert (g * 2 + g).tolist() == [[3, 3]]


@pytest.mark.parametrize("device", [*DEVICES, *["opencl:0"] * bool(devices())])
def test_a_checked_parameter_keeps_the_value_that_was_checked(device):
    p = ss.Parameter([1.0, 2.0], device=device)
    checked = wrap(F.check_finite(p.state.node, what="p"))
    checked.numpy()
    p.assign(p * 2)
    assert p.tolist() == [2, 4]
    assert checked.tolist() == [1, 2]
