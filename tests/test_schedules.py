"""Schedules: their formulas, what they refuse, and going on from a saved state, bit by bit."""

import copy
import math
import pickle

import numpy as np
import pytest

import shoestring as ss
from shoestring.errors import TraceError

optim = ss.optim


class Triangle(optim.Schedule):
    """A schedule of a user's own."""

    def __init__(self, optimizer, width):
        self.width = width
        super().__init__(optimizer)

    def lr(self, t):
        return self.base * (1 - abs(t % (2 * self.width) - self.width) / self.width)


MAKES = {
    "linear": lambda o: optim.LinearDecay(o, steps=12, end=0.01),
    "linear, warm-up": lambda o: optim.LinearDecay(o, steps=12, warmup=5),
    "cosine": lambda o: optim.CosineDecay(o, steps=12),
    "cosine, warm-up": lambda o: optim.CosineDecay(o, steps=12, end=0.003, warmup=4),
    "steps": lambda o: optim.StepDecay(o, every=3, factor=0.3),
    "restarts": lambda o: optim.CosineWarmRestarts(o, first=2, growth=2, end=0.001),
    "own": lambda o: Triangle(o, width=3),
}
EMPTY = {  # built with other numbers, which the saved ones replace
    "linear": lambda o: optim.LinearDecay(o, steps=5),
    "linear, warm-up": lambda o: optim.LinearDecay(o, steps=5),
    "cosine": lambda o: optim.CosineDecay(o, steps=1),
    "cosine, warm-up": lambda o: optim.CosineDecay(o, steps=1),
    "steps": lambda o: optim.StepDecay(o, every=1),
    "restarts": lambda o: optim.CosineWarmRestarts(o, first=1),
    "own": lambda o: Triangle(o, width=1),
}


def sgd(lr=0.1):
    return ss.SGD([ss.Parameter([1.0])], lr=lr)


def rates(optimizer, schedule, steps):
    found = []
    for _ in range(steps):
        found.append(optimizer.lr)
        schedule.step()
    return [*found, optimizer.lr]


@pytest.mark.parametrize("stop", [0, 1, 4, 5, 11, 12, 15])
@pytest.mark.parametrize("name", MAKES)
def test_a_resumed_schedule_goes_on_at_the_same_rates(name, stop):
    optimizer = sgd()
    whole = rates(optimizer, MAKES[name](optimizer), 20)
    optimizer = sgd()
    schedule = MAKES[name](optimizer)
    rates(optimizer, schedule, stop)
    saved = pickle.dumps((optimizer.state_dict(), schedule.state_dict()))
    for order in ("optimizer first", "schedule first", "schedule built last"):
        states = pickle.loads(saved)
        other = sgd(0.5)
        if order == "schedule built last":
            other.load_state_dict(states[0])
        resumed = EMPTY[name](other)
        if order == "optimizer first":
            other.load_state_dict(states[0])
        resumed.load_state_dict(states[1])
        if order == "schedule first":
            other.load_state_dict(states[0])
        assert rates(other, resumed, 20 - stop) == whole[stop:], order


def test_one_schedule_after_another_goes_on_in_the_second():
    """Warm-up with one, then decay with the next, whose base is the rate that it found."""

    def run(stop):
        optimizer = sgd(0.7)
        first, second, found = optim.LinearDecay(optimizer, steps=4, end=0.3), None, []
        for t in range(12):
            if t == stop:
                saved = copy.deepcopy([s.state_dict() for s in (optimizer, first, second) if s])
                optimizer = sgd(0.01)
                first = optim.LinearDecay(optimizer, steps=1)
                second = optim.CosineDecay(optimizer, steps=1) if second else None
                for thing, state in zip((optimizer, first, second), saved, strict=False):
                    thing.load_state_dict(state)
            if t == 4:
                second = optim.CosineDecay(optimizer, steps=8)
            (second or first).step()
            found.append(optimizer.lr)
        return found

    assert run(2) == run(4) == run(5) == run(11) == run(None)


def test_a_rate_set_by_hand_is_the_rate_after_loading():
    optimizer = sgd()
    schedule = optim.StepDecay(optimizer, every=5)
    optimizer.lr = 0.0625
    other = sgd()
    resumed = optim.StepDecay(other, every=5)
    resumed.load_state_dict(schedule.state_dict())
    assert other.lr == 0.0625
    resumed.step()
    schedule.step()
    assert other.lr == optimizer.lr == 0.1


