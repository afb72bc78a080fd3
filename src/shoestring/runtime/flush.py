"""What is alive, what has changed, when to compute it.

  node     a value, for ever the same; computed or not
  handle   what the user holds (a Tensor). One per node, known here by weak reference only
  state    what lasts and changes (see state.py)

flush() computes: what was asked; the newest version of every state that this thread changed, and of
those that other threads changed where their work meets (see portions()); every live handle whose
value needs a version that is about to be overwritten; and it keeps every live handle that lies on
the way. So after it no live value needs an old version, homes may always be written in place, and
no copy is made unless a handle asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .. import compile as compiler
from ..backends.device import TURN
from ..backends.device import device as open_device
from ..errors import TraceError, fail, user_line
from ..ir import Node, ancestry, leaf
from . import limits
from .arena import arena_bytes
from .executor import Executable, Suspect
from .failure import Failure, components, give_up, report
from .guard import Uninterrupted, let_go
from .session import DIRTY, HANDLES, MAX_PLANS, PLANS, counts, session
from .state import State

__all__ = ["compact", "current_versions", "flush", "live_handles", "settle_pending", "survey"]


def live_handles(mine: bool = False) -> list:
    """Of all threads, or of this one. Weak references without callbacks: nothing runs when a handle
    dies, so nothing can run at a bad moment. Only the part that was read is replaced: a handle that
    appears meanwhile is not lost. What a thread left behind that has ended becomes this one's."""
    if mine:
        return living(session.handles)
    found = []
    for entry in HANDLES[:]:
        thread, handles = entry
        if handles is not session.handles and not thread.is_alive():
            session.handles += handles
            HANDLES.remove(entry)
        else:
            found += living(handles)
    return found


def living(handles: list) -> list:
    seen = handles[:]
    alive = [t for r in seen if (t := r()) is not None and t.node.op is not None]
    # None: its thread is about to point it elsewhere, and lists it again then
    handles[: len(seen)] = [r for t in alive if (r := t.node.handle) is not None]
    return [t for t in alive if t.node.refused is None]


def survey(roots: Iterable[Node], doomed: set[Node]) -> tuple[list[Node], set[Node], set[Node]]:
    """order  all that the roots come from, by age
    lost   nodes whose value could not be computed once the versions in `doomed` are overwritten
    stale  nodes through which no backward() could go then

    Neither passes through the newest version of a state, which will be known, nor through what is
    known already."""
    order, lost, stale = ancestry(roots), set(doomed), set(doomed)
    known: set[Node] = set()
    for n in order if doomed or any([n.stale for n in order]) else ():
        if n.inputs and not (n.state is not None and n.state.node is n):
            if n.value is None and not lost.isdisjoint(n.inputs):
                lost.add(n)
                if not n.needs_grad and not is_held(
                    n
                ):  # a constant for backward(), but nobody keeps it
                    stale.add(n)
            if n.needs_grad and not stale.isdisjoint(n.inputs):
                stale.add(n)
        elif n.stale and n.needs_grad:  # a result of a compiled step
            stale.add(n)
            known.add(n)
    return order, lost, stale - doomed - known


def is_held(node: Node) -> bool:
    return node.handle is not None and node.handle() is not None


def current_versions(states: Iterable[State]) -> set[Node]:
    return {s.leaf for s in states if s.leaf is not None}


def flush(wanted: Sequence[Node] = (), bystanders: Sequence[Node] = ()) -> None:
    """Compute `wanted` and everything pending (see the header). Each device that is concerned runs
    one plan. What fails is given up and everything else goes on (see failure.py); then its error is
    raised. Threads take turns.

    bystanders  computed too; of one that fails only looking at it will say so
    """
    if session.trace is not None:
        fail(
            "compile/trace.read",
            "a value was read inside a traced step",
            op="compile",
            tensors={},
            error=TraceError,
            hint="return the tensor from the step and read it outside",
        )
    with TURN:
        wanted = [n for n in wanted if n.value is None]
        for n in wanted:
            if n.refused is not None:
                n.refused()
        nodes = [*wanted, *[n for n in bystanders if n.value is None and n.refused is None]]
        failures: list[Failure] = []
        for states in portions(nodes):
            if nodes:
                finals = {s.node for s in states}  # computed in any case, and into their homes
                nodes = [n for n in nodes if n.value is None and n not in finals]
            devices = {n.device: None for n in nodes} | {s.node.device: None for s in states}
            for name in devices:
                changed = [s for s in states if s.node.device == name]
                failures += flush_device(name, [n for n in nodes if n.device == name], changed)
            nodes = []
        session.settle = session.thread in DIRTY.values()
    if failures:
        del nodes
        report(failures, wanted)


