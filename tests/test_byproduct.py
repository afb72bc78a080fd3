"""The gradient of a bias, added up by the kernel of the weight's gradient."""

import importlib

import numpy as np
import pytest
from common import names, program_of, region, run, training_step
from hypothesis import given, settings
from hypothesis import strategies as st
from test_conv import GEOMETRIES, GUARD, THREADS

import shoestring as ss
from shoestring.backends.cpu import _native as native
from shoestring.backends.device import device
from shoestring.ir import OPS, Port, Spec
from shoestring.runtime import PLANS
from shoestring.testing import laid_out, run_launch
from shoestring.testing.run import operand

ports = importlib.import_module("shoestring.compile.ports")  # the module, not its pass

WITHOUT = tuple(f for f in ports.FILLS if f is not ports.also)


def noise(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def specs(arrays):
    return [Spec(a.shape, a.dtype, "cpu") for a in arrays]


def both(maker, at, over, arrays):
    end = OPS["sum"](axes=over)
    assert adds_up(maker, at, end, arrays)
    links = [(maker, tuple(range(len(arrays))), None), (end, (at,), Port("also", at))]
    return region(arrays, links, [len(arrays), len(arrays) + 1]), end


def adds_up(maker, at, end, arrays):
    """Whether the compiler would let the maker's kernel compute this sum of its input."""
    found = maker.ports(device("cpu"), specs(arrays), ())
    layout = end.sums(device("cpu"), specs(arrays)[at])
    plain = layout is not None and end.divisor(arrays[at].shape) == 1
    return plain and Port("also", at, layout) in found


def results(op, arrays):
    """The kernel's results, the same with any number of threads; nothing behind its workspaces is
    written."""
    found, before = [], native.threads()
    shapes = op.shape(*[a.shape for a in arrays])
    outputs = [np.empty(s, np.float32) for s in (shapes if op.outputs > 1 else (shapes,))]
    launch = op.launch(device("cpu"), [operand(a) for a in arrays], [operand(y) for y in outputs])
    (kernel,) = launch.kernels
    program = program_of(kernel)
    try:
        for threads in THREADS:
            native.set_threads(threads)
            outputs = [np.full_like(y, np.nan) for y in outputs]
            spaces = [np.full(n + GUARD, 0xFF, np.uint8) for n in launch.workspaces]
            program.run([a.__array_interface__["data"][0] for a in [*arrays, *outputs, *spaces]])
            assert all((s[-GUARD:] == 0xFF).all() for s in spaces)
            found.append(outputs)
    finally:
        native.set_threads(before)
    assert all(np.array_equal(a, b) for a, b in zip(found[0], found[1], strict=True))
    return found[0]


def check(maker, at, over, arrays):
    """The maker's result has the bits that it has alone; the sum is right within the rounding of
    chains of 2,048 terms at most, of what it adds up."""
    op, end = both(maker, at, over, arrays)
    y, sums = results(op, arrays)
    (alone,) = results(maker, arrays)
    np.testing.assert_array_equal(y, alone)
    x = arrays[at].astype(np.float64)
    terms = min(x.size // sums.size, 2048)
    room = np.finfo(np.float32).eps * (8 + terms / 4) * np.abs(x).sum(over)
    assert (np.abs(sums - end.reference(x)) <= room).all()
    want = op.reference(*[a.astype(np.float64) for a in arrays])
    assert [w.shape for w in want] == [y.shape, sums.shape]
    np.testing.assert_allclose(want[1], end.reference(x))


# ---- kernels -------------------------------------------------------------------------------------
def weight_gradient(x, w, stride, padding):
    op = OPS["conv2d_weight_grad"](w_shape=w, stride=stride, padding=padding)
    return op, [noise(0, *op.sizes(x, w)), noise(1, *x)]


@pytest.mark.parametrize("isa", native.isas())
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_convolution_with_every_instruction_set(geometry, isa):
    before = native.isa()
    native.set_isa(isa)
    try:
        op, arrays = weight_gradient(*geometry)
        check(op, 0, (0, 2, 3), arrays)
    finally:
        native.set_isa(before)


SIZE = st.integers(1, 20)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 40), SIZE, SIZE, st.integers(1, 3))
def test_convolutions_of_any_size(N, C, K, H, W, stride):
    R, S = min(3, H), min(2, W)
    geometry = (N, C, H, W), (K, C, R, S), (stride, 1), ((R // 2, 0), (0, S // 2))
    op, arrays = weight_gradient(*geometry)
    check(op, 0, (0, 2, 3), arrays)


def test_a_batch_worked_on_image_by_image(monkeypatch):
    from shoestring.ops import conv

    monkeypatch.setattr(conv, "COPIED", 1)
    op, arrays = weight_gradient((5, 3, 9, 8), (20, 3, 3, 3), (1, 1), ((1, 1), (1, 1)))
    check(op, 0, (0, 2, 3), arrays)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 90), st.integers(1, 90), st.sampled_from([1, 3, 32, 300, 2047, 5000]),
    st.booleans(), st.booleans(), st.integers(0, 1),
    st.sampled_from(["", "transposed", "reversed", "spread"]),
)  # fmt: skip
def test_products_of_any_size(M, N, K, turn_a, turn_b, at, layout):
    op = OPS["matmul"](transpose_a=turn_a, transpose_b=turn_b)
    arrays = [noise(0, *(K, M) if turn_a else (M, K)), noise(1, *(N, K) if turn_b else (K, N))]
    if layout:
        arrays[at] = laid_out(arrays[at], layout)
    check(op, at, (0,) if (turn_a, not turn_b)[at] else (1,), arrays)


