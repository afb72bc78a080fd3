"""Optimisers in the corners: late and frozen parameters, loading, what a compiled step keeps."""

import math
import pickle

import numpy as np
import pytest

import shoestring as ss


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


# ---- hyper-parameters ----------------------------------------------------------------------------
ROWS = [np.float32(0.25), np.float64(0.25), np.array(0.25), np.array([0.25], np.float32), 0.25]


@pytest.mark.parametrize("value", [*ROWS, "tensor", "row"])
@pytest.mark.parametrize("when", ["built", "set"])
def test_a_rate_of_any_kind_of_number_acts_and_is_saved(value, when):
    value = {"tensor": ss.tensor(0.25), "row": ss.tensor([0.25])}.get(str(value), value)
    p = ss.Parameter(array(1.0))
    optimizer = ss.SGD([p], lr=value if when == "built" else 1.0)
    optimizer.lr = value
    p.sum().backward()
    optimizer.step()
    assert p.item() == 0.75
    assert optimizer.state_dict()["numbers"]["lr"] == 0.25
    other = ss.SGD([p], lr=1.0)
    other.load_state_dict(optimizer.state_dict())
    assert other.lr == 0.25 and type(other.lr) is float


@pytest.mark.parametrize("make", [ss.Adam, ss.AdamW])
def test_all_numbers_of_adam_are_saved_and_loaded(make):
    p = ss.Parameter(array(1.0))
    kinds = np.float64, np.float32
    given = dict(betas=tuple(np.array([0.5, 0.75])), eps=kinds[0](0.125), weight_decay=kinds[1](2))
    saved = make([p], lr=np.float32(0.5), **given).state_dict()
    other = make([p])
    other.load_state_dict(saved)
    found = (other.lr, other.betas, other.eps, other.weight_decay)
    assert found == (0.5, (0.5, 0.75), 0.125, 2.0)


BAD = [
    (ss.SGD, "lr", [-0.1, math.nan, math.inf, 1e39, 10**400, "0.1", None, True, 1j, [0.1]]),
    (ss.SGD, "lr", [np.ones(2), np.float32(-1), np.array(math.nan), np.array("a")]),
    (ss.SGD, "momentum", [-0.1, 1.1, math.nan, "a", None]),
    (ss.SGD, "weight_decay", [-1e-3, math.nan, math.inf, "a", None, (0.1,)]),
    (ss.Adam, "eps", [0, 0.0, 1e-60, -1e-8, math.nan, "a", None]),
    (ss.Adam, "weight_decay", [-1e-3, math.nan, "a"]),
    (ss.AdamW, "weight_decay", [-1e-3, math.nan, "a"]),
    (ss.Adam, "betas", [0.9, (0.9,), (0.9, 0.99, 0.999), "ab", None, ("a", 0.9), (0.9, None)]),
    (ss.Adam, "betas", [(-0.1, 0.9), (1.0, 0.9), (0.9, 1.0), (0.9, math.nan), (0.9, 0.999999999)]),
]
BAD = [(make, name, value) for make, name, values in BAD for value in values]


@pytest.mark.parametrize("make, name, value", BAD)
def test_bad_numbers_are_refused_when_built_and_when_set(make, name, value):
    p = ss.Parameter(array(1.0))
    with pytest.raises(ss.ShoestringError, match=name.rstrip("s")):
        make([p], **{name: value})
    optimizer = make([p], lr=0.25)
    before = optimizer.numbers()
    with pytest.raises(ss.ShoestringError, match=name.rstrip("s")):
        setattr(optimizer, name, value)
    assert optimizer.numbers() == before
    p.sum().backward()
    optimizer.step()
    assert math.isfinite(p.item())


@pytest.mark.parametrize("value", [0.9, None, "yes", 1])
def test_nesterov_is_a_flag(value):
    with pytest.raises(ss.ShoestringError, match="nesterov is True or False"):
        ss.SGD([ss.Parameter([1.0])], lr=0.1, momentum=0.9, nesterov=value)


