"""One bad value never stops the process: its error names it, what depends on it is refused, and
everything else goes on."""

import gc
import weakref

import numpy as np
import pytest

import shoestring as ss
from shoestring import runtime
from shoestring.errors import (
    CompileError,
    DataError,
    DeviceError,
    MemoryBudgetError,
    ShoestringError,
    TornStateError,
)
from shoestring.ir import OPS, Cost, F, Op, batch_leads
from shoestring.tensor import wrap

UNFIT = {}  # switched on by tests: how the op `fragile` fails


class Boom(Exception):
    """What a user's op raises."""


class Fragile(Op):
    """y = x, unless it fails"""

    name, kind, cheap_to_recompute, cases = "fragile", "kernel", False, ()
    batch_axis = batch_leads

    def shape(self, x):
        return x

    def reference(self, x):
        return UNFIT["reference"](x) if "reference" in UNFIT else x.copy()

    def gradient(self, F, dy, y, x):
        """dx = dy"""
        return (UNFIT["gradient"](dy) if "gradient" in UNFIT else dy,)

    def launch(self, device, inputs, outputs):
        return UNFIT["launch"](inputs) if "launch" in UNFIT else None

    def cost(self, x):
        return Cost(0.0, 8.0 * np.prod(x))


OPS.pop("fragile")  # only while a test of this file runs


@pytest.fixture(autouse=True)
def registry():
    OPS["fragile"] = Fragile
    yield
    OPS.pop("fragile")
    F.__dict__.pop("fragile", None)
    UNFIT.clear()
    runtime.DIRTY.clear()


def fragile(x):
    return wrap(F.fragile(x.node))


def raising(problem):
    def fails(*arguments):
        raise problem

    return fails


def parameter(*values, device="cpu"):
    return ss.Parameter(np.array(values, np.float32), device=device)


def trained(p, loss):
    """p - 0.5 dloss/dp as its new version, nothing computed yet."""
    found = loss(p)
    p.assign(p - ss.grad(found, p) * 0.5)
    return found


def stepped(p, loss):
    """The same by backward() and an optimiser."""
    found = loss(p)
    found.backward()
    ss.SGD([p], lr=0.5).step()
    p.grad = None
    return found


def squares(p, factor=1.0):
    """A loss whose gradient needs the value that may fail."""
    h = fragile(p * factor)
    return (h * h).sum()


WAYS = {
    "its reference raises": ("reference", raising(Boom("wrong")), DeviceError, "Boom|wrong"),
    "its reference runs out of memory": (
        "reference", raising(MemoryError("no room")), DeviceError, "no room"),
    "its result has another shape": (
        "reference", lambda x: np.zeros(7, np.float32), DeviceError, r"shape \[7\], the shape"),
    "its result would broadcast": (
        "reference", lambda x: x.dtype.type(1), DeviceError, r"shape \[\], the shape"),
    "its result is no array": ("reference", lambda x: "nothing", DeviceError, "shape|reference"),
    "its launch raises": ("launch", raising(Boom("no kernel")), CompileError, "no kernel"),
}  # fmt: skip


@pytest.mark.parametrize("train", [trained, stepped])
@pytest.mark.parametrize("way", WAYS)
def test_a_failing_op_takes_what_depends_on_it_and_nothing_else(way, train):
    member, fails, error, message = WAYS[way]
    other, bad = parameter(1, 2), parameter(1, 2)
    free = ss.ones(2) + 1
    trained(other, lambda p: (p * p).sum())
    loss = train(bad, squares)
    UNFIT[member] = fails
    with pytest.raises(error, match=message) as first:
        loss.item()
    assert "fragile" in str(first.value)
    assert free.tolist() == [2, 2]
    assert other.tolist() == [0, 0]  # 1 - 0.5 * 2, 2 - 0.5 * 4
    assert bad.tolist() == [1, 2]
    with pytest.raises(error) as again:
        loss.item()
    assert str(again.value) == str(first.value)
    with pytest.raises(error):
        (loss + 1).item()
    UNFIT.clear()
    trained(bad, squares)
    assert bad.tolist() == [0, 0]


def test_the_error_names_the_layer():
    class Net(ss.Module):
        def __init__(self):
            self.first = ss.Linear(2, 2)
            self.head = Head()

        def forward(self, x):
            return self.head(self.first(x))

    class Head(ss.Module):
        def forward(self, x):
            return fragile(x)

    UNFIT["reference"] = raising(Boom("wrong"))
    with pytest.raises(
        DeviceError, match="fragile: its reference failed: wrong\n    at  layer head"
    ):
        Net()(ss.ones(3, 2)).numpy()


def test_an_update_is_dropped_with_an_error_even_if_another_value_was_asked_for():
    bad, other = parameter(1), ss.ones(2) * 2
    trained(bad, squares)
    UNFIT["reference"] = raising(Boom("wrong"))
    with pytest.raises(DeviceError, match="wrong"):
        (other + bad).numpy()  # the value before the step
    assert bad.tolist() == [1]
    assert other.tolist() == [2, 2]