@pytest.mark.parametrize("isa", native.isas())
def test_products_with_every_instruction_set(isa):
    before = native.isa()
    native.set_isa(isa)
    try:
        for M, N, K in ((10, 800, 32), (512, 784, 128), (33, 13, 300), (1, 1, 5000)):
            check(OPS["matmul"](transpose_a=True), 0, (0,), [noise(0, K, M), noise(1, K, N)])
            check(OPS["matmul"](transpose_a=True), 1, (0,), [noise(0, K, M), noise(1, K, N)])
    finally:
        native.set_isa(before)


def test_infinities_and_nan_reach_their_own_sum_alone():
    dy = noise(0, 40, 33)
    dy[3, 5], dy[20, 17] = np.inf, np.nan
    op, _ = both(OPS["matmul"](transpose_a=True), 0, (0,), [dy, noise(1, 40, 7)])
    _, sums = run_launch(op, [dy, noise(1, 40, 7)])
    assert sums[5] == np.inf and np.isnan(sums[17]) and np.isfinite(sums).sum() == 31


def test_what_a_kernel_cannot_add_up():
    weight = OPS["conv2d_weight_grad"](w_shape=(4, 3, 2, 2))
    arrays = [noise(0, 2, 4, 3, 3), noise(1, 2, 3, 4, 4)]
    product, matrices = OPS["matmul"](transpose_a=True), [noise(0, 5, 6), noise(1, 5, 7)]
    for op, found, at, end in (
        (weight, arrays, 1, OPS["sum"](axes=(0, 2, 3))),
        (weight, arrays, 0, OPS["sum"](axes=(0, 2))),
        (weight, arrays, 0, OPS["sum"](axes=(1, 2, 3))),
        (weight, arrays, 0, OPS["mean"](axes=(0, 2, 3))),
        (weight, [a.astype(np.float64) for a in arrays], 0, OPS["sum"](axes=(0, 2, 3))),
        (weight, [a[:0] for a in arrays], 0, OPS["sum"](axes=(0, 2, 3))),
        (product, matrices, 0, OPS["sum"](axes=(1,))),
        (product, matrices, 1, OPS["sum"](axes=(1,))),
        (OPS["matmul"](), [noise(0, 2, 3, 4), noise(1, 4, 5)], 1, OPS["sum"](axes=(0,))),
    ):
        assert not adds_up(op, at, end, found)


def test_kernels_refuse_what_belongs_to_no_sum():
    op, _ = both(OPS["matmul"](transpose_a=True), 0, (0,), [noise(0, 5, 6), noise(1, 5, 7)])
    shapes = [(5, 6), (5, 7)], [(6, 7), (6,)]
    inputs, outputs = ([operand(np.empty(s, np.float32)) for s in found] for found in shapes)
    (kernel,) = op.launch(device("cpu"), inputs, outputs).kernels
    (sums,) = kernel.attached
    for wrong, message in (
        (sums._replace(index=2), "takes nothing at this port"),
        (sums._replace(buffers=()), "needs its buffer alone"),
        (sums._replace(buffers=(0, 1)), "needs its buffer alone"),
        (sums._replace(integers=(1,)), "needs its buffer alone"),
    ):
        refused(kernel._replace(attached=(wrong,)), message)
    stack = OPS["matmul"]().launch(
        device("cpu"),
        [operand(np.empty(s, np.float32)) for s in ((2, 5, 6), (2, 6, 7))],
        [operand(np.empty((2, 5, 7), np.float32))],
    )
    program_of(*stack.kernels)
    refused(stack.kernels[0]._replace(attached=(sums,)), "sums need one product")
    weight, arrays = weight_gradient((1, 1, 4, 4), (1, 1, 2, 2), (1, 1), ((0, 0), (0, 0)))
    y = operand(np.empty((1, 1, 2, 2), np.float32))
    launch = weight.launch(device("cpu"), [operand(a) for a in arrays], [y])
    (kernel,) = launch.kernels
    program_of(kernel._replace(attached=(sums._replace(index=0),)))
    refused(kernel._replace(attached=(sums._replace(index=1),)), "takes nothing at this port")
    refused(kernel._replace(integers=kernel.integers[:-1]), "6 buffers and 16 integers")
    refused(kernel._replace(buffers=kernel.buffers[:-1]), "6 buffers and 16 integers")


def refused(kernel, message):
    with pytest.raises(ValueError, match=message):
        program_of(kernel)