def test_numbers_set_between_steps_act_and_compile_nothing_anew():
    """Every number is an input of the plan: after the first step no other plan is made, and the
    steps are those of the formula."""
    p = ss.Parameter(array(1.0))
    optimizer = ss.SGD([p], lr=0.5, momentum=0.5, weight_decay=0.25)
    expected, v = np.float32(1), np.float32(0)
    plans = []
    for k in range(4):
        optimizer.lr, optimizer.momentum, optimizer.weight_decay = 0.5 / 2**k, 0.5 + k / 16, k / 8
        optimizer.weight_decay += 0.125
        p.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        v = np.float32(optimizer.momentum) * v + (1 + np.float32(optimizer.weight_decay) * expected)
        expected -= np.float32(optimizer.lr) * v
        assert p.item() == pytest.approx(expected, rel=1e-6)
        plans.append(ss.stats()["plans"])
    assert plans[1:] == plans[1:2] * 3


# ---- parameters ----------------------------------------------------------------------------------
OPTIMIZERS = [ss.SGD, ss.Adam, ss.AdamW]


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_what_has_no_gradient_is_not_trained(make):
    for thing in (ss.Variable([1.0], "mean"), ss.Variable([1], "count")):
        with pytest.raises(ss.errors.DTypeError, match=f"{thing.name} has no gradient"):
            make([ss.Parameter([1.0]), thing])


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_a_parameter_that_stands_twice_is_trained_once(make):
    p, q = ss.Parameter(array(1.0)), ss.Parameter(array(1.0))
    for optimizer, parameter in ((make([p, p], lr=0.1), p), (make([q], lr=0.1), q)):
        parameter.sum().backward()
        optimizer.step()
    assert p.item() == q.item() != 1


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_a_step_without_gradients_changes_nothing(make):
    p = ss.Parameter(array(1.0))
    optimizer = make([p], lr=0.1, weight_decay=0.5)
    for _ in range(2):
        optimizer.step()
        optimizer.zero_grad()
    assert p.item() == 1 and optimizer.state_dict()["slots"] == [{}]
    p.sum().backward()
    optimizer.step()
    assert p.item() != 1


# ---- saved states --------------------------------------------------------------------------------
def trained(make, lr=0.1):
    ps = [ss.Parameter(array(1.0), "a"), ss.Parameter(array(1.0, 2.0), "b")]
    optimizer = make(ps, lr)
    (ps[0].sum() + ps[1].sum()).backward()
    optimizer.step()
    optimizer.zero_grad()
    return ps, optimizer


def flat(state):
    slots = [{n: v.tolist() for n, v in s.items()} for s in state["slots"]]
    return state["numbers"], slots, state["clocks"]


def changed(state, part, change):
    import copy

    state = copy.deepcopy(state)
    found = change(state[part])
    return state if found is None else dict(state, **{part: found})


MISFITS = [
    ("kind", lambda s: "RMSprop", "saved from RMSprop, not from"),
    ("slots", lambda s: s[:1], "1 parameters were saved, this optimiser has 2"),
    ("slots", lambda s: s[1].update(other=array(1.0, 2.0)), "b has the slots"),
    ("slots", lambda s: s[1].update({n: array(1.0) for n in s[1]}), "is \\[1\\], the parameter"),
    ("slots", lambda s: s[1].update({n: np.array(["a", "b"]) for n in s[1]}), "not numbers"),
    ("numbers", lambda s: s.pop("lr") and None, "the numbers .* were saved"),
    ("numbers", lambda s: s.update(extra=1.0), "the numbers .* were saved"),
    ("numbers", lambda s: s.update(lr=math.nan), "lr must be not below 0"),
    ("numbers", lambda s: s.update(lr="fast"), "lr must be a number"),
]
ONLY_SGD = [("numbers", lambda s: s.update(nesterov=0.5), "nesterov was saved as 0.5")]
ONLY_ADAM = [
    ("slots", lambda s: s[1].pop("mean") is None or None, "b has the slots"),
    ("numbers", lambda s: s.update(beta2=1.0), "beta2 must be in"),
    ("clocks", lambda s: s.pop(1) and None, "clocks of parameters"),
    ("clocks", lambda s: s.update({5: (0.9, 0.9)}), "clocks of parameters"),
    ("clocks", lambda s: {str(k): v for k, v in s.items()}, "clocks of parameters"),
    ("clocks", lambda s: s.update({1: (0.9,)}), "not two numbers"),
    ("clocks", lambda s: s.update({1: (0.9, math.nan)}), "must be in"),
]
LOADS = [(lambda ps, lr: ss.SGD(ps, lr, 0.9), m) for m in MISFITS + ONLY_SGD]
LOADS += [(lambda ps, lr: ss.Adam(ps, lr), m) for m in MISFITS + ONLY_ADAM]