def portions(wanted: list[Node]) -> list[list[State]]:
    """The changed states that a flush computes, by plan: first those of this thread, and all of
    another thread's where its work meets this one's, because this one depends on it, or overwrites
    a version that it needs; then, by themselves, those of threads that have ended. So no thread
    ever finds half a step of its own computed, which would have other bits, as the halves are other
    plans."""
    me = session.thread
    others = {owner: None for owner in DIRTY.values() if owner is not me}
    if not others:
        return [list(DIRTY)]
    found, start, nodes = [], me, wanted
    while start is not None:
        group = meeting(start, others, nodes)
        others = {owner: None for owner in others if owner not in group}
        found.append([s for s, owner in DIRTY.items() if owner in group])
        start, nodes = next((owner for owner in others if not owner.is_alive()), None), []
    return found


def meeting(start: Any, others: Iterable[Any], wanted: list[Node]) -> set:
    """`start`, and of the other threads those whose pending work meets its."""
    group, left = {start}, set(others) - {start}
    while left:
        changed = [s for s, owner in DIRTY.items() if owner in group]
        doomed = current_versions(changed)
        behind = {*ancestry([*wanted, *[s.node for s in changed]])}
        met = set()
        for owner in left:
            theirs = {s.node for s, o in DIRTY.items() if o is owner}
            if not (behind.isdisjoint(theirs) and doomed.isdisjoint(ancestry(theirs))):
                met.add(owner)
        if not met:
            break
        group |= met
        left -= met
    return group


def flush_device(name: str, wanted: list[Node], changed: list[State]) -> list[Failure]:
    """compute(), and after a failure again without what it took; where no one value is at fault,
    each part that can be computed by itself."""
    failures: list[Failure] = []
    while wanted or changed:
        try:
            compute(name, wanted, changed)
            break
        except MemoryError:  # of Python itself; a device's is a DeviceError
            raise
        except Exception as problem:
            let_go(problem)
            bad = vars(problem).pop("bad", None)
            parts = components(wanted, changed) if bad is None else []
            if len(parts) > 1:
                return [f for part in parts for f in flush_device(name, *part)]
            alive = [t.node for t in live_handles()]
            failures.append(give_up(problem, bad, wanted, changed, alive))
            if bad is None:
                break
        wanted = [n for n in wanted if n.refused is None]
        changed = [s for s in changed if s in DIRTY]
    return failures


def compute(name: str, wanted: list[Node], changed: list[State]) -> None:
    """One plan for `wanted`, the newest versions of the states in `changed`, and what needs the
    versions that they overwrite. All or nothing; the error of a single value has it as `bad`."""
    alive = [t for t in live_handles() if t.node.device == name]
    finals = [s.node for s in changed]
    doomed = current_versions(changed)
    order, lost, stale = survey({*wanted, *finals, *[t.node for t in alive if doomed]}, doomed)
    pending = [n for t in alive if (n := t.node).value is None]
    graph = compiler.Graph([*wanted, *finals, *[n for n in pending if n in lost]], finals, order)
    index = graph.index
    outputs = {*wanted, *[n for n in pending if n in index]}
    kept = worth_keeping([n for n in pending if n.needs_grad and n not in stale], graph)
    outputs |= {n for n in kept if n.op.outputs == 1}
    several = [n for n in kept if n.op.outputs > 1]
    asked = {index[n] for n in outputs}
    for n in several:
        asked.update(range(index[n] + 1, index[n] + 1 + n.op.outputs))
    with Uninterrupted() as guard:
        try:
            executable = plan_for(graph, sorted(asked), name, session.limit)
            suspects = suspects_of(executable, graph)
            found = executable.run([graph.nodes[i].value for i in graph.leaves], guard, suspects)
        except Exception as problem:
            at = vars(problem).pop("position", None)
            vars(problem)["bad"] = None if at is None else graph.node_at(at)
            raise
        for n in outputs:
            n.value = found[index[n]]
        for n in several:
            n.value = [found[index[n] + 1 + k] for k in range(n.op.outputs)]
        settle(changed, [found[index[n]] for n in finals], finals)
        cut(outputs)
        mark(stale)
        for state in changed:
            DIRTY.pop(state, None)


