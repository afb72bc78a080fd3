"""Values over time, point by point. Every test is a short program and what its user would see go
wrong.

`stats()` counts plans compiled and plans run, so that the programs also say how often something is
computed.
"""

import gc
import itertools
import os
import signal

import numpy as np
import pytest

import shoestring as ss
from shoestring import runtime
from shoestring.errors import DataError, ShapeError, StaleGraphError, TornStateError, TraceError
from shoestring.ir import F
from shoestring.runtime import PLANS, session
from shoestring.tensor import wrap


def array(*values):
    return np.array(values, np.float32)


def same(tensor, *values):
    found = tensor.numpy() if isinstance(tensor, ss.Tensor) else tensor
    np.testing.assert_array_equal(
        found, np.array(values[0] if len(values) == 1 else values, np.float32)
    )


def parameter(*values):
    return ss.Parameter(array(*values) if len(values) > 1 else np.float32(values[0]))


def train_once(p, x, optimizer):
    loss = (p * ss.tensor(x)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


@pytest.fixture(autouse=True)
def fresh():
    runtime.flush()
    PLANS.clear()
    gc.collect()
    ss.reset_stats()
    before = session.keep, session.check
    session.check = True
    yield
    session.keep, session.check = before


# ---- old values ----------------------------------------------------------------------------------
@pytest.mark.parametrize("look", ["nothing", "parameter", "expression"])
def test_a_value_built_before_step_keeps_the_old_parameter(look):
    p = parameter(1, 2)
    optimizer = ss.SGD([p], lr=0.5)
    times, value, part, shaped = p * 1, p.detach(), p[0:1], p.reshape(2, 1)
    read = p[1:2]
    same(read, [2])
    train_once(p, array(1, 1), optimizer)
    if look == "parameter":
        p.numpy()
    if look == "expression":
        (p * 2).numpy()
    same(times, 1, 2)
    same(value, 1, 2)
    same(part, [1])
    same(shaped, [[1], [2]])
    same(read, [2])
    same(p, 0.5, 1.5)
    train_once(p, array(1, 1), optimizer)
    same(value, 1, 2)
    same(p, 0, 1)


def test_logits_read_after_step_are_those_of_the_old_parameters():
    p = parameter(3, 4)
    optimizer = ss.SGD([p], lr=1.0)
    logits = p * 2
    logits.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    same(p, 1, 2)
    same(logits, 6, 8)
    same(p * 2, 2, 4)


def test_a_home_never_moves_and_is_never_seen():
    p = parameter(1, 2)
    home, optimizer, seen = p.state.home, ss.SGD([p], lr=0.5), []
    for _ in range(4):
        seen += [p.detach(), p[0:2], p.numpy(), p.reshape(2, 1)]
        train_once(p, array(1, 1), optimizer)
        seen += [p.detach(), p * 1]
        p.numpy()
        assert p.state.home is home
        assert p.data_ptr() == home.__array_interface__["data"][0]
    for s in seen:
        assert not np.shares_memory(s if isinstance(s, np.ndarray) else s.numpy(), home)
    same(seen[0], 1, 2)
    same(seen[4], 0.5, 1.5)


def test_handles_kept_in_lists_over_many_steps():
    p = parameter(1)
    optimizer, losses, values, olds = ss.SGD([p], lr=0.5), [], [], []
    for k in range(20):
        olds.append(p.detach())
        losses.append(train_once(p, np.float32(2), optimizer))
        values.append(1.0 - k)
    assert [loss.item() for loss in losses] == [2 * v for v in values]
    assert [old.item() for old in olds] == values


def test_a_new_value_read_between_step_and_look():
    p = parameter(1)
    optimizer = ss.SGD([p], lr=0.5)
    (p * ss.tensor(np.float32(1))).sum().backward()
    optimizer.step()
    new = p.detach()
    optimizer.zero_grad()
    train_once(p, np.float32(1), optimizer)
    assert new.item() == 0.5 and p.item() == 0.0


def test_values_around_assignments():
    x = ss.Variable(array(1, 2))
    y = x + 1
    x.assign(array(5, 6))
    z = x + 1
    x.assign(x * 2)
    w = x + 1
    x.numpy()
    same(y, 2, 3)
    same(z, 6, 7)
    same(w, 11, 13)
    same(x, 10, 12)


def test_two_parameters_swapped_and_three_rotated():
    p, q, r = ss.Variable(array(1, 2)), ss.Variable(array(3, 4)), ss.Variable(array(5, 6))
    home = p.state.home
    a, b = p.detach(), q.detach()
    p.assign(b)
    q.assign(a)
    same(p, 3, 4)
    same(q, 1, 2)
    same(a, 1, 2)
    assert p.state.home is home
    a, b, c = p.detach(), q.detach(), r.detach()
    p.assign(b)
    q.assign(c)
    r.assign(a)
    del a, b, c
    same(p, 1, 2)
    same(q, 5, 6)
    same(r, 3, 4)
    p.assign(q)
    q.assign(p)
    same(p, 5, 6)
    same(q, 5, 6)
    p.assign(array(1, 2))
    p.assign(p + q)
    q.assign(p - q)
    same(p, 6, 8)
    same(q, 1, 2)


def test_halves_swapped_and_a_transpose_of_itself():
    x = ss.Variable(np.arange(1, 9, dtype=np.float32))
    now = x.detach()
    x.assign(ss.concat([now[4:8], now[0:4]]))
    same(x, 5, 6, 7, 8, 1, 2, 3, 4)
    y = ss.Variable(np.arange(9, dtype=np.float32).reshape(3, 3))
    y.assign(y.T)  # a view of the very home it overwrites
    same(y, np.arange(9).reshape(3, 3).T)
    y.assign(y - y[0:1])  # elementwise, but reads another row of its home
    same(y, [[0, 0, 0], [1, 1, 1], [2, 2, 2]])


def test_data_is_copied_in_and_snapshots_are_copied_out():
    a = np.ones(3, np.float32)
    t = ss.tensor(a)
    y, p = t + 1, ss.Parameter(a)
    a[:] = 7
    same(y, 2, 2, 2)
    same(p, 1, 1, 1)
    with pytest.raises(ValueError):
        y.numpy()[:] = 3
    v = p.numpy()
    v[:] = 9
    same(p, 1, 1, 1)


def test_slice_writes_and_in_place_arithmetic_while_older_values_are_alive():
    x = ss.tensor(array(1, 2, 3, 4))
    older, part = x + 0, x[1:3]
    x[1:3] = array(20, 30)
    same(x, 1, 20, 30, 4)
    same(older, 1, 2, 3, 4)
    same(part, 2, 3)
    x += 1
    x[0] = 9
    same(x, 9, 21, 31, 5)
    x[:3] *= 10  # one change, applied once
    same(x, 90, 210, 310, 5)
    p = parameter(1, 2)
    before = p.detach()
    p -= ss.tensor(array(0.5, 0.5))
    assert isinstance(p, ss.Parameter)
    same(p, 0.5, 1.5)
    same(before, 1, 2)


# ---- backward ------------------------------------------------------------------------------------
def test_backward_twice_adds_and_after_step_is_refused():
    p = parameter(1, 2)
    optimizer = ss.SGD([p], lr=0.5)
    loss = (p * p).sum()
    loss.backward()
    loss.backward()
    same(p.grad, 4, 8)
    optimizer.step()
    same(p, -1, -2)
    with pytest.raises(StaleGraphError, match="before step"):
        loss.backward()
    assert loss.item() == 5
    loss = (p * p).sum()
    loss.item()
    optimizer.step()
    p.numpy()
    with pytest.raises(StaleGraphError):
        loss.backward()


def test_item_before_backward_does_not_compute_twice():
    w = ss.Parameter(np.ones((4, 4), np.float32))

    def program(keep):
        session.keep = keep
        w.grad = None
        loss = (w * 2).sum(axis=0).exp().sum()
        with ss.debug.record_kernels() as ran:
            loss.item()
            loss.backward()
            gradient = w.grad.numpy()
        return gradient, sum(name.startswith("sum") for name in ran)

    kept, few = program(True)
    again, more = program(False)
    np.testing.assert_array_equal(kept, again)
    assert few < more


def test_accumulation_over_three_backwards_is_bounded():
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(16, 16)).astype(np.float32)
    xs = [rng.normal(size=(8, 16)).astype(np.float32) for _ in range(6)]

    def gradient(batches):
        p = ss.Parameter(weight)
        for x in batches:
            (ss.tensor(x).unsqueeze(2) * p).sum().backward()
        return p.grad.numpy(), p

    total, p = gradient(xs)
    np.testing.assert_allclose(total, sum(gradient([x])[0] for x in xs), rtol=1e-5)
    old = p.grad
    (p * p).sum().backward()
    p.grad.numpy()
    same(old, total)  # a kept gradient keeps its value
    assert ss.stats()["plans"] <= 7