@pytest.mark.parametrize("make, misfit", LOADS)
def test_nothing_of_a_state_that_does_not_fit_is_loaded(make, misfit):
    part, change, message = misfit
    _, optimizer = trained(make)
    before = flat(optimizer.state_dict())
    _, donor = trained(make, lr=0.5)
    saved = changed(donor.state_dict(), part, change)
    with pytest.raises(ss.ShoestringError, match=message):
        optimizer.load_state_dict(saved)
    assert flat(optimizer.state_dict()) == before
    optimizer.load_state_dict(donor.state_dict())
    assert flat(optimizer.state_dict()) == flat(donor.state_dict())


@pytest.mark.parametrize("thing", [None, 3, [], {}, {"kind": "SGD"}, {"w": array(1.0)}])
def test_what_is_no_state_of_an_optimizer_is_refused(thing):
    with pytest.raises(ss.ShoestringError, match="no state of an optimiser"):
        ss.SGD([ss.Parameter([1.0])], lr=0.1).load_state_dict(thing)


def test_a_saved_state_is_a_copy_and_so_is_what_is_loaded():
    ps, optimizer = trained(momentum_of)
    saved = optimizer.state_dict()
    ps[0].sum().backward()
    optimizer.step()
    assert saved["slots"][0]["momentum"].tolist() == [1]
    optimizer.load_state_dict(saved)
    saved["slots"][0]["momentum"][:] = 7
    assert optimizer.state_dict()["slots"][0]["momentum"].tolist() == [1]


def momentum_of(parameters, lr):
    return ss.SGD(parameters, lr, momentum=0.9)


