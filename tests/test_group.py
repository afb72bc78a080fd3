"""Updates that share a launch: the same bits, and chains that run piece by piece."""

import itertools

import numpy as np
import pytest
from common import program_of
from hypothesis import given, settings
from hypothesis import strategies as st

import shoestring as ss
from shoestring.backends import Attached, Kernel
from shoestring.backends.cpu import _native as native
from shoestring.backends.device import device
from shoestring.runtime import session
from shoestring.runtime.inspection import Sample

OPTIMIZERS = {
    "sgd": lambda ps: ss.SGD(ps, lr=0.1),
    "momentum": lambda ps: ss.SGD(ps, lr=0.1, momentum=0.9),
    "nesterov": lambda ps: ss.SGD(ps, lr=0.1, momentum=0.9, nesterov=True),
    "decay": lambda ps: ss.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda ps: ss.Adam(ps, lr=0.01),
    "adam with decay": lambda ps: ss.Adam(ps, lr=0.01, weight_decay=0.1),
    "adamw": lambda ps: ss.AdamW(ps, lr=0.01, weight_decay=0.1),
}
SIZES = [(3,), (), (5, 7), (300, 401), (16, 1, 3, 3), (1,), (100_003,), (64, 33)]


def trained(make, fused, threads=2, sizes=SIZES):
    """(bytes of all parameters and slots after three steps, plan of a step)."""
    rng = np.random.default_rng(0)
    before, count = session.fuse, native.threads()
    session.fuse = fused
    native.set_threads(threads)
    try:
        ps = [ss.Parameter(rng.normal(size=s).astype(np.float32)) for s in sizes]
        xs = [ss.tensor(rng.normal(size=s).astype(np.float32)) for s in sizes]
        optimizer = make(ps)

        @ss.compile
        def step(*xs):
            parts = [((p * x).tanh() ** 2).sum() for p, x in zip(ps, xs, strict=True)]
            loss = sum(parts[1:], parts[0])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        losses = [step(*xs).item() for _ in range(3)]
        assert losses[2] < losses[0]
        state = [p.numpy().tobytes() for p in ps]
        slots = optimizer.state_dict()["slots"]
        state += [x.tobytes() for found in slots for _, x in sorted(found.items())]
        assert len(state) == len(ps) * (1 + len(slots[0]))
        return state, step.plans()[-1]
    finally:
        session.fuse = before
        native.set_threads(count)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_bits_are_those_of_one_update_after_the_other(name):
    together, plan = trained(OPTIMIZERS[name], True)
    alone, apart = trained(OPTIMIZERS[name], False)
    assert together == alone == trained(OPTIMIZERS[name], True, threads=1)[0]
    assert plan.kernel_count() < apart.kernel_count()


def test_a_parameter_follows_its_momentum_piece_by_piece():
    _, plan = trained(OPTIMIZERS["momentum"], True)
    updates = [s for s in plan.steps if s.home is not None]
    assert len(updates) == 2 * len(SIZES)
    for velocity, parameter in zip(updates[::2], updates[1::2], strict=True):
        assert parameter.chained and not velocity.chained
        assert parameter.group == velocity.group is not None
        assert velocity.position in [plan.roots[j] for j in parameter.ins]


def test_more_updates_than_fit_into_one_launch():
    sizes = [(k % 7 + 1,) for k in range(150)]
    together, plan = trained(OPTIMIZERS["momentum"], True, sizes=sizes)
    assert together == trained(OPTIMIZERS["momentum"], False, sizes=sizes)[0]
    groups = [s.group for s in plan.steps if s.home is not None]
    assert len(groups) == 300 and len(set(groups)) == 5
    assert max(groups.count(g) for g in groups) <= 64


@pytest.mark.parametrize("before_it", [True, False])
def test_what_reads_in_another_order_is_no_link_of_a_chain(before_it):
    """b' reads a', or a before a' lies over it, transposed: elements that other tasks write."""
    rng = np.random.default_rng(0)
    start = [rng.normal(size=(400, 400)).astype(np.float32) for _ in range(2)]
    results = []
    for fused in (True, False):
        before = session.fuse
        session.fuse = fused
        try:
            a, b = (ss.Parameter(x.copy()) for x in start)

            @ss.compile
            def step():
                with ss.no_grad():
                    if before_it:
                        b.assign(b + a.T)
                    a.assign(a * 0.5 + 1)
                    if not before_it:
                        b.assign(b + a.T)

            step()
            step()
            results.append([a.numpy().tobytes(), b.numpy().tobytes()])
            plan = step.plans()[-1]
        finally:
            session.fuse = before
        if fused:
            assert not any(s.chained for s in plan.steps)
    assert results[0] == results[1]


