"""Compiled functions are differentiable from outside: with respect to arguments and to parameters
used inside, to any order. No gradient ends at one silently."""

import numpy as np
import pytest
from steps import X

import shoestring as ss
from shoestring import runtime
from shoestring.errors import StaleGraphError, TraceError


def both(build, times=3):
    """build(compile) with and without compiling gives the same, `times` times in a row."""
    found = []
    for compile in (lambda fn: fn, ss.compile):
        ss.seed(0)
        run = build(compile)
        found.append([[np.asarray(v).tolist() for v in run()] for _ in range(times)])
    assert found[0] == found[1]


def test_an_argument():
    g = ss.compile(lambda t: t * t)
    p = ss.Parameter([3.0])
    for k in range(1, 4):
        (g(p * 2) + p).sum().backward()
        assert p.grad.tolist() == [25.0 * k]
    assert g.traces == 1
    g(p).sum().backward()
    assert p.grad.tolist() == [81.0]


def test_parameters_inside_and_several_outputs():
    def build(compile):
        net, p = ss.Sequential(ss.Linear(2, 3), ss.Tanh(), ss.Linear(3, 2)), ss.Parameter(X)
        f = compile(lambda x, s: {"y": net(x) * s, "both": (x.sum(), [net(x * 2), s.detach()])})
        optimizer = ss.SGD([*net.parameters(), p], lr=0.1, momentum=0.9)

        def run():
            out = f(p * 2, ss.tensor(X))
            total, (z, s) = out["both"]
            loss = (out["y"] ** 2).sum() + total + (z * s).sum()
            loss.backward()
            optimizer.step()
            grads = [q.grad.numpy() for q in [*net.parameters(), p]]
            optimizer.zero_grad()
            return [loss, *grads, *[q.numpy() for q in net.parameters()]]

        return run

    both(build)


def test_second_and_third_order():
    def build(compile):
        p = ss.Parameter(X)
        f = compile(lambda x, w: (x * x * x * w).sum() + (ss.tanh(w) * x).sum())

        def run():
            first = ss.grad(f(p * 1.5, p), p)
            second = ss.grad((first * first).sum(), p)
            third = ss.grad((second * p).sum(), p)
            return [first, second, third]

        return run

    both(build)


def test_gradients_computed_inside_are_differentiable():
    def build(compile):
        p = ss.Parameter(X)
        slope = compile(lambda x: ss.grad((ss.tanh(x) * x).sum(), x))
        upstream = compile(lambda h: ss.grad((h * h).sum(), p))

        def run():
            found = ss.grad((slope(p) * p).sum(), p)
            return [found, upstream(p * 3), ss.grad((upstream(p * 3) ** 2).sum(), p)]

        return run

    both(build)


def test_a_backward_inside_goes_on_outside():
    def build(compile):
        p, q = ss.Parameter(X), ss.Parameter(X + 1)
        optimizer = ss.SGD([p, q], lr=0.1)

        @compile
        def step(h):
            loss = (h * q).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        def run():
            return [step(p * p), p.numpy(), q.numpy()]

        return run

    both(build)


def test_dropout_has_one_mask():
    def build(compile):
        p = ss.Parameter(np.ones(200, np.float32))
        f = compile(lambda x: ss.dropout(x, 0.5))

        def run():
            p.grad = None
            y = f(p * 2)
            y.sum().backward()
            assert p.grad.tolist() == y.tolist()
            return [y, p.grad, ss.uniform(3)]

        return run

    both(build)


def test_running_statistics_move_once():
    def build(compile):
        norm, p = ss.BatchNorm1D(2), ss.Parameter(X)
        f = compile(lambda x: norm(x))

        def run():
            loss = (f(p * 2) ** 3).sum()
            loss.backward()
            found = [loss, p.grad, norm.weight.grad, norm.running_mean, norm.running_var]
            return [np.array(v.numpy()) for v in found]

        return run

    both(build)


def test_without_gradients_it_is_replayed():
    net, calls = ss.Linear(2, 2), []
    f = ss.compile(lambda x: calls.append(0) or net(x))
    f = ss.compile(lambda x: net(x))
    with ss.no_grad():
        for _ in range(3):
            y = f(ss.tensor(X))
    assert not y.requires_grad and f.traces == 1 and len(f.plans()) == 1
    h = net(ss.tensor(X))
    which = ss.compile(lambda h: h.argmax(1))
    for _ in range(3):
        which(h)
    assert which.traces == 1 and len(which.plans()) == 1
    net.requires_grad_(False)
    assert not f(ss.tensor(X)).requires_grad


