"""Threads and forks: each thread's work has the values that it has alone, bit for bit; modes are of
the thread; nobody waits for ever."""

import _thread
import concurrent.futures
import os
import pickle
import signal
import threading
import time
import traceback

import numpy as np
import pytest

import shoestring as ss
from shoestring import runtime
from shoestring.backends.device import TURN
from shoestring.errors import StaleGraphError, TraceError
from shoestring.ir import F
from shoestring.runtime.session import HANDLES

DATA = np.random.default_rng(0).normal(size=(16, 4)).astype("f4")
PATIENCE = 60  # seconds, after which a thread counts as stuck


def in_threads(*functions):
    """What each function returns, run side by side."""
    found, problems = [None] * len(functions), []

    def run(k):
        try:
            found[k] = functions[k]()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(len(functions))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(PATIENCE)
    assert not any(t.is_alive() for t in threads), "a thread is stuck"
    if problems:
        raise problems[0]
    return found


def values(model):
    return [v.tobytes() for v in model.state_dict().values()]


def trained(seed, compiled=False, steps=200, look=7, optimizer=ss.Adam):
    """Weights and last loss of a network with everything that draws or lasts."""
    ss.seed(seed)
    model = ss.Sequential(
        ss.Linear(4, 8), ss.BatchNorm1D(8), ss.Tanh(), ss.Dropout(0.2), ss.Linear(8, 2)
    )
    opt = optimizer(model.parameters(), lr=0.01)

    def step(x):
        loss = (model(x) ** 2).mean()
        loss.backward()
        ss.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        opt.zero_grad()
        return loss

    run, x = ss.compile(step) if compiled else step, ss.tensor(DATA)
    for k in range(steps):
        loss = run(x)
        if k % look == 0:
            loss.item()
    return values(model), loss.item()


# ---- as alone ------------------------------------------------------------------------------------
KINDS = {
    "plain": [dict(seed=s) for s in range(4)],
    "compiled": [dict(seed=s, compiled=True) for s in range(4)],
    "both": [dict(seed=s, compiled=s % 2 == 0, look=3 + s) for s in range(4)],
    "never looked at": [dict(seed=s, look=1000, optimizer=ss.SGD) for s in range(4)],
}


@pytest.mark.parametrize("kind", KINDS)
def test_four_threads_give_what_each_gives_alone(kind):
    runtime.session.check = False  # verified elsewhere
    work = [lambda options=options: trained(**options) for options in KINDS[kind]]
    alone = [fn() for fn in work]
    assert in_threads(*work) == alone


def test_more_threads_than_the_kernels_have_and_another_number_of_those():
    runtime.session.check = False
    alone, before = trained(3, steps=40), ss.threads()
    try:
        ss.set_threads(3)
        assert in_threads(*[lambda: trained(3, steps=40)] * 6) == [alone] * 6
    finally:
        ss.set_threads(before)


# ---- modes are of the thread ---------------------------------------------------------------------
def meeting(inside, meanwhile):
    """Run `inside` (a generator that yields once in its mode) and, while it is there, `meanwhile`
    in another thread."""
    there, done = threading.Event(), threading.Event()

    def first():
        steps = inside()
        next(steps)
        there.set()
        assert done.wait(PATIENCE)
        next(steps, None)

    def second():
        assert there.wait(PATIENCE)
        try:
            return meanwhile()
        finally:
            done.set()

    return in_threads(first, second)[1]


def test_no_grad_is_of_one_thread():
    p = ss.Parameter([1.0])

    def inside():
        with ss.no_grad():
            yield
            assert not (p * 2).requires_grad
        assert (p * 2).requires_grad

    assert meeting(inside, lambda: (p * 2).requires_grad)


def test_no_grad_around_a_thread_is_not_in_it():
    p = ss.Parameter([1.0])
    with ss.no_grad():
        assert in_threads(lambda: (p * 2).requires_grad) == [True]
        assert not (p * 2).requires_grad


def test_one_no_grad_within_itself_and_in_many_threads_ends_as_it_began():
    p, off = ss.Parameter([1.0]), ss.no_grad()

    def records():
        with off, off:
            assert not (p * 2).requires_grad
        return (p * 2).requires_grad

    assert in_threads(*[records] * 4) == [True] * 4 and records()


def test_the_default_device_is_of_one_thread_and_others_follow_the_main_thread():
    before = ss.default_device()

    def inside():
        ss.default_device("reference")
        yield
        assert ss.ones(1).device == "reference"

    assert meeting(inside, lambda: ss.ones(1).device) == before == ss.default_device()
    try:
        ss.default_device("reference")
        assert in_threads(lambda: ss.ones(1).device) == ["reference"]
    finally:
        ss.default_device(before)