@pytest.mark.parametrize("rate", [np.float32(0.1), np.array([0.1]), ss.tensor(0.1)])
def test_a_schedule_of_a_rate_of_any_kind(rate):
    optimizer = sgd(rate)
    schedule = optim.StepDecay(optimizer, every=1, factor=np.float32(0.5))
    schedule.step()
    assert optimizer.lr == pytest.approx(0.05) and type(optimizer.lr) is float


MISFITS = [
    (lambda s: None, "no state of a schedule"),
    (lambda s: {"t": 3}, "no state of a schedule"),
    (lambda s: dict(s, kind="LinearDecay"), "saved from LinearDecay, not from CosineDecay"),
    (lambda s: s["numbers"].pop("end") and s, "were saved, this has"),
    (lambda s: s["numbers"].update(every=3) or s, "were saved, this has"),
    (lambda s: s["numbers"].update(t=-1) or s, "t must be a whole number"),
    (lambda s: s["numbers"].update(t=1.5) or s, "t must be a whole number"),
    (lambda s: s["numbers"].update(base=math.nan) or s, "base must be not below 0"),
    (lambda s: s["numbers"].update(base="a") or s, "base must be a number"),
    (lambda s: dict(s, lr=-1.0), "lr must be not below 0"),
]


@pytest.mark.parametrize("misfit, message", MISFITS)
def test_nothing_of_a_state_that_does_not_fit_is_loaded(misfit, message):
    optimizer = sgd()
    schedule = optim.CosineDecay(optimizer, steps=10, end=0.01)
    rates(optimizer, schedule, 3)
    saved = schedule.state_dict()
    fresh = sgd()
    other = optim.CosineDecay(fresh, steps=20)
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(ss.ShoestringError, match=message):
        other.load_state_dict(misfit(copy.deepcopy(saved)))
    assert other.state_dict() == before
    other.load_state_dict(saved)
    assert other.state_dict() == saved


REFUSED = [
    (optim.CosineDecay, dict(steps=0), "steps must be a whole number of at least 1"),
    (optim.CosineDecay, dict(steps=2.5), "steps must be"),
    (optim.CosineDecay, dict(steps=True), "steps must be"),
    (optim.CosineDecay, dict(steps="9"), "steps must be"),
    (optim.CosineDecay, dict(steps=9, warmup=-1), "warmup must be a whole number of at least 0"),
    (optim.LinearDecay, dict(steps=9, warmup=10), "does not fit into 9"),
    (optim.LinearDecay, dict(steps=9, end=-0.1), "end must be not below 0"),
    (optim.LinearDecay, dict(steps=9, end=math.nan), "end must be not below 0"),
    (optim.LinearDecay, dict(steps=9, end="0"), "end must be a number"),
    (optim.StepDecay, dict(every=0), "every must be"),
    (optim.StepDecay, dict(every=1, factor=-0.5), "factor must be not below 0"),
    (optim.StepDecay, dict(every=1, factor=None), "factor must be a number"),
    (optim.CosineWarmRestarts, dict(first=0), "first must be"),
    (optim.CosineWarmRestarts, dict(first=1, growth=0), "growth must be"),
    (optim.CosineWarmRestarts, dict(first=1, end=-1), "end must be not below 0"),
]


@pytest.mark.parametrize("kind, numbers, message", REFUSED)
def test_bad_numbers_are_refused_and_the_rate_stays(kind, numbers, message):
    optimizer = sgd()
    with pytest.raises(ss.ShoestringError, match=message):
        kind(optimizer, **numbers)
    assert optimizer.lr == 0.1


@pytest.mark.parametrize("thing", [None, 0.1, [ss.Parameter([1.0])], ss.Linear(2, 2)])
def test_a_schedule_needs_an_optimizer(thing):
    with pytest.raises(ss.ShoestringError, match="sets the rate of an optimiser"):
        optim.StepDecay(thing, every=1)


def test_whole_numbers_of_numpy_count_steps():
    optimizer = sgd()
    schedule = optim.StepDecay(optimizer, every=np.int64(2), factor=0.5)
    assert rates(optimizer, schedule, 4) == [0.1, 0.1, 0.05, 0.05, 0.025]


def test_a_schedule_inside_a_compiled_step_is_refused_and_does_not_move():
    optimizer = sgd()
    schedule = optim.StepDecay(optimizer, every=1)

    @ss.compile
    def step(x):
        schedule.step()
        return x * 2

    with pytest.raises(TraceError, match="cannot step inside a compiled step"):
        step(ss.ones(2))
    assert schedule.t == 0 and optimizer.lr == 0.1
