"""Reductions: types, empties, NaN, ties, accuracy, layouts; work is cut by shapes alone."""

from __future__ import annotations

import numpy as np
import pytest

import shoestring  # noqa: F401  (registers the ops)
from shoestring.autodiff import gradients
from shoestring.backends.cpu import _native
from shoestring.ir import MEAN, MIXED, OPS, SUM, F, leaf
from shoestring.testing import distance, evaluate, laid_out, run_launch

rng = np.random.default_rng(0)
nan = np.nan
REDUCTIONS = ["sum", "mean", "var", "norm", "prod", "max", "min"]
HOT = [
    ((16, 12, 9, 9), (0, 2, 3)),
    ((300, 40), (0,)),
    ((300, 40), (1,)),
    ((70000,), (0,)),
    ((5, 70000), (1,)),
    ((70000, 5), (0,)),
    ((3, 50, 60, 70), (0, 2, 3)),
    ((2, 3, 4, 5, 6), (1, 3)),
    ((2, 3, 4, 5, 6), (0, 2, 4)),
    ((7, 33), ()),
    ((1, 600, 1), (0, 1, 2)),
]


def value(node):
    return evaluate([node], {})[0]


def kernel(name, x, **attributes):
    found = run_launch(OPS[name](**attributes), [x])
    assert found is not None, f"no kernel for {name} of {x.dtype}"
    return found[0]


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize(("shape", "axes"), HOT)
def test_kernels_on_larger_shapes(name, shape, axes):
    x = rng.normal(size=shape).astype("float32")
    op = OPS[name](axes=axes)
    for layout in ("contiguous", "transposed", "reversed", "spread"):
        given = x if layout == "contiguous" else laid_out(x, layout)
        if name == "prod":
            given = 1 + given * np.float32(0.01)
        found, want = kernel(name, given, axes=axes), op.reference(given.astype("float64"))
        assert distance(found, want) <= min(op.tolerance(shape), 1e-4), layout


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "int32", "uint8"])
def test_positions_on_larger_shapes(name, dtype):
    for shape, axis in [
        ((300, 40), 0),
        ((300, 40), 1),
        ((3, 500, 7), 1),
        ((70000,), 0),
        ((2, 3, 600), 0),
    ]:
        x = rng.integers(0, 50, shape).astype(dtype)
        for given in (x, laid_out(x, "transposed"), laid_out(x, "reversed")):
            assert np.array_equal(
                kernel(name, given, axis=axis), OPS[name](axis=axis).reference(given)
            )


def test_types():
    for dtype in ("bool", "uint8", "int32", "int64"):
        x = np.array([[1, 0], [1, 1]]).astype(dtype)
        assert kernel("sum", x).dtype == np.int64 and kernel("sum", x) == 3
        assert kernel("mean", x).dtype == np.float32 and kernel("mean", x) == 0.75
        assert kernel("max", x, axes=(0,)).dtype == np.dtype(dtype)
        assert F.var(leaf(x)).dtype == np.float32 and F.argmax(leaf(x)).dtype == np.int64
    assert kernel("sum", np.full(300, 255, np.uint8)) == 76500
    assert kernel("sum", np.array([2**62, -(2**62), 5])) == 5
    assert kernel("max", np.array([-(2**63), -(2**63) + 1])) == -(2**63) + 1


def test_nothing_to_reduce():
    empty = leaf(np.zeros((0, 3), np.float32))
    assert value(F.sum(empty)) == 0 and value(F.prod(empty)) == 1
    assert np.isnan(value(F.mean(empty))) and np.isnan(value(F.var(empty)))
    assert value(F.sum(empty, axes=(0,))).tolist() == [0, 0, 0]
    assert F.max(empty, axes=(1,)).shape == (0,)
    with pytest.raises(ValueError, match="max of no elements"):
        F.max(empty)


