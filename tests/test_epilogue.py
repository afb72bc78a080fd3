"""Elementwise steps inside the convolution or product before them: the same bits, fewer kernels."""

import importlib

import numpy as np
import pytest
from common import changed, names, program_of, region, run
from hypothesis import given, settings
from hypothesis import strategies as st
from test_conv import GEOMETRIES, PRODUCTS

import shoestring as ss
from shoestring.backends.cpu import _native as native
from shoestring.backends.device import device
from shoestring.ir import OPS, F, Port
from shoestring.runtime import PLANS
from shoestring.tensor import wrap
from shoestring.testing.run import operand

ports = importlib.import_module("shoestring.compile.ports")  # the module, not its pass

GUARD = 256


def noise(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# ---- random graphs -------------------------------------------------------------------------------
STEPS = {
    "bias": lambda y, o: y + o["channel"],
    "affine": lambda y, o: y * o["channel"] + o["last"],
    "relu": lambda y, o: y.relu(),
    "gate": lambda y, o: ss.where(o["full"] > 0, y, 0),
    "shortcut": lambda y, o: y + o["full"],
    "before": lambda y, o: o["full"].relu() - y,
    "twice": lambda y, o: y * y,
    "sigmoid": lambda y, o: y.sigmoid() * 3,
    "flipped": lambda y, o: y + o["full"].flip(y.ndim - 1),
    "lower": lambda y, o: y - o["row"],
    "compare": lambda y, o: (y > 0.1).float() + y,
    "sum": lambda y, o: y / (y * y).sum(),
    "other": lambda y, o: y + o["second"],
}


def others(shape, second):
    """What a step may read besides."""
    rank = len(shape)
    channel = [1] * rank
    channel[1 if rank == 4 else -1] = shape[1 if rank == 4 else -1]
    return dict(
        full=ss.tensor(noise(1, *shape)),
        channel=ss.tensor(noise(2, *channel)),
        last=ss.tensor(noise(3, shape[-1])),
        row=ss.tensor(noise(4, *shape[:-1], 1)),
        second=second,
    )


def same_bits(made, steps, keep):
    """made() -> two results of kernels of one shape; the steps follow the first. Without the pass,
    and without any fusion: there sums are added up in another order."""

    def values():
        first, second = made()
        o, found = others(first.shape, second), [first]
        for name in steps:
            found.append(STEPS[name](found[-1], o))
        looked = [found[-1], found[keep % len(found)]] if keep else [found[-1]]
        del found, first, second, o  # what nobody holds need not be written
        return [y.numpy().tobytes() for y in looked]

    together = run(True, values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ports, "FILLS", WITHOUT)
        assert run(True, values) == together
    if "sum" not in steps:
        assert run(False, values) == together


WITHOUT = tuple(f for f in ports.FILLS if f is not ports.store)
CHAINS = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6)
SOME = st.integers(0, 6)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(GEOMETRIES[:7]), CHAINS, SOME)
def test_steps_after_a_convolution(geometry, steps, keep):
    x_shape, w_shape, stride, padding = geometry

    def made():
        x, w = ss.tensor(noise(5, *x_shape)), ss.tensor(noise(6, *w_shape))
        return [wrap(F.conv2d(v.node, w.node, stride=stride, padding=padding)) for v in (x, x * 2)]

    same_bits(made, steps, keep)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(GEOMETRIES[:7]), CHAINS, SOME)
def test_steps_after_an_input_gradient(geometry, steps, keep):
    x_shape, w_shape, stride, padding = geometry

    geometry = dict(stride=stride, padding=padding)
    shape = OPS["conv2d"](**geometry).shape(x_shape, w_shape)

    def made():
        dy, w = ss.tensor(noise(5, *shape)), ss.tensor(noise(6, *w_shape))
        return [
            wrap(F.conv2d_input_grad(v.node, w.node, x_shape=x_shape, **geometry))
            for v in (dy, dy * 2)
        ]

    same_bits(made, steps, keep)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PRODUCTS), st.booleans(), CHAINS, SOME)
def test_steps_after_a_matrix_product(shapes, turned, steps, keep):
    def made():
        a, b = (ss.tensor(noise(5, *s)) for s in shapes)
        if turned:
            order = (*range(b.ndim - 2), b.ndim - 1, b.ndim - 2)
            b = (b.permute(order) * 1).permute(order)
        return a @ b, (a * 2) @ b

    same_bits(made, steps, keep)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(["relu", "bias", "shortcut", "pool"]), max_size=3), st.booleans())
