"""Clipping gradients: which parameters it takes, and norms of any finite size."""

import functools
import math

import numpy as np
import pytest

import shoestring as ss
from shoestring.errors import ArgumentError, DataError, DTypeError

CLIPS = [
    functools.partial(ss.clip_grad_norm_, max_norm=1.0),
    ss.check_nan_gradients,
    functools.partial(ss.SGD, lr=0.1),
    ss.Adam,
    ss.AdamW,
]


def with_gradients(*gradients, device=None):
    """A parameter a, b, ... for each gradient."""
    found = []
    for name, g in zip("abcd", gradients, strict=False):
        g = np.asarray(g, np.float32)
        found.append(ss.Parameter(np.zeros_like(g), name, device))
        found[-1].grad = ss.tensor(g, device=device)
    return found


def norm(gradients, p):
    """In float64, scaled by the largest."""
    values = np.abs(np.concatenate([np.ravel(g) for g in gradients]).astype(np.float64))
    largest = values.max(initial=0.0)
    if p == math.inf or not largest:
        return largest
    return largest * ((values / largest) ** p).sum() ** (1 / p)


@pytest.mark.parametrize("p", [0.5, 1, 2, 3, math.inf])
@pytest.mark.parametrize("size", [0.0, 1e-40, 1e-30, 1.0, 1e18, 1e20, 1e37])
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_norms_of_any_size_are_right(size, p, device):
    rng = np.random.default_rng(0)
    gradients = [(rng.normal(size=s) * size).astype(np.float32) for s in ((2, 2), (), (0, 3))]
    ps = with_gradients(*gradients, device=device)
    expected = norm(gradients, p)
    assert ss.clip_grad_norm_(ps, 0.5, p).item() == pytest.approx(expected, rel=1e-4 if size else 0)
    for parameter, g in zip(ps, gradients, strict=True):
        wanted = g.astype(np.float64) * min(1.0, 0.5 / (expected + 1e-6))
        np.testing.assert_allclose(parameter.grad.numpy(), wanted, rtol=1e-3, atol=1e-45)


