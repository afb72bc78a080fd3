"""verify_plan finds every planted error, and the planner changes no result."""

import copy
import dataclasses

import numpy as np
import pytest
from common import training_step

import shoestring as ss
from shoestring.backends import Operand
from shoestring.compile.plan import ARENA, together
from shoestring.compile.verify_plan import verify_plan
from shoestring.errors import CompileError


def network():
    return ss.Sequential(
        ss.Conv2D(1, 4, 3), ss.BatchNorm2D(4), ss.ReLU(), ss.MaxPool2D(2), ss.Conv2D(4, 8, 3),
        ss.BatchNorm2D(8), ss.ReLU(), ss.Flatten(), ss.Dropout(0.5), ss.Linear(8 * 3 * 3, 5),
    )  # fmt: skip


def training_plan(net=None, shape=(4, 1, 12, 12)):
    ss.seed(1)
    net = net or network()
    optimizer = ss.SGD(net.parameters(), lr=0.1, momentum=0.9)

    step = ss.compile(training_step(net, optimizer))
    return step.plan(np.zeros(shape, np.float32), np.zeros(shape[0], np.int64))


@pytest.fixture(scope="module")
def found():
    return training_plan()


@pytest.fixture
def plan(found):
    """A plan that a test may spoil."""
    steps = []
    for step in found.steps:
        step = dataclasses.replace(step)
        for name in ("ins", "outs", "inputs", "outputs", "reads", "writes", "workspaces"):
            setattr(step, name, list(getattr(step, name)))
        steps.append(step)
    spoiled = dataclasses.replace(found, steps=steps)
    for name in ("values", "stores", "external", "bases", "roots", "specs"):
        setattr(spoiled, name, copy.copy(getattr(spoiled, name)))
    return spoiled


def refused(plan, match):
    with pytest.raises(CompileError, match=match):
        verify_plan(plan)


def moved(plan, root, by):
    """Value `root`, wherever it is read or written, `by` bytes further."""
    for step in plan.steps:
        for places, positions in ((step.reads, step.ins), (step.writes, step.outs)):
            for k, i in enumerate(positions):
                base, offset = places[k]
                if plan.roots[i] == root and base == ARENA:
                    places[k] = base, offset + by


def values(plan):
    return [t for t in plan.tenants if t.what == "value"]


def test_a_plan_as_it_was_made_is_right(plan):
    verify_plan(plan)


def test_one_place_64_bytes_further_is_found_wherever_it_is(plan):
    """At a single read or write the value is not where others look for it."""
    count = 0
    for step in plan.steps:
        for places in (step.reads, step.writes):
            for k, (base, offset) in enumerate(places):
                size = (step.inputs if places is step.reads else step.outputs)[k].size
                if size and (places is step.reads or base != ARENA or step.outs[k] in read(plan)):
                    places[k] = base, offset + 64
                    refused(plan, "the plan is wrong at")
                    places[k] = base, offset
                    count += 1
    assert count > 100
    verify_plan(plan)


def read(plan):
    return {plan.roots[i] for step in plan.steps for i in step.ins}


def test_a_tenant_moved_over_a_live_one_is_found(plan):
    """Every pair of values that are alive together: the one moved to where the other lies."""
    tenants = [t for t in values(plan) if t.root in read(plan)]
    pairs = 0
    for t in tenants:
        for other in tenants:
            apart = t.offset != other.offset
            # (the memory of t may have been taken over by others before t.last)
            if apart and t.first < other.first < last_read(plan, t.root):
                moved(plan, t.root, other.offset - t.offset)
                refused(plan, "the plan is wrong at|are outside")
                moved(plan, t.root, t.offset - other.offset)
                pairs += 1
    assert pairs > 20
    verify_plan(plan)


def last_read(plan, root):
    return max(k for k, s in enumerate(plan.steps) if root in [plan.roots[i] for i in s.ins])


def test_a_life_that_lasts_longer_than_the_planner_knew_is_found(plan):
    """A late step reads what others have overwritten since."""
    found = 0
    end = len(plan.steps) - 1
    for t in values(plan):
        step = plan.steps[t.last]
        later = [o for o in plan.tenants if t.last < o.first and meets(t, o)]
        if not later or t.root not in step.ins:
            continue
        k = step.ins.index(t.root)
        last = plan.steps[end]
        for name in ("ins", "reads", "inputs"):
            getattr(last, name).append(getattr(step, name)[k])
        refused(plan, f"at step {end}, .* has overwritten")
        for name in ("ins", "reads", "inputs"):
            getattr(last, name).pop()
        found += 1
    assert found > 10
    verify_plan(plan)


