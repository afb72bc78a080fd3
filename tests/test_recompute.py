"""Which values are not kept: against all sets on small chains, and against an integer programme.

Oracle: Jain et al., "Checkmate", 2020. Stage t computes step t for the first time and may repeat
earlier ones before it; everything may be repeated any number of times.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoestring.compile.recompute import frontier
from shoestring.compile.timeline import Timeline


def timeline(reads, sizes, costs):
    """Steps that each write one value, of their own number."""
    n = len(reads)
    return Timeline(
        reads,
        [[k] for k in range(n)],
        [None] * n,
        dict(enumerate(sizes)),
        [0] * n,
        list(costs),
        [True] * n,
        [n] * n,
        [n - 1],
    )


def training(sizes, costs, skips=()):
    """A chain of layers forward and backward. skips: (from, to) of residual additions."""
    n = len(sizes)
    extra = {b: a for a, b in skips}
    reads = [[] if k == 0 else [k - 1] + ([extra[k]] if k in extra else []) for k in range(n)]
    gradient = {}  # layer -> the steps that hold parts of its gradient
    for k in reversed(range(n)):
        arriving = gradient.get(k, [])
        reads.append([k, *([k - 1] if k else []), *arriving])
        step = len(reads) - 1
        for source in [k - 1, *([extra[k]] if k in extra else [])]:
            if source >= 0:
                gradient.setdefault(source, []).append(step)
    back = [sizes[max(k - 1, 0)] for k in reversed(range(n))]
    return timeline(reads, [*sizes, *back], [*costs, *[2 * c for c in reversed(costs)]])


def cost_within(points, budget):
    return min([p.added for p in points if p.peak <= budget], default=math.inf)


def brute_force(line):
    """The Pareto-optimal (peak, added) over all sets of dropped values."""
    values = line.candidates(1)
    found = []
    for count in range(len(values) + 1):
        for dropped in itertools.combinations(values, count):
            runs = line.insert(dropped)
            if runs is not None:
                found.append((line.added(runs), max(line.live(runs))))
    front = []
    for added, peak in sorted(found):
        if not front or peak < front[-1][1]:
            front.append((added, peak))
    return front


layers = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=3, max_size=9)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(layers)
def test_on_a_chain_no_set_is_better(found):
    line = training([100 * s for s, _ in found], [c for _, c in found])
    points = frontier(line)
    for added, peak in brute_force(line):
        assert cost_within(points, peak) <= added


def test_with_residuals_little_is_lost():
    """Random residual chains, at every budget of the list of all sets: on average less than a
    fiftieth of the whole step's cost, and where the list ends the best set goes little lower."""
    rng, gaps, floors = np.random.default_rng(0), [], []
    for _ in range(30):
        n = int(rng.integers(4, 10))
        skips = [(b - 2, b) for b in range(2, n) if rng.random() < 0.5]
        sizes = [100 * int(s) for s in rng.integers(1, 10, n)]
        line = training(sizes, [int(c) for c in rng.integers(1, 10, n)], skips)
        points, total = frontier(line), sum(line.cost)
        best = brute_force(line)
        floors.append(points[-1].peak / best[-1][1])
        gaps += [
            (cost_within(points, peak) - added) / total
            for added, peak in best
            if peak >= points[-1].peak
        ]
    assert np.mean(gaps) < 0.02, gaps
    assert np.mean(floors) < 1.02, floors


@settings(max_examples=30, deadline=None, derandomize=True)
@given(layers)
def test_the_list_is_sorted_and_every_point_keeps_its_word(found):
    line = training([100 * s for s, _ in found], [c for _, c in found])
    points = frontier(line)
    assert points[0].added == 0
    for one, next_ in itertools.pairwise(points):
        assert one.peak > next_.peak and one.added < next_.added
    for p in points:
        assert max(line.live(p.runs)) == p.peak and line.added(p.runs) == p.added
        done = set()
        for run in p.runs:  # everything that is read has been made
            made = {v for v in line.reads[run.step] if v not in run.sources}
            assert all((v, None) in done for v in made)
            assert all((v, source) in done for v, source in run.sources.items())
            done.update((v, run if run.repeated else None) for v in line.writes[run.step])


@st.composite
def timelines(draw):
    """Steps with several results, workspaces, results that may take the memory of an input, values
    from outside (-1) and values that stay."""
    n = draw(st.integers(4, 12))
    writes = [[2 * k, 2 * k + 1][: draw(st.integers(1, 2))] for k in range(n)]
    reads, takeover = [], []
    for k in range(n):
        before = [v for made in writes[:k] for v in made]
        reads.append(draw(st.lists(st.sampled_from(before), unique=True, max_size=3)) if k else [])
        inputs = [*reads[k], -1]
        takeover.append((writes[k][0], inputs) if draw(st.booleans()) else None)
    sizes = {v: draw(st.integers(1, 9)) for made in writes for v in made}
    extra = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    last = draw(st.sets(st.sampled_from(sorted(sizes)), max_size=2))
    return Timeline(
        reads, writes, takeover, sizes, extra, [1.0] * n, [True] * n, [n] * n, sorted(last)
    )