def test_a_compiled_step_clips_the_same_bits():
    p = ss.Parameter([1.0, -2.0, 3.0])

    def step(x):
        p.grad = None
        (p * x).sum().backward()
        return ss.clip_grad_norm_([p], 1.0), p.grad * 1

    compiled = ss.compile(step)
    for x in ([1e20, 2e20, 0.0], [3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [1e-3, 0.0, 1e-30]):
        found = [[t.numpy().tobytes() for t in run(ss.tensor(x))] for run in (step, compiled)]
        assert found[0] == found[1]


def test_gradients_below_the_limit_keep_their_bits():
    rng = np.random.default_rng(1)
    g = rng.normal(size=100).astype(np.float32)
    (p,) = with_gradients(g)
    ss.clip_grad_norm_([p], 1e3)
    assert p.grad.numpy().tobytes() == g.tobytes()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("p", [1, 2, 2.5, math.inf])
def test_a_bad_gradient_is_refused_by_its_parameters_name(bad, p):
    a, b = with_gradients([1.0, 2.0], [3.0, bad])
    with pytest.raises(DataError, match=r"gradient of b is (NaN|infinite)"):
        ss.clip_grad_norm_([a, b], 1.0, p).item()
    np.testing.assert_array_equal(a.grad.numpy(), [1, 2])
    np.testing.assert_array_equal(b.grad.numpy(), [3, bad])


@pytest.mark.parametrize("p", [0.5, 1, 2])
def test_a_norm_above_the_largest_float_is_refused_not_zeroed(p):
    a, b = with_gradients([3e38], [3e38])
    with pytest.raises(DataError, match=r"norm of all gradients together \(a, b\) is infinite"):
        ss.clip_grad_norm_([a, b], 1.0, p).item()
    np.testing.assert_array_equal(a.grad.numpy(), np.array([3e38], np.float32))


@pytest.mark.parametrize("act", CLIPS)
def test_an_iterator_is_taken_once_and_refused_when_it_is_used_up(act):
    parameters = iter(with_gradients([3.0], [4.0]))
    act(parameters)
    with pytest.raises(ArgumentError, match="gives none"):
        act(parameters)
    with pytest.raises(ArgumentError, match="gives none"):
        act(p for p in with_gradients([3.0]) if p.name == "z")


@pytest.mark.parametrize("act", CLIPS)
@pytest.mark.parametrize(
    "what, message",
    [
        (lambda: ss.Linear(2, 2), "list of parameters, got Linear"),
        (lambda: ss.Sequential(ss.Linear(2, 2)), "list of parameters, got Sequential"),
        (lambda: ss.Linear(2, 2).named_parameters(), "got tuple"),
        (lambda: ss.ones(2), "got Tensor"),
        (lambda: [ss.Parameter([1.0]) * 2], "got Tensor: the result of a computation"),
        (lambda: [{"params": [ss.Parameter([1.0])], "lr": 0.1}], "got dict: there are no groups"),
        (lambda: {"w": ss.Parameter([1.0])}, "got str"),
        (lambda: "w", "got str"),
        (lambda: None, "got NoneType"),
        (lambda: 3, "got int"),
        (lambda: [3], "got int"),
        (lambda: [np.ones(3)], "got ndarray"),
    ],
)
def test_what_is_no_list_of_parameters_is_refused(act, what, message):
    with pytest.raises(DTypeError, match=message):
        act(what())


@pytest.mark.parametrize("act", CLIPS)
def test_one_parameter_stands_for_a_list_of_one(act):
    (p,) = with_gradients([3.0])
    act(p)


def test_without_any_gradient_the_norm_is_zero():
    assert ss.clip_grad_norm_([], 1.0).item() == 0
    assert ss.clip_grad_norm_([ss.Parameter([1.0]), ss.Variable([1.0])], 1.0).item() == 0


def test_a_parameter_that_stands_twice_counts_once():
    a, b = with_gradients([3.0], [4.0])
    assert ss.clip_grad_norm_([a, b, a, a], 1.0).item() == 5
    assert a.grad.item() == pytest.approx(0.6)


@pytest.mark.parametrize(
    "max_norm, norm_type, message",
    [
        ("1", 2, "max_norm must be a number"),
        (None, 2, "max_norm must be a number"),
        (True, 2, "max_norm must be a number"),
        (np.ones(2), 2, r"max_norm must be a number, got ndarray \[2\]"),
        (math.nan, 2, "max_norm must be not below 0"),
        (-1.0, 2, "max_norm must be not below 0"),
        (1.0, 0, "norm_type must be above 0"),
        (1.0, -2, "norm_type must be above 0"),
        (1.0, math.nan, "norm_type must be above 0"),
        (1.0, "two", "norm_type must be a number"),
    ],
)
def test_bad_numbers_are_refused_before_anything_changes(max_norm, norm_type, message):
    (p,) = with_gradients([3.0, 4.0])
    with pytest.raises(ss.ShoestringError, match=message):
        ss.clip_grad_norm_([p], max_norm, norm_type)
    assert p.grad.tolist() == [3, 4]


@pytest.mark.parametrize("max_norm", [1, 1.0, np.float32(1), np.int64(1), np.array([1.0])])
def test_numbers_of_any_kind_are_taken(max_norm):
    (p,) = with_gradients([3.0, 4.0])
    assert ss.clip_grad_norm_([p], max_norm, np.float64(2)).item() == 5
    np.testing.assert_allclose(p.grad.numpy(), [0.6, 0.8], rtol=1e-6)
    assert ss.clip_grad_norm_([p], math.inf, "inf").item() == pytest.approx(0.8)
    assert ss.clip_grad_norm_([p], 1e39, 1e39).item() == pytest.approx(0.8)
    np.testing.assert_allclose(p.grad.numpy(), [0.6, 0.8], rtol=1e-6)


@pytest.mark.parametrize("x", [[1.0, 3.0], np.array([1, 3]), ss.tensor([1, 3])])
def test_statistics_of_anything_that_a_tensor_can_be_made_of(x, capsys):
    ss.print_tensor_stats(x, "x")
    ss.print_tensor_stats(np.zeros((0, 2)))
    out = capsys.readouterr().out
    assert "x [2]" in out and "min 1  max 3  mean 2" in out and "no finite values" in out