def test_positions_take_the_first_of_equals_and_nan_before_all():
    assert (
        kernel("argmax", np.float32([3, 3]), axis=0)
        == 0
        == kernel("argmin", np.float32([3, 3]), axis=0)
    )
    for name in ("argmax", "argmin"):
        assert kernel(name, np.float32([3, nan, 1, 5]), axis=0) == 1
        assert kernel(name, np.float32([3, 2] + [nan] * 200), axis=0) == 2
        assert kernel(name, np.float32([[3, nan], [nan, 1], [nan, 5]]), axis=0).tolist() == [1, 0]
    assert kernel("argmax", np.full(100, -np.inf, np.float32), axis=0) == 0


@pytest.mark.parametrize("n", [2, 5, 31, 32, 33, 300])
def test_largest_and_smallest_pass_nan_on_wherever_it_is(n):
    for place in {0, n // 2, n - 1}:
        x = rng.normal(size=n).astype("float32")
        x[place] = nan
        for name in ("max", "min"):
            assert (
                np.isnan(kernel(name, x))
                and np.isnan(kernel(name, np.stack([x, x], 1), axes=(0,))).all()
            )
    assert kernel("max", np.full(n, -np.inf, np.float32)) == -np.inf


def test_a_long_sum_is_as_good_as_a_short_one():
    x = np.full(10_000_000, 0.1, np.float32)
    assert abs(kernel("sum", x) / (1e7 * float(np.float32(0.1))) - 1) < 2e-6
    assert (
        abs(kernel("sum", x.reshape(-1, 10), axes=(0,)) / (1e6 * float(np.float32(0.1))) - 1).max()
        < 2e-6
    )


def test_variance_of_values_far_from_zero():
    x = np.float32([40000, 40001, 40002, 40003])
    assert kernel("var", x, correction=0) == 1.25 and kernel("var", x) == np.float32(5 / 3)
    assert np.isnan(kernel("var", np.ones(1, np.float32)))


@pytest.mark.parametrize("name", ["sum", "mean", "var", "max"])
def test_bits_do_not_depend_on_threads(name):
    before = _native.threads()
    try:
        for shape, axes in HOT:
            x, found = rng.normal(size=shape).astype("float32"), []
            for threads in (1, 2, 5):
                _native.set_threads(threads)
                found.append(kernel(name, x, axes=axes).tobytes())
            assert len(set(found)) == 1
    finally:
        _native.set_threads(before)


def test_equal_largest_values_share_the_gradient():
    x = leaf(np.array([1.0, 3.0, 3.0, 2.0]), needs_grad=True)
    assert value(gradients(F.max(x), leaf(np.array(1.0)))[x]).tolist() == [0, 0.5, 0.5, 0]
    assert value(gradients(F.min(x), leaf(np.array(1.0)))[x]).tolist() == [1, 0, 0, 0]


def test_gradient_of_the_norm_at_zero_is_zero():
    x = leaf(np.zeros(2), needs_grad=True)
    with np.errstate(all="ignore"):
        assert value(gradients(F.norm(x), leaf(np.array(1.0)))[x]).tolist() == [0, 0]


def test_gradient_of_a_product_with_zeros():
    x = leaf(np.array([2.0, 0.0, 3.0, 5.0, 7.0]), needs_grad=True)
    assert value(gradients(F.prod(x), leaf(np.array(1.0)))[x]).tolist() == [0, 210, 0, 0, 0]
    x = leaf(np.array([2.0, 0.0, 0.0]), needs_grad=True)
    assert value(gradients(F.prod(x), leaf(np.array(1.0)))[x]).tolist() == [0, 0, 0]


def test_batch_axes():
    assert OPS["sum"](axes=(0,)).batch_axis((0,), (8, 3)) == SUM
    assert OPS["sum"](axes=(0,)).batch_axis((1,), (3, 8)) == 0
    assert (
        OPS["sum"]().batch_axis((SUM,), (3,)) == SUM
        and OPS["max"]().batch_axis((SUM,), (3,)) == MIXED
    )
    assert OPS["mean"](axes=(0,)).batch_axis((0,), (8, 3)) == MEAN
    assert OPS["sum_to"](to=(3,)).batch_axis((0,), (8, 3)) == SUM
    assert OPS["argmax"](axis=0).batch_axis((1,), (3, 8)) == 0
