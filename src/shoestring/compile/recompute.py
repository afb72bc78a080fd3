"""recompute: which values are not kept but computed again, so that the peak fits a budget.

`frontier` lists what can be had: points (peak, added cost), each cheaper point with a higher peak
than the next. It does not look at a budget: one list serves all of them, so that a larger budget is
never slower, and never infeasible where a smaller one was feasible.

    minimise  added cost (of all repeated steps)   subject to   max over steps of live bytes <= B

over the sets of values that are dropped after their use in the forward pass (timeline.py says what
then happens). Three searches feed the list, all measured by the same simulation:

1. A dynamic programme over the values in the order they are made. Between two kept neighbours i < j
   everything is dropped, costs `added(i, j)` and needs `work(i, j)` bytes besides what is kept
   before it. Labels (bytes kept, cost, peak) at every value, only Pareto-optimal ones are extended.
   Exact on a chain, where the parts do not influence each other.
2. Greedy: for lower and lower aims, drop what takes the most off the bytes above the aim for its
   cost.
3. Single exchanges: from each point, keep one more or drop one more.

Micro-batches have the same peak each, one after the other, so what they compute alike (twins) is
dropped or kept together: a `Unit` is a value with its twins, in the order of their parts. As each
simulation is then that much longer, there are fewer.

    Sources: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016 (segments);
    Kusumoto et al., "A Graph Theoretic Framework of Recomputation Algorithms", 2019 (dynamic
    programme over lower sets); Jain et al., "Checkmate", 2020 (the integer programme that tests use
    as oracle)
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Hashable
from itertools import accumulate
from typing import NamedTuple

from .timeline import Run, Timeline

PAIRS, LABELS, AIMS, TRIES, EXCHANGES = 400, 64, 10, 4, 500  # how much is searched
SMALL = 0.002  # of the peak: smaller values are always kept

Unit = tuple[int, ...]


class Point(NamedTuple):
    """One way to run: its peak in bytes, the cost it adds, and the steps with their repetitions."""

    peak: int
    added: float
    runs: list[Run]


class Search:
    """Simulates sets of dropped values, each once, and remembers the best."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.seen: dict[frozenset, tuple[int, float] | None] = {}
        self.levels: dict[frozenset, tuple[array, float] | None] = {}
        first = self.simulate(frozenset())
        assert first is not None
        self.base = first[1]
        values = timeline.candidates(int(SMALL * max(self.base, default=0)) + 1)
        self.values = [v for v in values if self.measure(frozenset((v,))) is not None]
        alike: dict[Hashable, list[int]] = defaultdict(list)
        for v in self.values:
            alike[timeline.twins.get(v, (v,))].append(v)
        self.parts = max(map(len, alike.values()), default=1)
        self.unit: dict[int, Unit] = {v: tuple(us) for us in alike.values() for v in us}

    def simulate(self, dropped: frozenset) -> tuple[list[Run], list[int], float] | None:
        """(runs, bytes alive at each, added cost); None if it cannot run."""
        runs = self.timeline.insert(dropped)
        if runs is None:
            self.seen[dropped] = None
            return None
        live, added = self.timeline.live(runs), self.timeline.added(runs)
        self.seen[dropped] = max(live, default=0), added
        return runs, live, added

    def measure(self, dropped: frozenset) -> tuple[int, float] | None:
        """(peak, added cost); None if it cannot run."""
        if dropped not in self.seen:
            self.simulate(dropped)
        return self.seen[dropped]

    def above(self, dropped: frozenset, aim: int) -> tuple[list[int], float] | None:
        """(bytes above `aim` at every step and the repetitions before it, added cost)."""
        if dropped not in self.levels:
            self.levels[dropped] = self.level(dropped)
        found = self.levels[dropped]
        return found and ([n - aim if n > aim else 0 for n in found[0]], found[1])

    def level(self, dropped: frozenset) -> tuple[array, float] | None:
        """(bytes alive at every step or the repetitions before it, added cost)."""
        found = self.simulate(dropped)
        if found is None:
            return None
        runs, live, added = found
        highest, most = array("q"), 0
        for run, nbytes in zip(runs, live, strict=True):
            most = max(most, nbytes)
            if not run.repeated:
                highest.append(most)
                most = 0
        return highest, added

    def best(self) -> list[tuple[int, float, frozenset]]:
        """The Pareto-optimal sets so far, the cheapest first."""
        found = [(m[1], m[0], sorted(s)) for s, m in self.seen.items() if m is not None]
        front: list[tuple[int, float, frozenset]] = []
        for added, peak, dropped in sorted(found):
            if not front or peak < front[-1][0]:
                front.append((peak, added, frozenset(dropped)))
        return front


