"""Arithmetic on a reduction's results in the reduction's kernel: the same bits, fewer kernels."""

import importlib

import numpy as np
import pytest
from common import changed, program_of
from hypothesis import given, settings
from hypothesis import strategies as st

import shoestring as ss
from shoestring.backends import Attached, Kernel
from shoestring.ir import F
from shoestring.runtime import PLANS
from shoestring.tensor import wrap

ports = importlib.import_module("shoestring.compile.ports")  # the module, not its pass

UNARY = {
    "neg": lambda a: -a,
    "abs": lambda a: a.abs(),
    "root": lambda a: (a.abs() + 1e-3) ** -0.5,
    "tanh": lambda a: a.tanh(),
    "positive": lambda a: ss.where(a > 0, a, 2.0),
    "around": lambda a: a.reshape(-1).reshape(a.shape),
}
BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "maximum": ss.maximum,
}
STEP = st.tuples(st.sampled_from([*UNARY, *BINARY]), st.integers(0, 30), st.integers(0, 30))


def without(monkeypatch, fn):
    """The result of fn when the pass does not run."""
    PLANS.clear()
    with monkeypatch.context() as patch:
        patch.setattr(ports, "FILLS", tuple(f for f in ports.FILLS if f is not ports.end))
        try:
            return fn()
        finally:
            PLANS.clear()


def made(x, weight, outside, steps):
    """Random arithmetic on moments and sums, and where it goes."""
    mean, variance = [wrap(n) for n in F.moments(x.node, axes=(0, 2, 3))]
    values = [mean, variance, (x * 2 + 1).sum((0, 2, 3), keepdims=True), weight, outside]
    values += [(x - mean).abs().mean((0, 2, 3)).reshape(mean.shape)]
    for name, first, second in steps:
        a, b = values[first % len(values)], values[second % len(values)]
        values.append(UNARY[name](a) if name in UNARY else BINARY[name](a, b))
    return values


@settings(max_examples=80, deadline=None)
@given(
    st.lists(STEP, min_size=1, max_size=16),
    st.lists(st.integers(0, 30), min_size=1, max_size=5),
    st.sampled_from([(3, 4, 5, 2), (2, 1, 9, 9), (5, 70, 1, 1), (1, 3, 40, 41)]),
)
def test_bits_are_those_of_the_parts(steps, kept, shape):
    rng = np.random.default_rng(len(steps))
    channels = (1, shape[1], 1, 1)
    data = [rng.normal(size=s).astype(np.float32) for s in (shape, channels, ())]

    def values():
        x, weight, outside = (ss.tensor(d) for d in data)
        found = made(x, weight, outside, steps)
        looked = [found[k % len(found)] for k in kept]
        looked.append((x * looked[0] + found[-1]).relu())
        del found  # what nobody holds need not be written
        return [y.numpy().tobytes() for y in looked]

    with pytest.MonkeyPatch.context() as patch:
        apart = without(patch, values)
    PLANS.clear()
    assert values() == apart


def training_step(layers=2, momentum=0.9):
    norms = [ss.BatchNorm2D(8) for _ in range(layers)]
    weights = [ss.Parameter(np.full((8, 8, 1, 1), 0.1 + k, np.float32)) for k in range(layers)]
    parameters = [p for n in norms for p in n.parameters()] + weights
    optimizer = ss.optim.SGD(parameters, lr=0.1, momentum=momentum)

    @ss.compile
    def step(x):
        optimizer.zero_grad()
        for norm, weight in zip(norms, weights, strict=True):
            x = ss.relu(norm(ss.conv2d(x, weight)))
        loss = (x * x).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, [*parameters, *[v for n in norms for v in (n.running_mean, n.running_var)]]