def test_two_losses_on_one_trunk():
    p, q, r = parameter(1, 2), parameter(3, 4), parameter(5, 6)
    h = p * p
    first, second = (h * q).sum(), (h * r).sum()
    first.backward(retain_graph=True)
    second.backward()
    same(p.grad, 2 * 1 * 8, 2 * 2 * 10)
    same(q.grad, 1, 4)
    same(r.grad, 1, 4)


def test_two_models_and_two_optimizers_share_a_parameter():
    p, a, b = parameter(1, 2), parameter(1, 1), parameter(2, 2)
    one, two = ss.SGD([p, a], lr=0.5), ss.SGD([p, b], lr=0.5)
    (p * a).sum().backward()
    (p * b).sum().backward()
    same(p.grad, 3, 3)
    one.step()
    two.step()
    one.zero_grad()
    two.zero_grad()
    same(p, -2, -1)
    same(a, 0.5, 0)
    same(b, 1.5, 1)


def test_a_parameter_that_the_loss_does_not_use():
    p, q = parameter(1), parameter(5)
    optimizer = ss.SGD([p, q], lr=0.5)
    train_once(p, np.float32(1), optimizer)
    assert q.grad is None and q.item() == 5 and p.item() == 0.5


def test_no_grad_and_detach_stop_gradients():
    p = parameter(1)
    with ss.no_grad():
        y = p * 2
    ((p.detach() * p).sum() + y.sum()).backward()
    same(p.grad, 1)


