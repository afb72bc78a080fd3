"""microbatch: the batch in parts, one after the other, so that only one part's values are alive.

What depends on the samples (axis 0 of the step's arguments) is computed part by part on slices of
them; what leaves it is put together again:

    a sum over samples       y = sum over parts of y_part
    a mean over samples      y = sum over parts of (samples of the part / all samples) y_part
    one result per sample    y = the parts' results one after the other

Everything that reads such a y reads the whole, also another part: the mean of a cross entropy is
divided by the number of labels of all parts, which is therefore counted before the first backward
pass. So the result is that of the full batch, up to the order in which floats are added.

How it goes: `axis` says along which axis each value holds samples; constants with a row per sample
are cut like the arguments, and what only parts read of them (a dropout mask, a spread-out number)
is made part by part. Nodes then get a phase: one later than every whole that they need, and as late
as their readers allow, so that the forward and backward pass of a part stand together. The graph is
built anew in the order phase, part, age. What comes before the last phase and is small is computed
for all parts at once.

Ops say how they treat samples (`batch_axis`), how they look for a part of them (`for_part`), and
what they are good for here (`serves`). An op that mixes samples is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product
from typing import Any

from ..errors import CompileError, ShoestringError, context, fail, unreported
from ..ir import MEAN, MIXED, SUM, Node, Output, Spec, age, infer, rebuilt, serving
from .graph import known

MOST_WAYS = 64  # to cut an op's constants that are tried
SMALL_KINDS = ("expr", "view", "reduce")  # of what is computed for all parts at once


def part_sizes(samples: int, parts: int) -> tuple[int, ...]:
    """Sizes that differ by at most one, the larger ones first; at least one sample each."""
    parts = max(1, min(parts, samples))
    return tuple(samples // parts + (k < samples % parts) for k in range(parts))


def microbatch(roots: Sequence[Node], sources: Iterable[Node], parts: int) -> list[Node]:
    """Nodes that compute what `roots` do, with the batch in parts.

    sources  inputs whose axis 0 is the batch, all of one size
    """
    sources = list(sources)
    sizes = part_sizes(sources[0].shape[0], parts) if sources else ()
    return Builder(Cut(roots, sources, sizes)).roots() if len(sizes) > 1 else list(roots)


def ancestors(roots: Iterable[Node]) -> list[Node]:
    """All nodes that must be computed for the roots, and the known ones that they read, by age."""
    seen = set(roots)
    stack = list(seen)
    while stack:
        node = stack.pop()
        for i in () if known(node) else node.inputs:
            if i not in seen:
                seen.add(i)
                stack.append(i)
    return sorted(seen, key=age)


class Cut:
    """How a graph is cut.

    axis    {node: the axis of its samples, or SUM, MEAN, or None: the same in every part}; nodes
            that do not depend on the batch are absent. Several outputs: a tuple
    reads   {node that is computed part by part: per input the axis along which it is cut, or None}
    due     {node: the phase in which it is computed};  last: the last phase with parts
    """

    def __init__(self, roots: Sequence[Node], sources: list[Node], sizes: tuple[int, ...]) -> None:
        self.targets, self.sizes, self.samples = list(roots), sizes, sum(sizes)
        self.order = ancestors(roots)
        self.axis: dict[Node, Any] = dict.fromkeys(sources, 0)
        self.reads: dict[Node, tuple] = {}
        self.readers: dict[Node, list[tuple[Node, int]]] = defaultdict(list)
        for n in self.order:
            if not known(n):
                self.classify(n)
                for k, j in enumerate(n.inputs):
                    self.readers[j].append((n, k))
        self.lift()
        self.phases()
        if self.at_once():
            self.phases()

    # ---- where the samples are -------------------------------------------------------------------
    def along(self, j: Node) -> int | None:
        """The axis along which a reader finds samples in j."""
        found = self.axis.get(j)
        return found if isinstance(found, int) else None

    def classify(self, n: Node) -> None:
        if type(n.op) is Output:
            (owner,) = n.inputs
            if owner in self.reads:
                self.reads[n], self.axis[n] = (None,), self.axis[owner][n.op.index]
            return
        assert n.op is not None
        axes = tuple([self.along(j) for j in n.inputs])
        if n.op.kind == "effect" or all(a is None for a in axes):
            return
        (first, *_) = n.inputs
        if n.op.kind == "check" and first in self.axis and first not in self.reads:
            self.axis[n] = self.axis[first]  # data that is there is checked before anything else
            return
        found = next(self.ways(n, axes), None)
        if found is None:
            self.refuse(n)
        self.reads[n], self.axis[n] = found

    def ways(self, n: Node, axes: tuple, wanted: Any = None) -> Iterator[tuple[tuple, Any]]:
        """(axes of the inputs, axis of the result) with which parts make the whole. Constants may
        be cut too, where they have as many rows as the samples. wanted: the only result allowed."""
        shapes = [j.shape for j in n.inputs]
        rows = {s[a] for s, a in zip(shapes, axes, strict=True) if a is not None}
        if wanted is not None:
            rows = {n.shape[wanted]}
        if len(rows) != 1:
            return
        choices = [
            [a] if a is not None else [None, *[k for k, size in enumerate(s) if size in rows]]
            for a, s in zip(axes, shapes, strict=True)
        ]
        for way in islice(product(*choices), MOST_WAYS):
            if any(a is not None for a in way):
                found = self.claimed(n, way, shapes)
                if (wanted is None or found == wanted) and self.holds(n, way, found):
                    yield way, found

    def claimed(self, n: Node, way: tuple, shapes: list) -> Any:
        op = n.op
        assert op is not None
        found = op.batch_axis(way, *shapes)
        if found == MIXED and op.within and way[0] == 0:
            each = shapes[0][0] // self.samples
            return 0 if op.within == tuple(size * each for size in self.sizes) else MIXED
        if found == MIXED and len(way) == 1 and isinstance(way[0], int):
            axis = op.blocks(way[0], shapes[0])
            return MIXED if axis is None else axis
        return found

    def holds(self, n: Node, way: tuple, found: Any) -> bool:
        """Whether the op accepts parts, and makes the part of its result that is expected."""
        kinds = found if isinstance(found, tuple) else (found,)
        if MIXED in kinds:
            return False
        specs = n.spec if isinstance(n.spec, tuple) else (n.spec,)
        cuts = list(zip(specs, kinds, strict=True))
        cuts += list(zip([j.spec for j in n.inputs], way, strict=True))
        if any(isinstance(a, int) and s.shape[a] % self.samples for s, a in cuts):
            return False
        for size in {self.sizes[0], self.sizes[-1]}:
            inputs = [self.part_of(j.spec, a, size) for j, a in zip(n.inputs, way, strict=True)]
            want = [self.part_of(s, a, size) for s, a in zip(specs, kinds, strict=True)]
            try:
                with unreported():
                    op = type(n.op)(**self.attributes(n, found, 0, size))  # type: ignore[misc]
                    made = infer(op, inputs)
            except ShoestringError:
                return False
            if list(made if isinstance(made, tuple) else (made,)) != want:
                return False
        return True

    def part_of(self, spec: Spec, axis: Any, size: int) -> Spec:
        if not isinstance(axis, int):
            return spec
        rows = spec.shape[axis] // self.samples * size
        shape = (*spec.shape[:axis], rows, *spec.shape[axis + 1 :])
        return Spec(shape, spec.dtype, spec.device)

    def attributes(self, n: Node, found: Any, first: int, size: int) -> dict[str, Any]:
        """Of n's op, for samples `first` to `first + size`."""
        assert n.op is not None
        kinds = found if isinstance(found, tuple) else (found,)
        specs = n.spec if isinstance(n.spec, tuple) else (n.spec,)
        axis, spec = next(
            ((a, s) for a, s in zip(kinds, specs, strict=True) if isinstance(a, int)), (None, None)
        )
        each = 1 if spec is None else spec.shape[axis] // self.samples
        return n.op.attributes() | n.op.for_part(axis, first * each, size * each)

    def lift(self) -> None:
        """Constants of which parts read only their own rows are made part by part."""
        for n in reversed(self.order):
            readers = self.readers[n]
            if known(n) or n in self.axis or not readers or n in self.targets:
                continue
            if type(n.op) is Output or n.op.outputs > 1 or n.op.kind in ("effect", "check"):
                continue
            axes = {self.reads[r][k] if r in self.reads else None for r, k in readers}
            if len(axes) != 1 or None in axes or any(type(r.op) is Output for r, _ in readers):
                continue
            (axis,) = axes
            whole: tuple = (None,) * len(n.inputs)
            shapes = [j.shape for j in n.inputs]
            if n.op.makes_rows(axis, *shapes) and self.holds(n, whole, axis):
                self.reads[n], self.axis[n] = whole, axis
                continue
            found = next(self.ways(n, whole, axis), None)
            if found is not None:
                self.reads[n], self.axis[n] = found

    # ---- when ------------------------------------------------------------------------------------
    def own(self, n: Node, k: int) -> bool:
        """Whether n reads its own part of input k, rather than the whole."""
        inside = n in self.reads and n.inputs[k] in self.reads
        return inside and (type(n.op) is Output or self.reads[n][k] is not None)

    def phases(self) -> None:
        early: dict[Node, int] = {}
        for n in self.order:
            ins = () if known(n) else n.inputs
            early[n] = max(
                (early[j] + (j in self.reads and not self.own(n, k)) for k, j in enumerate(ins)),
                default=0,
            )
        self.last = max((early[n] for n in self.reads), default=0)
        self.due = dict.fromkeys(self.order, self.last + 1)
        for n in self.reads:
            self.due[n] = self.last
        for n in reversed(self.order):
            for k, j in enumerate(() if known(n) else n.inputs):
                late = self.due[n] - (j in self.reads and not self.own(n, k))
                self.due[j] = min(self.due[j], late)

    def at_once(self) -> bool:
        """Take small things that come before the last phase (the number of labels) out of the
        parts. Whether there were any."""
        found = False
        for n in self.order:
            if n not in self.reads or self.due[n] >= self.last or type(n.op) is Output:
                continue
            assert n.op is not None
            ready = not any(j in self.reads for j in n.inputs)
            most = max((j.spec.size for j in n.inputs if j in self.axis), default=0)
            if ready and n.op.kind in SMALL_KINDS and n.op.outputs == 1 and n.spec.size <= most:
                del self.reads[n]
                if not isinstance(self.axis[n], int):
                    del self.axis[n]
                found = True
        return found

    def refuse(self, n: Node) -> None:
        assert n.op is not None
        cause, hint = n.op.mixes
        fail(
            "compile/microbatch.mixed",
            "the batch cannot be cut into parts here: samples influence each other",
            op=n.op.name,
            layer=n.layer,
            tensors={f"input {k}": j.spec for k, j in enumerate(n.inputs)},
            error=CompileError,
            cause=cause,
            hint=hint.format(parts=len(self.sizes)),
        )