def test_batch_normalisation_is_four_kernels_and_trains_to_the_same_bits(monkeypatch):
    x = np.random.default_rng(0).normal(size=(4, 8, 6, 6)).astype(np.float32)

    def trained():
        step, states = training_step()
        losses = [step(ss.tensor(x)).numpy().tobytes() for _ in range(3)]
        plan = max((e.plan for e in PLANS.values()), key=lambda p: len(p.steps))
        before = [s for s in plan.steps if s.home is None]
        small = [s for s in before if s.op.kind == "expr" and s.outputs[0].size == 8]
        return losses, [s.numpy().tobytes() for s in states], len(small)

    apart = without(monkeypatch, trained)
    together = trained()
    assert together[:2] == apart[:2]
    assert together[2] == 0 < apart[2]


def test_a_result_that_somebody_looks_at_is_still_written():
    x = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)
    t = ss.tensor(x)
    mean, variance = [wrap(n) for n in F.moments(t.node, axes=(0,))]
    scale = (variance + 1e-5) ** -0.5
    y = (t - mean) * scale
    np.testing.assert_allclose(y.numpy(), (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), atol=1e-5)
    np.testing.assert_allclose(scale.numpy(), 1 / np.sqrt(x.var(0, keepdims=True) + 1e-5), 1e-5)
    np.testing.assert_allclose(mean.numpy(), x.mean(0, keepdims=True), atol=1e-6)


def test_what_needs_another_result_waits_for_it():
    """Two reductions, each of which the other's arithmetic reads: no cycle."""
    x = np.random.default_rng(2).normal(size=(4, 6)).astype(np.float32)
    a, b = ss.tensor(x), ss.tensor(x + 1)
    first, second = [[wrap(n) for n in F.moments(t.node, axes=(0,))] for t in (a, b)]
    left = first[0] * 2 + second[0]
    right = second[1] * first[1] + left
    np.testing.assert_allclose(
        right.numpy(), x.var(0, keepdims=True) ** 2 + 3 * x.mean(0, keepdims=True) + 1, rtol=1e-5
    )


def refused(kernel, message):
    with pytest.raises(ValueError, match=message):
        program_of(kernel)


def test_kernels_refuse_a_program_that_is_not_whole():
    good = Kernel("moments", (0, 1, 2), (1, 2, 3))
    program_of(good)
    refused(good._replace(integers=(1, 2)), "3 integers")
    refused(good._replace(buffers=(0, 1, 2, 3)), "3 buffers")
    refused(good._replace(attached=(Attached("end", 0, ()),)), "no header")

    PLANS.clear()
    x = ss.tensor(np.ones((3, 4, 20), np.float32))
    ((x * 2).sum((0, 2)) * (x + 1).sum((0, 2))).numpy()
    plan = max((e.plan for e in PLANS.values()), key=lambda p: len(p.steps))
    (kernel,) = plan.steps[0].kernels
    assert len(plan.steps) == 1 and kernel.entry == "program_sums"
    load, end = kernel.attached
    program_of(kernel)
    refused(kernel._replace(integers=kernel.integers[:-1]), "a divisor and an output for each sum")
    refused(kernel._replace(buffers=kernel.buffers[1:]), "a divisor and an output for each sum")
    refused(kernel._replace(attached=(end,)), "needs a program")
    refused(kernel._replace(integers=changed(kernel.integers, 3, 7)), "do not have the size")
    refused(kernel._replace(integers=changed(kernel.integers, 4, 0)), "out of range")
    refused(kernel._replace(attached=(load, end._replace(integers=end.integers[:-1]))), "sizes")


def test_what_is_older_than_a_kernel_may_still_depend_on_it():
    """Both sums share a kernel; the product with the second reads what comes from the first."""
    a, b = (ss.tensor(np.random.default_rng(k).random((3, 4))) for k in (0, 1))
    found = ss.softmax(a.sum(axis=0)) * b.sum(axis=0)
    e = np.exp(a.numpy().sum(0))
    np.testing.assert_allclose(found.numpy(), e / e.sum() * b.numpy().sum(0), rtol=1e-5)
