"""A compiled step does what the plain call does, whatever Python state has changed since its trace:
attributes of modules and optimisers, what they hold, closures, globals, tensors, arguments."""

import argparse
import functools
import types

import numpy as np
import pytest
from steps import Scaled, X, checked, value

import shoestring as ss
from shoestring import runtime
from shoestring.errors import TraceError

SCALE, TABLE = 2.0, [1.0, 2.0]


# ---- attributes ----------------------------------------------------------------------------------
def test_attributes_of_a_module():
    net = Scaled()

    def change(name, new):
        return lambda: setattr(net, name, new)

    with ss.no_grad():
        checked(
            lambda x: net(x),
            change("slope", 0.25),
            change("name", "two"),
            change("extra", 4),
            change("table", ss.tensor([5.0, 6.0])),
            change("layers", [ss.Tanh()]),
            lambda: delattr(net, "extra") or setattr(net, "extra", None),
        )


def test_containers_that_a_module_holds():
    net = Scaled()
    with ss.no_grad():
        checked(
            lambda x: net(x),
            lambda: net.layers.__setitem__(0, ss.Linear(2, 2)),
            lambda: net.layers.append(ss.Tanh()),
            lambda: net.layers.reverse(),
            lambda: net.layers.pop(),
            lambda: net.parts.__setitem__("a", ss.Tanh()),
            lambda: net.layers.__setitem__(slice(None), []),
        )


def test_attributes_of_layers():
    net = ss.Sequential(ss.Linear(2, 2), ss.LeakyReLU(0.1), ss.Dropout(0.5))
    _, leaky, dropout = net
    with ss.no_grad():
        checked(
            lambda x: net(x),
            lambda: setattr(leaky, "slope", 0.7),
            lambda: setattr(dropout, "p", 0.2),
            lambda: setattr(dropout, "p", 0),
            lambda: setattr(dropout, "p", 1.0),
            net.eval,
            lambda: setattr(net, "1", ss.Tanh()),
        )


def test_attributes_of_the_class_and_methods_replaced():
    class Mine(Scaled):
        def forward(self, x):
            return super().forward(x) * self.factor

    net = Mine()
    with ss.no_grad():
        checked(
            lambda x: net(x),
            lambda: setattr(Mine, "factor", 5.0),
            lambda: setattr(Mine, "forward", lambda self, x: x * 7),
            lambda: setattr(net, "factor", 6.0),
        )


def test_a_new_attribute_of_a_module_that_was_seen():
    net = Scaled()

    def step(x):
        return net(x) if not hasattr(net, "shift") else net(x) + net.shift

    with ss.no_grad():
        checked(step, lambda: setattr(net, "shift", 1.0))


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
def test_numbers_of_optimisers(kind):
    changes = dict(lr=0.3, weight_decay=0.1)
    changes |= dict(momentum=0.9, nesterov=True) if kind == "SGD" else dict(beta1=0.5, eps=1e-3)
    results = []
    for compiled in (False, True):
        p = ss.Parameter(X)
        optimizer = getattr(ss, kind)([p], lr=0.1)

        def step(x, p=p, optimizer=optimizer):
            loss = (p * p * x).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        run, seen = ss.compile(step) if compiled else step, []
        for name, new in [("lr", 0.1), *changes.items()]:
            setattr(optimizer, name, new)
            for _ in range(2):
                run(ss.tensor(X))
                seen.append(p.tolist())
        results.append(seen)
    assert results[0] == results[1]


