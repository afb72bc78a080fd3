"""What a schedule needs of memory, step by step, and how that changes when values are computed
twice.

A `Timeline` is the skeleton of a scheduled draft: steps by number, and per step the values (roots
in the arena) that it reads and writes, their bytes, its workspace and its cost. `insert` takes the
set of values that are not kept: each is computed again, once, just before the first step after its
longest rest that reads it, from what is there then or is itself computed again. A value that no
other step would need any more by then (`fleeting`) is not kept for that either. The result is a
list of steps, of which some are repetitions, and `live` gives the bytes alive at each of them. The
planner tries thousands of sets on it; nothing here knows ops, addresses or devices.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import sub

Value = int


@dataclass
class Timeline:
    """reads, writes   values of each step
    takeover        of each step: the value written and those read whose memory it may take, if they
                    end there
    bytes           of each value;  extra: bytes that a step needs besides (workspace)
    cost            of each step, in floating-point operations or what stands for them
    pure            whether a step may run twice: no effect, no state written
    deadline        the step that overwrites a state which this one reads; later it cannot run again
    last            values that are needed until the end
    twins           values that are the same of several micro-batches -> something that they share
    maker           of each value: its step;  rest: the longest time between two uses, as steps
    uses, ends      of each value: the steps that use it, and the last of them; `end` for `last`
    begun, done     bytes of the values that each step makes, and of those that end with it
    besides         bytes of each step on top of what is alive: `extra`, less what it takes over
    takers          of a value: the steps that may take its memory
    plain           the steps as runs, without repetitions: parts of every list of runs
    """

    reads: list[list[Value]]
    writes: list[list[Value]]
    takeover: list[tuple[Value, list[Value]] | None]
    bytes: dict[Value, int]
    extra: list[int]
    cost: list[float]
    pure: list[bool]
    deadline: list[int]
    last: Collection[Value] = ()
    twins: Mapping[Value, Hashable] = field(default_factory=dict)
    maker: dict[Value, int] = field(default_factory=dict)
    rest: dict[Value, tuple[int, int]] = field(default_factory=dict)
    uses: dict[Value, list[int]] = field(default_factory=dict)
    ends: dict[Value, int] = field(default_factory=dict)
    takers: dict[Value, list[int]] = field(default_factory=dict)
    fleeting: frozenset[Value] = frozenset()

    def __post_init__(self) -> None:
        self.end, uses = len(self.reads), self.uses
        for k, values in enumerate(self.writes):
            for v in values:
                self.maker[v] = k
                uses[v] = [k]
        for k, values in enumerate(self.reads):
            for v in values:
                if uses[v][-1] != k:
                    uses[v].append(k)
        self.begun = [sum([self.bytes[v] for v in values]) for values in self.writes]
        self.done = [0] * (self.end + 1)
        for v, steps in uses.items():
            self.ends[v] = self.end if v in self.last else steps[-1]
            self.done[self.ends[v]] += self.bytes[v]
            gaps = [(b - a, a, b) for a, b in pairwise(steps)]
            if gaps:
                _, a, b = max(gaps)
                self.rest[v] = a, b
        self.plain = [Run(k, {}) for k in range(self.end)]
        self.besides = list(self.extra)
        for k, over in enumerate(self.takeover):
            for v in over[1] if over else ():
                self.takers.setdefault(v, []).append(k)
            if over and any(self.ends.get(v) == k for v in over[1]):
                self.besides[k] -= self.bytes[over[0]]

    def candidates(self, smallest: int) -> list[Value]:
        """Values of at least `smallest` bytes that rest for a while and could be computed again, in
        the order in which they are made. Sets `fleeting`: the others of that size."""
        large = [
            v
            for v, step in self.maker.items()
            if self.bytes[v] >= smallest and self.pure[step] and v not in self.last
        ]
        found = [v for v in large if v in self.rest and self.rest[v][1] - self.rest[v][0] > 2]
        self.fleeting = frozenset(large) - set(found)
        for v in self.fleeting:
            self.rest[v] = self.ends[v], self.end
        return sorted(found, key=lambda v: (self.maker[v], v))

    def insert(self, dropped: Collection[Value]) -> list[Run] | None:
        """All steps in order with repetitions where `dropped` asks for them. None: impossible,
        since a repetition would read a state after it has been overwritten."""
        runs: list[Run] = []
        again: dict[int, Run] = {}  # step -> its repetition
        late = sorted({k for v in dropped for k in self.uses[v] if k >= self.rest[v][1]})
        dropped, done = self.fleeting.union(dropped), 0
        for k in late:
            runs += self.plain[done:k]
            run, done = Run(k, {}), k + 1
            for v in self.reads[k]:
                if v in dropped and k >= self.rest[v][1]:
                    if not self.repeat(v, k, dropped, again, runs):
                        return None
                    run.sources[v] = again[self.maker[v]]
            runs.append(run)
        return runs + self.plain[done:]

    def repeat(
        self, v: Value, now: int, dropped: Collection[Value], again: dict[int, Run], runs: list[Run]
    ) -> bool:
        """Make v's step run again before step `now`, unless it has."""
        stack = [self.maker[v]]
        while stack:
            step = stack[-1]
            if step in again:
                stack.pop()
                continue
            if self.deadline[step] < now:
                return False
            missing = [
                self.maker[u]
                for u in self.reads[step]
                if u in dropped and now > self.rest[u][0] and self.maker[u] not in again
            ]
            if missing:
                stack += missing
                continue
            run = Run(step, {}, True)
            for u in self.reads[step]:
                if u in dropped and now > self.rest[u][0]:
                    run.sources[u] = again[self.maker[u]]
            again[step] = run
            runs.append(run)
            stack.pop()
        return True

    def live(self, runs: Sequence[Run]) -> list[int]:
        """Bytes alive at each run: as without repetitions, except where these read or make a
        value."""
        where = [at for at, run in enumerate(runs) if not run.repeated] + [len(runs)]
        changed = [(at, run) for at, run in enumerate(runs) if run.repeated or run.sources]
        ends = self.moved_ends(changed, where)
        begun = [0 if run.repeated else self.begun[run.step] for run in runs]
        done = [0 if run.repeated else self.done[run.step] for run in runs] + [self.done[-1]]
        for at, run in changed:
            if run.repeated:
                begun[at] = self.begun[run.step]
        for (v, copy), at in ends.items():
            done[at] += self.bytes[v]
            if copy is None:
                done[where[self.ends[v]]] -= self.bytes[v]
        alive = list(accumulate(map(sub, begun, [0, *done])))
        found = [now + self.besides[run.step] for now, run in zip(alive, runs, strict=True)]
        again = {where[k] for v, copy in ends if copy is None for k in self.takers.get(v, ())}
        for at in again.union([at for at, _ in changed]):
            run, over = runs[at], self.takeover[runs[at].step]
            found[at] = alive[at] + self.extra[run.step]
            for v in over[1] if over else ():
                end = where[self.ends.get(v, self.end)]  # what is not in the arena has none
                if ends.get((v, run.sources.get(v)), end) == at:
                    found[at] -= self.bytes[over[0]]
                    break
        return found

    def moved_ends(
        self, changed: Sequence[tuple[int, Run]], where: Sequence[int]
    ) -> dict[tuple[Value, Run | None], int]:
        """{(value, repetition that makes it): number of the last run that uses it}; None stands for
        an original, where its last use is another than without repetitions. changed: runs that are
        repetitions or read one, with their numbers; where: the number of every step."""
        ends: dict[tuple[Value, Run | None], int] = {}
        sources = {run.step: run.sources for _, run in changed if not run.repeated}
        for v in {v for found in sources.values() for v in found}:
            last = next(k for k in reversed(self.uses[v]) if v not in sources.get(k, ()))
            ends[v, None] = where[last]
        for at, run in changed:
            if run.repeated:
                ends.update({(v, run): at for v in self.writes[run.step]})
            for v in self.reads[run.step]:
                copy = run.sources.get(v)
                if copy is not None:
                    ends[v, copy] = at
                elif run.repeated:
                    ends[v, None] = max(ends.get((v, None), where[self.ends[v]]), at)
        return ends

    def unrolled(self, runs: Sequence[Run]) -> Timeline:
        """The timeline in which `runs` are the steps: what is repeated there may be repeated
        again. Each run makes values of its own, numbered anew."""
        number: dict[tuple[Value, Run | None], Value] = {}
        size: dict[Value, int] = {}
        reads, writes, takeover, where = [], [], [], {}
        for at, run in enumerate(runs):
            own = run if run.repeated else None
            made = self.writes[run.step]
            for v in made:
                number[v, own] = len(number)
                size[number[v, own]] = self.bytes[v]
            writes.append([number[v, own] for v in made])
            reads.append([number[v, run.sources.get(v)] for v in self.reads[run.step]])
            over = self.takeover[run.step]
            ends = [(v, run.sources.get(v)) for v in over[1]] if over else []
            inputs = [number[key] for key in ends if key in number]
            takeover.append((number[over[0], own], inputs) if over else None)
            if not run.repeated:
                where[run.step] = at
        where[self.end] = len(runs)
        steps = [run.step for run in runs]
        return Timeline(
            reads,
            writes,
            takeover,
            size,
            [self.extra[k] for k in steps],
            [self.cost[k] for k in steps],
            [self.pure[k] for k in steps],
            [where[self.deadline[k]] for k in steps],
            [number[v, None] for v in self.last],
            {
                value: (self.twins[v], own is None)
                for (v, own), value in number.items()
                if v in self.twins
            },
        )

    def flattened(self, runs: Sequence[Run], deeper: Timeline, inner: Sequence[Run]) -> list[Run]:
        """`inner`, runs of `deeper` = unrolled(runs), as runs of this timeline."""
        flat: list[Run] = []
        of_run: dict[Run, Run] = {}  # a run of `runs` -> its first execution
        of_inner: dict[Run, Run] = {}
        for run in inner:
            outer = runs[run.step]
            found = Run(outer.step, {}, run.repeated or outer.repeated)
            for v, value in zip(self.reads[outer.step], deeper.reads[run.step], strict=True):
                if value in run.sources:
                    found.sources[v] = of_inner[run.sources[value]]
                elif v in outer.sources:
                    found.sources[v] = of_run[outer.sources[v]]
            of_inner[run] = found
            if not run.repeated:
                of_run[outer] = found
            flat.append(found)
        return flat

    def least(self) -> int:
        """The most bytes that one step alone needs: no peak is lower."""
        found = [0]
        for k in range(self.end):
            over = self.takeover[k]
            mine = sum(self.bytes[v] for v in {*self.reads[k], *self.writes[k]}) + self.extra[k]
            found.append(mine - (self.bytes[over[0]] if over else 0))
        return max(found)

    def added(self, runs: Sequence[Run]) -> float:
        return sum(self.cost[run.step] for run in runs if run.repeated)


class Run:
    """One execution of a step. sources: {value read: the repetition that makes it}, where it is not
    the original. repeated: it is itself a repetition."""

    __slots__ = ("repeated", "sources", "step")

    def __init__(self, step: int, sources: dict, repeated: bool = False) -> None:
        self.step, self.sources, self.repeated = step, sources, repeated
