"""What a flush gives up when it fails: the values that depend on the bad one, and no others.

  refuse    values behind the bad one: looking at them raises its error again
  drop      states return to their newest version that does not depend on it
  undo      the failure has no one value as its cause (there is not enough memory, say): everything
            that hangs together, see components(), has not happened

After an interrupt, or where Python itself lacks memory, all stays pending and the next look tries
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

from ..ir import Node, ancestry
from .guard import let_go
from .session import DIRTY
from .state import State


class Failure(NamedTuple):
    """An error, and what was lost by it of what the flush was to compute."""

    problem: Exception
    values: list[Node]
    states: list[State]


def give_up(
    problem: Exception,
    bad: Node | None,
    wanted: list[Node],
    changed: list[State],
    alive: Iterable[Node],
) -> Failure:
    """Refuse and drop what depends on `bad`; without a bad value undo it all. alive: nodes of live
    handles."""
    again = (bad is not None and getattr(problem, "again", None)) or anew(problem)
    if bad is None:
        for n in wanted if changed else ():
            n.refused = again
        for state in changed:
            state.revert()
        return Failure(problem, wanted, changed)
    refuse(bad, [*wanted, *[s.node for s in changed], *alive], again)
    return Failure(problem, [n for n in wanted if n.refused is not None], drop(changed))


def anew(problem: Exception) -> Callable[[], NoReturn]:
    """Raises an error like `problem`, with its cause but not its traceback."""
    kind, arguments, facts = type(problem), problem.args, dict(vars(problem))
    cause = problem.__cause__

    def again() -> NoReturn:
        problem = kind.__new__(kind, *arguments)
        problem.args = arguments
        vars(problem).update(facts)
        raise problem from cause

    return again


def refuse(bad: Node, roots: Iterable[Node], again: Any) -> None:
    """`bad` and what depends on it among the roots and their ancestors will not be computed."""
    bad.refused = again
    for n in behind({bad}, roots):
        n.refused = again


def behind(bad: set[Node], roots: Iterable[Node]) -> set[Node]:
    """`bad`, and what is still to be computed from it."""
    found = set(bad)
    for n in ancestry(roots):
        if n.op is not None and n.value is None and not found.isdisjoint(n.inputs):
            found.add(n)
    return found


def drop(states: Iterable[State]) -> list[State]:
    """Let go of the versions that depend on refused values, and of those assigned together with
    them: no half of an optimiser's step happens. The states that had such. (A gradient before
    clipping stays, and a running statistic of the forward pass.)"""
    versions = [v for s in states for v in s.pending]
    bad = {n for n in ancestry(versions) if n.refused is not None}
    known = -1
    while known != len(bad):
        bad = behind(bad, versions)
        known = len(bad)
        tokens = {token_of(v) for v in versions if v in bad} - {None}
        bad |= {v for v in versions if token_of(v) in tokens}
    lost = [s for s in states if not bad.isdisjoint(s.pending)]
    for state in lost:
        state.pending = [v for v in state.pending if v not in bad]
        state.node = state.pending[-1] if state.pending else state.leaf
        if not state.pending:
            DIRTY.pop(state, None)
    return lost


def token_of(version: Node) -> object:
    """What the stores of one assign() have in common; None where it was the only one."""
    return getattr(version, "together", None)


def components(wanted: list[Node], changed: list[State]) -> list[tuple[list[Node], list[State]]]:
    """Parts of (wanted, changed) that can be computed one after the other: they share nothing that
    is still to be computed, none reads what another overwrites, and none has a part of what was
    assigned together."""
    doomed = {s.leaf for s in changed if s.leaf is not None}
    parts: list[tuple[set, list[Node], list[State]]] = []
    roots: list[tuple[Node, State | None]] = [(n, None) for n in wanted]
    for root, state in [*roots, *[(s.node, s) for s in changed]]:
        reach, stack = {root}, [root]
        if state is not None and state.leaf is not None:
            reach.add(state.leaf)
        while stack:
            for n in stack.pop().inputs:
                if n not in reach and (n.value is None or n in doomed):
                    reach.add(n)
                    stack += [n] if n.value is None else []
        reach |= {token_of(n) for n in reach} - {None}
        part = (reach, [] if state else [root], [state] if state else [])
        for other in [p for p in parts if not p[0].isdisjoint(reach)]:
            parts.remove(other)
            part = (part[0] | other[0], other[1] + part[1], other[2] + part[2])
        parts.append(part)
    return [(values, states) for _, values, states in parts]


def report(failures: list[Failure], wanted: Iterable[Node]) -> None:
    """Raise the error of the first failure that took a wanted value, or else a state's newest
    version; it names the others. What was lost beside these says so when somebody looks at it."""
    asked = set(wanted)
    serious = [f for f in failures if not asked.isdisjoint(f.values)]
    serious += [f for f in failures if f.states and f not in serious]
    for failure in failures:
        let_go(failure.problem, all=True)
    if not serious:
        return
    problem = serious[0].problem
    for failure in serious[1:]:
        problem.add_note(f"and in what was pending beside it: {failure.problem}")
    del failure, failures, serious
    try:
        raise problem
    finally:
        del problem  # or its traceback would hold this frame, and this frame its traceback
