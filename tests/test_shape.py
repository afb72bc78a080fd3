"""Views, copies, indexing along an axis: what the registry's cases are too small for."""

from __future__ import annotations

import numpy as np
import pytest

import shoestring  # noqa: F401  (registers the ops)
from shoestring.autodiff import gradients
from shoestring.backends import Operand
from shoestring.backends.device import device
from shoestring.ir import MIXED, OPS, SUM, F, leaf
from shoestring.testing import evaluate, laid_out, run_launch

rng = np.random.default_rng(0)


def random_array(dtype: str, axes: int, largest: int) -> np.ndarray:
    """Random values under random strides: axes permuted, stepped over, turned round, sometimes
    repeated."""
    x = rng.integers(0, 200, tuple(rng.integers(1, largest, axes))).astype(dtype)
    x = x.transpose(rng.permutation(axes))
    x = x[(..., *[slice(None, None, int(rng.choice([1, 1, 2, -1, -3]))) for _ in range(axes)])]
    return np.broadcast_to(x, (3, *x.shape)) if rng.random() < 0.3 else x


def same_as_reference(op, *arrays) -> bool:
    found = run_launch(op, arrays)
    return found is not None and np.array_equal(found[0], op.reference(*arrays))


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64", "int32", "bool"])
def test_copies_of_any_layout(dtype):
    for _ in range(60):
        axes = int(rng.integers(0, 5))
        x = random_array(dtype, axes, 40 if axes < 3 else 9)
        assert same_as_reference(OPS["copy"](), x), (x.shape, x.strides)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((300, 500), (1, 0)),
        ((8, 17, 33, 16), (0, 2, 3, 1)),
        ((4, 20, 20, 30), (0, 3, 1, 2)),
        ((70, 60, 3, 3), (2, 3, 0, 1)),
        ((50, 3, 400), (1, 0, 2)),
        ((5, 40000), (1, 0)),
    ],
)
def test_copies_of_transposed_inputs(shape, axes):
    x = rng.normal(size=shape).astype("float32").transpose(axes)
    assert same_as_reference(OPS["copy"](), x)


def test_concat_pad_and_slices_of_any_layout():
    for _ in range(60):
        axes = int(rng.integers(1, 4))
        x = random_array("float32", axes, 12)
        widths = tuple((int(a), int(b)) for a, b in rng.integers(0, 4, (x.ndim, 2)))
        assert same_as_reference(OPS["pad"](widths=widths), x)
        axis = int(rng.integers(0, x.ndim))
        assert same_as_reference(
            OPS["concat"](axis=axis), x, laid_out(x, "transposed"), laid_out(x, "spread")
        )
        index, to = (), ()
        for n in x.shape:
            step = int(rng.choice([1, 2, -1, -2]))
            before, after = rng.integers(0, 3, 2)
            to = (*to, int(before + (n - 1) * abs(step) + 1 + after))
            start = int(before if step > 0 else before + (n - 1) * -step)
            index = (*index, (start, start + n * step, step))
        assert same_as_reference(OPS["unslice"](index=index, to=to), x)
        whole = rng.normal(size=to).astype("float32")
        assert same_as_reference(OPS["update_slice"](index=index), laid_out(whole, "transposed"), x)


def test_a_reshape_is_a_view_exactly_where_numpy_makes_one():
    x = np.zeros((4, 6, 5), np.float32)
    strides = (30, 5, 1)
    assert OPS["reshape"](to=(24, 5)).view(x.shape, strides) == ((24, 5), (5, 1), 0)
    assert (
        OPS["reshape"](to=(2, 12, 5)).view((6, 4, 5), (5, 30, 1)) is None
    )  # axes 0 and 1 exchanged
    assert OPS["reshape"](to=(6, 2, 2, 5)).view((6, 4, 5), (5, 30, 1)) == (
        (6, 2, 2, 5),
        (5, 60, 30, 1),
        0,
    )
    assert OPS["reshape"](to=(120,)).view((4, 30), (60, 1)) is None  # rows with gaps
    assert OPS["reshape"](to=(12,)).view((3, 4), (0, 0)) == ((12,), (0,), 0)  # one repeated element


def test_expanded_and_reversed_views_have_zero_and_negative_strides():
    assert OPS["expand"](to=(2, 3, 4)).view((3, 1), (1, 1)) == ((2, 3, 4), (0, 1, 0), 0)
    assert OPS["flip"](axes=(1,)).view((2, 3), (3, 1)) == ((2, 3), (3, -1), 2)
    assert OPS["slice"](index=((4, -1, -2),)).view((5,), (3,)) == ((3,), (-6,), 12)