# ---- graphs --------------------------------------------------------------------------------------
LAYERS = {
    "conv": lambda: ss.Conv2D(4, 4, 3, padding=1),
    "plain": lambda: ss.Conv2D(4, 4, 3, padding=1, bias=False),
    "norm": lambda: ss.BatchNorm2D(4),
    "relu": ss.ReLU,
    "pool": lambda: ss.MaxPool2D(2, stride=1, padding=1),
}


def trained(layers, hidden, momentum):
    """(parameters after three steps, the ops of a step, its arena)."""
    ss.seed(0)
    parts = [LAYERS[name]() for name in layers]
    shape = ss.Sequential(*parts)(ss.zeros(1, 4, 14, 14)).shape
    net = ss.Sequential(
        *parts, ss.Flatten(), ss.Linear(int(np.prod(shape[1:])), hidden), ss.ReLU(),
        ss.Linear(hidden, 3),
    )  # fmt: skip
    optimizer = ss.SGD(net.parameters(), lr=0.05, momentum=momentum)
    step = ss.compile(training_step(net, optimizer))
    x, y = ss.tensor(noise(0, 6, 4, 14, 14)), ss.tensor(np.arange(6) % 3)
    for _ in range(3):
        loss = step(x, y)
    plan = step.plans()[-1]
    values = [loss.numpy(), *[p.numpy() for p in net.parameters()]]
    return values, [s.op.name for s in plan.steps], plan


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(LAYERS)), max_size=5),
    st.integers(4, 40),
    st.sampled_from([0, 0.9]),
)
def test_networks_train_as_without(layers, hidden, momentum):
    values, ops, plan = run(True, lambda: trained(layers, hidden, momentum))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ports, "FILLS", WITHOUT)
        before, old, apart = run(True, lambda: trained(layers, hidden, momentum))
    unfused, _, _ = run(False, lambda: trained(layers, hidden, momentum))
    biases = layers.count("conv") + 2
    assert sum("weight_grad+sum" in n or "matmul+sum" in n for n in ops) == biases
    assert plan.kernel_count() <= apart.kernel_count() - biases
    shared = [n for n in old if "sum_to+sum_to" in n]  # of batch normalisations
    assert [n for n in ops if "sum_to+sum_to" in n] == shared
    assert len(shared) == layers.count("norm")
    for one, two, three in zip(values, before, unfused, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(one, three, rtol=1e-4, atol=2e-5)


def test_a_product_written_by_hand_the_other_way_round():
    """y = x @ w + b: there dy is the second factor."""
    x, dy = ss.tensor(noise(0, 20, 7)), ss.tensor(noise(1, 20, 5))
    w, b = ss.Parameter(noise(2, 7, 5)), ss.Parameter(np.zeros(5, np.float32))

    @ss.compile
    def gradients(x):
        return ss.grad(((x @ w + b) * dy).sum(), [w, b])

    dw, db = gradients(x)
    np.testing.assert_allclose(db.numpy(), dy.numpy().sum(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dw.numpy(), x.numpy().T @ dy.numpy(), rtol=1e-5, atol=1e-5)
    assert [s.op.name for s in gradients.plans()[-1].steps][-1] == "matmul+sum_to"


def test_gradients_that_are_kept_are_written_where_they_stay():
    """A kernel with two results cannot write into a state's memory: two kernels, no copies."""

    def kept():
        PLANS.clear()
        ss.seed(0)
        net = ss.Sequential(ss.Conv2D(1, 2, 3), ss.Flatten(), ss.Linear(2 * 4 * 4, 3))
        x, y = ss.tensor(noise(0, 4, 1, 6, 6)), ss.tensor(np.arange(4) % 3)
        ss.cross_entropy(net(x), y).backward()
        return [p.grad.numpy() for p in net.parameters()], names()

    got, ops = kept()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ports, "FILLS", WITHOUT)
        want, apart = kept()
    assert ops == apart and ops.count("sum_to") == 2
    for one, two in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_bias_whose_weight_needs_no_gradient():
    x, dy = ss.tensor(noise(0, 20, 70)), ss.tensor(noise(1, 20, 500))
    w, b = ss.Parameter(noise(2, 500, 70)), ss.Parameter(np.zeros(500, np.float32))
    gradient = lambda: ss.grad((ss.linear(x, w, b) * dy).sum(), [b])[0].numpy()  # noqa: E731
    alone = run(True, gradient)
    assert "matmul+sum_to" not in names()
    np.testing.assert_allclose(alone, dy.numpy().sum(0), rtol=1e-5, atol=1e-5)


def test_a_product_that_needs_the_sum_stays_apart():
    """The weight's gradient waits for the bias's: no kernel can compute both."""
    dy, x = noise(0, 20, 5), noise(1, 20, 7)

    @ss.compile
    def values(dy, x):
        sums = dy.sum(0)
        return sums, ss.matmul(dy.T, x * sums.sum())

    sums, product = values(ss.tensor(dy), ss.tensor(x))
    np.testing.assert_allclose(sums.numpy(), dy.sum(0), rtol=1e-5)
    np.testing.assert_allclose(product.numpy(), dy.T @ (x * dy.sum()), rtol=1e-4)
    assert "matmul" in [s.op.name for s in values.plans()[-1].steps]
