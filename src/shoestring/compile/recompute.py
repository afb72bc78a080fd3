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
2. Greedy: at the step with the most bytes alive, drop what gives the most bytes for its cost.
3. Single exchanges: from each point, keep one more or drop one more.

    Sources: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016 (segments);
    Kusumoto et al., "A Graph Theoretic Framework of Recomputation Algorithms", 2019 (dynamic
    programme over lower sets); Jain et al., "Checkmate", 2020 (the integer programme that tests use
    as oracle)
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from .timeline import Run, Timeline

PAIRS, LABELS, TRIES, EXCHANGES = 500, 64, 6, 600  # how much is searched: bounds the planning time
SMALL = 0.002  # of the peak: smaller values are always kept


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
        first = timeline.insert(())
        assert first is not None
        self.base = timeline.live(first)
        self.values = timeline.candidates(int(SMALL * max(self.base, default=0)) + 1)

    def measure(self, dropped: Collection[int]) -> tuple[int, float] | None:
        """(peak, added cost); None if it cannot run."""
        key = frozenset(dropped)
        if key not in self.seen:
            runs = self.timeline.insert(key)
            self.seen[key] = (
                None
                if runs is None
                else (max(self.timeline.live(runs), default=0), self.timeline.added(runs))
            )
        return self.seen[key]

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
    search.measure(())
    if search.values:
        greedy(search, set())
        programme(search)
        exchange(search)
    points = []
    for peak, added, dropped in search.best():
        runs = timeline.insert(dropped)
        assert runs is not None
        points.append(Point(peak, added, runs))
    return points


def greedy(search: Search, dropped: set[int]) -> None:
    """Lower the highest step, again and again."""
    timeline = search.timeline
    while True:
        runs = timeline.insert(dropped)
        measured = search.measure(dropped)
        if runs is None or measured is None:
            return
        peak, added = measured
        at = highest(timeline.live(runs), runs)
        resting = [
            v
            for v in search.values
            if v not in dropped and timeline.rest[v][0] < at < timeline.rest[v][1]
        ]
        resting.sort(key=lambda v: timeline.cost[timeline.maker[v]] / timeline.bytes[v])
        options = []
        for v in resting[:TRIES]:
            m = search.measure(dropped | {v})
            if m is not None:
                gain, price = peak - m[0], max(m[1] - added, 1.0)
                options.append((gain / price, timeline.bytes[v] / price, v))
        if not options:
            return
        dropped = dropped | {max(options)[2]}


def highest(live: list[int], runs: list[Run]) -> int:
    """The number of the step with the most bytes alive, of the step before which a repetition
    runs."""
    at = max(range(len(live)), key=lambda k: live[k])
    while runs[at].repeated:
        at += 1
    return runs[at].step


def programme(search: Search) -> None:
    """The dynamic programme (see the header). Long chains: parts of at most PAIRS / n values."""
    timeline, values = search.timeline, search.values
    n = len(values)
    longest = max(2, PAIRS // max(n, 1))
    prefix = [0]
    for v in values:
        prefix.append(prefix[-1] + timeline.bytes[v])
    labels: list[list[tuple]] = [[(0, 0.0, 0, ())]]  # (kept, cost, peak, kept positions)
    for j in range(1, n + 2):
        found = []
        for i in range(max(0, j - longest - 1) if j <= n else max(0, n - longest), j):
            part = measure_part(search, i, j, prefix[i])
            if part is None:
                continue
            work, cost = part
            for kept, added, peak, path in labels[i]:
                size = timeline.bytes[values[j - 1]] if j <= n else 0
                found.append((kept + size, added + cost, max(peak, kept + work), (*path, j)))
        labels.append(thinned(found))
    for _, _, _, path in labels[-1]:
        keep = {values[j - 1] for j in path if j <= n}
        search.measure(frozenset(values) - keep)


def measure_part(search: Search, i: int, j: int, before: int) -> tuple[int, float] | None:
    """(bytes needed besides what is kept before i, added cost) when the values strictly between the
    i-th and the j-th are dropped and all others kept. 0 and n + 1 stand for start and end."""
    timeline, values = search.timeline, search.values
    dropped = values[i : j - 1]
    runs = timeline.insert(frozenset(dropped))
    if runs is None:
        return None
    first = timeline.maker[values[i - 1]] if i else -1
    turn = timeline.maker[values[j - 1]] if j <= len(values) else timeline.end
    back = timeline.rest[values[j - 1]][1] if j <= len(values) else 0
    until = timeline.rest[values[i - 1]][1] if i else timeline.end
    work, step = 0, timeline.end
    live = timeline.live(runs)
    for at in range(len(runs) - 1, -1, -1):  # a repetition belongs to the step after it
        if not runs[at].repeated:
            step = runs[at].step
        if first < step <= turn or back <= step < until:
            work = max(work, live[at] - before)
    added = timeline.added(runs)
    search.seen.setdefault(frozenset(dropped), (max(live), added))
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
    left = EXCHANGES
    while left > 0:
        fresh = [s for _, _, s in search.best() if s not in tried]
        if not fresh:
            return
        for dropped in fresh:
            tried.add(dropped)
            for v in search.values:
                other = dropped ^ {v}
                if other not in search.seen and left > 0:
                    left -= 1
                    search.measure(other)
