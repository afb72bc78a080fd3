"""Elementwise work inside the kernels around it has the bits of that work alone: random cases."""

import numpy as np
import pytest
from common import changed, names, program_of, region, run, training_step
from hypothesis import given, settings
from hypothesis import strategies as st
from test_pool import VALUES, pooled

import shoestring as ss
from shoestring.backends.cpu import _native as native
from shoestring.backends.device import device
from shoestring.compile import pipeline
from shoestring.ir import OPS, Port
from shoestring.ops.elementwise_program import Instruction, encode
from shoestring.runtime import PLANS
from shoestring.testing import operand


def plan():
    (executable,) = PLANS.values()
    return executable.plan


READERS = {
    "gate": lambda dx, x: ss.where(x > 0, dx, 0),
    "twice": lambda dx, x: (dx * 2).sigmoid() + dx.tanh(),
    "square": lambda dx, x: dx * dx + x,
    "row": lambda dx, x: dx * x[:, :, :1] - x[:1],
    "sum": lambda dx, x: dx.sum((0, 2, 3)),
    "other": lambda dx, x: (dx + 1).sum(2) + dx.exp().flip(2).sum(2),
    "kept": lambda dx, x: dx,
}


@settings(max_examples=80, deadline=None)
@given(pooled(), st.sampled_from(sorted(READERS)), st.integers(0, 9))
def test_readers_of_a_gradient_of_max_pooling(given, reader, seed):
    geometry, shape = given
    rng = np.random.default_rng(seed)
    geometry = {k if k != "kernel" else "kernel_size": v for k, v in geometry.items()}
    x_data = rng.choice(VALUES[1:-2], size=shape) + rng.normal(size=shape).astype(np.float32)

    def values():
        x = ss.Parameter(x_data)
        y = ss.max_pool2d(x, **geometry)
        dx = ss.grad((y * y.detach().sigmoid()).sum(), x)
        return READERS[reader](dx, x.detach()).numpy()

    fused, apart = run(True, values), run(False, values)
    if reader == "other":  # two sums that share a kernel are added up in another order
        np.testing.assert_allclose(fused, apart, rtol=1e-5, atol=1e-5)
    else:
        assert fused.tobytes() == apart.tobytes()


MAKERS = {
    "relu": lambda x: x.relu(),
    "affine": lambda x: (x * x[:1, :, :1, :1] + 0.5).relu(),
    "rows": lambda x: x * x[:, :, :, :1] - x[:, :1],
    "transposed": lambda x: x.permute(0, 1, 3, 2).permute(0, 1, 3, 2) * 2,
    "flipped": lambda x: x.flip(3).abs() - x,
    "integers": lambda x: (x > 0.3).float() + x,
    "twice": lambda x: x.tanh() * x.tanh(),
    "argument": lambda x: x,
}


@settings(max_examples=80, deadline=None)
@given(pooled(), st.sampled_from(sorted(MAKERS)), st.integers(0, 9))
def test_a_chain_before_pooling(given, maker, seed):
    geometry, shape = given
    x_data = np.random.default_rng(seed).choice(VALUES, size=shape)
    geometry = {k if k != "kernel" else "kernel_size": v for k, v in geometry.items()}

    def values():
        y, index = ss.max_pool2d(MAKERS[maker](ss.tensor(x_data)), return_indices=True, **geometry)
        mean = ss.avg_pool2d(MAKERS[maker](ss.tensor(x_data)), **geometry)
        return y.numpy().tobytes(), index.numpy().tobytes(), mean.numpy().tobytes()

    assert run(True, values) == run(False, values)


@pytest.mark.parametrize(
    "shape", [(3, 2, 200, 150), (2, 1, 9, 5000), (40, 5, 20, 20), (1, 3, 400, 41)]
)
@pytest.mark.parametrize("kernel,stride,padding", [(3, 2, 1), (2, 2, 0), (3, 5, 0), (3, 300, 0)])
@pytest.mark.parametrize("pool", ["max_pool2d", "avg_pool2d"])
def test_bands_of_large_planes_and_groups_of_small_ones(shape, kernel, stride, padding, pool):
    x_data = np.random.default_rng(0).normal(size=shape).astype(np.float32)

    def values():
        y = getattr(ss, pool)((ss.tensor(x_data) * 3 - 1).relu(), kernel, stride, padding)
        return y.numpy().tobytes(), names()

    fused, apart = run(True, values), run(False, values)
    assert fused[0] == apart[0]
    assert len(fused[1]) == 1 and fused[1][0].endswith("+" + pool) and len(apart[1]) > 2


