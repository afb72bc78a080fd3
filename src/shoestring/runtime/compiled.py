"""compile(step): run the Python once per input shape with stand-ins, keep the plan, replay it.

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
from ..errors import CompileError, MemoryBudgetError, ShapeError, ShoestringError, TraceError, fail
from ..ir import F, Node, age, ancestry, leaf
from . import flush as runtime
from .executor import Executable
from .guard import Uninterrupted, let_go
from .session import DIRTY, counts, random, session

WORTHWHILE = 0.01  # of the floor: what twice as many micro-batches must save


class Trace:
    """What a trace changes, so that it can all be undone. log: {state: (node, leaf, home)
    before}."""

    def __init__(self) -> None:
        self.log: dict = {}
        self.draws = random.draws

    def undo(self) -> None:
        for state, (node, version, home) in self.log.items():
            state.node, state.leaf, state.home, state.pending = node, version, home, []
        DIRTY.clear()
        random.draws, session.settle, session.trace = self.draws, False, None


class Record:
    """One traced step: its plan, and where each input of the plan comes from at a replay."""

    def __init__(
        self,
        fn: Callable,
        arguments: list[Node],
        rebuild: Callable,
        collect: Callable,
        limit: int | None = None,
        parts: int = 1,
    ) -> None:
        trace = session.trace = Trace()
        self.parts = parts
        try:
            result = fn(*rebuild(arguments))
            self.structure, nodes = collect(result)
            self.changed = list(DIRTY)
            finals = [s.node for s in self.changed]
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
            self.bind = [binder(graph.nodes[i], trace) for i in graph.leaves]
            self.draws = random.draws - trace.draws
            self.empty = [s for s in trace.log if s.node is None]
            self.guards = [(s, node is None) for s, (node, _, _) in trace.log.items()]
        finally:
            trace.undo()

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
            leaked = [
                t for t in runtime.live_handles() if t.node.value is None and t.node not in outputs
            ]
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

    def fits(self) -> bool:
        return all([(s.node is None) == empty for s, empty in self.guards])

    def make_way(self) -> set[Node]:
        """Compute the live handles that need a version which the replay will overwrite."""
        doomed = runtime.current_versions(self.changed)
        roots = {t.node for t in runtime.live_handles()}
        lost = runtime.survey(roots, doomed)[1]
        runtime.flush(bystanders=sorted(roots & lost, key=age))
        return runtime.survey({t.node for t in runtime.live_handles()}, doomed)[2]

    def replay(self, arguments: list[Any], limit: int | None) -> Any:
        if DIRTY:
            runtime.flush()
        stale = (
            self.make_way() if runtime.live_handles() else set()
        )  # rare: compiled and plain steps are mixed
        self.executable = runtime.fitted(self.executable, limit)
        base = random.draws
        values = [bind(arguments, base) for bind in self.bind]
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
            for s in self.empty:
                s.clear()
        return self.structure([leaf(found[i], device=self.device) for i in self.outputs])


def binder(node: Node, trace: Trace) -> Callable[[list, int], Any]:
    """Where a leaf of the trace takes its value from: bind(arguments, first draw)."""
    if node.state is not None:
        return lambda arguments, base, s=node.state: s.home
    if callable(node.source):
        return lambda arguments, base, read=node.source, dtype=node.dtype: np.asarray(read(), dtype)
    if node.source:
        kind, n = node.source
        if kind == "argument":
            return lambda arguments, base: arguments[n]
        return lambda arguments, base, n=n - trace.draws: random.at(base + n)
    return lambda arguments, base, value=node.value: value


class Compiled:
    """The callable that `ss.compile(step)` returns. Records are kept per shapes, types and modes of
    the arguments."""

    def __init__(
        self,
        fn: Callable,
        lower: Callable,
        rebuild: Callable,
        collect: Callable,
        limit: int | None = None,
        micro_batches: int | str = 1,
        split_batchnorm: bool = False,
    ) -> None:
        self.fn, self.lower, self.rebuild, self.collect = fn, lower, rebuild, collect
        self.own_limit, self.split_batchnorm = limit, split_batchnorm
        self.micro_batches = micro_batches
        self.records: dict[tuple, list[Record]] = {}
        self.traces = 0
        self.__name__, self.__doc__ = getattr(fn, "__name__", "step"), getattr(fn, "__doc__", None)

    def __reduce__(self) -> tuple:
        """A copy plans anew: plans read and write the states that their traces saw. The copy of a
        step that is a method of what is copied runs on the copy; a closure stays with what it
        closes over."""
        options = self.own_limit, self.micro_batches, self.split_batchnorm
        return type(self), (self.fn, self.lower, self.rebuild, self.collect, *options)

    def __call__(self, *arguments: Any) -> Any:
        if session.trace is not None:  # a compiled step inside another: part of it
            return self.fn(*arguments)
        values, devices = self.lower(arguments)
        try:
            return self.record(values, devices).replay(values, self.limit)
        except ShoestringError as problem:
            values.clear()  # the traceback would keep what was uploaded
            let_go(problem)
            raise

    @property
    def limit(self) -> int | None:
        """Its own memory limit, or the one of the session."""
        return session.limit if self.own_limit is None else self.own_limit

    def plan(self, *arguments: Any) -> compiler.Plan:
        """The plan for arguments like these; nothing is run and no state changes."""
        return self.record(*self.lower(arguments)).executable.plan

    def record(self, values: list[Any], devices: list[str]) -> Record:
        """The record for these arguments, traced now if there is none."""
        key = (
            session.structure,
            F.grad_enabled,
            session.check,
            session.fuse,
            session.reuse,
            self.limit,
            *[
                (v.shape, v.dtype, None if v.flags.c_contiguous else v.strides, d)
                for v, d in zip(values, devices, strict=True)
            ],
        )
        record = next((r for r in self.records.get(key, ()) if r.fits()), None)
        return record or self.trace(key, values, devices)

    def trace(self, key: tuple, values: list[Any], devices: list[str]) -> Record:
        runtime.compact()  # a trace starts from computed values
        self.traces += 1
        record = self.fitting(values, devices)
        if not isinstance(record, Record):  # nothing holds the handles of the failed trace
            problem, parts = record
            problem.again(self.largest(values, devices, parts), parts)
        self.records = {k: r for k, r in self.records.items() if k[0] == session.structure}
        self.records.setdefault(key, []).append(record)
        return record

    def fitting(self, values: list[Any], devices: list[str]) -> Any:
        """The record with as many micro-batches as asked for, or ("auto") as few as fit: found by
        doubling their number, then halving the interval. If none fits, (the error that says so, its
        number of parts), of those with the lowest floor; doubling ends once it hardly lowers it."""
        if self.micro_batches != "auto":
            return self.tried(values, devices, int(self.micro_batches))
        samples, low, high = self.samples(values), 0, 1
        record = self.tried(values, devices, high)
        while not isinstance(record, Record) and high < samples:
            low, high, least = high, min(2 * high, samples), record
            record = self.tried(values, devices, high)
            if not isinstance(record, Record):
                saved = 1 - record[0].floor_bytes / least[0].floor_bytes
                if saved < WORTHWHILE:
                    return record if saved > 0 else least
        while isinstance(record, Record) and high - low > 1:
            middle = (low + high) // 2
            found = self.tried(values, devices, middle)
            if isinstance(found, Record):
                record, high = found, middle
            else:
                low = middle
        return record

    def tried(self, values: list[Any], devices: list[str], parts: int) -> Any:
        """A record, or (the error that says why it does not fit, parts)."""
        try:
            return self.traced(values, devices, self.limit, parts)
        except MemoryBudgetError as problem:
            return problem.with_traceback(None), parts

    def traced(
        self, values: list[Any], devices: list[str], limit: int | None, parts: int
    ) -> Record:
        stand_ins = [
            leaf(v, source=("argument", k), device=d)
            for k, (v, d) in enumerate(zip(values, devices, strict=True))
        ]
        sizes = compiler.part_sizes(self.samples(values), parts) if parts > 1 else ()
        session.split_batchnorm = sizes if self.split_batchnorm else ()
        try:
            return Record(self.fn, stand_ins, self.rebuild, self.collect, limit, len(sizes) or 1)
        finally:
            session.split_batchnorm = ()

    def samples(self, values: list[Any]) -> int:
        """The size of the batch: of axis 0 of all arguments that have axes."""
        sizes = sorted({v.shape[0] for v in values if v.shape})
        if len(sizes) != 1:
            fail(
                "value/compile.batch",
                "the arguments have no common batch axis to cut into micro-batches",
                op="compile",
                tensors={
                    f"argument {k}": f"{list(v.shape)} {v.dtype}" for k, v in enumerate(values)
                },
                expected=f"the same size of axis 0 in all arguments with axes, got {sizes}",
                hint="use what is no batch inside the step as a closure instead of passing it",
            )
        return sizes[0]

    def parts(self, *arguments: Any) -> int:
        """Into how many micro-batches the batch of arguments like these is cut."""
        return self.record(*self.lower(arguments)).parts

    def largest(self, values: list[Any], devices: list[str], each: int) -> tuple[int, int] | None:
        """(the batch asked for, the largest that fits the limit in `each` micro-batches, 0 if
        none); None where the arguments have no common first axis. Traces the step on parts of its
        arguments."""
        sizes = {v.shape[0] for v in values if v.shape}
        if len(sizes) != 1 or self.limit is None:
            return None
        N = sizes.pop()
        per_sample = sum(v.nbytes for v in values if v.shape) // max(N, 1)

        def fits(n: int) -> bool:
            parts = [v[:n] if v.shape else v for v in values]
            try:
                self.traced(parts, devices, self.limit + (N - n) * per_sample, each)
            except MemoryBudgetError:
                return False
            except ShapeError:  # too small for its layers, such as BatchNorm with one value
                return True
            return True

        low, high = 0, N
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return N, low

    def plans(self) -> list[compiler.Plan]:
        """The plans of all records: print one to see every kernel, its address and the peak."""
        return [record.executable.plan for records in self.records.values() for record in records]
