"""budget: the smallest added cost whose plan fits into a number of bytes.

`Options` holds a scheduled draft and answers questions about budgets: it makes the list of
recompute.py once, when it is first needed, and lowers its points one by one. Since they are tried
in the same order for every budget, a larger one never gets a dearer plan, nor a smaller peak.
"""

from __future__ import annotations

from collections.abc import Callable

from .draft import Draft
from .plan import Plan
from .recompute import Point, frontier
from .repeat import repeat, timeline


class Options:
    """draft: scheduled, never changed;  lower: makes a plan of a copy of it."""

    def __init__(self, draft: Draft, lower: Callable[[Draft], Plan]) -> None:
        self.draft, self.lower = draft, lower
        self.found: list[Point] | None = None
        self.plans: dict[int, Plan] = {0: self.finished(lower(draft))}

    def finished(self, plan: Plan) -> Plan:
        plan.options = self
        return plan

    def points(self) -> list[Point]:
        """What can be had, the cheapest first; the first keeps everything."""
        if self.found is None:
            self.found = frontier(timeline(self.draft, set(self.plans[0].bases)))
        return self.found

    def adopt(self, other: Options) -> None:
        """Take the list of `other`, measured anew, instead of searching for one: for the same steps
        with other sizes, such as those of another batch, in the order that `other` has for them.
        Where the steps differ nothing changes."""
        if self.found is not None or set(self.draft.order) != set(other.draft.order):
            return
        draft = self.draft.copy()
        draft.order, draft.steps = list(other.draft.order), list(other.draft.order)
        mine, theirs = (
            timeline(d, set(o.plans[0].bases)) for d, o in ((draft, self), (other.draft, other))
        )
        same = (mine.reads, mine.writes, mine.pure) == (theirs.reads, theirs.writes, theirs.pure)
        if not same or draft.late != other.draft.late:
            return
        found = []
        for point in other.points():
            peak, added = max(mine.live(point.runs), default=0), mine.added(point.runs)
            found.append((added, peak, len(found), point.runs))
        self.draft, self.found = draft, []
        for added, peak, _, runs in sorted(found, key=lambda p: p[:3]):
            if not self.found or peak < self.found[-1].peak:
                self.found.append(Point(peak, added, runs))

    def plan(self, k: int) -> Plan:
        """The plan of the k-th point."""
        if k not in self.plans:
            draft = self.draft.copy()
            repeat(draft, self.points()[k].runs)
            self.plans[k] = self.finished(self.lower(draft))
        return self.plans[k]

    def within(self, room: int | None) -> Plan | None:
        """The cheapest plan whose arena and results take at most `room` bytes, if there is one."""
        if room is None or self.plans[0].own_bytes <= room:
            return self.plans[0]
        results = self.plans[0].external_bytes
        for k, point in enumerate(self.points()):
            if point.peak + results <= room and self.plan(k).own_bytes <= room:
                return self.plan(k)
        return None

    def smallest(self) -> Plan:
        """The plan that needs the fewest bytes."""
        points, results = self.points(), self.plans[0].external_bytes
        best = self.plans[0]
        for k in range(len(points) - 1, 0, -1):
            if points[k].peak + results < best.own_bytes:
                best = min(best, self.plan(k), key=lambda plan: plan.own_bytes)
        return best
