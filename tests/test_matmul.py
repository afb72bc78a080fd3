"""Matrix product beyond its cases: edges of tiles, layouts, leading axes, vectors, linear."""

import itertools

import numpy as np
import pytest

import shoestring as ss
from shoestring.autodiff import gradients
from shoestring.backends.cpu import _native
from shoestring.ir import OPS, F, leaf
from shoestring.testing import LAYOUTS, evaluate, laid_out, run_launch

rng = np.random.default_rng(0)


def draw(*shape):
    return rng.normal(size=shape).astype(np.float32)


def check(op, a, b):
    (y,) = run_launch(op, [a, b])
    want = op.reference(a.astype(np.float64), b.astype(np.float64))
    assert y.shape == want.shape
    assert np.abs(y - want).max() <= 1e-6 * op.terms(a.shape, b.shape) + 1e-6, (a.shape, b.shape)


@pytest.fixture(params=_native.isas())
def isa(request):
    before = _native.isa()
    _native.set_isa(request.param)
    yield
    _native.set_isa(before)


@pytest.mark.parametrize("ta,tb", list(itertools.product((False, True), repeat=2)))
def test_sizes_around_the_edges_of_tiles(isa, ta, tb):
    op = OPS["matmul"](transpose_a=ta, transpose_b=tb)
    for M, N, K in itertools.product((1, 5, 14, 15, 29), (1, 16, 17, 33, 70), (1, 3, 17, 300)):
        check(op, draw(*((K, M) if ta else (M, K))), draw(*((N, K) if tb else (K, N))))


LEADING = [
    ((20, 3, 40), (40, 50)),
    ((9, 3, 40), (9, 40, 5)),
    ((2, 1, 30, 40), (3, 40, 5)),
    ((4, 5), (2, 3, 5, 6)),
    ((3, 100, 90), (3, 90, 80)),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shapes", LEADING)
def test_leading_axes_broadcast_in_any_layout(shapes, layout):
    a, b = (draw(*s) for s in shapes)
    check(OPS["matmul"](), a, b)
    check(OPS["matmul"](), laid_out(a, layout), b)
    check(OPS["matmul"](), a, laid_out(b, layout))


@pytest.mark.parametrize(
    "shapes", [((2, 1, 3, 2), (3, 2, 4)), ((3, 2), (2, 2, 4)), ((1, 2), (2, 3))]
)
def test_gradients_sum_over_broadcast_axes(shapes):
    """First and second order against central differences, the broadcast axes included."""
    leaves = [leaf(rng.normal(size=s), needs_grad=True) for s in shapes]
    y = F.matmul(*leaves)
    loss = total(F.mul(y, F.tanh(y)))
    first = gradients(loss, leaf(np.ones(())), leaves)
    inner = total(F.mul(first[leaves[0]], first[leaves[0]]))
    second = gradients(inner, leaf(np.ones(())), leaves)
    for scalar, grads in ((loss, first), (inner, second)):
        for x in leaves:
            (found,) = evaluate([grads[x]], {})
            assert found.shape == x.shape
            np.testing.assert_allclose(found, difference(scalar, x), rtol=1e-5, atol=1e-6)


def total(x):
    return F.sum(x, axes=tuple(range(len(x.shape))))


def difference(scalar, x, step=1e-5):
    """(f(x + h) - f(x - h)) / 2h for each element of x."""
    change = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        for sign in (1, -1):
            moved = x.value.copy()
            moved[at] += sign * step
            change[at] += sign * evaluate([scalar], {x: moved})[0] / (2 * step)
    return change


def test_vectors_and_empty_sums():
    m, v = ss.tensor(draw(3, 2, 4)), ss.tensor(draw(4))
    np.testing.assert_allclose((m @ v).numpy(), m.numpy() @ v.numpy(), rtol=1e-5, atol=1e-6)
    u = ss.tensor(draw(2))
    np.testing.assert_allclose((u @ m).numpy(), u.numpy() @ m.numpy(), rtol=1e-5, atol=1e-6)
    assert (v @ v).shape == () and (v @ v).item() == pytest.approx(float(v.numpy() @ v.numpy()))
    np.testing.assert_array_equal((ss.zeros(3, 0) @ ss.zeros(0, 4)).numpy(), np.zeros((3, 4)))
    assert (ss.zeros(0, 3) @ ss.zeros(3, 4)).numpy().shape == (0, 4)


def test_integers_are_summed_as_integers():
    a, b = np.array([[1, 2], [3, 4]]), np.array([[5, 6], [7, 8]])
    found = (ss.tensor(a) @ ss.tensor(b)).numpy()
    assert found.tolist() == (a @ b).tolist()


def test_linear_is_a_product_and_a_bias():
    layer = ss.Linear(np.int64(512), 64)
    assert layer.weight.shape == (64, 512) and not layer.bias.numpy().any()
    assert layer.weight.numpy().std() == pytest.approx(np.sqrt(2 / 512), rel=0.03)
    for x in (draw(5, 512), draw(2, 3, 512)):
        want = x @ layer.weight.numpy().T
        np.testing.assert_allclose(layer(ss.tensor(x)).numpy(), want, rtol=1e-4, atol=1e-5)
    assert ss.Linear(4, 2, bias=False).bias is None