def test_a_chain_longer_than_a_launch():
    rng = np.random.default_rng(0)
    start = rng.normal(size=(70, 5)).astype(np.float32)
    results = []
    for fused in (True, False):
        before = session.fuse
        session.fuse = fused
        try:
            states = [ss.Parameter(x.copy()) for x in start]

            @ss.compile
            def step(states=states):
                with ss.no_grad():
                    for one, two in itertools.pairwise(states):
                        two.assign(two * 0.5 + one)

            step()
            step()
            results.append([p.numpy().tobytes() for p in states])
            plan = step.plans()[-1]
        finally:
            session.fuse = before
        if fused:
            groups = [s.group for s in plan.steps if s.home is not None]
            assert len(groups) == 69 and [groups.count(g) for g in sorted(set(groups))] == [64, 5]
    assert results[0] == results[1]


SHAPES = [(200, 202), (202, 200), (40_400,), (), (200,)]  # the first three: several tasks
UPDATE = st.tuples(
    st.integers(0, 3), st.integers(0, 3), st.sampled_from(["same", "turned", "flipped", "number"])
)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from(SHAPES), min_size=4, max_size=4),
    st.lists(UPDATE, min_size=2, max_size=8),
)
def test_any_updates_equal_those_one_by_one(shapes, updates):
    """State i becomes a combination of itself and of state j, as it is or in another order."""
    rng = np.random.default_rng(0)
    start = [rng.normal(size=shape).astype(np.float32) for shape in shapes]

    def other(x, like, how):
        if how == "number" or x.size not in (1, like.size):
            return x.reshape(x.size)[x.size // 2]
        if x.size == 1:
            return x
        if how == "flipped":
            x = x.flip(0)
        if how == "turned" and x.ndim == 2:
            x = x.T
        return x.reshape(like.shape)

    results = []
    for fused in (True, False):
        before = session.fuse
        session.fuse = fused
        try:
            states = [ss.Parameter(x.copy()) for x in start]

            @ss.compile
            def step(states=states):
                with ss.no_grad():
                    for i, j, how in updates:
                        one, two = states[i], states[j]
                        one.assign(one * 0.5 + other(two, one, how))

            step()
            step()
            results.append([p.numpy().tobytes() for p in states])
        finally:
            session.fuse = before
    assert results[0] == results[1]


def test_the_inspection_finds_what_an_update_before_has_just_written_in_another_shape(monkeypatch):
    monkeypatch.setattr(Sample, "share", 1.0)
    monkeypatch.setattr(session, "check", True)
    one, two = ss.Parameter(np.ones((4, 3))), ss.Parameter(np.full(12, 2.0))

    @ss.compile
    def step():
        with ss.no_grad():
            two.assign(two * 0.5 + one.reshape(12))
            one.assign(one * 0.5 + two.reshape(4, 3))

    step()
    step()
    assert two.numpy().tolist() == [3.5] * 12 and one.numpy().tolist() == [[4.75] * 3] * 4


def part(size, buffers, chained):
    """y = a + b over float32[size], as a part of a launch."""
    from shoestring.ir import OPS
    from shoestring.testing import operand

    x = operand(np.empty(size, np.float32))
    (kernel,) = OPS["add"]().launch(device("cpu"), [x, x], [x]).kernels
    return Attached("part", int(chained), buffers, kernel.integers)


@pytest.mark.parametrize("sizes", [(8, 8), (8, 9)])
def test_parts_of_a_chain_have_one_size(sizes):
    parts = part(sizes[0], (0, 0, 1), False), part(sizes[1], (1, 0, 2), True)
    kernel = Kernel("elementwise_group", (), attached=parts)
    if sizes[0] != sizes[1]:
        with pytest.raises(ValueError, match="chained to one of another size"):
            program_of(kernel)
        return
    x, y, z = np.ones(8, np.float32), np.zeros(8, np.float32), np.zeros(8, np.float32)
    program_of(kernel).run([a.__array_interface__["data"][0] for a in (x, y, z)])
    assert y.tolist() == [2] * 8 and z.tolist() == [3] * 8


def test_a_shared_launch_has_parts_and_nothing_else():
    first, second = part(8, (0, 0, 1), False), part(8, (1, 0, 2), True)
    for parts, own, message in [
        ((), (), "1 to 64 parts"),
        ((first,) * 65, (), "1 to 64 parts"),
        ((first,), (0,), "nothing of its own"),
        ((second,), (), "chained to one of another size"),
        ((first._replace(index=2),), (), "takes nothing at this port"),
        ((first._replace(port="store"),), (), "takes nothing at this port"),
        ((first._replace(buffers=(0,)),), (), "sizes that its header"),
    ]:
        with pytest.raises(ValueError, match=message):
            program_of(Kernel("elementwise_group", own, attached=parts))
