"""Optimisers in the corners: late and frozen parameters, loading, what a compiled step keeps."""

import math

import numpy as np
import pytest

import shoestring as ss
from shoestring.errors import DataError


def array(*values):
    return np.array(values, np.float32)


def adam(gradients, lr=0.1):
    """Adam in float64 from 0, PyTorch's rule; None: no gradient yet."""
    p = m = v = 0.0
    for t, g in enumerate([g for g in gradients if g is not None], 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        p -= lr * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return p


@pytest.mark.parametrize("compiled", [False, True])
def test_adam_counts_steps_from_each_parameters_first_gradient(compiled):
    a, b = ss.Parameter(array(0.0)), ss.Parameter(array(0.0))
    optimizer = ss.Adam([a, b], lr=0.1)

    def early(g):
        optimizer.zero_grad()
        (a * g).sum().backward()
        optimizer.step()

    def late(g):
        optimizer.zero_grad()
        ((a + b) * g).sum().backward()
        optimizer.step()

    if compiled:
        early, late = ss.compile(early), ss.compile(late)
    gs = np.random.default_rng(0).normal(size=9)
    for k, g in enumerate(gs):
        (early if k < 5 else late)(ss.tensor(array(g)))
    assert a.item() == pytest.approx(adam(gs), rel=1e-4)
    assert b.item() == pytest.approx(adam([None] * 5 + list(gs[5:])), rel=1e-4)

    saved, values = optimizer.state_dict(), [a.numpy(), b.numpy()]
    twins = [ss.Parameter(v) for v in values]
    other = ss.Adam(twins, lr=1.0)
    other.load_state_dict(saved)
    for parameters, chosen in (([a, b], optimizer), (twins, other)):
        chosen.zero_grad()
        (parameters[0] * 2 - parameters[1]).sum().backward()
        chosen.step()
    assert [t.numpy().tobytes() for t in twins] == [p.numpy().tobytes() for p in (a, b)]


def test_frozen_parameters_stay_and_can_be_freed_later():
    net = ss.Sequential(ss.Linear(2, 2), ss.Linear(2, 1))
    net[0].requires_grad_(False)
    optimizer = ss.SGD(net.parameters(), lr=0.1)

    def step():
        net(ss.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    frozen, free = net[0].bias.numpy(), net[1].bias.numpy()
    step()
    np.testing.assert_array_equal(net[0].bias.numpy(), frozen)
    assert not np.array_equal(net[1].bias.numpy(), free)
    net[0].requires_grad_(True)
    step()
    assert not np.array_equal(net[0].bias.numpy(), frozen)


def stepped(make, size=2):
    p = ss.Parameter(np.ones(size, np.float32))
    optimizer = make([p])
    p.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return p, optimizer


def momentum(parameters):
    return ss.SGD(parameters, lr=0.1, momentum=0.9)


def test_loading_replaces_a_step_that_is_still_pending():
    p, optimizer = stepped(momentum)
    saved = optimizer.state_dict()
    (p * 5).sum().backward()
    optimizer.step()
    optimizer.load_state_dict(saved)
    np.testing.assert_array_equal(optimizer.state_dict()["slots"][0]["momentum"], [1, 1])


def test_loading_reaches_a_step_compiled_before():
    p = ss.Parameter(array(0.0))
    optimizer = momentum([p])

    @ss.compile
    def step(g):
        (p * g).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step(ss.tensor(array(1.0)))
    saved = optimizer.state_dict()
    step(ss.tensor(array(5.0)))
    optimizer.load_state_dict(saved)
    before = p.item()
    step(ss.tensor(array(0.0)))
    assert p.item() - before == pytest.approx(-0.1 * 0.9, rel=1e-4)


def test_a_state_that_does_not_fit_changes_nothing():
    ps = [ss.Parameter(array(1.0)), ss.Parameter(array(1.0, 2.0))]
    optimizer = momentum(ps)
    (ps[0].sum() + ps[1].sum()).backward()
    optimizer.step()
    saved = optimizer.state_dict()
    broken = dict(saved, slots=[{"momentum": array(7.0)}, {"momentum": array(1.0)}])
    with pytest.raises(ss.ShoestringError, match="slot momentum"):
        optimizer.load_state_dict(broken)
    assert optimizer.state_dict()["slots"][0]["momentum"].tolist() == [1]
    with pytest.raises(ss.ShoestringError, match="saved from SGD, not from Adam"):
        ss.Adam(ps).load_state_dict(saved)


def test_gradients_whose_common_norm_overflows_are_refused_not_zeroed():
    a, b = ss.Parameter(array(1.0)), ss.Parameter(array(1.0))
    ((a + b) * 1.5e19).sum().backward()
    with pytest.raises(DataError, match="norm of all gradients together is infinite"):
        ss.clip_grad_norm_([a, b], 1.0)
        a.grad.numpy()
    np.testing.assert_array_equal(a.grad.numpy(), array(1.5e19))


def test_a_rate_set_every_step_compiles_nothing_anew():
    p, optimizer = stepped(lambda ps: ss.AdamW(ps, lr=0.1))
    p.numpy()
    for k in range(4):
        optimizer.lr = 0.1 / (k + 1)
        p.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        p.numpy()
    assert ss.stats()["plans"] <= 2