def test_what_max_pooling_does_not_compute_inside():
    x_data = np.random.default_rng(0).normal(size=(1, 2, 8, 8)).astype(np.float32)

    def looked_at():
        x = ss.tensor(x_data).relu()
        y = ss.max_pool2d(x, 2)
        return y.numpy().tobytes(), x.numpy().tobytes(), len(names())

    assert run(True, looked_at)[:2] == run(False, looked_at)[:2]
    wide = ss.tensor(np.ones((1, 1, 3, 9000), np.float32))
    PLANS.clear()
    assert ss.max_pool2d(wide + 1, (2, 2)).sum().item() == 9000
    assert "max_pool2d" in names()


def test_a_wrong_program_in_max_pooling_is_refused():
    x = ss.tensor(np.zeros((1, 1, 4, 4), np.float32))
    PLANS.clear()
    ss.max_pool2d(x + 1, 2).numpy()
    (kernel,) = plan().steps[0].kernels
    (program,) = kernel.attached
    program_of(kernel)
    for position, value, message in [(0, 1, "build again"), (5, 2, "do not have the sizes")]:
        bad = program._replace(integers=changed(program.integers, position, value))
        refused(kernel._replace(attached=(bad,)), message)
    for position, value, message in [
        (2, 20_000, "do not fit the scratch"),
        (0, 2, "do not have the size"),
    ]:
        refused(kernel._replace(integers=changed(kernel.integers, position, value)), message)
    refused(kernel._replace(integers=kernel.integers[:11]), "needs its sizes and buffers")
    refused(kernel._replace(buffers=kernel.buffers[1:]), "needs its sizes and buffers")


def refused(kernel, message):
    with pytest.raises(ValueError, match=message):
        program_of(kernel)


def test_a_large_gradient_that_is_only_read_element_by_element_is_never_written():
    def backward():
        x = ss.Parameter(np.random.default_rng(3).normal(size=(4, 8, 30, 30)))
        (ss.max_pool2d(ss.relu(x), 3, stride=2, padding=1) ** 2).sum().backward()
        return x.grad.numpy().tobytes(), names(), plan().arena_bytes

    fused, apart = run(True, backward), run(False, backward)
    assert fused[0] == apart[0]
    assert any(n.startswith("max_pool2d_grad+") for n in fused[1])
    assert "max_pool2d_grad" in apart[1] and "max_pool2d_grad" not in fused[1]
    assert fused[2] < apart[2]


def test_a_gradient_as_large_as_what_it_comes_from_is_written():
    """Windows that move by one: reading dy twice would move more than writing dx."""

    def backward():
        x = ss.Parameter(np.random.default_rng(0).normal(size=(1, 2, 9, 9)))
        (ss.max_pool2d(ss.relu(x), 3, stride=1, padding=1) ** 2).sum().backward()
        return x.grad.numpy().tobytes(), names()

    fused, apart = run(True, backward), run(False, backward)
    assert fused[0] == apart[0] and "max_pool2d_grad" in fused[1]


def test_what_a_generator_reads_is_made_contiguous():
    """dy is one number repeated: the program takes any strides, its generator does not."""

    def backward():
        x = ss.Parameter(np.random.default_rng(0).normal(size=(2, 3, 8, 8)))
        ss.max_pool2d(ss.relu(x), 2).sum().backward()
        return x.grad.numpy().tobytes(), names()

    fused, apart = run(True, backward), run(False, backward)
    assert fused[0] == apart[0] and any("grad+" in n for n in fused[1])


