"""Shapes that nobody chose: broadcasting, reductions, views and slices against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import shoestring  # noqa: F401  (registers the ops)
from shoestring.ir import OPS, F, leaf
from shoestring.testing import evaluate, operand, run_launch

always_the_same = settings(max_examples=80, deadline=None, derandomize=True)
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6)
full_shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=7)


def filled(shape) -> np.ndarray:
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape) - np.float32(
        math.prod(shape) // 2
    )


@st.composite
def views(draw, of=shapes):
    """An array under strides made by slicing, permuting, reversing and repeating another."""
    x = filled(draw(of))
    x = x.transpose(draw(st.permutations(range(x.ndim))))
    x = x[(..., *[slice(None, None, draw(st.sampled_from([1, 1, 2, -1]))) for _ in range(x.ndim)])]
    return np.broadcast_to(x, (draw(st.integers(1, 3)), *x.shape)) if draw(st.booleans()) else x


@st.composite
def splits(draw, total):
    """Sizes whose product is `total`."""
    sizes = []
    for _ in range(draw(st.integers(0, 3))):
        divisors = [d for d in range(1, max(total, 1) + 1) if total % d == 0]
        sizes.append(draw(st.sampled_from(divisors)))
        total = total // sizes[-1] if total else 0
    return (*sizes, total)


def axes_of(draw, ndim):
    return tuple(sorted(draw(st.sets(st.integers(0, ndim - 1))))) if ndim else ()


def look(op, x):
    """The view that `op.view` places over x, or None."""
    place = op.view(x.shape, operand(x).strides)
    if place is None or 0 in place[0]:
        return place and np.empty(place[0], x.dtype)
    shape, strides, offset = place
    start = x.__array_interface__["data"][0] + offset * x.itemsize
    base = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 1).from_address(start))
    return np.lib.stride_tricks.as_strided(base, shape, [s * x.itemsize for s in strides])


@always_the_same
@given(st.data())
def test_reshape_needs_a_copy_exactly_where_numpy_does(data):
    x = data.draw(views())
    to = data.draw(splits(x.size))
    found, want = look(OPS["reshape"](to=to), x), x.reshape(to)
    if found is None:
        assert not np.shares_memory(want, x)
    else:
        assert np.array_equal(found, want) and (np.shares_memory(want, x) or not x.size)


@always_the_same
@given(st.data())
def test_views_place_the_elements_that_numpy_does(data):
    x = data.draw(views())
    order = tuple(data.draw(st.permutations(range(x.ndim))))
    assert np.array_equal(look(OPS["transpose"](axes=order), x), x.transpose(order))
    axes = axes_of(data.draw, x.ndim)
    assert np.array_equal(look(OPS["flip"](axes=axes), x), np.flip(x, axes))
    to = (
        *data.draw(full_shapes),
        *[n if n != 1 else data.draw(st.integers(1, 3)) for n in x.shape],
    )
    assert np.array_equal(look(OPS["expand"](to=to), x), np.broadcast_to(x, to))


@always_the_same
@given(st.data())
def test_slices(data):
    x = data.draw(views())
    chosen = tuple(data.draw(st.slices(n)) for n in x.shape)
    index = tuple(s.indices(n) for s, n in zip(chosen, x.shape, strict=True))
    want, node = x[(..., *chosen)], F.slice(leaf(x), index=index)
    assert node.shape == want.shape and np.array_equal(look(node.op, x), want)
    assert np.array_equal(evaluate([node], {})[0], want)
    back = np.zeros(x.shape, x.dtype)
    back[(..., *chosen)] = want
    assert np.array_equal(OPS["unslice"](index=index, to=x.shape).reference(want), back)


@always_the_same
@given(st.data())
def test_unslice_kernel(data):
    to = data.draw(full_shapes)
    index = tuple(
        s.indices(n) for s, n in zip([data.draw(st.slices(n)) for n in to], to, strict=True)
    )
    op = OPS["unslice"](index=index, to=to)
    x = filled([len(range(*part)) for part in index])
    found = run_launch(op, [x])
    assert (found is None) == (x.size == 0) and (
        found is None or np.array_equal(found[0], op.reference(x))
    )


@always_the_same
@given(views())
def test_copy_kernel(x):
    found = run_launch(OPS["copy"](), [x])
    assert (found is None) == (x.size == 0) and (found is None or np.array_equal(found[0], x))


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "var", "norm", "prod"])
@always_the_same
@given(st.data())
def test_reductions(name, data):
    x = data.draw(views(full_shapes))
    x = 1 + x / np.float32(x.size)
    op = OPS[name](axes=axes_of(data.draw, x.ndim), keepdims=data.draw(st.booleans()))
    plain = {
        "norm": lambda v, a, **k: np.sqrt((v * v).sum(a, **k)),
        "var": lambda v, a, **k: v.var(a, ddof=1, **k),
    }
    with np.errstate(all="ignore"):
        double = x.astype(np.float64)
        if name == "var" and op.terms(x.shape) == 1:
            want = np.full(op.shape(x.shape), np.nan)
        else:
            want = plain.get(name, getattr(np, name, None))(double, op.axes, keepdims=op.keepdims)
    found = run_launch(op, [x])[0]
    assert found.shape == want.shape == op.shape(x.shape)
    with np.errstate(over="ignore"):
        assert np.allclose(found, np.float32(want), rtol=1e-4, atol=1e-6, equal_nan=True)
    assert np.allclose(op.reference(double), want, rtol=1e-9, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@always_the_same
@given(st.data())
def test_positions(name, data):
    x = data.draw(views(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=7)))
    x = np.where(x % 5 == 0, np.float32(np.nan), x % 7) if data.draw(st.booleans()) else x % 3
    op = OPS[name](axis=data.draw(st.integers(0, x.ndim - 1)), keepdims=data.draw(st.booleans()))
    assert np.array_equal(
        run_launch(op, [x])[0], getattr(np, name)(x, op.axis, keepdims=op.keepdims)
    )


@always_the_same
@given(st.data())
def test_sum_to_undoes_what_broadcasting_did(data):
    found = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=5))
    shape = found.result_shape
    for to in found.input_shapes:
        ones = np.ones(shape, np.float32)
        y = evaluate([F.sum_to(leaf(ones), to=to)], {})[0]
        repeats = math.prod(shape) // math.prod(to) if math.prod(to) else 0
        assert y.shape == to and (y == repeats).all()
        kernel = run_launch(OPS["sum_to"](to=to), [ones])
        assert kernel is None or np.array_equal(kernel[0], y)


@always_the_same
@given(st.data())
def test_take_along_any_axis(data):
    x = data.draw(views(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=6)))
    axis = data.draw(st.integers(0, x.ndim - 1))
    indices = data.draw(
        hnp.arrays(
            np.int64,
            hnp.array_shapes(min_dims=0, max_dims=2, min_side=1),
            elements=st.integers(0, x.shape[axis] - 1),
        )
    )
    assert np.array_equal(
        run_launch(OPS["take"](axis=axis), [x, indices])[0], np.take(x, indices, axis)
    )


@pytest.mark.parametrize("name", ["add", "mul", "maximum", "less"])
@always_the_same
@given(st.data())
def test_broadcasting(name, data):
    found = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=5))
    a, b = [filled(shape) for shape in found.input_shapes]
    numpy = {"add": np.add, "mul": np.multiply, "maximum": np.maximum, "less": np.less}[name]
    node = getattr(F, name)(leaf(a), leaf(b))
    assert node.shape == found.result_shape
    for values in (evaluate([node], {})[0], *(run_launch(node.op, [a, b]) or ())):
        assert np.array_equal(values, numpy(a, b))
