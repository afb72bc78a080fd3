"""Convolution and pooling exhaustively on small sizes: every kernel against the reference.

All H, W <= 6, R, S <= 3, strides and paddings up to 3 and 2, where a window fits. For each kernel
size the images of one size are a batch, so that thousands of geometries take seconds.
"""

import itertools

import numpy as np
import pytest

from shoestring.ir import OPS
from shoestring.testing import run_launch

SIZES = list(itertools.product(range(1, 7), range(1, 7)))


def close(found, want, where):
    for a, b in zip(found, want, strict=True):
        assert a.shape == b.shape and np.allclose(a, b, rtol=1e-5, atol=1e-5), where


@pytest.mark.parametrize("R,S", list(itertools.product(range(1, 4), range(1, 4))))
def test_conv2d_and_its_gradients(R, S):
    rng = np.random.default_rng(0)
    count = 0
    for H, W in SIZES:
        x = rng.normal(size=(2, 2, H, W)).astype(np.float32)
        w = rng.normal(size=(3, 2, R, S)).astype(np.float32)
        for stride, top, left in itertools.product(range(1, 4), range(3), range(3)):
            if H + 2 * top < R or W + 2 * left < S:
                continue
            geometry = dict(
                stride=(stride, 1 + (stride + 1) % 3), padding=((top, top), (left, left))
            )
            forward = OPS["conv2d"](**geometry)
            y = forward.reference(x, w)
            close(run_launch(forward, [x, w]), [y], (H, W, geometry))
            dy = rng.normal(size=y.shape).astype(np.float32)
            back = OPS["conv2d_input_grad"](x_shape=x.shape, **geometry)
            close(run_launch(back, [dy, w]), [back.reference(dy, w)], (H, W, geometry))
            weight = OPS["conv2d_weight_grad"](w_shape=w.shape, **geometry)
            close(run_launch(weight, [dy, x]), [weight.reference(dy, x)], (H, W, geometry))
            count += 1
    assert count > 100


@pytest.mark.parametrize("kernel", list(itertools.product(range(1, 4), range(1, 4))))
def test_pooling(kernel):
    rng = np.random.default_rng(1)
    count = 0
    for H, W in SIZES:
        x = rng.permutation(2 * H * W).astype(np.float32).reshape(1, 2, H, W)
        for stride, pad, ceil in itertools.product(range(1, 4), range(3), (False, True)):
            geometry = dict(
                kernel=kernel,
                stride=(stride, 1 + stride % 3),
                ceil_mode=ceil,
                padding=(min(pad, kernel[0] // 2), min(pad, kernel[1] // 2)),
            )
            largest = OPS["max_pool2d"](**geometry)
            if min(largest.sizes(x.shape)[2:]) < 1:
                continue
            y, position = largest.reference(x)
            close(run_launch(largest, [x]), [y, position], (H, W, geometry))
            where = {k: v for k, v in geometry.items() if k != "ceil_mode"}
            back = OPS["max_pool2d_grad"](x_shape=x.shape, **where)
            dx = back.reference(y, position)
            close(run_launch(back, [y, position]), [dx], (H, W, geometry))
            gather = OPS["max_pool2d_gather"](**where)
            assert np.array_equal(gather.reference(x, position), y)
            close(run_launch(gather, [dx, position]), [gather.reference(dx, position)], geometry)
            places = OPS["max_pool2d_places"](width=W, **where)
            flat = places.reference(position)
            assert np.array_equal(
                x.reshape(2, -1)[np.arange(2)[:, None], flat.reshape(2, -1)], y.reshape(2, -1)
            )
            close(run_launch(places, [position]), [flat], (H, W, geometry))
            for padded in (False, True):
                mean = OPS["avg_pool2d"](count_include_pad=padded, **geometry)
                close(run_launch(mean, [x]), [mean.reference(x)], (H, W, geometry))
                back = OPS["avg_pool2d_grad"](x_shape=x.shape, count_include_pad=padded, **geometry)
                close(run_launch(back, [y]), [back.reference(y)], (H, W, geometry))
            count += 1
    assert count > 100


def test_what_others_got_wrong():
    import shoestring as ss

    nan = np.nan
    assert np.isnan(ss.max_pool2d(ss.tensor([[[[1, nan], [2, 3]]]]), 2).item())
    y, index = ss.max_pool2d(ss.full((1, 1, 2, 2), -np.inf), 2, return_indices=True)
    assert y.item() == -np.inf and index.item() == 0
    ramp = ss.tensor(np.arange(1, 6, dtype=np.float32).reshape(1, 1, 1, 5))
    assert ss.avg_pool2d(ramp, (1, 2), ceil_mode=True).tolist() == [[[[1.5, 3.5, 5.0]]]]


def test_moments_of_large_nearly_equal_values():
    from shoestring.ir import F, leaf
    from shoestring.tensor import wrap

    x = np.array([[40000, 40001, 40002, 40003]], np.float32)
    for device in ("cpu", "reference"):
        mean, variance = (
            wrap(n).numpy().item() for n in F.moments(leaf(x, device=device), axes=(1,))
        )
        assert mean == 40001.5 and variance == pytest.approx(1.25, rel=1e-6)
    rng = np.random.default_rng(0)
    big = (rng.normal(size=(32, 3, 9, 7)) + 1449).astype(np.float32)
    mean, variance = (wrap(n).numpy().reshape(-1) for n in F.moments(leaf(big), axes=(0, 2, 3)))
    np.testing.assert_allclose(variance, big.astype(np.float64).var((0, 2, 3)), rtol=1e-5)
