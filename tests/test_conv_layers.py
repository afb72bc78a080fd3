"""Convolution with every instruction set, its gradients, its function and its layer."""

import numpy as np
import pytest

import shoestring as ss
from shoestring.backends.cpu import _native
from shoestring.ir import OPS
from shoestring.nn.conv import padding_of
from shoestring.testing import run_launch

GEOMETRIES = [  # x, w, stride, padding: tails of vectors and tiles, uneven edges, empty taps
    ((2, 1, 28, 28), (16, 1, 3, 3), (1, 1), ((0, 0), (0, 0))),
    ((3, 16, 13, 13), (32, 16, 3, 3), (1, 1), ((0, 0), (0, 0))),
    ((2, 3, 17, 33), (9, 3, 3, 3), (1, 1), ((1, 1), (1, 1))),
    ((1, 5, 9, 50), (13, 5, 2, 5), (2, 3), ((0, 1), (2, 0))),
    ((9, 4, 7, 7), (8, 4, 1, 1), (2, 2), ((0, 0), (0, 0))),
    ((1, 2, 20, 20), (3, 2, 7, 7), (2, 2), ((3, 3), (3, 3))),
    ((2, 2, 8, 8), (1, 2, 2, 2), (5, 4), ((0, 0), (0, 0))),
    ((1, 70, 5, 4), (40, 70, 3, 3), (1, 1), ((1, 1), (1, 1))),
    ((2, 3, 2, 2), (4, 3, 5, 5), (1, 1), ((2, 2), (2, 2))),
]


def three(x, w, stride, padding):
    """(op, arrays) of each direction, on random numbers."""
    rng = np.random.default_rng(0)
    draw = lambda shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    at = dict(stride=stride, padding=padding)
    forward = OPS["conv2d"](**at)
    a, b, dy = draw(x), draw(w), draw(forward.shape(x, w))
    return [
        (forward, [a, b]),
        (OPS["conv2d_input_grad"](x_shape=x, **at), [dy, b]),
        (OPS["conv2d_weight_grad"](w_shape=w, **at), [dy, a]),
    ]


@pytest.mark.parametrize("isa", _native.isas())
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_kernels_equal_the_reference_with_every_instruction_set(geometry, isa):
    before = _native.isa()
    _native.set_isa(isa)
    try:
        for op, arrays in three(*geometry):
            (y,) = run_launch(op, arrays)
            want = op.reference(*[a.astype(np.float64) for a in arrays])
            terms = op.terms(*[a.shape for a in arrays])
            assert np.abs(y - want).max() <= 1e-6 * terms + 1e-6, op
    finally:
        _native.set_isa(before)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_gradients_are_adjoint_to_the_convolution(geometry):
    """<conv(x, w), dy> = <x, input_grad(dy, w)> = <w, weight_grad(dy, x)>"""
    (forward, (x, w)), (back, (dy, _)), (weight, _) = three(*geometry)
    x, w, dy = (a.astype(np.float64) for a in (x, w, dy))
    whole = np.vdot(forward.reference(x, w), dy)
    assert np.vdot(x, back.reference(dy, w)) == pytest.approx(whole, rel=1e-9, abs=1e-9)
    assert np.vdot(w, weight.reference(dy, x)) == pytest.approx(whole, rel=1e-9, abs=1e-9)


def test_same_padding_puts_the_odd_pixel_at_the_end():
    assert padding_of("same", 6, 5, 3, 3, (2, 2)) == ((0, 1), (1, 1))
    assert padding_of("same", 5, 5, 2, 4, (1, 1)) == ((0, 1), (1, 2))
    assert padding_of("same", 7, 7, 1, 2, (3, 3)) == ((0, 0), (0, 1))
    assert padding_of("valid", 6, 6, 3, 3, (1, 1)) == ((0, 0), (0, 0))
    assert padding_of((2, 1), 6, 6, 3, 3, (1, 1)) == ((2, 2), (1, 1))
    x, w = ss.normal(2, 3, 6, 6), ss.normal(4, 3, 3, 3)
    padded = ss.pad(x, ((0, 0), (0, 0), (0, 1), (0, 1)))
    np.testing.assert_allclose(
        ss.conv2d(x, w, stride=2, padding="same").numpy(),
        ss.conv2d(padded, w, stride=2).numpy(),
        rtol=1e-6,
        atol=1e-6,
    )


def test_a_batch_of_none_has_gradients_of_zero():
    w, b = ss.Parameter(np.ones((4, 3, 3, 3), np.float32)), ss.Parameter(np.ones(4, np.float32))
    y = ss.conv2d(ss.zeros(0, 3, 8, 8), w, b)
    assert y.shape == (0, 4, 6, 6)
    y.sum().backward()
    assert not w.grad.numpy().any() and not b.grad.numpy().any()


def test_nan_and_infinity_reach_what_they_touch():
    """Padding is 0, and 0 times infinity is NaN: as in the reference."""
    x = np.ones((1, 1, 3, 3), np.float32)
    x[0, 0, 0, 0] = np.nan
    y = ss.conv2d(ss.tensor(x), ss.zeros(1, 1, 2, 2)).numpy()[0, 0]
    np.testing.assert_array_equal(np.isnan(y), [[True, False], [False, False]])
    w = ss.full((1, 1, 3, 3), np.inf)
    y = ss.conv2d(ss.ones(1, 1, 3, 3), w, padding=1).numpy()[0, 0]
    assert y[1, 1] == np.inf and np.isnan(y).sum() == 8


def test_layers_start_as_documented():
    conv = ss.Conv2D(np.int64(64), 32, np.int64(3))
    assert conv.weight.shape == (32, 64, 3, 3) and not conv.bias.numpy().any()
    assert conv.weight.numpy().std() == pytest.approx(np.sqrt(2 / (64 * 9)), rel=0.03)
    assert ss.Conv2D(1, 2, 3, bias=False).bias is None


@pytest.mark.parametrize("wrong", [dict(stride=0), dict(padding="full"), dict(padding=-1)])
def test_a_layer_refuses_wrong_options_when_it_is_made(wrong):
    with pytest.raises(ss.ShoestringError):
        ss.Conv2D(3, 4, 3, **wrong)