def test_a_rate_that_changes_traces_nothing_anew_unless_python_reads_it():
    p = ss.Parameter(X)
    optimizer = ss.SGD([p], lr=0.1)

    def step(x, read):
        (p * x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return x * (optimizer.lr if read else 1)

    run = ss.compile(step)
    for k in range(4):
        optimizer.lr = 0.1 / (k + 1)
        run(ss.tensor(X), False)
    assert run.traces == 1
    for rate in (0.5, 0.25):
        optimizer.lr = rate
        np.testing.assert_allclose(run(ss.tensor(X), True).numpy(), X * rate)


def test_parameters_that_join_an_optimiser():
    p, q = ss.Parameter(X), ss.Parameter(X)
    optimizer = ss.SGD([p], lr=1.0)

    @ss.compile
    def step(x):
        ((p + q) * x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step(ss.tensor(X))
    assert q.tolist() == X.tolist()
    optimizer.parameters.append(q)
    optimizer.state.append({})
    step(ss.tensor(X))
    assert q.tolist() == (-X).tolist()  # the gradients of both steps


def test_gradients_that_are_there_or_not():
    p, q = ss.Parameter(X), ss.Parameter(X)
    optimizer = ss.SGD([p, q], lr=1.0)
    update = ss.compile(lambda: (optimizer.step(), optimizer.zero_grad()) and None)
    p.sum().backward()
    update()
    (p + q).sum().backward()
    update()
    assert p.tolist() == (X - 2).tolist() and q.tolist() == (X - 1).tolist()
    has = ss.compile(lambda x: x if p.grad is None else x + p.grad)
    with ss.no_grad():
        assert has(ss.tensor(X)).tolist() == X.tolist()
        p.grad = ss.ones(2, 2)
        assert has(ss.tensor(X)).tolist() == (X + 1).tolist()


def test_a_window_that_is_open_or_not():
    p = ss.Parameter(X)
    optimizer = ss.SGD([p], lr=1.0)
    update = ss.compile(lambda: optimizer.step())
    p.sum().backward()
    update()
    with pytest.raises(ss.ShoestringError, match="inside a window"), ss.accumulate(optimizer, 2):
        update()


# ---- closures, globals, tensors, arrays ----------------------------------------------------------
def test_closures_and_globals():
    factor, mode, table, nothing = 2.0, "up", [1.0, 2.0], None

    def step(x):
        y = x * factor * SCALE + ss.tensor(table) + TABLE[1]
        return (y if mode == "up" else -y) if nothing is None else y * nothing

    def change(new_factor, new_mode, item, new_nothing):
        nonlocal factor, mode, nothing
        factor, mode, nothing = new_factor, new_mode, new_nothing
        table[0] = item

    def constant(name, new):
        globals()[name] = new

    before = SCALE, list(TABLE)
    try:
        checked(
            step,
            lambda: change(3.0, "up", 1.0, None),
            lambda: change(3, "up", 1.0, None),
            lambda: change(3, "down", 1.0, None),
            lambda: change(3, "down", 9.0, None),
            lambda: change(3, "down", 9.0, True),
            lambda: change(-0.0, "down", 9.0, None),
            lambda: constant("SCALE", 7.0),
            lambda: TABLE.__setitem__(1, 5.0),
        )
    finally:
        constant("SCALE", before[0])
        constant("TABLE", before[1])


def test_functions_that_the_step_calls():
    k = 2.0

    def inner(x):
        return x * k + SCALE

    def outer(x, inner=inner):
        return (lambda y: inner(y) + k)(x)

    def change(new):
        nonlocal k
        k = new

    def replace():
        nonlocal inner
        inner = outer

    wrapped = functools.wraps(outer)(lambda x: outer(x))
    checked(outer, lambda: change(3.0))
    checked(wrapped, lambda: change(4.0))
    checked(functools.partial(outer), lambda: change(5.0))
    checked(lambda x: inner(x), lambda: change(6.0), replace)
    checked(ss.compile(lambda x: outer(x)), lambda: change(7.0))


def test_tensors_from_outside_are_compared_by_node():
    t = ss.tensor([1.0, 2.0])
    held = types.SimpleNamespace(t=ss.tensor([3.0, 4.0]))
    far = {"deep": [(ss.tensor([5.0, 6.0]),)]}

    def step(x):
        return x + t + held.t[1:] + far["deep"][0][0]

    def add():
        nonlocal t
        t += 1

    def write():
        t[0] = 9.0

    def other():
        nonlocal t
        t = ss.tensor([7.0, 7.0])

    def through():
        held.t *= 2
        far["deep"][0][0][:] = 1.0

    checked(step, add, write, other, through, lambda: setattr(held, "t", ss.tensor([8.0, 8.0])))
    hidden = iter_of(t)
    run = ss.compile(lambda x: x + next(hidden()))  # only the plan shows that it was read
    assert run(ss.tensor(X)).tolist() == (X + 7).tolist()
    t += 1
    assert run(ss.tensor(X)).tolist() == (X + 8).tolist()


def iter_of(t):
    return iter.__call__([t]).__class__ and functools.partial(iter, [t])


def test_a_view_of_a_tensor_from_outside():
    t = ss.tensor(np.arange(6, dtype=np.float32))

    def change():
        t[2] = 100.0

    checked(lambda x: x + t[1:5:2] + t.reshape(3, 2)[1], change)


def test_numpy_arrays_from_outside_are_read_again():
    table, net = np.array([1.0, 2.0], np.float32), Scaled()
    net.shift, large = np.array([4.0, 5.0]), np.ones((20000, 2), np.float32)

    def step(x):
        return x * ss.tensor(table) + table[0] + net.shift + ss.tensor(large).sum(0)

    run = checked(step, lambda: table.fill(7.0), lambda: net.shift.__setitem__(0, 1.0))
    traces = run.traces
    large[5] = 3.0
    assert value(run(ss.tensor(X))) == value(step(ss.tensor(X))) and run.traces == traces


def test_objects_of_the_user_s_classes():
    class Trainer:
        kind = "plain"

        def __init__(self):
            self.scale, self.net, self.calls = 2.0, Scaled(), 0
            self.options = argparse.Namespace(shift=1.0, unused=0)

        def step(self, x):
            return self.loss(self.net(x) * self.scale)

        def loss(self, y):
            return y + self.options.shift if self.kind == "plain" else y.sum()

    trainer = Trainer()
    with ss.no_grad():
        run = checked(
            trainer.step,
            lambda: setattr(trainer, "scale", 3.0),
            lambda: setattr(trainer.options, "shift", 5.0),
            lambda: setattr(trainer, "net", Scaled()),
            lambda: setattr(trainer.net, "slope", 9.0),
            lambda: setattr(Trainer, "kind", "sum"),
        )
        traces = run.traces
        trainer.calls, trainer.options.unused = 5, 5  # the step does not name these
        run(ss.tensor(X))
        assert run.traces == traces


# ---- what the step itself changes ----------------------------------------------------------------
def test_python_state_that_the_step_changes_is_changed_at_every_call():
    calls, net = 0, Scaled()
    net.calls, seen = 0, []

    def step(x):
        nonlocal calls
        calls += 1
        net.calls += 1
        seen.append(calls)
        return x * calls

    run = ss.compile(step)
    for k in range(1, 4):
        assert run(ss.tensor(X)).tolist() == (X * k).tolist()
    assert calls == net.calls == 3 and seen == [1, 2, 3]


def test_a_setting_that_the_step_puts_back_is_no_change():
    net = ss.Sequential(ss.Linear(2, 2), ss.Dropout(0.5))

    def step(x):
        net.eval()
        y = net(x)
        net.train()
        return y

    with ss.no_grad():
        run = ss.compile(step)
        found = [value(run(ss.tensor(X))) for _ in range(3)]
        assert run.traces == 1 and found == [value(step(ss.tensor(X)))] * 3


def test_a_rate_that_the_step_sets():
    p = ss.Parameter([0.0])
    optimizer = ss.SGD([p], lr=1.0)

    @ss.compile
    def step():
        p.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        optimizer.lr *= 0.5

    for _ in range(3):
        step()
    assert p.tolist() == [-1.75] and optimizer.lr == 0.125


def test_a_tensor_from_outside_that_the_step_assigns_to_stays_as_it_was():
    t = ss.tensor([1.0, 2.0])

    def step(x):
        nonlocal t
        t += x[0]
        return t * 2

    with pytest.raises(TraceError, match="assigns to a tensor from outside"):
        ss.compile(step)(ss.tensor(X))
    assert t.tolist() == [1.0, 2.0] and runtime.session.trace is None