def test_what_an_update_overwrites_gets_no_gradient_even_if_it_is_infinite():
    x, v = (
        leaf(np.array([1.0, np.inf, 3.0]), needs_grad=True),
        leaf(np.array([2.0]), needs_grad=True),
    )
    seed = leaf(np.array([10.0, np.inf, 30.0]))
    grads = gradients(F.update_slice(x, v, index=((1, 2, 1),)), seed)
    dx, dv = evaluate([grads[x], grads[v]], {})
    assert dx.tolist() == [10.0, 0.0, 30.0] and dv.tolist() == [np.inf]


@pytest.mark.parametrize("kind", ["int64", "int32", "uint8"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((9,), 0), ((9, 130), 0), ((4, 9, 33), 1), ((300, 9), 1)]
)
def test_take_and_its_mirror_on_larger_shapes(kind, shape, axis):
    x, indices = rng.normal(size=shape).astype("float32"), rng.integers(0, 9, (5, 40)).astype(kind)
    taken = run_launch(OPS["take"](axis=axis), [x, indices])[0]
    assert np.array_equal(taken, np.take(x, indices, axis))
    added = run_launch(OPS["put_add"](axis=axis, to=shape), [taken, indices])[0]
    assert np.allclose(
        added,
        x * np.bincount(indices.reshape(-1), minlength=9).reshape([-1] + [1] * (x.ndim - axis - 1)),
        rtol=1e-5,
    )


@pytest.mark.parametrize("count", [1, 768, 769, 1000])
def test_gradients_of_rows_never_leak_into_other_rows(count):
    indices = np.where(np.arange(count) % 3 == 0, 2, 1)
    added = run_launch(OPS["put_add"](to=(4, 70)), [np.ones((count, 70), np.float32), indices])[0]
    assert (added[0] == 0).all() and (added[3] == 0).all() and (added[2] == (count + 2) // 3).all()


def test_an_index_outside_reads_and_adds_nothing():
    x, indices = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([2, 3, -1, 0])
    taken = run_launch(OPS["take"](), [x, indices])[0]
    assert np.array_equal(taken, [[4, 5], [np.nan] * 2, [np.nan] * 2, [0, 1]], equal_nan=True)
    assert np.array_equal(taken, OPS["take"]().reference(x, indices), equal_nan=True)
    assert run_launch(OPS["take"](), [x.astype(np.int32), indices])[0].tolist() == [
        [4, 5],
        [0, 0],
        [0, 0],
        [0, 1],
    ]
    added = run_launch(OPS["put_add"](to=(3, 2)), [np.ones((4, 2), np.float32), indices])[0]
    assert added.tolist() == [[1, 1], [0, 0], [1, 1]]


def test_batch_axes_follow_the_samples():
    assert OPS["reshape"](to=(8, 12)).batch_axis((0,), (8, 3, 4)) == 0
    assert OPS["reshape"](to=(24, 4)).batch_axis((0,), (8, 3, 4)) == MIXED
    assert OPS["transpose"](axes=(1, 0)).batch_axis((0,), (8, 3)) == 1
    assert OPS["concat"](axis=1).batch_axis((0, 0), (8, 3), (8, 2)) == 0
    assert OPS["concat"](axis=0).batch_axis((0, 0), (8, 3), (8, 3)) == MIXED
    assert OPS["take"]().batch_axis((None, 0), (100, 16), (8, 5)) == 0
    assert OPS["put_add"](to=(100, 16)).batch_axis((0, 0), (8, 5, 16), (8, 5)) == SUM


def test_sizes_and_offsets_above_two_to_the_31():
    """Nothing is allocated: launches and specs are data."""
    n = 1 << 17
    wide = F.expand(leaf(np.zeros((), np.float32)), to=(n, n))
    assert wide.spec.size == n * n and wide.spec.nbytes == 4 * n * n
    x = Operand((n, n), np.dtype("float32"), (0, 0))
    y = Operand((2 * n, n), np.dtype("float32"), (n, 1))
    first, second = OPS["concat"](axis=0).launch(device("cpu"), [x, x], [y]).kernels
    assert second.integers[1] - first.integers[1] == n * n
    index = ((n - 1, -1, -1), (0, n, 1))
    assert OPS["slice"](index=index).view((n, n), (n, 1)) == ((n, n), (-n, 1), (n - 1) * n)