def plan_for(
    graph: compiler.Graph,
    outputs: list[int],
    name: str,
    limit: int | None,
) -> Executable:
    """The plan of a graph, from the cache or compiled now, within `limit` bytes."""
    modes = session.check, session.fuse, session.reuse
    key = graph.key(outputs, name, *modes, limit)
    found = PLANS.get(key)
    device = open_device(name)
    if found is None:
        free = limits.room(device, arena_bytes(name), limit, limit or 0)
        plan = compiler.plan(graph, outputs, device, *modes, free)
        limits.require(plan, free, limit)
        counts["plans"] += 1
        while len(PLANS) >= MAX_PLANS:
            PLANS.pop(next(iter(PLANS)))
        PLANS[key] = found = Executable(plan, device)
    else:
        found = PLANS[key] = fitted(found, limit)
    counts["runs"] += 1
    return found


def fitted(executable: Executable, limit: int | None) -> Executable:
    """The same work within the limit, of which other tensors may have taken more since it was
    planned."""
    device, plan = executable.device, executable.plan
    free = limits.room(device, arena_bytes(device.name), limit, plan.own_bytes)
    if free is None or plan.own_bytes <= free:
        return executable
    plan = plan.options.within(free) or plan.options.smallest()
    return Executable(limits.require(plan, free, limit), device)


def suspects_of(executable: Executable, graph: compiler.Graph) -> dict[int, Suspect]:
    """What errors of the plan's checks will say about their origin."""
    if not executable.checks:
        return {}
    nodes = {step.position: graph.nodes[step.position] for step in executable.checks}
    return {i: Suspect(n.spec, n.layer, n.line or "") for i, n in nodes.items()}


def worth_keeping(roots: list[Node], graph: compiler.Graph) -> set[Node]:
    """Values inside the plan that a later backward() of a live handle would otherwise compute a
    second time."""
    behind = ancestry(roots, differentiable=True) if roots and session.keep else ()
    return {
        n
        for n in behind
        if n.value is None
        and n.state is None
        and not n.spent
        and n in graph.index
        and n.op is not None
        and n.op.kind in ("kernel", "reduce", "random")
    }


def settle(states: list[State], arrays: list[Any], nodes: list[Node]) -> None:
    """The versions in `nodes` are now in the homes; the versions they replace are gone."""
    for state, array, node in zip(states, arrays, nodes, strict=True):
        if state.leaf is not None and state.leaf is not node:
            state.leaf.value, state.leaf.stale = None, str(state.name)
        node.value = state.home = array
        node.op, node.inputs = None, ()
        state.node = state.leaf = node
        state.pending = []


def cut(nodes: Iterable[Node]) -> None:
    """What is known and will never be differentiated is a leaf."""
    for n in nodes:
        if n.value is not None and (n.stale or not n.needs_grad):
            n.op, n.inputs = None, ()


def mark(stale: set[Node]) -> None:
    """A graph that leads to an overwritten version is of no use for backward(): let go of it. A
    value still to be computed from known ones keeps its inputs until then."""
    for n in stale:
        n.stale = n.stale or "a parameter"
    cut(stale)


def settle_pending() -> None:
    """Called before a forward or a second backward() builds on parameters or gradients: one plan
    holds at most one training step, so memory stays bounded without anyone looking."""
    if session.settle and session.trace is None:
        flush()


def compact() -> None:
    """Somebody builds and never looks: compute what is alive, so that the graph stays bounded."""
    with TURN:
        flush(bystanders=[t.node for t in live_handles(mine=True)])


def guarded(node: Node) -> Node:
    """A check's node remembers the user's line, for an error that appears only when the plan
    runs."""
    node.line = user_line()
    return node


def fresh_leaf(state: State, array: Any, device: str) -> Node:
    return leaf(array, state, needs_grad=state.needs_grad, device=device)