def test_training_has_the_same_bits(steps, momentum):
    """Layers one after the other: input gradients with gates, updates in their homes."""

    def trained():
        ss.seed(0)
        layers = [ss.Conv2D(4, 4, 3, padding=1) for _ in range(len(steps) + 1)]
        line = ss.Linear(4 * 36, 4 * 36)
        parameters = [p for m in [*layers, line] for p in m.parameters()]
        optimizer = ss.SGD(parameters, lr=0.01, momentum=0.9 if momentum else 0.0)
        x = ss.tensor(noise(0, 3, 4, 6, 6))
        for _ in range(3):
            y = x
            for layer, step in zip(layers, [*steps, "relu"], strict=True):
                z = layer(y)
                y = {
                    "relu": lambda z=z: z.relu(),
                    "bias": lambda z=z: z + 1,
                    "shortcut": lambda z=z, y=y: (z + y).relu(),
                    "pool": lambda z=z, y=y: ss.max_pool2d(z.relu(), 3, 1, 1) + y,
                }[step]()
            y = line(y.flatten(1)).relu()
            y.backward(ss.tensor(noise(1, *y.shape)))
            optimizer.step()
            optimizer.zero_grad()
        return [p.numpy().tobytes() for p in parameters if p.ndim > 1]

    together = run(True, trained)
    assert any("+relu" in n for n in names())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ports, "FILLS", WITHOUT)
        assert run(True, trained) == together
    PLANS.clear()


# ---- kernels, one by one -------------------------------------------------------------------------
def launched(op, arrays, shape, threads):
    """The kernel's result; nothing behind its workspaces is written."""
    y = np.full(shape, np.nan, np.float32)
    launch = op.launch(device("cpu"), [operand(a) for a in arrays], [operand(y)])
    spaces = [np.full(n + GUARD, 0xFF, np.uint8) for n in launch.workspaces]
    (kernel,) = launch.kernels
    program = program_of(kernel)
    native.set_threads(threads)
    program.run([a.__array_interface__["data"][0] for a in [*arrays, y, *spaces]])
    assert all((s[-GUARD:] == 0xFF).all() for s in spaces)
    return y


def finished(op, inputs, shape):
    """(fused op, chain, what it reads besides): (y * row + full - channel).relu()"""
    rank = len(shape)
    add = [
        noise(7, *[1] * (rank - 1), shape[-1]),
        noise(8, *shape),
        noise(9, *[n if k == max(rank - 3, 0) else 1 for k, n in enumerate(shape)]),
    ]
    raw = np.empty(shape, np.float32)
    links = [("mul", (0, 1)), ("add", (4, 2)), ("sub", (5, 3)), ("relu", (6,))]
    step = region([raw, *add], [(OPS[name](), reads, None) for name, reads in links], [7])
    a, b, c, y = range(len(inputs), len(inputs) + 4)
    links = [("mul", (y, a)), ("add", (y + 1, b)), ("sub", (y + 2, c)), ("relu", (y + 3,))]
    steps = [(OPS[name](), reads, Port("store")) for name, reads in links]
    kernel = (op, tuple(range(len(inputs))), None)
    return region([*inputs, *add], [kernel, *steps], [y + 4]), step, add


def check(op, *arrays):
    shape = op.shape(*[a.shape for a in arrays])
    fused, step, more = finished(op, arrays, shape)
    before = native.isa(), native.threads()
    try:
        for isa in native.isas():
            native.set_isa(isa)
            raw = launched(op, arrays, shape, 1)
            apart = launched(step, [raw, *more], shape, 1)
            for threads in (1, 3):
                together = launched(fused, [*arrays, *more], shape, threads)
                assert together.tobytes() == apart.tobytes()
    finally:
        native.set_isa(before[0])
        native.set_threads(before[1])
    want = fused.reference(*[a.astype(np.float64) for a in (*arrays, *more)])
    assert np.abs(together - want).max() <= 1e-4 * np.abs(want).max()


MORE = [  # planes of several stretches; so many channels that tasks share them
    ((1, 3, 70, 90), (9, 3, 3, 3), (1, 1), ((1, 1), (1, 1))),
    ((17, 300, 4, 5), (40, 300, 1, 1), (1, 1), ((0, 0), (0, 0))),
    ((1, 4, 33, 31), (200, 4, 1, 1), (1, 1), ((0, 0), (0, 0))),
    ((1, 300, 40, 40), (5, 300, 1, 1), (1, 1), ((0, 0), (0, 0))),
]


@pytest.mark.parametrize("x,w,stride,padding", GEOMETRIES + MORE)
def test_convolution_with_every_instruction_set(x, w, stride, padding):
    x, w = noise(0, *x), noise(1, *w)
    geometry = dict(stride=stride, padding=padding)
    forward = OPS["conv2d"](**geometry)
    dy = noise(2, *forward.shape(x.shape, w.shape))
    check(forward, x, w)
    check(OPS["conv2d_input_grad"](x_shape=x.shape, **geometry), dy, w)


@pytest.mark.parametrize("a,b", [*PRODUCTS, ((2000, 20), (20, 1500)), ((9, 300, 7), (9, 7, 300))])
def test_matrix_product_with_every_instruction_set(a, b):
    check(OPS["matmul"](), noise(0, *a), noise(1, *b))