@pytest.mark.parametrize("make", [momentum_of, ss.Adam, ss.AdamW])
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_a_state_goes_through_pickle_bit_by_bit(make, device):
    def run(steps, restart):
        p = ss.Parameter(array(1.0, -2.0), device=device)
        optimizer = make([p], 0.1)
        for k in range(steps):
            if k == restart:
                saved = pickle.dumps((p.numpy(), optimizer.state_dict()))
                value, state = pickle.loads(saved)
                p = ss.Parameter(value, device=device)
                optimizer = make([p], 1.0)
                optimizer.load_state_dict(state)
            (p * p * (k + 1)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return p.numpy().tobytes()

    assert run(6, None) == run(6, 3) == run(6, 1)


@pytest.mark.parametrize("make", [momentum_of, ss.Adam, ss.AdamW])
def test_a_compiled_step_takes_every_new_rate_without_a_new_trace(make):
    found = []
    for compiled in (False, True):
        p = ss.Parameter(array(1.0, -2.0))
        optimizer = make([p], 0.1)
        schedule = ss.optim.CosineDecay(optimizer, steps=8, warmup=2)

        def step(x, p=p, optimizer=optimizer):
            (p * p * x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        run = ss.compile(step) if compiled else step
        for k in range(8):
            run(ss.tensor(1.0 + k))
            schedule.step()
            if k == 4:
                optimizer.lr = np.float32(0.3)
        found.append(p.numpy().tobytes())
        traces = getattr(run, "traces", 1)
    assert found[0] == found[1] and traces <= 2  # the first step has made the slots


# ---- steps that did not happen -------------------------------------------------------------------
def begin_apart(before):
    """Adam: a alone for 4 steps, then a and b for 3, after `before` has done something that is no
    step."""
    a, b = ss.Parameter(array(0.0), "a"), ss.Parameter(array(0.0), "b")
    optimizer = ss.Adam([a, b], lr=0.1)

    def early(g):
        optimizer.zero_grad()
        (a * g).sum().backward()
        optimizer.step()

    def late(g):
        optimizer.zero_grad()
        ((a + b) * g).sum().backward()
        optimizer.step()

    run = ss.compile(early), ss.compile(late)
    before(a, b, optimizer, run)
    for k in range(7):
        run[k >= 4](ss.tensor(array(1.0 + k)))
    return a.item(), b.item()


def look_at_a_plan(a, b, optimizer, run):
    run[1].plan(ss.tensor(array(1.0)))


def look_at_both_plans(a, b, optimizer, run):
    run[1].plan(ss.tensor(array(1.0)))
    run[0].plan(ss.tensor(array(1.0)))


def fail_in_a_trace(a, b, optimizer, run):
    def step(g):
        ((a + b) * g).sum().backward()
        optimizer.step()
        raise KeyError

    with pytest.raises(KeyError):
        ss.compile(step)(ss.tensor(array(1.0)))


def be_refused(a, b, optimizer, run):
    ((a + b) * math.nan).sum().backward()
    ss.check_nan_gradients([a, b])
    optimizer.step()
    with pytest.raises(ss.errors.DataError):
        a.numpy()


def load_it(a, b, optimizer, run):
    look_at_a_plan(a, b, optimizer, run)
    optimizer.load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize(
    "before", [look_at_a_plan, look_at_both_plans, fail_in_a_trace, be_refused, load_it]
)
def test_a_step_that_did_not_happen_starts_no_clock(before):
    gs = np.arange(1.0, 8.0)
    a, b = begin_apart(before)
    assert (a, b) == begin_apart(lambda *_: None)
    assert a == pytest.approx(adam(gs), rel=1e-4)
    assert b == pytest.approx(adam([None] * 4 + list(gs[4:])), rel=1e-4)


@pytest.mark.parametrize("make", [lambda ps, lr: ss.SGD(ps, lr), momentum_of, ss.Adam, ss.AdamW])
@pytest.mark.parametrize("first", [False, True])
def test_a_refused_gradient_of_one_parameter_refuses_the_whole_step(make, first):
    """The plan ends before anything is stored: no half of a step happens, in any optimiser."""
    a, b = ss.Parameter(array(1.0), "a"), ss.Parameter(array(1.0), "b")
    optimizer = make([a, b], 0.1)

    def step(scale):
        (a * 1.0 + b * scale).sum().backward()
        ss.check_nan_gradients([a, b])
        optimizer.step()
        optimizer.zero_grad()

    if not first:
        step(2.0)
    before = a.tolist(), b.tolist(), flat(optimizer.state_dict())
    step(math.nan)
    with pytest.raises(ss.errors.DataError, match="gradient of b is NaN"):
        a.numpy()
    after = a.tolist(), b.tolist(), flat(optimizer.state_dict())
    if not first:  # slots are there, and zero, after a first step that was refused
        assert after == before
    assert after[:2] == before[:2]
    step(2.0)
    twins = ss.Parameter(array(1.0), "a"), ss.Parameter(array(1.0), "b")
    other = make(list(twins), 0.1)
    for _ in range(2 - first):
        (twins[0] + twins[1] * 2.0).sum().backward()
        other.step()
        other.zero_grad()
    assert [p.numpy().tobytes() for p in (a, b)] == [p.numpy().tobytes() for p in twins]