@pytest.mark.parametrize("when", ["before forward", "before backward", "after step"])
def test_zero_grad_at_any_place_of_the_loop(when):
    p = parameter(1, 2)
    optimizer = ss.SGD([p], lr=0.5)
    for _ in range(3):
        if when == "before forward":
            optimizer.zero_grad()
        loss = (p * ss.tensor(array(1, 1))).sum()
        if when == "before backward":
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if when == "after step":
            optimizer.zero_grad()
    same(p, -0.5, 0.5)
    if when != "after step":
        same(p.grad, 1, 1)


def test_gradients_of_gradients():
    x = ss.tensor(array(1, 2), requires_grad=True)
    first = ss.grad((x * x * x).sum(), x)
    same(first, 3, 12)
    same(ss.grad(first.sum(), x), 6, 12)
    assert x.grad is None


def test_a_gradient_may_be_changed_by_any_op_before_step():
    p = parameter(1, 2)
    optimizer = ss.SGD([p], lr=1.0)
    (p * ss.tensor(array(4, 8))).sum().backward()
    p.grad = p.grad * 0.25
    optimizer.step()
    same(p, 0, 0)


# ---- plans and their cache -----------------------------------------------------------------------
def test_an_epoch_is_one_plan_and_one_for_the_last_batch_at_any_learning_rate():
    data = ss.tensor(np.arange(100, dtype=np.float32).reshape(50, 2))
    p = parameter(1, 1)
    optimizer, want = ss.SGD([p], lr=0.1), np.ones(2, np.float32)
    for i in range(0, 48, 4):
        optimizer.lr = 0.1 / (i + 1)
        x = data[i : i + 4]
        assert np.shares_memory(x.realize(), data.realize())
        (x * p).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        want = want - x.numpy().sum(0) * np.float32(optimizer.lr)
        np.testing.assert_allclose(p.numpy(), want, rtol=1e-5)
    assert ss.stats()["plans"] == 1
    (data[48:50] * p).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    p.numpy()
    assert ss.stats()["plans"] == 2


