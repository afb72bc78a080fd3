"""One traced step, and its replay.

A trace has no effect of its own: everything it changed is undone before the first replay.
Parameters, buffers, optimiser state, gradients and the number of random draws are inputs and
outputs of the plan. Before a replay pending states are flushed first, then live handles that need
an old version are computed.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import compile as compiler
from ..errors import CompileError, TraceError, fail
from ..ir import CLOSED, SPENT, F, Node, Op, age, ancestry, leaf, serial
from . import flush as runtime
from .call import Call
from .executor import Executable
from .guard import Uninterrupted
from .seen import Seen, attribute, same
from .session import DIRTY, counts, random, session
from .state import clear


class Link:
    """The op of an argument's node during a trace: `op`, which only passes a gradient on, and a
    note that it has."""

    kind, name, outputs = "view", "argument", 1

    def __init__(self, op: Op, trace: Trace) -> None:
        self.op, self.trace = op, trace

    def gradient(self, *arguments: Any) -> Any:
        self.trace.escapes = True
        return self.op.gradient(*arguments)


class Trace:
    """What a trace reads of Python, and what it changes, so that it can all be undone.

    log     {state: (node, leaf, home) before}, also of states of which it was read whether they are
            empty
    seen    what it can read;  fixed: {place: value} of float arguments whose value it used
    writes  {key: (owner, attribute, value before)} of modules and optimisers;  raised: how often
            they have raised session.structure
    rebound [(tensor from outside that it assigned to, its node before)]
    escapes a gradient has left it through an argument"""

    def __init__(self, seen: Seen) -> None:
        self.log: dict = {}
        self.draws, self.raised, self.first = random.draws, 0, serial()
        self.seen, self.fixed = seen, {}
        self.writes: dict = {}
        self.rebound: list[tuple[Any, Node]] = []
        self.escapes = False

    def stand_in(self, value: Any, place: int, device: str, handle: Any) -> Node:
        """The leaf for an argument. Where a gradient can flow on to the caller's graph it is linked
        to that, and notes when one does."""
        node = leaf(value, source=("argument", place), device=device)
        if handle is not None and handle.node.needs_grad:
            same = F.reshape(handle.node, to=node.shape)
            link: Any = Link(same.op, self)
            node.op, node.inputs, node.needs_grad = link, same.inputs, True
        return node

    @staticmethod
    def keep(arguments: list[Node]) -> None:
        """What was traced has happened: its graph is the caller's now."""
        session.trace = None
        for node in arguments:
            node.source = None
            if node.inputs:
                node.op = node.op.op

    def rebind(self, handle: Any) -> None:
        """A handle will point at another node."""
        if handle.node.serial < self.first:
            self.rebound.append((handle, handle.node))

    def end(self) -> None:
        """The function has returned: attributes that are as they were do not count as changed."""
        if self.rebound:
            fail(
                "compile/trace.outside",
                "the step assigns to a tensor from outside",
                op="compile",
                tensors={"tensor": self.rebound[0][1].spec},
                error=TraceError,
                hint="make it an ss.Variable, pass it as an argument, or return the new value",
            )
        if all([same(attribute(owner, name), old) for owner, name, old in self.writes.values()]):
            session.structure -= self.raised

    def undo(self) -> None:
        session.trace = None
        for handle, node in reversed(self.rebound):
            handle.rebind(node)
        self.rebound.clear()
        for state, (node, version, home) in self.log.items():
            state.node, state.leaf, state.home, state.pending = node, version, home, []
            if node is version:
                DIRTY.pop(state, None)
            else:  # another thread had changed it before
                state.pending.append(node)
        random.draws, session.settle = self.draws, False