def test_the_path_of_a_layer_is_of_one_thread():
    between = threading.Event(), threading.Event()

    class Waits(ss.Module):
        def forward(self, x):
            between[0].set()
            assert between[1].wait(PATIENCE)
            return x @ x

    root = ss.Module()
    root.slow = Waits()

    def first():
        with pytest.raises(ss.ShoestringError, match=r"layer slow"):
            root.slow(ss.ones(2, 3))

    def second():
        assert between[0].wait(PATIENCE)
        try:
            with pytest.raises(ss.ShoestringError) as caught:
                ss.ones(2, 3) @ ss.ones(2, 3)
            assert "slow" not in str(caught.value)
        finally:
            between[1].set()

    in_threads(first, second)


def test_random_numbers_are_of_the_thread():
    def draw():
        ss.seed(5)
        return [
            ss.normal(3).tolist(),
            ss.dropout(ss.ones(9), 0.5).tolist(),
            values(ss.Linear(3, 3)),
        ]

    alone = draw()
    assert in_threads(*[draw] * 4) == [alone] * 4
    ss.seed(5)
    drawn = in_threads(*[lambda: ss.normal(3).tolist()] * 4)  # none has set a seed
    assert len({tuple(d) for d in [alone[0], *drawn]}) == 5


def test_errors_and_interrupts_let_the_next_thread_go_on():
    def wrong():
        with pytest.raises(ss.ShoestringError, match="label"):
            ss.cross_entropy(ss.ones(2, 3), ss.tensor([0, 9])).item()
        with pytest.raises(ss.ShoestringError):
            ss.compile(lambda x: x.item())(ss.ones(1))

    in_threads(wrong, wrong)
    in_threads(lambda: trained(0, steps=3))

    timer = threading.Timer(0.3, _thread.interrupt_main)
    busy = threading.Thread(target=lambda: trained(1, steps=100), daemon=True)
    busy.start(), timer.start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            trained(2, steps=5)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    busy.join(PATIENCE)
    assert not busy.is_alive()
    assert in_threads(lambda: trained(0, steps=3)) == [trained(0, steps=3)]


# ---- traces --------------------------------------------------------------------------------------
def test_a_trace_does_not_see_what_other_threads_build():
    tracing, built = threading.Event(), threading.Event()
    p, q, mine = ss.Parameter([1.0]), ss.Parameter([1.0]), []

    @ss.compile
    def step(x):
        tracing.set()
        assert built.wait(PATIENCE)
        loss = (p * x).sum()
        p.assign(p + ss.uniform(1) * 0 + 1)
        return loss

    def other():
        assert tracing.wait(PATIENCE)
        mine.extend([q * 2, ss.uniform(3)])  # live handles, drawn numbers
        built.set()
        q.assign(q + 1)  # waits for its turn
        return mine[0].item(), q.item(), mine[1].shape

    loss, found = in_threads(lambda: step(ss.ones(1)).item(), other)
    assert loss == 1 and found == (2, 2, (3,)) and p.item() == 2
    assert step(ss.ones(1)).item() == 2 and q.item() == 2 and step.traces == 1


def test_looking_inside_a_trace_is_refused_in_its_thread_only():
    inside, looked = threading.Event(), threading.Event()
    x = ss.ones(3) * 2
    x.numpy()  # what is to be computed waits until the trace is done

    @ss.compile
    def step(y):
        inside.set()
        assert looked.wait(PATIENCE)
        y.sum().item()

    def first():
        with pytest.raises(TraceError):
            step(ss.ones(1))

    def second():
        assert inside.wait(PATIENCE)
        found = x.tolist()
        looked.set()
        return found

    assert in_threads(first, second)[1] == [2, 2, 2]


def test_one_compiled_function_in_many_threads():
    model = ss.Linear(4, 3)
    forward = ss.compile(lambda x: model(x).tanh())
    inputs = [ss.tensor(DATA * k) for k in range(8)]
    alone = [ss.tanh(model(x)).tolist() for x in inputs]
    work = [lambda x=x: [forward(x).tolist() for _ in range(20)][-1] for x in inputs]
    assert in_threads(*work) == alone and forward.traces == 1