def test_the_key_sees_aliasing_outputs_and_layout():
    a, b = ss.tensor(array(1, 2)), ss.tensor(array(3, 4))
    same(a + a, 2, 4)
    same(a + b, 4, 6)
    assert ss.stats()["plans"] == 2
    same(b + b, 6, 8)
    assert ss.stats()["plans"] == 2
    m = ss.tensor(np.arange(4, dtype=np.float32).reshape(2, 2))
    same(m[:, 0:1] + m[:, 1:2], [[1], [5]])
    assert ss.stats()["plans"] == 3
    same(ss.tensor(array([1], [2])) + ss.tensor(array([3], [4])), [[4], [6]])
    assert ss.stats()["plans"] == 4


def test_the_key_sees_which_store_writes_where():
    for crossed in (False, True, False):  # the same ops on the same leaves, other homes
        p, q = ss.Variable(array(1, 2)), ss.Variable(array(3, 4))
        a, b = p * 2, q * 2
        first, second = (q, p) if crossed else (p, q)
        first.assign(a)
        second.assign(b)
        del a, b
        same(first, 2, 4)
        same(second, 6, 8)
    assert ss.stats()["plans"] == 2


def test_the_same_plan_gives_the_same_bits_three_times():
    results = []
    for _ in range(3):
        ss.seed(0)
        p = ss.Parameter(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))
        optimizer = ss.SGD([p], lr=0.1, momentum=0.9)
        loss = ((p * p).sum(axis=1, keepdims=True) * p).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        results.append((loss.item(), p.numpy().tobytes()))
    assert results[0] == results[1] == results[2]
    assert ss.stats()["plans"] == 1 and ss.stats()["runs"] == 3


def test_random_draws_differ_and_repeat_with_the_seed():
    def draws():
        ss.seed(7)
        return [ss.uniform(5).numpy().tolist() for _ in range(3)]

    first = draws()
    assert first[0] != first[1] != first[2] and first == draws()
    assert ss.stats()["plans"] == 1
    kept = ss.uniform(4)
    assert kept.numpy().tolist() == kept.numpy().tolist() == (kept + 0).numpy().tolist()


def test_what_runs_is_what_was_printed():
    p = parameter(1, 2)
    optimizer = ss.SGD([p], lr=0.5)
    with ss.debug.record_kernels() as ran:
        train_once(p, array(1, 1), optimizer)
        p.numpy()
    (executable,) = PLANS.values()
    names = []
    for step in executable.plan.steps:
        if step.group is None:
            names += step.name.split("+")
        elif step.group not in names:
            names.append(step.group)  # a launch that several rows share
    names = ["elementwise_group" if isinstance(name, int) else name for name in names]
    assert ran == names and len(ran) == executable.plan.kernel_count()
    assert all(name in str(executable.plan) for name in names)


# ---- many, long, often ---------------------------------------------------------------------------
def test_a_chain_of_5000_nodes():
    p = parameter(1)
    session.check = False
    x = p * 1
    for _ in range(5000):
        x = x + 1
    x.sum().backward()
    same(p.grad, 1)
    assert x.item() == 5001


def test_lingering_notebook_variables_do_not_grow_memory():
    p = ss.Parameter(np.ones((8, 4), np.float32))
    optimizer, held, objects = ss.SGD([p], lr=0.01), [], []
    for k in range(30):
        y = (p * ss.tensor(np.full((8, 4), k, np.float32))).sum(axis=0)
        loss = y.sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        held += [y, loss]
        p.numpy()
        if k >= 9:
            gc.collect()
            objects.append(len(gc.get_objects()))
    assert (objects[-1] - objects[0]) / 20 < 20  # two handles and their nodes, no graph
    assert all(t.node.op is None for t in held)


def test_versions_of_a_statistic_that_nobody_reads_do_not_pile_up():
    average, pending = ss.Variable(np.zeros(3, np.float32)), []
    for k in range(30):
        average.assign(average * 0.9 + float(k))
        pending.append(len(average.state.pending))
    assert max(pending) <= 4
    want = 0.0
    for k in range(30):
        want = want * 0.9 + k
    np.testing.assert_allclose(average.numpy(), np.full(3, want, np.float32), rtol=1e-5)


