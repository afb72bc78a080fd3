"""compile(step): run the Python once per input shape with stand-ins, keep the plan, replay it (see
record.py). A replay is valid only for what its trace has seen of Python (see seen.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import compile as compiler
from ..backends.device import TURN
from ..errors import MemoryBudgetError, ShapeError, ShoestringError, fail
from ..ir import F
from . import flush as runtime
from .call import Call
from .devices import default_device
from .guard import let_go
from .record import Record
from .session import session

WORTHWHILE = 0.01  # of the floor: what twice as many micro-batches must save
MAX_RECORDS = 64  # the oldest goes first


class Compiled:
    """The callable that `ss.compile(step)` returns. Records are kept per shapes, types, values and
    modes of the arguments."""

    def __init__(
        self,
        fn: Callable,
        lower: Callable,
        stand_ins: Callable,
        collect: Callable,
        limit: int | None = None,
        micro_batches: int | str = 1,
        split_batchnorm: bool = False,
    ) -> None:
        self.fn, self.lower, self.stand_ins, self.collect = fn, lower, stand_ins, collect
        self.__wrapped__ = fn
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
        return type(self), (self.fn, self.lower, self.stand_ins, self.collect, *options)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if session.trace is not None:  # a compiled step inside another: part of it
            return self.fn(*arguments, **named)
        with TURN:
            call = self.lower(arguments, named)
            try:
                record = self.record(call, keep=self.whole)
                if not record.plain:
                    return record.replay(call, self.limit)
                if record.kept:
                    return record.kept.pop()
            except ShoestringError as problem:
                call.clear()  # the traceback would keep what was uploaded
                let_go(problem)
                raise
        return self.fn(*arguments, **named)

    @property
    def whole(self) -> bool:
        """Whether running the function stands for replaying it: nothing limits its memory."""
        return self.own_limit is None and self.micro_batches == 1

    @property
    def limit(self) -> int | None:
        """Its own memory limit, or the one of the session."""
        return session.limit if self.own_limit is None else self.own_limit

    def plan(self, *arguments: Any, **named: Any) -> compiler.Plan:
        """The plan for arguments like these; nothing is run and no state changes."""
        with TURN:
            return self.record(self.lower(arguments, named)).executable.plan

    def record(self, call: Call, keep: bool = False) -> Record:
        """The record for this call, traced now if there is none. Other threads wait. keep: it is to
        be run, see Record.plain; otherwise it has a plan."""
        key = (
            session.structure,
            F.grad_enabled,
            default_device(),
            session.check,
            session.fuse,
            session.reuse,
            self.limit,
            call.key,
        )
        for record in self.records.get(key, ()):
            if (record.plain == keep if record.open else True) and record.fits(call):
                return record
        return self.trace(key, call, keep)

    def trace(self, key: tuple, call: Call, keep: bool) -> Record:
        runtime.compact()  # a trace starts from computed values
        self.traces += 1
        record = self.fitting(call, keep)
        if not isinstance(record, Record):  # nothing holds the handles of the failed trace
            problem, parts = record
            problem.again(self.largest(call, parts), parts)
        current = {k: r for k, r in self.records.items() if k[0] == session.structure}
        self.records = dict(list(current.items())[1 - MAX_RECORDS :])
        others = [r for r in self.records.get(key, ()) if r.seen.holds()]
        self.records[key] = [*others, record][-MAX_RECORDS:]
        return record

    def fitting(self, call: Call, keep: bool) -> Any:
        """The record with as many micro-batches as asked for, or ("auto") as few as fit: found by
        doubling their number, then halving the interval. If none fits, (the error that says so, its
        number of parts), of those with the lowest floor; doubling ends once it hardly lowers it."""
        if self.micro_batches != "auto":
            return self.tried(call, int(self.micro_batches), keep)
        samples, low, high = self.samples(call.values), 0, 1
        record = self.tried(call, high)
        while not isinstance(record, Record) and high < samples:
            low, high, least = high, min(2 * high, samples), record
            record = self.tried(call, high)
            if not isinstance(record, Record):
                saved = 1 - record[0].floor_bytes / least[0].floor_bytes
                if saved < WORTHWHILE:
                    return record if saved > 0 else least
        while isinstance(record, Record) and high - low > 1:
            middle = (low + high) // 2
            found = self.tried(call, middle)
            if isinstance(found, Record):
                record, high = found, middle
            else:
                low = middle
        return record

    def tried(self, call: Call, parts: int, keep: bool = False) -> Any:
        """A record, or (the error that says why it does not fit, parts)."""
        try:
            return self.traced(call, self.limit, parts, keep)
        except MemoryBudgetError as problem:
            return problem.with_traceback(None), parts

    def traced(self, call: Call, limit: int | None, parts: int, keep: bool = False) -> Record:
        sizes = compiler.part_sizes(self.samples(call.values), parts) if parts > 1 else ()
        session.split_batchnorm = sizes if self.split_batchnorm else ()
        what = self.fn, call, self.stand_ins, self.collect, limit, len(sizes) or 1, keep
        try:
            record = Record(*what)
            if record.early:
                runtime.flush(record.early)
                record = Record(*what)
            return record
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

    def parts(self, *arguments: Any, **named: Any) -> int:
        """Into how many micro-batches the batch of arguments like these is cut."""
        with TURN:
            return self.record(self.lower(arguments, named)).parts

    def largest(self, call: Call, each: int) -> tuple[int, int] | None:
        """(the batch asked for, the largest that fits the limit in `each` micro-batches, 0 if
        none); None where the arguments have no common first axis. Traces the step on parts of its
        arguments."""
        sizes = {v.shape[0] for v in call.values if v.shape}
        if len(sizes) != 1 or self.limit is None:
            return None
        N = sizes.pop()
        per_sample = sum(v.nbytes for v in call.values if v.shape) // max(N, 1)

        def fits(n: int) -> bool:
            try:
                self.traced(call.first(n), self.limit + (N - n) * per_sample, each)
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
        records = [record for records in self.records.values() for record in records]
        return [record.executable.plan for record in records if not record.plain]