class Record:
    """One traced step: its plan, and where each input of the plan comes from at a replay.

    open   the caller can differentiate a result, or a gradient has flowed to the graph of an
           argument. No plan can stand for that: see `plain`
    plain  the trace is kept as what the call has computed, `kept` its result; further calls run the
           function
    marks  [(position of a result, why no gradient flows through it)], see Node.stale"""

    def __init__(
        self,
        fn: Callable,
        call: Call,
        stand_ins: Callable,
        collect: Callable,
        limit: int | None = None,
        parts: int = 1,
        keep: bool = False,
    ) -> None:
        trace = Trace(Seen(fn, *call.held))
        arguments = [
            trace.stand_in(v, k, d, handle)
            for k, (v, d, handle) in enumerate(
                zip(call.values, call.devices, call.handles, strict=True)
            )
        ]
        session.trace = trace
        self.plain, self.kept, self.early = False, [], []
        self.parts, self.held, self.seen, self.fixed = parts, call.held, trace.seen, trace.fixed
        try:
            inside = stand_ins(call, arguments)
            result = fn(*inside.arguments, **inside.named)
            trace.end()
            self.structure, nodes = collect(result)
            assigned = inside.finish()
            self.assigned, self.results = list(assigned), len(nodes)
            nodes += assigned.values()
            self.changed = [s for s in DIRTY if s in trace.log and s.node is not trace.log[s][0]]
            self.guards = [(s, node is None) for s, (node, _, _) in trace.log.items()]
            self.marks = self.close(nodes)
            self.open = trace.escapes or any([why is CLOSED for _, why in self.marks])
            if keep and self.open:
                self.plain, self.kept = True, [result]
                trace.keep(arguments)
                for k, node in assigned.items():
                    call.handles[k].rebind(node)
                return
            del inside, result
            self.escapes = trace.escapes
            finals = [s.node for s in self.changed]
            self.early = early({*nodes, *finals}, trace.first)
            if self.early:
                return
            self.check_leaks(nodes)
            if parts > 1:
                batch = [n for n in arguments if n.shape]
                made = compiler.microbatch([*nodes, *finals], batch, parts)
                nodes, finals = made[: len(nodes)], made[len(nodes) :]
            graph = compiler.Graph([*nodes, *finals], finals, ancestry({*nodes, *finals}))
            self.device = self.one_device([*nodes, *finals])
            self.outputs = [graph.index[n] for n in nodes]
            self.stores = [graph.index[n] for n in finals]
            self.executable: Executable = runtime.plan_for(
                graph, sorted(set(self.outputs)), self.device, limit
            )
            counts["runs"] -= 1  # compiled, not run yet
            self.suspects = runtime.suspects_of(self.executable, graph)
            leaves = [graph.nodes[i] for i in graph.leaves]
            self.states = {n.state for n in leaves if n.state is not None} | {*self.changed}
            self.bind = [binder(node, trace) for node in leaves]
            self.seen.handles += [
                (node.handle, node, node.stale)
                for node in leaves
                if node.handle is not None and node.handle() is not None and not node.source
            ]
            self.draws = random.draws - trace.draws
            self.empty = [s for s in trace.log if s.node is None]
        finally:
            if not self.plain:
                trace.undo()

    def close(self, nodes: list[Node]) -> list[tuple[int, str]]:
        """The marks of the results that need a gradient: behind a version that the step itself has
        replaced, behind its own backward(), or (if it is replayed all the same) without a graph."""
        stale = runtime.survey(nodes, runtime.current_versions(self.changed))[2]
        marks = []
        for k, n in enumerate(nodes):
            if n.needs_grad:
                marks.append((k, "a parameter" if n in stale else SPENT if n.spent else CLOSED))
        return marks

    @staticmethod
    def one_device(nodes: list[Node]) -> str:
        devices = sorted({n.device for n in nodes}) or ["cpu"]
        if len(devices) > 1:
            fail(
                "compile/trace.devices",
                f"the step computes on several devices: {', '.join(devices)}",
                op="compile",
                tensors={},
                error=CompileError,
                hint="one compiled step per device",
            )
        return devices[0]

    @staticmethod
    def check_leaks(outputs: list[Node]) -> None:
        for attempt in range(2):
            alive = runtime.live_handles(mine=True)
            leaked = [t for t in alive if t.node.value is None and t.node not in outputs]
            del alive
            if not leaked:
                return
            if attempt == 0:
                del leaked
                gc.collect()
        node = leaked[0].node
        del leaked
        fail(
            "compile/trace.leak",
            "a tensor made inside the step outlives it",
            op="compile",
            error=TraceError,
            tensors={"tensor": node.spec},
            layer=node.layer,
            hint="return it from the step instead of storing it",
        )

    def fits(self, call: Call) -> bool:
        """Whether a replay would do what the function would do now."""
        if self.fixed and not all([same(call.numbers[k], v) for k, v in self.fixed.items()]):
            return False
        return all([(s.node is None) == empty for s, empty in self.guards]) and self.seen.holds()

    def make_way(self) -> set[Node]:
        """Compute the live handles that need a version which the replay will overwrite."""
        doomed = runtime.current_versions(self.changed)
        roots = {t.node for t in runtime.live_handles()}
        lost = runtime.survey(roots, doomed)[1]
        runtime.flush(bystanders=sorted(roots & lost, key=age))
        return runtime.survey({t.node for t in runtime.live_handles()}, doomed)[2]

    def replay(self, call: Call, limit: int | None) -> Any:
        if self.escapes:
            fail(
                "compile/trace.escape",
                "backward() in the step reaches what an argument was computed from",
                op="compile",
                tensors={},
                error=TraceError,
                cause="no plan that is cut or limited can go on outside",
                hint="pass x.detach(), or leave out micro_batches and memory_limit",
            )
        if DIRTY:  # what other threads have pending only where this plan needs it
            runtime.flush([s.node for s in self.states if s in DIRTY])
        stale = (
            self.make_way() if runtime.live_handles() else set()
        )  # rare: compiled and plain steps are mixed
        self.executable = runtime.fitted(self.executable, limit)
        base = random.draws
        values = [bind(call, base) for bind in self.bind]
        counts["runs"] += 1
        with Uninterrupted() as guard:
            found = self.executable.run(values, guard, self.suspects)
            random.draws += self.draws
            versions = [
                runtime.fresh_leaf(s, found[i], self.device)
                for s, i in zip(self.changed, self.stores, strict=True)
            ]
            runtime.settle(self.changed, [found[i] for i in self.stores], versions)
            runtime.mark(stale)
            clear(self.empty)
        leaves = [leaf(found[i], device=self.device) for i in self.outputs]
        for k, why in self.marks:
            leaves[k].needs_grad, leaves[k].stale = True, why
        for k, node in zip(self.assigned, leaves[self.results :], strict=True):
            call.handles[k].rebind(node)
        return self.structure(leaves)


def early(roots: set[Node], first: int) -> list[Node]:
    """What a trace reads that is older than the trace and not computed: another thread has it
    pending."""
    read = {i for n in ancestry(roots) if n.serial >= first for i in n.inputs} | roots
    return [n for n in read if n.serial < first and n.value is None and n.op is not None]


def binder(node: Node, trace: Trace) -> Callable[[Call, int], Any]:
    """Where a leaf of the trace takes its value from: bind(call, first draw)."""
    if node.state is not None:
        return lambda call, base, s=node.state: s.home
    if callable(node.source) and not trace.writes:  # else its value at that moment of the trace
        return lambda call, base, read=node.source, dtype=node.dtype: np.asarray(read(), dtype)
    if isinstance(node.source, tuple):
        kind, n = node.source
        if kind == "argument":
            return lambda call, base: call.values[n]
        if kind == "number":
            return lambda call, base, dtype=node.dtype: np.asarray(call.numbers[n], dtype)
        if kind == "array":
            return lambda call, base: n()
        return lambda call, base, n=n - trace.draws: random.at(base + n)
    return lambda call, base, value=node.value: value