def test_a_gradients_memory_is_free_after_its_update():
    def arena(order):
        PLANS.clear()
        parameters = [ss.Parameter(np.ones((200, 200), np.float32)) for _ in range(6)]
        optimizer = ss.SGD(parameters, lr=0.1)
        loss = sum((p * p).sum() for p in parameters)
        loss.backward()
        optimizer.step()
        if order == "zero_grad, then look":
            optimizer.zero_grad()
        loss.item()
        return max(e.plan.arena_bytes + e.plan.external_bytes for e in PLANS.values())

    assert arena("zero_grad, then look") < 600_000 < 960_000 <= arena("look, then zero_grad")


# ---- failures ------------------------------------------------------------------------------------
def failing(kind):
    """A tensor whose computation fails."""

    def reference(*xs):
        raise kind

    return reference


@pytest.mark.parametrize("problem", [MemoryError("no memory"), KeyboardInterrupt()])
def test_a_failed_evaluation_changes_nothing_and_can_be_tried_again(problem, monkeypatch):
    p = parameter(1, 2)
    optimizer = ss.SGD([p], lr=0.5, momentum=0.9)
    train_once(p, array(1, 1), optimizer)
    p.numpy()
    real, calls = runtime.flush.__globals__["Executable"].run, []

    def run(self, *arguments):
        calls.append(1)
        if len(calls) == 1:
            raise problem
        return real(self, *arguments)

    monkeypatch.setattr(runtime.flush.__globals__["Executable"], "run", run)
    loss = train_once(p, array(1, 1), optimizer)
    with pytest.raises(type(problem)):
        loss.item()
    np.testing.assert_array_equal(p.state.home, array(0.5, 1.5))
    assert loss.item() == 2
    np.testing.assert_allclose(p.numpy(), array(-0.45, 0.55), rtol=1e-6)


def test_an_error_record_stops_the_plan_before_anything_is_stored():
    p = parameter(1, 2)
    p_bad = wrap(F.check_finite((p / ss.tensor(array(0, 1))).node, what="the ratio"))
    p.assign(p * 0 + p_bad)
    with pytest.raises(DataError, match="the ratio is infinite at position 0"):
        p.numpy()
    same(p, 1, 2)  # the update is dropped, the program goes on


def test_after_an_error_record_the_program_goes_on():
    p = parameter(1, 2)
    labels = ss.tensor(np.array([0, 5])) + 0
    bad = wrap(F.check_index(labels.node, limit=3, what="label", of="classes"))
    with pytest.raises(DataError, match=r"label 5 at position 1 is outside \[0, 3\)"):
        bad.numpy()
    same(p + 1, 2, 3)
    p.assign(p * 2)  # `bad` is still alive, and nobody stumbles over it
    same(p, 2, 4)
    same(ss.compile(lambda x: x + p)(ss.tensor(array(1, 1))), 3, 5)
    with pytest.raises(DataError, match="label 5"):
        bad.numpy()


def test_shapes_are_checked_on_the_users_own_line():
    with pytest.raises(ShapeError, match=r"test_semantics.py"):
        ss.tensor(array(1, 2)) + ss.tensor(array(1, 2, 3))


def test_ctrl_c_after_the_first_store_waits_for_the_end():
    p = parameter(1, 2)
    optimizer = ss.SGD([p], lr=0.5)
    real = runtime.flush.__globals__["Executable"].run

    def run(self, values, guard, suspects):
        found = real(self, values, guard, suspects)
        os.kill(os.getpid(), signal.SIGINT)  # arrives while the guard holds
        return found

    runtime.flush.__globals__["Executable"].run = run
    try:
        train_once(p, array(1, 1), optimizer)
        with pytest.raises(KeyboardInterrupt):
            p.numpy()
    finally:
        runtime.flush.__globals__["Executable"].run = real
    assert not runtime.DIRTY
    same(p, 0.5, 1.5)


# ---- compiled steps ------------------------------------------------------------------------------
def compiled_pair(lr=0.1, momentum=0.9):
    p = ss.Parameter(np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2))
    optimizer = ss.SGD([p], lr=lr, momentum=momentum)

    def step(x):
        y = (x * p).sum(axis=0)
        loss = (y * y).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss, y

    return p, optimizer, step