def test_a_bad_handle_that_nobody_asked_for_waits_until_somebody_does():
    p = parameter(1, 2)
    watched = fragile(p * 2)  # needs the version that the step overwrites
    UNFIT["reference"] = raising(Boom("wrong"))
    trained(p, lambda p: p.sum())
    assert p.tolist() == [0.5, 1.5]
    with pytest.raises(DeviceError, match="wrong"):
        watched.numpy()


def test_several_bad_values_are_all_named():
    a, b, c = parameter(1), parameter(1), parameter(1)
    UNFIT["reference"] = lambda x: x.copy() if x[0] < 10 else raising(Boom(f"at {x[0]}"))()
    trained(a, lambda p: squares(p, 10.0))
    trained(b, lambda p: squares(p, 20.0))
    trained(c, lambda p: squares(p, 2.0))
    with pytest.raises(DeviceError, match=r"at \d0") as problem:
        runtime.flush()
    told = str(problem.value) + "".join(problem.value.__notes__)
    assert "at 10" in told
    assert "at 20" in told
    assert [p.tolist() for p in (a, b, c)] == [[1], [1], [-3]]


@pytest.mark.parametrize("order", ["good, bad", "bad, good", "good, bad from good"])
def test_a_state_keeps_its_newest_version_that_does_not_depend_on_the_bad_one(order):
    v = ss.Variable([0.0])
    good, bad = ss.ones(1) + 4, fragile(ss.ones(1) + 1)
    for word in order.split(", "):
        v.assign({"good": good, "bad": bad, "bad from good": bad + v}[word])
    UNFIT["reference"] = raising(Boom("wrong"))
    if order != "bad, good":
        with pytest.raises(DeviceError, match="wrong"):
            v.numpy()
    assert v.tolist() == [5]


def test_each_device_goes_on_without_the_other():
    here, there = parameter(1), parameter(1, device="reference")
    trained(here, squares)
    trained(there, lambda p: (p * p).sum())
    UNFIT["reference"] = raising(Boom("wrong"))
    with pytest.raises(DeviceError, match="wrong"):
        runtime.flush()
    assert there.tolist() == [0]
    assert here.tolist() == [1]


@pytest.mark.parametrize("asked", ["bad", "other"])
def test_a_check_takes_what_it_guards_and_nothing_else(asked):
    """Another network's pending step, which a check that passes guards, is not lost."""
    bad, other = parameter(1, 2), parameter(1, 2)
    x, labels = ss.ones(1, 1), {bad: ss.tensor([5]) + 0, other: ss.tensor([1]) + 0}

    def entropy(p):
        return ss.cross_entropy(x @ p.reshape(1, 2), labels[p])

    losses = {p: trained(p, entropy) for p in (bad, other)}
    with pytest.raises(DataError, match="label 5"):
        losses[bad if asked == "bad" else other].item()
    assert np.isfinite(losses[other].item())
    assert bad.tolist() == [1, 2]
    assert other.tolist() != [1, 2]
    with pytest.raises(DataError, match="label 5"):
        losses[bad].item()


@pytest.mark.parametrize("compiled", [False, True])
def test_an_interrupt_leaves_everything_pending(compiled):
    p = parameter(1, 2)
    UNFIT["reference"] = raising(KeyboardInterrupt())

    def step(x):
        return stepped(p, lambda p: fragile(p * x).sum())

    if compiled:
        step = ss.compile(step)
        with pytest.raises(KeyboardInterrupt):
            step(ss.ones(2))
        UNFIT.clear()
        step(ss.ones(2))
    else:
        loss = step(ss.ones(2))
        with pytest.raises(KeyboardInterrupt):
            loss.item()
        assert p.state in runtime.DIRTY
        UNFIT.clear()
        assert loss.item() == 3
    assert p.tolist() == [0.5, 1.5]


def test_an_error_inside_a_gradient_rule_changes_nothing():
    p, other = parameter(1, 2), parameter(3)
    trained(other, lambda p: (p * p).sum())
    loss = fragile(p).sum()
    UNFIT["gradient"] = raising(Boom("no slope"))
    with pytest.raises(Boom, match="no slope"):
        loss.backward()
    assert p.grad is None
    assert loss.item() == 3
    assert other.tolist() == [0]
    UNFIT.clear()
    loss.backward()
    assert p.grad.tolist() == [1, 1]


@pytest.mark.parametrize("member", ["reference", "launch", "gradient"])
def test_a_failing_op_in_a_compiled_step_changes_nothing(member):
    p, other = parameter(1, 2), parameter(3)
    stepped(other, lambda p: (p * p).sum())
    step = ss.compile(lambda x: stepped(p, lambda p: fragile(p * x).sum()))
    UNFIT[member] = raising(Boom("wrong"))
    for _ in range(2):
        with pytest.raises((ShoestringError, Boom), match="wrong"):
            step(ss.ones(2))
    assert p.tolist() == [1, 2]
    assert other.tolist() == [0]
    UNFIT.clear()
    assert step(ss.ones(2)).item() == 3
    assert p.tolist() == [0.5, 1.5]