def test_modes_do_not_mix():
    p = ss.Parameter(X)
    f = ss.compile(lambda x: x * p)
    for _ in range(2):
        with ss.no_grad():
            f(ss.tensor(X))
        f(ss.tensor(X)).sum().backward()
    assert p.grad.tolist() == (2 * X).tolist()
    f.plan(ss.tensor(X))
    f(ss.tensor(X)).sum().backward()
    assert p.grad.tolist() == (3 * X).tolist()


def test_a_plan_can_be_seen_and_changes_nothing():
    norm, p = ss.BatchNorm1D(2), ss.Parameter(X)
    f = ss.compile(lambda x: norm(x))
    before = norm.running_mean.numpy(), runtime.random.draws
    assert "fused" in str(f.plan(p * 2)) or f.plan(p * 2).steps
    assert norm.running_mean.tolist() == before[0].tolist() and p.grad is None


def test_results_that_are_parameters_or_come_from_outside():
    p = ss.Parameter(X)
    h = p * 3
    f = ss.compile(lambda: {"p": p, "h": h})
    for k in range(1, 3):
        out = f()
        (out["p"] * 2 + out["h"]).sum().backward(retain_graph=True)
        assert p.grad.tolist() == np.full((2, 2), 5.0 * k).tolist()
    with ss.no_grad():
        out = ss.compile(lambda t: t)(h)
    out.sum().backward()
    assert p.grad.tolist() == np.full((2, 2), 13.0).tolist()


def test_assigning_to_an_argument():
    def build(compile):
        p = ss.Parameter(X)

        @compile
        def write(x, y):
            x[0] = y[1] * 2

        def run():
            x, y = p * 3, p * 5
            write(x, y)
            p.grad = None
            (x * x).sum().backward()
            return [x, p.grad]

        return run

    both(build)


# ---- results of training steps -------------------------------------------------------------------
def step_of(p, step=True, **options):
    optimizer = ss.SGD([p], lr=0.1)

    def run(x):
        loss = (p * p * x).sum()
        loss.backward()
        if step:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    return ss.compile(run, **options)


@pytest.mark.parametrize("stepping", [True, False])
def test_a_loss_whose_backward_is_inside_is_a_value(stepping):
    p = ss.Parameter(X)
    step = step_of(p, stepping)
    loss = [step(ss.tensor(X)) for _ in range(3)][-1]
    assert step.traces <= 2 and step.plans() and isinstance(loss.item(), float)
    with pytest.raises(StaleGraphError):
        loss.backward()
    with pytest.raises(StaleGraphError):
        (loss * 2 + p.sum()).backward()
    with pytest.raises(StaleGraphError):
        ss.grad(loss * 2 + p.sum(), p)
    (loss.detach() * p.sum()).backward()


def test_losses_add_up_without_a_growing_graph():
    p = ss.Parameter(X * 0.01)
    step, total = step_of(p), ss.tensor(0.0)
    for k in range(40):
        total = total + step(ss.tensor(X))
        if k % 3 == 0:
            total.item()
    total.item()
    assert total.node.op is None and not total.node.inputs
    metric = ss.compile(lambda total, loss: total * 0.9 + loss * 0.1)
    mean = ss.tensor(0.0)
    for _ in range(4):
        mean = metric(mean, step(ss.tensor(X)))
    assert metric.traces <= 2 and len(metric.plans()) >= 1
    with pytest.raises(StaleGraphError):
        mean.backward()


def test_a_graph_kept_inside_goes_on_outside():
    def build(compile):
        p = ss.Parameter(X)

        @compile
        def f(x):
            loss = (p * p * x).sum()
            loss.backward(retain_graph=True)
            return loss

        def run():
            (f(ss.tensor(X)) * 2).backward()
            return [p.grad]

        return run

    both(build)


def test_what_is_cut_or_limited_says_so():
    p = ss.Parameter(X)
    for options in (dict(micro_batches=2), dict(memory_limit="10MiB")):
        y = ss.compile(lambda x: (x * p).sum(), **options)(ss.tensor(X))
        with pytest.raises(StaleGraphError, match="memory limit of its own"):
            y.backward()
        step = ss.compile(lambda h: (h * h).sum().backward(), **options)
        with pytest.raises(TraceError, match="reaches what an argument"):
            step(p * 2)
        assert p.grad is None


def test_a_stale_tensor_from_outside_is_an_error_as_in_the_plain_call():
    p = ss.Parameter(X)
    optimizer = ss.SGD([p], lr=0.1)
    h = p * 2
    h.numpy()
    f = ss.compile(lambda x: (x * h).sum().backward())
    f(ss.tensor(X))
    optimizer.step()
    optimizer.zero_grad()
    p.numpy()
    with pytest.raises(StaleGraphError):
        f(ss.tensor(X))