class Builder:
    """The graph anew. whole: {node: what stands for it};  parts[p]: the same for part p;  totals:
    sums over the parts so far."""

    def __init__(self, cut: Cut) -> None:
        self.cut, self.now = cut, context()
        self.whole: dict[Node, Any] = {}
        self.parts: list[dict[Any, Any]] = [{} for _ in cut.sizes]
        self.starts = [sum(cut.sizes[:p]) for p in range(len(cut.sizes))]
        self.totals: dict[Node, Node] = {}
        self.cut_out, self.join = serving("part"), serving("join")
        self.add_up, self.scale = serving("add_up"), serving("scale")

    def roots(self) -> list[Node]:
        cut, before = self.cut, self.now.layer
        phases: list[tuple[list[Node], list[Node]]] = [([], []) for _ in range(cut.last + 2)]
        for n in cut.order:
            if not known(n):
                phases[cut.due[n]][n in cut.reads].append(n)
        try:
            for wholes, parted in phases:
                for n in wholes:
                    self.make_whole(n)
                for p in range(len(cut.sizes)):
                    for n in parted:
                        self.make_part(n, p)
            return [self.read(n) for n in cut.targets]
        finally:
            self.now.layer = before

    def build(self, n: Node, inputs: list[Any], attributes: dict[str, Any]) -> Any:
        assert n.op is not None
        self.now.layer = n.layer
        if type(n.op) is Output:
            return inputs[0][n.op.index]
        return rebuilt(n, inputs, attributes)

    def make_whole(self, n: Node) -> None:
        assert n.op is not None
        attributes = {} if type(n.op) is Output else n.op.attributes()
        self.whole[n] = self.build(n, [self.read(j) for j in n.inputs], attributes)

    def read(self, n: Node) -> Any:
        """All of n."""
        if known(n):
            return n
        if n in self.whole:
            return self.whole[n]
        self.now.layer = n.layer
        axis = self.cut.axis[n]
        if axis is None:
            found = self.parts[0][n]
        elif axis in (SUM, MEAN):
            found = self.totals[n]
        else:
            found = self.join(*[part[n] for part in self.parts], axis=axis)
        self.whole[n] = found
        return found

    def make_part(self, n: Node, p: int) -> None:
        cut, part = self.cut, self.parts[p]
        if type(n.op) is Output:
            made = part[n] = part[n.inputs[0]][n.op.index]
        else:
            inputs = [
                self.read(j) if axis is None else self.piece(j, axis, p)
                for j, axis in zip(n.inputs, cut.reads[n], strict=True)
            ]
            attributes = cut.attributes(n, cut.axis[n], self.starts[p], cut.sizes[p])
            made = part[n] = self.build(n, inputs, attributes)
            for node in made if isinstance(made, tuple) else (made,):
                node.source = "part", n.serial
        if cut.axis[n] in (SUM, MEAN):
            self.now.layer = n.layer
            if cut.axis[n] == MEAN:
                made = self.scale(made, scale=cut.sizes[p] / cut.samples)
            self.totals[n] = self.add_up(self.totals[n], made) if p else made

    def piece(self, j: Node, axis: int, p: int) -> Node:
        """The samples of part p in j, along `axis`."""
        part, cut = self.parts[p], self.cut
        if j in cut.reads:
            return part[j]
        if (j, axis) not in part:
            whole = self.read(j)
            each = whole.shape[axis] // cut.samples
            index = [(0, n, 1) for n in whole.shape]
            start = self.starts[p] * each
            index[axis] = (start, start + cut.sizes[p] * each, 1)
            part[j, axis] = self.cut_out(whole, index=tuple(index))
        return part[j, axis]