def test_a_compiled_step_is_traced_and_replayed_beside_a_bad_handle():
    p, q = parameter(1, 2), parameter(1, 2)
    step = ss.compile(lambda x: stepped(p, lambda p: (p * x).sum()))
    UNFIT["reference"] = raising(Boom("wrong"))
    before = fragile(q * 2)
    step(ss.ones(2))
    between = fragile(p * 2)  # needs the version that the replay overwrites
    step(ss.ones(2))
    assert p.tolist() == [0, 1]
    for watched in (before, between):
        with pytest.raises(DeviceError, match="wrong"):
            watched.numpy()


def test_a_failing_hook_stops_nobody():
    bad, other = parameter(1), parameter(1, 2)
    trained(other, lambda p: (p * p).sum())
    loss = trained(bad, squares)
    UNFIT["reference"] = raising(Boom("wrong"))
    with ss.debug.on_failure(raising(ValueError("of the hook"))):
        for _ in range(2):
            with pytest.raises(ValueError, match="of the hook"):
                loss.item()
    assert other.tolist() == [0, 0]
    assert bad.tolist() == [1]


@pytest.fixture
def unplannable(monkeypatch):
    """Plans that hold the op `fragile` cannot be made: an error without a position."""
    compiler = runtime.flush.__globals__["compiler"]
    real = compiler.plan

    def plan(graph, *arguments):
        if any(n is not None and n.op is not None and n.op.name == "fragile" for n in graph.nodes):
            raise RecursionError("in a pass")
        return real(graph, *arguments)

    monkeypatch.setattr(compiler, "plan", plan)


def test_a_failure_without_a_culprit_takes_what_hangs_together(unplannable):
    bad, other = parameter(1), parameter(1, 2)
    trained(other, lambda p: (p * p).sum())
    loss = trained(bad, squares)
    with pytest.raises(RecursionError, match="in a pass"):
        other.numpy()
    assert other.tolist() == [0, 0]
    assert bad.tolist() == [1]
    with pytest.raises(RecursionError):
        loss.item()
    assert not runtime.DIRTY


def test_a_lack_of_memory_takes_one_network_and_not_the_other():
    small, large = parameter(1, 2), ss.Parameter(np.ones((300, 300), np.float32))
    gc.collect()
    runtime.release_arena("cpu")
    from shoestring.backends.device import device

    with ss.memory_limit(device("cpu").allocated_bytes() + 500_000):
        trained(small, lambda p: (p * p).sum())
        loss = ((large @ large) @ (large @ large)).sum()
        loss.backward()
        with pytest.raises(MemoryBudgetError):
            loss.item()
        assert small.tolist() == [0, 0]
        assert large.grad is None


def test_parts_that_read_what_others_overwrite_stay_together(unplannable):
    """b takes the old value of a although a is overwritten in the same flush, and so does a handle
    that two parts need."""
    a, b, bad = ss.Variable([1.0]), ss.Variable([2.0]), ss.Variable([3.0])
    old, both = a + 0, a + bad
    a.assign(a * 10)
    b.assign(old + b)
    bad.assign(fragile(bad))
    with pytest.raises(RecursionError):
        runtime.flush()
    assert [v.tolist() for v in (a, b, bad)] == [[10], [3], [3]]
    assert both.tolist() == [4]
    assert old.tolist() == [1]


def test_a_failure_after_the_first_store_says_so_and_later_work_goes_on(monkeypatch):
    p, q = parameter(1, 2), parameter(5)
    executable = runtime.flush.__globals__["Executable"]
    real = executable.segments

    def segments(self, steps):
        found = real(self, steps)
        for segment in found:
            if steps and steps[0].home is not None:
                monkeypatch.setattr(segment, "run", raising(RuntimeError("broken")))
        return found

    p.assign(p * 2)
    with monkeypatch.context() as patch:
        patch.setattr(executable, "segments", segments)
        with pytest.raises(TornStateError, match="last checkpoint"):
            p.numpy()
    runtime.PLANS.clear()
    assert not runtime.DIRTY
    q.assign(q * 2)
    assert q.tolist() == [10]
    p.assign(np.array([7, 8], np.float32))  # the checkpoint
    assert p.tolist() == [7, 8]


def test_who_keeps_the_error_keeps_no_value():
    x = ss.ones(1000) + 1
    watched = weakref.ref(x)
    UNFIT["reference"] = raising(Boom("wrong"))
    with pytest.raises(DeviceError) as kept:
        fragile(x).numpy()
    del x
    gc.collect()
    assert watched() is None
    assert kept.value.__cause__.args == ("wrong",)


def test_many_live_handles_with_a_bad_one_do_not_stop_the_program(monkeypatch):
    monkeypatch.setattr(runtime, "MAX_HANDLES", 50)
    UNFIT["reference"] = raising(Boom("wrong"))
    bad = fragile(ss.ones(2))
    kept = [ss.ones(2) + k for k in range(200)]
    assert kept[150].tolist() == [151, 151]
    with pytest.raises(DeviceError, match="wrong"):
        bad.numpy()