# ---- what threads share --------------------------------------------------------------------------
def step_of(model, optimizer):
    (model(ss.tensor(DATA)) ** 2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


READERS = {
    "state_dict": values,
    "pickle": lambda m: values(pickle.loads(pickle.dumps(m))),
    "plain": lambda m: m(ss.tensor(DATA)).tolist(),
    "compiled": lambda m: ss.compile(lambda x: m(x))(ss.tensor(DATA)).tolist(),
    "traced before": lambda m: m.traced(ss.tensor(DATA)).tolist(),
}


@pytest.mark.parametrize("alive", [False, True], ids=["ended", "idle"])
@pytest.mark.parametrize("reader", READERS)
def test_a_step_that_another_thread_left_pending_is_seen(reader, alive):
    def prepared():
        ss.seed(0)
        model = ss.Linear(4, 2)
        model.traced = ss.compile(lambda x: model(x))
        model.traced(ss.tensor(DATA))
        return model, ss.SGD(model.parameters(), lr=0.1, momentum=0.9)

    model, optimizer = prepared()
    step_of(model, optimizer)
    model.traced = ss.compile(lambda x: model(x)) if reader == "compiled" else model.traced
    if reader == "pickle":
        del model.traced
    expected = READERS[reader](model)

    model, optimizer = prepared()
    if reader == "pickle":
        del model.traced
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        if alive:
            pool.submit(step_of, model, optimizer).result(PATIENCE)
        else:
            in_threads(lambda: step_of(model, optimizer))
        assert runtime.DIRTY  # nobody has looked
        assert READERS[reader](model) == expected
        saved = optimizer.state_dict()
    assert not runtime.DIRTY
    assert all(slot["momentum"].any() for slot in saved["slots"])


def test_threads_that_take_turns_at_one_model_give_what_one_thread_gives():
    def prepared():
        ss.seed(0)
        model = ss.Linear(4, 2)
        return model, ss.Adam(model.parameters(), lr=0.1)

    model, optimizer = prepared()
    for _ in range(40):
        step_of(model, optimizer)
    expected = values(model)

    model, optimizer = prepared()
    turn = threading.Lock()

    def work():
        for _ in range(10):
            with turn:
                step_of(model, optimizer)

    in_threads(*[work] * 4)
    assert values(model) == expected


def test_a_live_value_keeps_the_version_it_was_built_on_when_another_thread_trains():
    p = ss.Parameter([3.0])
    y = p * p  # not computed yet

    def train():
        p.assign(p + 1)
        return p.item()

    assert in_threads(train) == [4] and y.item() == 9
    with pytest.raises(StaleGraphError):
        y.backward(ss.ones(1))


def test_what_another_thread_overwrote_is_an_error_and_never_a_wrong_value():
    p = ss.Parameter([3.0])
    node = F.mul(p.node, p.node)  # no handle holds it yet
    in_threads(lambda: (p.assign(p + 1), p.item()))
    y = ss.tensor([0.0])
    y.rebind(node)
    with pytest.raises(StaleGraphError, match="another thread overwrote"):
        y.item()
    assert p.item() == 4 and (p * 2).item() == 8
    q = ss.Variable([0.0])
    q.assign(y)
    with pytest.raises(StaleGraphError, match="another thread overwrote"):
        q.item()
    assert q.item() == 0 and p.item() == 4  # the update has not happened, the rest goes on


def test_no_gradient_is_lost_when_threads_share_parameters():
    p = ss.Parameter(np.zeros(8, "f4"))

    def add():
        for _ in range(25):
            p.sum().backward()

    in_threads(*[add] * 4)
    assert p.grad.tolist() == [100] * 8


def test_a_tensor_of_a_thread_that_has_ended_is_like_any_other():
    p = ss.Parameter([2.0])
    (y,) = in_threads(lambda: p * 3)
    assert y.item() == 6
    y.sum().backward()
    assert p.grad.tolist() == [3]
    for _ in range(5):
        in_threads(*[lambda: (p * 3).sum()] * 4)
    (p * 2).item()
    runtime.compact()
    p.assign([1.0])
    p.item()
    assert len(HANDLES) <= 1 + sum(t.is_alive() for t in threading.enumerate())


# ---- forks ---------------------------------------------------------------------------------------
def in_a_child(function):
    """Whether `function` returns True in a forked process, in reasonable time."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if function() else 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    for _ in range(10 * PATIENCE):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process")
@pytest.mark.parametrize("compiled", [False, True])
def test_a_fork_while_another_thread_trains(compiled):
    runtime.session.check = False
    before = ss.threads()
    ss.set_threads(2)
    alone, stop = trained(1, compiled, steps=30), threading.Event()

    def busy():
        while not stop.is_set():
            trained(7, compiled, steps=10)
        return trained(1, compiled, steps=30)

    def fork():
        try:
            return [in_a_child(lambda: trained(1, compiled, steps=30) == alone) for _ in range(5)]
        finally:
            stop.set()

    try:
        assert in_threads(busy, busy, fork)[::2] == [alone, [True] * 5]
        p = ss.Parameter([1.0])
        p.assign(p + 1)  # pending at the fork: both have it
        assert in_a_child(lambda: p.item() == 2 and in_threads(lambda: p.item()) == [2])
        with TURN:  # a fork within an evaluation
            assert in_a_child(lambda: p.item() == 2)
        assert p.item() == 2
    finally:
        ss.set_threads(before)
