"""Max pooling bit for bit: ties, NaN, infinities, signed zeros, every overlap of windows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shoestring as ss
from shoestring.backends.cpu import _native as native
from shoestring.ir import OPS
from shoestring.testing import run_launch

VALUES = np.array([-np.inf, -1, -0.0, 0.0, 0.5, 1, np.inf, np.nan], np.float32)


@st.composite
def pooled(draw, largest=12):
    """(geometry of a pooling that fits, shape of x)"""
    kernel = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    sizes = [
        draw(st.integers(max(1, k - 2 * p), largest)) for k, p in zip(kernel, padding, strict=True)
    ]
    geometry = dict(
        kernel=kernel,
        stride=(draw(st.integers(1, 4)), draw(st.integers(1, 4))),
        padding=padding,
        ceil_mode=draw(st.booleans()),
    )
    return geometry, (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *sizes)


def ways(geometry):
    return {k: v for k, v in geometry.items() if k != "ceil_mode"}


def check(geometry, x, rng):
    """Kernels against references, with every instruction set."""
    before = native.isa()
    try:
        for isa in native.isas():
            native.set_isa(isa)
            check_kernels(geometry, x, rng)
    finally:
        native.set_isa(before)


def check_kernels(geometry, x, rng):
    largest = OPS["max_pool2d"](**geometry)
    y, position = largest.reference(x)
    found, place = run_launch(largest, [x])
    assert place.dtype == position.dtype and np.array_equal(place, position)
    assert found.tobytes() == y.tobytes()
    dy = rng.normal(size=y.shape).astype(np.float32)
    back = OPS["max_pool2d_grad"](x_shape=x.shape, **ways(geometry))
    (dx,) = run_launch(back, [dy, position])
    assert dx.tobytes() == back.reference(dy, position).tobytes()


@settings(max_examples=150, deadline=None)
@given(pooled(), st.integers(0, 9))
def test_kernel_and_reference_agree_on_ties_and_nan(given, seed):
    geometry, shape = given
    rng = np.random.default_rng(seed)
    check(geometry, rng.choice(VALUES, size=shape), rng)


@pytest.mark.parametrize("kernel", [(17, 16), (1, 300), (2, 600), (3, 3), (1, 256)])
@pytest.mark.parametrize("stride", [(1, 1), (3, 2), (2, 3)])
def test_wide_images_and_windows_of_more_places_than_a_byte_holds(kernel, stride):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(1, 2, 20, 1200)).astype(np.float32).round(1)
    x[0, 0, 3, 5:9] = np.nan
    padding = kernel[0] // 2, min(kernel[1] // 2, 7)
    check(dict(kernel=kernel, stride=stride, padding=padding, ceil_mode=True), x, rng)


def test_a_place_takes_one_byte():
    y, position = OPS["max_pool2d"]().reference(np.zeros((1, 1, 4, 4), np.float32))
    assert position.dtype == np.uint8 and y.size == position.nbytes
    assert OPS["max_pool2d"](kernel=(16, 16)).dtype(np.dtype("float32"))[1] == np.uint8
    assert OPS["max_pool2d"](kernel=(16, 17)).dtype(np.dtype("float32"))[1] == np.int32


def test_indices_are_places_in_the_image():
    x = ss.tensor(np.arange(30, dtype=np.float32).reshape(1, 1, 5, 6) % 7)
    y, index = ss.max_pool2d(x, (3, 2), stride=(2, 1), padding=(1, 1), return_indices=True)
    assert index.dtype == ss.int64 and index.shape == y.shape
    assert np.array_equal(x.numpy().reshape(-1)[index.numpy()], y.numpy())
    assert index.numpy()[0, 0, 0].tolist() == [6, 6, 2, 3, 4, 5, 5]  # as PyTorch