def meets(one, other):
    return one.offset < other.offset + other.nbytes and other.offset < one.offset + one.nbytes


def test_steps_in_the_wrong_order_are_found(plan):
    """Two neighbours of which the second reads what the first writes."""
    swapped = 0
    for k in range(len(plan.steps) - 1):
        one, two = plan.steps[k], plan.steps[k + 1]
        if {plan.roots[i] for i in two.ins} & set(one.outs):
            plan.steps[k : k + 2] = two, one
            refused(plan, "the plan is wrong at")
            plan.steps[k : k + 2] = one, two
            swapped += 1
    assert swapped > 10


def test_an_arena_that_is_too_small_is_found(plan):
    plan.arena_bytes -= 64
    refused(plan, "are outside")


def test_a_workspace_over_what_the_step_reads_is_found(plan):
    step = next(s for s in plan.steps if s.workspaces and s.reads[0][0] == ARENA)
    step.workspaces[0] = step.reads[0]
    refused(plan, "its workspace lies on what it reads")


def test_a_result_over_an_input_that_is_read_more_than_once_is_found(plan):
    step = next(
        s for s in plan.steps
        if not s.op.inplace and s.home is None and s.reads and s.writes
        and s.reads[0][0] == s.writes[0][0] == ARENA and s.outputs[0].size <= s.inputs[0].size
    )  # fmt: skip
    moved(plan, step.outs[0], step.reads[0][1] - step.writes[0][1])
    refused(plan, "result 0 lies on input")


def test_an_input_that_is_written_is_found(plan):
    step = next(s for s in plan.steps if s.home is None and s.writes and s.writes[0][0] == ARENA)
    leaf = next(i for i in plan.resident if i not in plan.labels)
    step.writes[0] = plan.bases[leaf], 0
    refused(plan, "is written over somebody's input|are outside")


def test_a_home_that_is_overwritten_while_the_plan_may_still_fail_is_found(plan):
    plan.point_of_no_return += 1
    refused(plan, "while the plan may still fail")


def test_a_result_in_the_arena_and_a_lost_state_are_found(plan):
    (i, (root, operand, offset)), *_ = plan.values.items()
    plan.values[i] = values(plan)[0].root, operand, offset
    refused(plan, "lies in the arena")
    plan.values[i] = root, operand, offset
    home = next(h for h in plan.stores.values() if h is not None)
    store = next(s for s, h in plan.stores.items() if h == home)
    plan.steps = [s for s in plan.steps if store not in s.outs]
    refused(plan, "the state stored at|reads value")


def test_a_record_that_is_overwritten_before_it_is_read_is_found(plan):
    check = next(k for k, s in enumerate(plan.steps) if s.record is not None)
    later = next(
        s for s in plan.steps[check + 1 : plan.point_of_no_return]
        if s.writes and s.writes[0][0] == ARENA
    )  # fmt: skip
    moved(plan, later.outs[0], plan.steps[check].record[1] - later.writes[0][1])
    refused(plan, "the plan is wrong at")


def test_the_plans_of_recomputation_are_right_too():
    parts = [p for _ in range(6) for p in (ss.Conv2D(4, 4, 3, padding=1), ss.Tanh(), ss.Dropout())]
    net = ss.Sequential(*parts, ss.Flatten(), ss.Linear(4 * 48 * 48, 5))
    smallest = training_plan(net, (16, 4, 48, 48)).options.smallest()
    assert any(step.recomputed for step in smallest.steps)
    verify_plan(smallest)


# ---- the planner on and off ----------------------------------------------------------------------


def trained(reuse, device, compiled, program):
    """All that three executions of `program` give."""
    ss.runtime.session.reuse = reuse
    try:
        ss.seed(5)
        run = program(device)
        run = ss.compile(run) if compiled else run
        rng = np.random.default_rng(0)
        x = ss.tensor(rng.normal(size=(6, 1, 12, 12)).astype(np.float32), device=device)
        y = ss.tensor(rng.integers(0, 5, 6), device=device)
        return [[np.asarray(v.numpy()).tobytes() for v in run(x, y)] for _ in range(3)]
    finally:
        ss.runtime.session.reuse = True


