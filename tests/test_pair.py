"""Cross entropy's losses and their gradient in one kernel: the same bits, one kernel less."""

import math

import numpy as np
import pytest

import shoestring as ss
from shoestring.ir import OPS
from shoestring.runtime import session
from shoestring.testing import laid_out, run_launch

OPTIONS = [
    dict(),
    dict(reduction="sum"),
    dict(reduction="none"),
    dict(label_smoothing=0.1),
    dict(ignore_index=1),
    dict(ignore_index=1, label_smoothing=0.2, reduction="sum"),
    dict(weight=True),
    dict(weight=True, ignore_index=2, label_smoothing=0.3),
]
SHAPES = [((6, 5), (6,)), ((3, 5, 2, 4), (3, 2, 4)), ((700, 5), (700,)), ((1, 5), (1,))]


def data(shape, places):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=shape).astype(np.float32) * 3
    weight = rng.uniform(0.5, 2, shape[1]).astype(np.float32)
    return logits, rng.integers(0, shape[1], places), weight


def computed(logits, labels, weight, options, fused, scale=lambda loss: loss.sum()):
    """(loss, gradient, names of the kernels that ran)."""
    options = dict(options)
    if options.pop("weight", False):
        options["weight"] = ss.tensor(weight)
    before = session.fuse
    session.fuse = fused
    x, y = ss.tensor(logits), ss.tensor(labels)
    p = ss.Parameter(logits)
    try:

        @ss.compile
        def step(x, y):
            loss = ss.cross_entropy(p + x, y, **options)
            scale(loss).backward()
            return loss, p.grad

        loss, grad = step(x * 0, y)
        loss, grad = loss.numpy(), grad.numpy()
        (plan,) = step.plans()
        return loss, grad, [s.op.name for s in plan.steps]
    finally:
        session.fuse = before


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("shape", "places"), SHAPES)
def test_one_kernel_equals_two(shape, places, options):
    arrays = data(shape, places)
    loss, grad, names = computed(*arrays, options, True)
    loss_apart, grad_apart, apart = computed(*arrays, options, False)
    assert "cross_entropy_both" in names and "cross_entropy" not in names
    assert "cross_entropy" in apart and "cross_entropy_grad" in apart
    # sums over samples are cut differently where they share a kernel: within rounding, which with
    # lanes of 4 numbers adds up to 0.8e-6 over 700 samples
    rtol = max(3e-7, 2**-23 * arrays[1].size / 64)
    np.testing.assert_allclose(loss, loss_apart, rtol=rtol)
    np.testing.assert_allclose(grad, grad_apart, rtol=rtol)
    if options.get("reduction") in ("none", "sum"):
        np.testing.assert_array_equal(grad, grad_apart)


def test_kernel_alone_has_the_bits_of_the_two():
    rng = np.random.default_rng(1)
    for shape, places in SHAPES:
        logits, labels, weight = data(shape, places)
        dloss = rng.normal(size=places).astype(np.float32)
        for smoothing in (0.0, 0.25):
            rest = [logits, labels, weight, np.float32(smoothing)]
            rest[-1] = np.asarray(rest[-1])
            (loss,) = run_launch(OPS["cross_entropy"](ignore_index=3), rest)
            for layout in ("transposed", "reversed", "repeated", "spread"):
                given = laid_out(dloss, layout)
                (dx,) = run_launch(OPS["cross_entropy_grad"](ignore_index=3), [given, *rest])
                both = run_launch(OPS["cross_entropy_both"](ignore_index=3), [given, *rest])
                np.testing.assert_array_equal(both[0], loss)
                np.testing.assert_array_equal(both[1], dx)


def test_a_gradient_that_depends_on_the_losses_stays_apart():
    arrays = data((6, 5), (6,))
    options = dict(reduction="none")
    results = [
        computed(*arrays, options, fused, lambda losses: (losses * losses).sum())
        for fused in (True, False)
    ]
    assert "cross_entropy" in results[0][2] and "cross_entropy_grad" in results[0][2]
    np.testing.assert_array_equal(results[0][1], results[1][1])


@pytest.mark.parametrize("weight", [False, True])
def test_all_samples_ignored(weight):
    logits, labels, weights = data((6, 5), (6,))
    options = dict(ignore_index=7, weight=weight)
    for fused in (True, False):
        loss, grad, _ = computed(logits, labels * 0 + 7, weights, options, fused)
        assert math.isnan(loss)
        np.testing.assert_array_equal(grad, np.zeros_like(grad))


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_labels_of_every_type_and_ignored_ones_outside_the_classes(dtype):
    logits, labels, weights = data((6, 5), (6,))
    labels[2] = 200
    for weight in (False, True):
        options = dict(ignore_index=200, weight=weight)
        loss, grad, names = computed(logits, labels.astype(dtype), weights, options, True)
        kept = np.arange(6) != 2
        want = computed(logits[kept], labels[kept], weights, dict(weight=weight), False)
        np.testing.assert_allclose(loss, want[0], rtol=3e-7)
        np.testing.assert_allclose(grad[kept], want[1], rtol=3e-7)
        np.testing.assert_array_equal(grad[2], np.zeros(5))
        before = names[: names.index("cross_entropy_both")]
        assert "copy" not in before  # the one number that weighs all samples is not spread out


def test_two_losses_of_the_same_logits_have_a_kernel_each():
    logits, labels, _ = data((6, 5), (6,))
    p = ss.Parameter(logits)

    @ss.compile
    def step(a, b):
        loss = ss.cross_entropy(p * 1, a) + ss.cross_entropy(p * 2, b, label_smoothing=0.1)
        loss.backward()
        return loss, p.grad

    found = step(ss.tensor(labels), ss.tensor(labels[::-1].copy()))
    (plan,) = step.plans()
    assert [s.op.name for s in plan.steps].count("cross_entropy_both") == 2
    q = ss.Parameter(logits)
    first = ss.cross_entropy(q * 1, ss.tensor(labels))
    second = ss.cross_entropy(q * 2, ss.tensor(labels[::-1].copy()), label_smoothing=0.1)
    assert math.isclose(found[0].item(), first.item() + second.item(), rel_tol=1e-6)
    (first + second).backward()
    np.testing.assert_allclose(found[1].numpy(), q.grad.numpy(), rtol=1e-6, atol=1e-8)


def test_a_weight_of_classes_gets_no_gradient():
    logits, labels, weights = data((6, 5), (6,))
    p, w = ss.Parameter(logits), ss.Parameter(weights)
    ss.cross_entropy(p, ss.tensor(labels), weight=w).backward()
    assert p.grad is not None and w.grad is None


def test_a_class_weight_of_zero_keeps_gradients_finite():
    logits, labels, weights = data((6, 5), (6,))
    weights[labels[0]] = 0
    loss, grad, _ = computed(logits, labels, weights, dict(weight=True), True)
    assert math.isfinite(loss) and np.isfinite(grad).all()
    np.testing.assert_array_equal(grad[0], np.zeros(5))