def test_a_compiled_step_has_the_bits_of_the_plain_loop():
    batches = [np.random.default_rng(k).normal(size=(3, 2)).astype(np.float32) for k in range(5)]
    results = []
    for compiled in (False, True):
        p, optimizer, step = compiled_pair()
        run = ss.compile(step) if compiled else step
        kept = []
        for k, x in enumerate(batches):
            optimizer.lr = 0.1 / (k + 1)
            kept.append(run(ss.tensor(x)))
        results.append(
            ([(a.numpy().tobytes(), b.numpy().tobytes()) for a, b in kept], p.numpy().tobytes())
        )
    assert results[0] == results[1]
    assert run.traces == 1


def test_old_values_survive_a_replay():
    p, _optimizer, step = compiled_pair()
    run = ss.compile(step)
    x = ss.tensor(np.ones((3, 2), np.float32))
    run(x)
    old, twice, number = p.detach(), p * 2, p.numpy()
    loss, _ = run(x)
    kept = loss.item()
    run(x)
    same(old, number)
    same(twice, number * 2)
    assert loss.item() == kept
    with pytest.raises(StaleGraphError):
        twice.sum().backward()


def test_reading_inside_a_compiled_step_is_an_error_that_changes_nothing():
    p, _optimizer, step = compiled_pair()
    x, before = ss.tensor(np.ones((3, 2), np.float32)), p.numpy()
    for look in (lambda t: t.item(), lambda t: repr(t), lambda t: bool(t), lambda t: float(t)):
        with pytest.raises(TraceError, match="return the tensor"):
            ss.compile(lambda x, look=look: look(step(x)[0]))(x)
    same(p, before)
    assert session.trace is None and not runtime.DIRTY


def test_a_value_that_outlives_the_trace_is_an_error():
    p, _optimizer, step = compiled_pair()
    kept, before = [], p.numpy()

    def leak(x):
        loss, y = step(x)
        kept.append(y)
        return loss

    with pytest.raises(TraceError, match="outlives"):
        ss.compile(leak)(ss.tensor(np.ones((3, 2), np.float32)))
    kept.clear()
    same(p, before)


@pytest.mark.parametrize("where", range(4))
def test_an_exception_inside_a_trace_undoes_it(where):
    p = parameter(1, 2)
    optimizer = ss.SGD([p], lr=0.5)

    def bad(x):
        points = itertools.count()

        def here():
            if next(points) == where:
                raise RuntimeError("of the user")

        here()
        loss = (p * x).sum()
        here()
        loss.backward()
        here()
        optimizer.step()
        here()

    for _ in range(2):
        with pytest.raises(RuntimeError, match="of the user"):
            ss.compile(bad)(ss.tensor(array(1, 1)))
    assert not runtime.DIRTY and p.grad is None
    same(p, 1, 2)


def test_a_compiled_step_draws_fresh_numbers_and_repeats_with_the_seed():
    run = ss.compile(lambda x: ss.uniform(4) + x)
    results = []
    for _ in range(2):
        ss.seed(3)
        results.append([run(ss.tensor(np.float32(0))).numpy().tolist() for _ in range(3)])
    assert results[0] == results[1] and results[0][0] != results[0][1]


def test_numbers_are_inputs_and_gradients_stay_with_the_caller():
    p = parameter(1, 2)
    scale = ss.compile(lambda x, beta: (p * x).sum() * beta)
    assert [scale(ss.tensor(array(1, 1)), b).item() for b in (1.0, 2.0, 5.0)] == [3, 6, 15]
    assert scale.traces == 1
    grow = ss.compile(lambda x: (p * x).sum().backward())
    for _ in range(4):
        grow(ss.tensor(array(1, 3)))
    same(p.grad, 4, 12)
    assert grow.traces == 2  # empty, then adding


def test_a_store_that_fails_says_that_the_state_is_torn(monkeypatch):
    p = ss.Parameter(array(1, 2), device="reference")
    p.assign(p * 2)
    executable = runtime.flush.__globals__["Executable"]
    real = executable.segments

    def segments(self, steps):
        found = real(self, steps)
        for segment in found:
            if steps and steps[0].home is not None:
                monkeypatch.setattr(segment, "run", failing(RuntimeError("broken")))
        return found

    monkeypatch.setattr(executable, "segments", segments)
    with pytest.raises(TornStateError, match="last checkpoint"):
        p.numpy()
    runtime.DIRTY.clear()
