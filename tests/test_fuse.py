"""Fusing changes kernels, never bits: random graphs, updates in place, and what is not joined."""

import numpy as np
import pytest
from common import run
from hypothesis import given, settings
from hypothesis import strategies as st

import shoestring as ss
from shoestring.runtime import PLANS

UNARY = ["neg", "abs", "relu", "sigmoid", "tanh", "exp"]
BINARY = ["add", "sub", "mul", "maximum", "minimum"]
SHAPES = [(3, 4), (1, 4), (3, 1), ()]


def program(choices, leaves):
    """A random expression over the leaves; every intermediate value may be used again."""
    values = [ss.tensor(a) for a in leaves]
    for name, first, second in choices:
        a, b = values[first % len(values)], values[second % len(values)]
        if name in UNARY:
            value = {
                "neg": lambda: -a,
                "abs": a.abs,
                "relu": a.relu,
                "sigmoid": a.sigmoid,
                "tanh": a.tanh,
                "exp": lambda: a.clip(-5, 5).exp(),
            }[name]()
        else:
            value = {
                "add": lambda: a + b,
                "sub": lambda: a - b,
                "mul": lambda: a * b,
                "maximum": lambda: ss.maximum(a, b),
                "minimum": lambda: ss.minimum(a, b),
            }[name]()
        values.append(value)
    return values[-1], values[len(leaves)]


step = st.tuples(st.sampled_from(UNARY + BINARY), st.integers(0, 20), st.integers(0, 20))


@settings(max_examples=60, deadline=None)
@given(st.lists(step, min_size=2, max_size=14), st.integers(0, 3))
def test_random_graphs_have_the_same_bits_fused_and_not(choices, seed):
    rng = np.random.default_rng(seed)
    leaves = [rng.normal(size=s).astype(np.float32) for s in SHAPES]

    def values():
        last, kept = program(choices, leaves)
        return last.numpy().tobytes(), kept.numpy().tobytes()

    assert run(True, values) == run(False, values)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(step, min_size=1, max_size=10),
    st.lists(
        st.tuples(st.integers(0, 12), st.sampled_from(["all", "channels", "rows", "mean"])),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([(3, 4, 5), (2, 40, 3), (5, 3, 700), (1, 1, 9000), (2300, 2, 1)]),
)
def test_random_graphs_with_sums_are_the_same_fused_and_not(choices, sums, shape):
    rng = np.random.default_rng(len(choices))
    sizes = [shape, (1, shape[1], 1), (shape[0], 1, shape[2]), ()]
    leaves = [rng.normal(size=s).astype(np.float32) for s in sizes]

    def values():
        made = [ss.tensor(leaves[0])]
        last, kept = program(choices, leaves)
        made += [v for v in (last, kept) if v.shape == shape]
        made += [made[-1] * made[0], made[0].relu() + 1.5, (made[-1] - 2).abs()]
        found = []
        for k, how in sums:
            x = made[k % len(made)]
            axes = {"all": None, "channels": (0, 2), "rows": 2, "mean": (0, 2)}[how]
            y = x.mean(axes) if how == "mean" else x.sum(axes)
            found.append((y * 2 + 1, x))
        y = sum(a.sum() for a, _ in found) * made[-1]  # sums that others wait for
        return [*[a.numpy() for a, _ in found], y.numpy()], [x.numpy() for _, x in found]

    fused, terms = run(True, values)
    PLANS.clear()
    apart, _ = run(False, values)
    size = max([np.abs(t).sum() for t in terms] + [1.0]) * max(np.abs(leaves[0]).max(), 1) * 30
    for one, other in zip(fused, apart, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-7 * size)


def test_batch_normalisation_is_two_passes_each_way():
    """Statistics and an affine pass forward; one pass of sums and one elementwise pass backward,
    whatever ReLU and pooling stand behind it. The rest is arithmetic per channel."""
    norm = ss.BatchNorm2D(16)
    x = ss.tensor(np.random.default_rng(0).normal(size=(4, 16, 8, 8)), requires_grad=True)
    ss.max_pool2d(ss.relu(norm(x)), 2).sum().backward()
    x.grad.numpy()
    steps = max((e.plan for e in PLANS.values()), key=lambda p: len(p.steps)).steps
    sizes = {s.op: max(o.size for o in [*s.inputs, *s.outputs]) for s in steps}
    large = [op.name for op, n in sizes.items() if op.kind != "copy" and n >= 4 * 16 * 8 * 8]
    assert len(large) == 4, large


def kernels():
    return max(executable.plan.kernel_count() for executable in PLANS.values())


def test_a_chain_is_one_kernel_and_needs_no_buffer():
    def chain():
        PLANS.clear()
        x = ss.tensor(np.linspace(-2, 2, 1 << 16, dtype=np.float32))
        y = ((x * 2 + 1).relu() - 0.5).sigmoid().numpy()
        plan = next(iter(PLANS.values())).plan
        return y.tobytes(), plan.kernel_count(), plan.arena_bytes

    fused, apart = run(True, chain), run(False, chain)
    assert fused[0] == apart[0]
    assert fused[1] == 1 and apart[1] == 5
    assert fused[2] == 0 < apart[2]


def test_a_value_that_is_looked_at_is_not_swallowed():
    x = ss.tensor(np.ones((2, 3), np.float32))
    middle = x + 1
    last = middle * 3
    assert last.numpy().tolist() == [[6] * 3] * 2 and middle.numpy().tolist() == [[2] * 3] * 2


def test_a_value_of_another_shape_is_not_computed_again_and_again():
    x, row = ss.tensor(np.ones((5, 4), np.float32)), ss.tensor(np.ones((1, 4), np.float32))
    ((row * 2 + 1).exp() + x).numpy()
    assert kernels() == 2


@pytest.mark.parametrize("fused", [True, False])
def test_updates_in_place_read_their_home_first(fused):
    def update():
        p, q = ss.Variable(np.arange(6.0)), ss.Variable(np.arange(6.0) * 10)
        p.assign((p * 2 + q) * (p - 1))
        q.assign(q + p.flip(0) * 2)
        return p.numpy().tolist(), q.numpy().tolist()

    p, q = np.arange(6.0), np.arange(6.0) * 10
    p = (p * 2 + q) * (p - 1)
    assert run(fused, update) == (p.tolist(), (q + p[::-1] * 2).tolist())


def test_training_is_the_same_fused_and_not():
    """Sums of a fused pass are added up in another order: equal within rounding."""

    def train():
        ss.seed(0)
        model = ss.models.build("mnist_cnn")
        optimizer = ss.SGD(model.parameters(), lr=0.01, momentum=0.9)
        x, y = ss.normal(8, 1, 28, 28), ss.tensor(np.arange(8))
        for _ in range(3):
            loss = ss.cross_entropy(model(x), y, label_smoothing=0.1)
            loss.backward()
            ss.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        return [p.numpy() for p in model.parameters()]

    fused = run(True, train)
    few = kernels()
    PLANS.clear()
    for one, other in zip(fused, run(False, train), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert few < kernels() * 0.6