def two_backward_calls(device):
    """Gradients of two losses add up; they are kept and returned."""
    net = network().to(device)
    optimizer = ss.Adam(net.parameters(), lr=0.01)

    def run(x, y):
        optimizer.zero_grad()
        logits = net(x)
        loss, other = ss.cross_entropy(logits, y), (net(x * 2) ** 2).mean()
        loss.backward()
        other.backward()
        gradients = [p.grad * 1.0 for p in net.parameters()]
        optimizer.step()
        return [logits, loss, other, *gradients]

    return run


def an_output_that_is_an_input(device):
    """Inputs, a view of one, parameters and old values leave the plan as they were."""
    p = ss.Parameter(np.arange(12, dtype=np.float32).reshape(3, 4), device=device)

    def run(x, y):
        before = p * 1.0
        middle = (x.reshape(6, 144) @ ss.ones(144, 3, device=device)) @ before
        p.assign(p + middle.sum() * 1e-6)
        return [x, x[1:3], y, before, middle, middle.T, p]

    return run


@pytest.mark.parametrize("program", [two_backward_calls, an_output_that_is_an_input])
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_results_do_not_depend_on_the_planner(program, compiled, device):
    on = trained(True, device, compiled, program)
    off = trained(False, device, compiled, program)
    assert on == off


def test_without_the_planner_every_buffer_has_memory_of_its_own():
    def chain():
        layers = [(ss.Conv2D(4 if k else 1, 4, 3, padding=1), ss.ReLU()) for k in range(4)]
        parts = [part for layer in layers for part in layer]
        return ss.Sequential(*parts, ss.Flatten(), ss.Linear(4 * 12 * 12, 5))

    found = training_plan(chain())
    ss.runtime.session.reuse = False
    try:
        plan = training_plan(chain())
    finally:
        ss.runtime.session.reuse = True
    assert plan.arena_bytes == sum(t.nbytes for t in plan.tenants) > 4 * found.arena_bytes


MISTAKES = ["lives end too early", "offsets are off", "the arena is small"]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_the_planner_is_found_when_a_plan_is_made(mistake, monkeypatch):
    """The passes themselves go wrong: no plan gets through."""
    from shoestring.compile import pipeline

    lifetimes, assign = pipeline.lifetimes, pipeline.assign_offsets

    def short(*arguments):
        first, last = lifetimes(*arguments)
        return first, {r: max(first[r], k - 1) for r, k in last.items()}

    def off(buffers):
        layout = assign(buffers)
        offsets = [o + 64 * (k % 2) for k, o in enumerate(layout.offsets)]
        return layout._replace(offsets=offsets, total=layout.total + 64)

    def small(buffers):
        layout = assign(buffers)
        return layout._replace(total=layout.total - 64)

    if mistake == "lives end too early":
        monkeypatch.setattr(pipeline, "lifetimes", short)
    else:
        monkeypatch.setattr(pipeline, "assign_offsets", off if "offsets" in mistake else small)
    with pytest.raises(CompileError, match="the plan is wrong at"):
        training_plan()
    monkeypatch.undo()
    training_plan()


def launches(plan):
    return [found for found in together(plan.steps) if len(found) > 1]


def test_updates_that_wait_for_each_other_side_by_side_are_found(plan):
    """What follows another piece by piece, no longer chained to it; or behind nothing."""
    count = 0
    for steps in launches(plan):
        for step in steps:
            if step.chained:
                step.chained = False
                refused(plan, "launch .* the one writes what the other touches elsewhere")
                step.chained = True
                count += 1
        steps[0].chained = True
        refused(plan, "it is chained to nothing")
        steps[0].chained = False
    assert count > 5
    verify_plan(plan)


def test_a_link_that_reads_in_another_order_is_found(plan):
    """A parameter that reads its momentum, just written, from the last element to the first."""
    count = 0
    for step in [step for steps in launches(plan) for step in steps if step.chained]:
        for k, operand in enumerate(step.inputs):
            if plan.roots[step.ins[k]] in plan.stores and operand.size > 1:
                turned = tuple(-s for s in operand.strides)
                last = 4 * (operand.size - 1)
                base, offset = step.reads[k]
                step.inputs[k] = Operand(operand.shape, operand.dtype, turned)
                step.reads[k] = base, offset + last
                refused(plan, "the one writes what the other touches elsewhere")
                step.inputs[k], step.reads[k] = operand, (base, offset)
                count += 1
    assert count > 5
    verify_plan(plan)