def counted(line, runs):
    """Bytes alive at each run, by looking at every value at every run."""
    uses = {}
    for at, run in enumerate(runs):
        for v in line.writes[run.step]:
            uses[v, run if run.repeated else None] = [at]
        for v in line.reads[run.step]:
            uses[v, run.sources.get(v)].append(at)
    for v in line.last:
        uses[v, None].append(len(runs))
    found = []
    for at, run in enumerate(runs):
        here = sum(line.bytes[v] for (v, _), when in uses.items() if when[0] <= at <= when[-1])
        over = line.takeover[run.step]
        keys = [(v, run.sources.get(v)) for v in over[1]] if over else []
        taken = any(key in uses and uses[key][-1] == at for key in keys)
        found.append(here + line.extra[run.step] - (line.bytes[over[0]] if taken else 0))
    return found


@settings(max_examples=200, deadline=None, derandomize=True)
@given(timelines(), st.data())
def test_bytes_alive_are_counted_right(line, data):
    """Also where what is repeated is repeated once more."""
    for _ in range(2):
        values = line.candidates(1)
        dropped = data.draw(st.sets(st.sampled_from(values))) if values else set()
        runs = line.insert(dropped)
        assert line.live(runs) == counted(line, runs)
        deeper = line.unrolled(runs)
        assert line.live(line.flattened(runs, deeper, deeper.plain)) == counted(line, runs)
        line = deeper


def optimum(line, budget, seconds=60):
    """The least cost of all runs of all steps within the budget; None if there is none."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    n = line.end
    users = {i: [j for j in range(n) if i in line.reads[j]] for i in range(n)}
    names = {}

    def var(*key):
        return names.setdefault(key, len(names))

    rows, lower, upper = [], [], []

    def constrain(terms, low, high):
        rows.append(terms)
        lower.append(low)
        upper.append(high)

    size = [line.bytes[i] / 100 for i in range(n)]
    for t in range(n):
        for i in range(t + 1):
            var("R", t, i)
        for i in range(t):
            before = {var("R", t - 1, i): -1.0}
            if i < t - 1:
                before[var("S", t - 1, i)] = -1.0
            constrain({var("S", t, i): 1.0} | before, -np.inf, 0)
        for j in range(t + 1):
            for i in line.reads[j]:
                terms = {var("R", t, j): 1.0, var("R", t, i): -1.0}
                if i < t:
                    terms[var("S", t, i)] = -1.0
                constrain(terms, -np.inf, 0)
    for t in range(n):
        for k in range(t + 1):  # bytes alive when stage t has computed step k
            terms = {var("U", t, k): 1.0, var("R", t, k): -size[k]}
            if k == 0:
                for i in range(t):
                    terms[var("S", t, i)] = -size[i]
            else:
                terms[var("U", t, k - 1)] = -1.0
                for i in {*line.reads[k - 1], k - 1}:
                    terms[var("F", t, i, k - 1)] = size[i]
            constrain(terms, 0, 0)
        for k in range(t):
            for i in {*line.reads[k], k}:
                later = [j for j in users[i] if k < j <= t]
                most = len(later) + 2.0
                terms = {var("F", t, i, k): most, var("R", t, k): -1.0}
                for j in later:
                    terms[var("R", t, j)] = terms.get(var("R", t, j), 0) + 1.0
                if t + 1 < n:
                    terms[var("S", t + 1, i)] = 1.0
                constrain(terms, -np.inf, most - 1)
    low, high = np.zeros(len(names)), np.ones(len(names))
    whole = np.ones(len(names))
    costs = np.zeros(len(names))
    for key, v in names.items():
        if key[0] == "U":
            high[v], whole[v] = budget / 100, 0
        elif key[0] == "R":
            costs[v] = line.cost[key[2]]
            if key[1] == key[2]:
                low[v] = 1
    entries = [(r, v, x) for r, terms in enumerate(rows) for v, x in terms.items()]
    r, v, x = zip(*entries, strict=True)
    matrix = coo_array((x, (r, v)), shape=(len(rows), len(names))).tocsr()
    found = milp(
        costs,
        constraints=LinearConstraint(matrix, lower, upper),
        bounds=Bounds(low, high),
        integrality=whole,
        options={"time_limit": seconds},
    )
    return found.fun if found.success else None


@pytest.mark.parametrize(
    "sizes,costs,skips",
    [
        ([3, 3, 3, 3, 3, 3], [1, 1, 1, 1, 1, 1], ()),
        ([8, 6, 4, 3, 2, 1], [1, 5, 1, 5, 1, 5], ()),
        ([4, 4, 4, 4, 4, 4, 4], [5, 1, 5, 1, 5, 1, 5], ((1, 3), (3, 5))),
    ],
)
def test_near_the_integer_programme(sizes, costs, skips):
    """Within a tenth of the cost of the whole step, at every budget that the oracle can keep."""
    line = training([100 * s for s in sizes], costs, skips)
    points, total = frontier(line), sum(line.cost)
    peaks = [p.peak for p in points]
    for budget in np.linspace(min(peaks), max(peaks), 4):
        best = optimum(line, budget)
        assert best is not None
        ours = total + cost_within(points, budget)
        assert best - 1e-6 <= ours <= best + 0.1 * total