@pytest.mark.parametrize("isa", native.isas())
def test_generated_blocks_start_anywhere(isa):
    """A program over any range of elements reads what the kernel writes there."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 3, 37, 61)).astype(np.float32)
    geometry = dict(kernel=(3, 3), stride=(2, 2), padding=(1, 1))
    y, position = OPS["max_pool2d"](**geometry).reference(x)
    back = OPS["max_pool2d_grad"](x_shape=x.shape, **geometry)
    want = -back.reference(y, position)
    links = [(back, (0, 1), Port("inline")), (OPS["neg"](), (2,), None)]
    reader = region([y, position], links, [3])
    before = native.isa()
    native.set_isa(isa)
    try:
        inputs = [y, position]
        out = np.empty_like(x)
        (kernel,) = reader.launch(
            device("cpu"), [operand(a) for a in inputs], [operand(out)]
        ).kernels
        program = program_of(kernel._replace(integers=small_blocks(kernel.integers)))
        program.run([a.__array_interface__["data"][0] for a in (*inputs, out)])
    finally:
        native.set_isa(before)
    assert out.tobytes() == want.tobytes()
    assert reader.reference(y, position).tobytes() == want.tobytes()


def small_blocks(integers):
    """The same program in blocks of 64 elements, and tasks of 640."""
    return (*integers[:8], 64, 640, *integers[10:])


def test_a_wrong_generated_input_is_refused():
    x = operand(np.zeros((2, 4, 4), np.float32))
    back = OPS["max_pool2d_grad"](x_shape=(1, 2, 4, 4))
    y = np.zeros((1, 2, 2, 2), np.float32)
    arrays = [y, y.astype(np.uint8), np.zeros((1, 2, 4, 4), np.float32)]
    links = [(back, (0, 1), Port("inline")), (OPS["neg"](), (2,), None)]
    reader = region(arrays[:2], links, [3])
    operands = [operand(a) for a in arrays]
    (good,) = reader.launch(device("cpu"), operands[:2], operands[2:]).kernels
    (inline,) = good.attached
    assert good.buffers == (-1, 2) and inline.buffers == (0, 1)
    program_of(good)
    for bad, message in [
        (inline._replace(index=7), "no slot"),
        (inline._replace(index=-1), "no slot"),
        (inline._replace(entry="max_pool2d"), "does not compute block by block"),
        (inline._replace(buffers=(0,)), "needs its sizes and buffers"),
        (inline._replace(integers=inline.integers[1:]), "needs its sizes and buffers"),
    ]:
        refused(good._replace(attached=(bad,)), message)
    direct = encode([Instruction("neg_f32", (0,))], [x], [(1, x)])
    assert not direct.attached
    refused(direct._replace(attached=(inline,)), "no slot")


ROWS = [
    ((3, 5, 9, 8), (0, 2, 3)),
    ((2, 70), (1,)),
    ((4, 3, 64), None),
    ((2, 3, 90, 90), (2, 3)),
    ((1, 1, 300, 300), None),
    ((130, 2, 70), (0, 2)),
    ((5, 2, 3), (2,)),
    ((70, 6), (0,)),
]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ROWS), st.sampled_from(["sum", "mean"]), st.integers(0, 3))
def test_a_sum_computes_what_it_adds_up(row, reduction, seed):
    shape, axes = row
    rng = np.random.default_rng(seed)
    x_data = rng.normal(size=shape).astype(np.float32) * 1e3
    line = rng.normal(size=(shape[1], *[1] * (len(shape) - 2))).astype(np.float32)

    def values():
        x = ss.tensor(x_data)
        found = getattr((x * ss.tensor(line) - 0.25).tanh() * x, reduction)(axes)
        return found.numpy().tobytes(), names()

    fused, apart = run(True, values), run(False, values)
    assert fused[0] == apart[0]
    kept = [k for k in range(len(shape)) if axes and k not in axes]
    assert (len(fused[1]) == 1) == (np.prod(shape[max(kept, default=-1) + 1 :]) >= 64)


def test_a_wrong_program_in_a_sum_is_refused():
    PLANS.clear()
    (ss.tensor(np.zeros((2, 80), np.float32)) + 1).sum(1).numpy()
    (kernel,) = plan().steps[0].kernels
    (program,) = kernel.attached
    program_of(kernel)
    for position, value, message in [
        (4, -5, "sizes that its header"),
        (2, 1, "by rows"),
        (0, 1, "by rows"),
        (6, 3, "do not have the size"),
        (3, 2, "a workspace if it is cut"),
    ]:
        refused(kernel._replace(integers=changed(kernel.integers, position, value)), message)
    bad = program._replace(integers=changed(program.integers, 0, 5))
    refused(kernel._replace(attached=(bad,)), "build again")
    refused(kernel._replace(reals=()), "a divisor")


def network(shape):
    """Three steps of conv, batch norm, ReLU and pooling: losses, the plan."""
    ss.seed(0)
    rng = np.random.default_rng(0)
    model = ss.Sequential(
        ss.Conv2D(shape[1], 8, 3, padding=1, bias=False),
        ss.BatchNorm2D(8),
        ss.ReLU(),
        ss.MaxPool2D(3, stride=2, padding=1),
        ss.Flatten(),
        ss.Linear(8 * 10 * 10, 3),
    )
    optimizer = ss.SGD(model.parameters(), lr=0.1, momentum=0.9)

    step = ss.compile(training_step(model, optimizer))
    x = ss.tensor(rng.normal(size=shape).astype(np.float32))
    y = ss.tensor(np.arange(shape[0]) % 3)
    losses = [step(x, y).item() for _ in range(3)]
    (plan,) = step.plans()
    return losses, plan


def test_batch_norm_and_relu_before_pooling_leave_nothing_in_memory():
    def train():
        return network((4, 2, 20, 20))

    fused, apart = run(True, train), run(False, train)
    np.testing.assert_allclose(fused[0], apart[0], rtol=1e-4)  # sums in another order

    def large(plan):
        return sum(o.size == 4 * 8 * 20 * 20 for s in plan.steps for o in s.outputs)

    assert large(fused[1]) == 2  # the convolution's result, and its gradient
    assert large(apart[1]) > 8
    assert sum(s.op.name.startswith("max_pool2d_grad+") for s in fused[1].steps) == 2


def test_fusing_can_be_switched_off():
    assert set(pipeline.FUSING) < set(pipeline.PASSES)
