"""Convolution and matrix product where their kernels change course: edges of panels and tiles,
several splits and bands, uneven padding. Small geometries one by one: test_windows.py."""

import numpy as np
import pytest
from common import program_of

import shoestring as ss
from shoestring.backends.device import device
from shoestring.ir import OPS
from shoestring.testing.run import operand

THREADS, GUARD = (1, 3), 256

GEOMETRIES = [  # x, w, stride, padding
    ((3, 1, 28, 28), (16, 1, 3, 3), (1, 1), ((0, 0), (0, 0))),
    ((2, 16, 13, 13), (32, 16, 3, 3), (1, 1), ((0, 0), (0, 0))),
    ((1, 33, 9, 17), (17, 33, 3, 2), (1, 1), ((2, 0), (0, 1))),
    ((2, 5, 19, 40), (65, 5, 2, 3), (2, 3), ((0, 3), (4, 1))),
    ((40, 20, 3, 3), (9, 20, 3, 3), (1, 1), ((1, 1), (1, 1))),
    ((1, 2, 70, 1), (100, 2, 5, 1), (3, 1), ((0, 0), (0, 0))),
    ((2, 64, 8, 8), (128, 64, 1, 1), (2, 2), ((0, 0), (0, 0))),
    ((1, 70, 6, 6), (520, 70, 3, 3), (1, 1), ((1, 1), (1, 1))),
    ((1, 1, 3, 900), (2, 1, 2, 4), (1, 1), ((1, 0), (3, 3))),
    ((1, 2, 5, 4), (3, 2, 1, 1), (1, 1), ((2, 2), (5, 0))),
]
PRODUCTS = [  # a, b
    ((32, 800), (800, 10)),
    ((128, 784), (784, 512)),
    ((13, 300), (300, 33)),
    ((20, 3, 40), (40, 50)),
    ((2, 1, 30, 40), (3, 40, 5)),
    ((9, 3, 40), (9, 40, 5)),
    ((3, 100, 90), (3, 90, 80)),
    ((1, 5000), (5000, 1)),
]


def run(op, arrays):
    """The kernel's result, the same with any number of threads; nothing behind its workspaces is
    written."""
    from shoestring.backends.cpu import _native

    results, before = [], _native.threads()
    y = np.empty(op.shape(*[a.shape for a in arrays]), np.float32)
    launch = op.launch(device("cpu"), [operand(a) for a in arrays], [operand(y)])
    try:
        for threads in THREADS:
            _native.set_threads(threads)
            y = np.full_like(y, np.nan)
            spaces = [np.full(n + GUARD, 0xFF, np.uint8) for n in launch.workspaces]
            program = program_of(*launch.kernels)
            program.run([a.__array_interface__["data"][0] for a in [*arrays, y, *spaces]])
            assert all((s[-GUARD:] == 0xFF).all() for s in spaces)
            results.append(y)
    finally:
        _native.set_threads(before)
    assert all(np.array_equal(results[0], r) for r in results[1:])
    return results[0]


def check(op, *arrays):
    found, want = run(op, arrays), op.reference(*[a.astype(np.float64) for a in arrays])
    assert np.abs(found - want).max() <= 1e-5 * max(1e-30, np.abs(want).max())


@pytest.mark.parametrize("x,w,stride,padding", GEOMETRIES)
def test_convolution(x, w, stride, padding):
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(np.float32) for s in (x, w))
    geometry = dict(stride=stride, padding=padding)
    forward = OPS["conv2d"](**geometry)
    dy = rng.normal(size=forward.shape(x.shape, w.shape)).astype(np.float32)
    check(forward, x, w)
    check(OPS["conv2d_input_grad"](x_shape=x.shape, **geometry), dy, w)
    check(OPS["conv2d_weight_grad"](w_shape=w.shape, **geometry), dy, x)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("a,b", PRODUCTS)
def test_matrix_product(a, b, transpose_a, transpose_b):
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=s).astype(np.float32) for s in (a, b))
    a = np.ascontiguousarray(a.swapaxes(-1, -2)) if transpose_a else a
    b = np.ascontiguousarray(b.swapaxes(-1, -2)) if transpose_b else b
    check(OPS["matmul"](transpose_a=transpose_a, transpose_b=transpose_b), a, b)


def test_matrix_product_of_any_strides():
    rng = np.random.default_rng(2)
    wide = rng.normal(size=(4, 60, 90)).astype(np.float32)
    a, b = wide[::-1, ::3, ::2], wide[:, 15:, ::-1]
    check(OPS["matmul"](), a, b)
    check(OPS["matmul"](), np.broadcast_to(a[:1], (4, 20, 45)), b[0])


def test_a_stack_times_one_matrix_is_one_tall_product():
    a, b, y = (np.empty(s, np.float32) for s in ((4, 5, 6, 7), (7, 8), (4, 5, 6, 8)))
    launch = OPS["matmul"]().launch(device("cpu"), [operand(a), operand(b)], [operand(y)])
    assert launch.kernels[0].integers[0] == 4 * 5 * 6


@pytest.mark.parametrize("padding,stride", [(1, 1), (1, 2), (2, 3)])
def test_a_batch_worked_on_image_by_image_gives_the_same(monkeypatch, padding, stride):
    """A large padded copy is made of some images at a time: outputs have the same bits, weight
    gradients are sums in another order."""
    from shoestring.ops import conv

    def values():
        ss.runtime.PLANS.clear()
        rng = np.random.default_rng(0)
        x = ss.tensor(rng.normal(size=(5, 3, 9, 8)).astype(np.float32), requires_grad=True)
        w = ss.Parameter(rng.normal(size=(20, 3, 3, 3)).astype(np.float32))
        y = ss.conv2d(x, w, stride=stride, padding=padding)
        dy = ss.tensor(rng.normal(size=y.shape).astype(np.float32))
        (y * dy).sum().backward()
        return y.numpy(), x.grad.numpy(), w.grad.numpy()

    whole = values()
    monkeypatch.setattr(conv, "COPIED", 1)
    single = values()
    assert whole[0].tobytes() == single[0].tobytes()
    assert whole[1].tobytes() == single[1].tobytes()
    np.testing.assert_allclose(whole[2], single[2], rtol=2e-5, atol=2e-5)