# ---- what joins, and what does not ---------------------------------------------------------------
def convolution(size=3):
    x, w = ss.tensor(noise(0, 2, 3, 8, 8)), ss.tensor(noise(9, 4, 3, size, size))
    return ss.conv2d(x, w, padding=size // 2)


def plan_of(fn):
    PLANS.clear()
    fn()
    return names()


def test_bias_and_relu_cost_no_kernel_and_no_memory():
    def layer():
        return (convolution() + ss.tensor(noise(1, 4, 1, 1))).relu().numpy()

    assert plan_of(layer) == ["conv2d+add+relu"]
    (executable,) = PLANS.values()
    (step,) = executable.plan.steps
    assert step.cost().flops > 0 and step.cost().bytes > 0
    assert all(t.what == "workspace" for t in executable.plan.tenants)
    assert plan_of(lambda: (ss.ones(3, 4) @ ss.ones(4, 5) + ss.ones(5)).numpy()) == ["matmul+add"]


def test_a_shortcut_joins_the_convolution_that_is_computed_last():
    for sizes in ((3, 1), (1, 3)):

        def block(sizes=sizes):
            return (convolution(sizes[0]) + convolution(sizes[1])).relu().numpy()

        assert plan_of(block) == ["conv2d", "conv2d+add+relu"]
        (executable,) = PLANS.values()
        assert [s.inputs[1].shape[-1] for s in executable.plan.steps] == list(sizes)


def test_a_raw_value_that_somebody_reads_is_written():
    def two_readers():
        return (lambda y: y.relu() + y.flip(3))(convolution()).numpy()

    def looked_at():
        y = convolution()
        z = y.relu()
        z.numpy()
        return y

    assert all(not n.startswith("conv2d+") for n in plan_of(two_readers))
    assert "conv2d" in plan_of(looked_at)


def test_a_result_of_another_type_or_shape_stays_alone():
    wide = ss.tensor(noise(1, 3, 2, 4, 8, 8))
    assert plan_of(lambda: (convolution() + wide).numpy())[0] == "conv2d"
    assert plan_of(lambda: (convolution() > 0).numpy())[0] == "conv2d"


def test_an_update_of_a_home_is_computed_there():
    def update():
        p = ss.Variable(noise(0, 5, 5))
        p.assign(p * 0.5 + ss.tensor(noise(1, 5, 5)) @ ss.tensor(noise(2, 5, 5)))
        return p.numpy()

    want = noise(0, 5, 5) * 0.5 + noise(1, 5, 5) @ noise(2, 5, 5)
    np.testing.assert_allclose(run(True, update), want, rtol=1e-4, atol=1e-5)
    assert "matmul" in names() and "copy" not in names()


def test_what_is_computed_later_and_large_is_not_waited_for():
    def values(shape):
        return (convolution() + ss.tensor(noise(3, *shape)).sum(-1)).relu().numpy()

    assert plan_of(lambda: values((2, 4, 8, 8, 3)))[0] == "conv2d"
    assert plan_of(lambda: values((4, 1, 1, 3)))[-1] == "conv2d+add+relu"


def test_kernels_refuse_an_epilogue_of_another_size():
    op = OPS["matmul"]()
    a, b = noise(0, 3, 4), noise(1, 4, 5)
    fused, _, more = finished(op, [a, b], (3, 5))
    y = np.empty((3, 5), np.float32)
    launch = fused.launch(device("cpu"), [operand(v) for v in (a, b, *more)], [operand(y)])
    (kernel,) = launch.kernels
    (program,) = kernel.attached
    program_of(kernel)
    for wrong, message in (
        (kernel._replace(integers=changed(kernel.integers, 0, 4)), "does not have the size"),
        (kernel._replace(integers=kernel.integers[:-1]), "10 integers"),
        (kernel._replace(buffers=kernel.buffers[:3]), "4 buffers"),
        (with_program(kernel, program._replace(integers=program.integers[:-1])), "sizes"),
        (with_program(kernel, program._replace(integers=program.integers[:5])), "header"),
        (with_program(kernel, program._replace(buffers=(*program.buffers, 0))), "sizes"),
    ):
        with pytest.raises(ValueError, match=message):
            program_of(wrong)

    conv = OPS["conv2d"]()
    x, w = noise(0, 1, 1, 4, 4), noise(1, 1, 1, 1, 1)
    launch = conv.launch(device("cpu"), [operand(x), operand(w)], [operand(x)])
    (kernel,) = launch.kernels
    for entry in ("conv2d", "conv2d_input_grad"):
        good = kernel._replace(entry=entry)
        program_of(good)
        with pytest.raises(ValueError, match="does not have the size"):
            program_of(with_program(good, program))
        with pytest.raises(ValueError, match="14 integers"):
            program_of(good._replace(integers=kernel.integers[:-1]))
        with pytest.raises(ValueError, match="5 buffers"):
            program_of(good._replace(buffers=(*kernel.buffers, 0)))


def with_program(kernel, program):
    return kernel._replace(attached=(program,))