def frontier(timeline: Timeline) -> list[Point]:
    """All points worth choosing, from no recomputation to the smallest peak found."""
    search = Search(timeline)
    if search.values:
        greedy(search, max(AIMS // search.parts, 2))
        programme(search)
        exchange(search)
    points = [Point(peak, added, runs_of(timeline, s)) for peak, added, s in search.best()]
    while (deeper := again(timeline, points[-1])) is not None:
        points.append(deeper)
    return points


def runs_of(timeline: Timeline, dropped: Collection[int]) -> list[Run]:
    runs = timeline.insert(dropped)
    assert runs is not None
    return runs


def again(timeline: Timeline, lowest: Point) -> Point | None:
    """A lower point than the lowest: what is computed again there is not kept either, but computed
    a third time."""
    if lowest.added == 0:
        return None
    deeper = timeline.unrolled(lowest.runs)
    search = Search(deeper)
    if search.values:
        greedy(search, 2)
    peak, added, dropped = search.best()[-1]
    if peak >= lowest.peak:
        return None
    runs = timeline.flattened(lowest.runs, deeper, runs_of(deeper, dropped))
    return Point(peak, lowest.added + added, runs)


def greedy(search: Search, aims: int) -> None:
    """Aim at lower and lower peaks. Each aim starts once where the one before ended, once anew."""
    top, bottom = max(search.base), search.timeline.least()
    values, dropped = across(search), frozenset()
    units = list(dict.fromkeys(search.unit[v] for v in values))
    for k in range(1, aims + 1):
        aim = top - (top - bottom) * k // aims
        descend(search, units, frozenset(), aim)
        dropped = descend(search, units, dropped, aim)


def descend(search: Search, units: list[Unit], dropped: frozenset, aim: int) -> frozenset:
    """Drop what takes the most off the bytes above `aim`, over all steps, for its cost; keep again
    what stands in the way, or is not needed."""
    now = search.above(dropped, aim)
    while now is not None:
        found = drop_one(search, units, dropped, now, aim) if sum(now[0]) else None
        found = found or keep_one(search, dropped, now, aim)
        if found is None:
            break
        dropped, now = found
    return dropped


def drop_one(search: Search, units: list[Unit], dropped: frozenset, now: tuple, aim: int):
    """(the set with one more, its measure) that is nearest to the aim for its cost."""
    timeline, (over, added) = search.timeline, now
    sums, options = [0, *accumulate(over)], []
    for unit in units:
        if dropped.isdisjoint(unit):
            ease = cost = 0.0
            for v in unit:
                a, b = timeline.rest[v]
                ease += min(timeline.bytes[v] * (b - a), max(sums[b] - sums[a + 1], 0))
                cost += timeline.cost[timeline.maker[v]]
            if ease > 0:
                options.append((ease / cost, unit))
    best = None
    for _, unit in sorted(options, reverse=True)[:TRIES]:
        found = search.above(dropped.union(unit), aim)
        if found is not None and sum(found[0]) < sum(over):
            gain = (sum(over) - sum(found[0])) / max(found[1] - added, 1.0)
            if best is None or gain > best[0]:
                best = gain, dropped.union(unit), found
    return best and best[1:]


def keep_one(search: Search, dropped: frozenset, now: tuple, aim: int):
    """(the set without one, its measure) that is nearer to the aim, or as near and cheaper."""
    best, mark = None, (sum(now[0]), now[1])
    for unit in dict.fromkeys(search.unit[v] for v in dropped):
        found = search.above(dropped.difference(unit), aim)
        if found is not None and (sum(found[0]), found[1]) < mark:
            best, mark = (dropped.difference(unit), found), (sum(found[0]), found[1])
    return best


def programme(search: Search) -> None:
    """The dynamic programme (see the header). Long chains: parts of at most PAIRS / n values."""
    timeline, values = search.timeline, across(search)
    n = len(values)
    longest = max(2, PAIRS // max(n * search.parts, 1))
    prefix = [0]
    for v in values:
        prefix.append(prefix[-1] + timeline.bytes[v])
    labels: list[list[tuple]] = [[(0, 0.0, 0, ())]]  # (kept, cost, peak, kept positions)
    for j in range(1, n + 2):
        found = []
        for i in range(max(0, j - longest - 1) if j <= n else max(0, n - longest), j):
            part = measure_part(search, values, i, j, prefix[i])
            if part is None:
                continue
            work, cost = part
            for kept, added, peak, path in labels[i]:
                size = timeline.bytes[values[j - 1]] if j <= n else 0
                found.append((kept + size, added + cost, max(peak, kept + work), (*path, j)))
        labels.append(thinned(found))
    for _, _, _, path in labels[-1]:
        keep = {values[j - 1] for j in path if j <= n}
        search.measure(together(search, [v for v in values if v not in keep]))


def across(search: Search) -> list[int]:
    """The values that rest at the step over which most bytes rest: between the forward and the
    backward pass."""
    timeline = search.timeline
    resting = [0] * (timeline.end + 1)
    for v in search.values:
        a, b = timeline.rest[v]
        for step in range(a + 1, b):
            resting[step] += timeline.bytes[v]
    turn = max(range(len(resting)), key=lambda step: resting[step])
    return [v for v in search.values if timeline.rest[v][0] < turn < timeline.rest[v][1]]


def together(search: Search, values: Collection[int]) -> frozenset:
    """The values with their twins."""
    return frozenset(u for v in values for u in search.unit[v])


def span(search: Search, values: list[int]) -> tuple[int, int]:
    """(the step before, the step behind) the micro-batch to which the values belong."""
    timeline, start, stop = search.timeline, -1, search.timeline.end
    for v in values:
        unit = search.unit[v]
        k = unit.index(v)
        if k > 0:
            start = max(start, timeline.rest[unit[k - 1]][1])
        if k + 1 < len(unit):
            stop = min(stop, timeline.maker[unit[k + 1]])
    return start, stop


def measure_part(
    search: Search, values: list[int], i: int, j: int, before: int
) -> tuple[int, float] | None:
    """(bytes needed besides what is kept before i, added cost) when the values strictly between the
    i-th and the j-th are dropped and all others kept. 0 and n + 1 stand for start and end."""
    timeline = search.timeline
    found = search.simulate(together(search, values[i : j - 1]))
    if found is None:
        return None
    runs, live, added = found
    start, stop = span(search, values)
    first = timeline.maker[values[i - 1]] if i else start
    turn = timeline.maker[values[j - 1]] if j <= len(values) else stop
    back = timeline.rest[values[j - 1]][1] if j <= len(values) else start
    until = timeline.rest[values[i - 1]][1] if i else stop
    work, step = 0, timeline.end
    for at in range(len(runs) - 1, -1, -1):  # a repetition belongs to the step after it
        if not runs[at].repeated:
            step = runs[at].step
        if first < step <= turn or back <= step < until:
            work = max(work, live[at] - before)
    return work, added


def thinned(labels: list[tuple]) -> list[tuple]:
    """Without labels that another beats in all three numbers; at most LABELS of them, evenly."""
    labels.sort(key=lambda x: (x[1], x[2], x[0]))
    kept: list[tuple] = []
    for label in labels:
        if not any(k[0] <= label[0] and k[2] <= label[2] for k in kept):
            kept.append(label)
    if len(kept) > LABELS:
        step = (len(kept) - 1) / (LABELS - 1)
        kept = [kept[round(k * step)] for k in range(LABELS)]
    return kept


def exchange(search: Search) -> None:
    """From every point of the list, keep one more or drop one more, as long as that finds better
    ones."""
    tried: set[frozenset] = set()
    left = EXCHANGES // search.parts
    while left > 0:
        fresh = [s for _, _, s in search.best() if s not in tried]
        if not fresh:
            return
        for dropped in fresh:
            tried.add(dropped)
            for unit in dict.fromkeys(search.unit.values()):
                other = dropped.symmetric_difference(unit)
                if other not in search.seen and left > 0:
                    left -= 1
                    search.measure(other)
