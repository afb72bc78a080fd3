"""Region: a small graph that runs as one kernel; the only op that the compiler makes.

Its links are ops and where their inputs come from. One of them may be its anchor, the kernel that
it is built around: a convolution, a sum. Every other runs at a port of that kernel:

    load k      computes what the kernel reads as its input k, as it reads it (ALL: every input)
    inline      computes an input of such a program, or of an elementwise kernel, block by block
    store 0     runs over stretches of the kernel's result as soon as they are complete, in place
    also k      the kernel adds up its input k besides
    end         runs once, over all results of a reduction, each seen as one row

Without an anchor the region is one elementwise kernel. A region means what its links mean, one
after the other: shape, type, reference and cost are walked here, once for all ports. Bits do not
change, but for the sums of `also`, which are added in another order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..backends import Attached, Kernel, Launch, Operand, row_major
from ..backends.device import Device
from ..ir import ALL, Cost, Op, Port, Spec
from ..ops.part import Inline, Program, attach, elementwise, program
from .draft import Draft


class Link(NamedTuple):
    """One op of a region. sources: numbers of values, the region's inputs first, then the results
    of each link. port: where it runs; None: the anchor, or a link of a region without one."""

    op: Op
    sources: tuple[int, ...]
    port: Port | None = None

    @property
    def where(self) -> str:
        return self.port.where if self.port else ""


class Region(Op):
    """inputs   how many
    links    in order: what a link reads comes before it
    values   specs of all values: inputs, then results of each link
    results  numbers of the values that are its outputs
    """

    cases, gradient = (), None

    def __init__(
        self, inputs: int, links: Sequence[Link], values: Sequence[Spec], results: Sequence[int]
    ) -> None:
        self.inputs, self.links = inputs, tuple(links)
        self.values, self.results = tuple(values), tuple(results)
        self.outputs = len(self.results)  # type: ignore[misc]
        self.name = "+".join(link.op.name for link in self.links)  # type: ignore[misc]
        self.first = [inputs]  # the number of each link's first result
        for link in self.links:
            self.first.append(self.first[-1] + link.op.outputs)
        plain = [k for k, link in enumerate(self.links) if link.port is None]
        self.anchor = next((k for k in plain if self.links[k].op.kind != "expr"), None)
        self.kind = "expr" if self.anchor is None else self.links[self.anchor].op.kind  # type: ignore[misc]
        self.inplace = self.anchor is None  # type: ignore[misc]

    # ---- meaning ---------------------------------------------------------------------------------
    def shape(self, *shapes):
        found = tuple(self.values[r].shape for r in self.results)
        return found if self.outputs > 1 else found[0]

    def dtype(self, *dtypes):
        found = tuple(self.values[r].dtype for r in self.results)
        return found if self.outputs > 1 else found[0]

    def reference(self, *xs):
        values: list[Any] = list(xs)
        for link in self.links:
            args = [values[s] for s in link.sources]
            if link.where == "end":
                args = [np.reshape(x, () if np.size(x) == 1 else -1) for x in args]
            found = link.op.reference(*args)
            values += found if link.op.outputs > 1 else [found]
        results = tuple(np.reshape(values[r], self.values[r].shape) for r in self.results)
        return results if self.outputs > 1 else results[0]

    def cost(self, *shapes):
        return self.whole_cost

    @cached_property
    def whole_cost(self) -> Cost:
        """Operations of all links; bytes of all but what passes from one to another, which is in no
        memory, and of what several read, once."""
        costs = [link.op.cost(*[self.values[s].shape for s in link.sources]) for link in self.links]
        flops, moved = sum(c.flops for c in costs), sum(c.bytes for c in costs)
        for number, spec in enumerate(self.values):
            reads = sum(link.sources.count(number) for link in self.links)
            if number < self.inputs:
                reads -= 1
            elif number not in self.results:
                reads += 1
            moved -= 4.0 * spec.size * max(reads, 0)
        return Cost(flops, moved)

    # ---- facts -----------------------------------------------------------------------------------
    def takes_strides(self, k):
        """A program reads any strides, but at the end of a reduction; a kernel what it promises."""
        for n, link in enumerate(self.links):
            if k not in link.sources or link.where == "also":
                continue
            if link.where in ("end", "inline"):
                return False
            own = [m for m, s in enumerate(link.sources) if s == k]
            if n == self.anchor and not all(link.op.takes_strides(m) for m in own):
                return False
        return True

    def part(self, port: Port | None) -> list[int]:
        """Numbers of the links at a port."""
        return [k for k, link in enumerate(self.links) if link.port == port]

    def program(self, dtypes):
        """Of an elementwise region: see Elementwise.program."""
        if self.anchor is not None or any(link.port for link in self.links):
            return None
        found = self.assembled(None, range(self.inputs), dtypes)
        return None if found is None else (list(found.instructions), found.constants)

    @property
    def weight(self) -> float:
        return sum(getattr(link.op, "weight", 0.0) for link in self.links)

    def ports(self, device, inputs, outputs):
        """Of an anchor that has given nothing to the outside of its kernel yet: its end."""
        if self.anchor is None or any(p in ("store", "also", "end") for p in self.used):
            return ()
        return tuple(p for p in self.anchor_ports(device) if p.where == "end")

    @property
    def used(self) -> set[str]:
        return {link.where for link in self.links}

    def anchor_ports(self, device: Device) -> tuple[Port, ...]:
        assert self.anchor is not None
        link, first = self.links[self.anchor], self.first[self.anchor]
        outs = self.values[first : first + link.op.outputs]
        return link.op.ports(device, [self.values[s] for s in link.sources], outs)

    def space(self, k: int) -> tuple[int, ...] | None:
        """The sizes over which the program runs that alone reads input k, element by element; None
        where something else reads it."""
        readers = [n for n, link in enumerate(self.links) if k in link.sources]
        if "inline" in self.used:
            return None
        if self.anchor is None:
            return self.values[self.results[0]].shape
        anchor = self.links[self.anchor]
        loads = [n for n in readers if self.links[n].where == "load"]
        if len(loads) + (self.anchor in readers and self.loads_all) != len(readers):
            return None
        return self.values[anchor.sources[0]].shape

    def runs(self) -> bool:
        """Whether a kernel could run the program of an elementwise region, or of several sums."""
        port = None if self.anchor is None else Port("load", ALL)
        sources = self.links[self.anchor].sources if self.anchor is not None else self.results
        read = self.reads(port, sources)
        found = self.assembled(port, read, [self.values[v].dtype for v in read])
        sums = self.outputs if self.anchor is not None else 0
        most = MOST_WITH_SUMS if sums else MOST_INSTRUCTIONS
        return found is not None and len(found.instructions) + sums <= most

    def part_runs(self, port: Port | None) -> bool:
        """Whether the links at a port have a program that is short enough."""
        read = self.reads(port, ())
        return self.assembled(port, read, [self.values[v].dtype for v in read]) is not None

    def reads(self, port: Port | None, wanted: Sequence[int]) -> list[int]:
        """Values that the part at a port reads from elsewhere, in order; `wanted` are asked of
        it."""
        part = self.part(port)
        inside = {self.first[k] for k in part}
        return sorted(({s for k in part for s in self.links[k].sources} | set(wanted)) - inside)

    @property
    def loads_all(self) -> bool:
        """Whether its kernel reads nothing but a program."""
        return self.anchor is not None and self.links[self.anchor].op.loads_all

    # ---- launch ----------------------------------------------------------------------------------
    def launch(self, device, inputs, outputs):
        return Launcher(self, device, inputs, outputs).run()

    def assembled(self, port: Port | None, inputs: Sequence[int], dtypes: Any) -> Program | None:
        """The program of the links at a port; it reads these values from elsewhere."""
        links = [(self.links[k].op, self.links[k].sources, self.first[k]) for k in self.part(port)]
        return program(links, inputs, dtypes)


class Launcher:
    """One launch of a region: which buffer and which operand each value is."""

    def __init__(
        self, region: Region, device: Device, inputs: Sequence[Operand], outputs: Sequence[Operand]
    ) -> None:
        self.region, self.device = region, device
        self.operands = dict(enumerate(inputs))
        self.buffers = {k: k for k in range(region.inputs)}
        for k, number in enumerate(region.results):
            self.operands.setdefault(number, outputs[k])
            self.buffers.setdefault(number, region.inputs + k)
        self.end = region.inputs + region.outputs  # workspaces follow

    def operand(self, number: int) -> Operand:
        """Of a value; contiguous where it is in no memory."""
        spec = self.region.values[number]
        known = self.operands.get(number)
        return known or Operand(spec.shape, spec.dtype, row_major(spec.shape))

    def run(self) -> Launch | None:
        region = self.region
        if region.anchor is None:
            return self.elementwise()
        link, first = region.links[region.anchor], region.first[region.anchor]
        made = range(first, first + link.op.outputs)
        if "store" in region.used:  # the raw result lies where the final one will be
            self.buffers[first] = region.inputs
        found = link.op.launch(
            self.device, [self.operand(s) for s in link.sources], [self.operand(m) for m in made]
        )
        if found is None:
            return None
        own = [self.buffers.get(v, -1) for v in (*link.sources, *made)]

        own += range(self.end, self.end + len(found.workspaces))
        kernels = [k.renumbered(own) for k in found.kernels]
        ports = list(dict.fromkeys(x.port for x in region.links if x.port and x.where != "inline"))
        if region.loads_all and Port("load", ALL) not in ports:
            ports.append(Port("load", ALL))
        for port in ports:
            at = 0 if port.where in ("load", "also") else -1  # what reads first, what writes last
            fused = self.attached(kernels[at], port, link, made)
            if fused is None:
                return None
            kernels[at] = fused
        return Launch(tuple(kernels), found.workspaces)

    def attached(self, kernel: Kernel, port: Port, anchor: Link, made: range) -> Kernel | None:
        """The kernel with what runs at a port."""
        region = self.region
        if port.where == "also":
            (k,) = region.part(port)
            sums = Attached("also", port.index, (self.buffers[region.first[k]],))
            return kernel._replace(attached=(*kernel.attached, sums))
        shaped: Callable[[Operand], Operand] = flat if port.where == "end" else lambda x: x
        outputs: list[tuple[int, Operand, int]] = []
        if port.where == "load":
            loaded = anchor.sources if port.index == ALL else anchor.sources[:1]
            outputs = [(v, self.operand(v), -1) for v in loaded]
        elif port.where == "store":
            outputs = [(region.results[0], self.operand(region.results[0]), region.inputs)]
        else:
            numbers = [region.first[k] for k in region.part(port)]
            outputs = [
                (v, flat(self.operand(v)), self.buffers[v]) for v in numbers if v in region.results
            ]
        read = region.reads(port, [v for v, _, _ in outputs])
        found = region.assembled(port, read, [region.values[v].dtype for v in read])
        if found is None:
            return None
        sources = [self.source(v, shaped) for v in read]
        return attach(self.device, kernel, port, found, sources, outputs, made)

    def source(
        self, number: int, shaped: Callable[[Operand], Operand] = lambda x: x
    ) -> tuple[Operand | Inline, int]:
        """The operand and the buffer of what a program reads; an inline producer in place of it."""
        region = self.region
        for k in region.part(INLINE):
            if region.first[k] == number:
                link = region.links[k]
                own = link.op.launch(
                    self.device, [self.operand(s) for s in link.sources], [self.operand(number)]
                )
                buffers = tuple(self.buffers[s] for s in link.sources)
                return Inline(own.kernels[0], buffers, self.operand(number)), -1
        return shaped(self.operand(number)), self.buffers[number]

    def elementwise(self) -> Launch | None:
        region = self.region
        read = region.reads(None, region.results)
        found = region.assembled(None, read, [region.values[v].dtype for v in read])
        if found is None:
            return None
        (result,) = region.results
        sources = [self.source(v) for v in read]
        return elementwise(self.device, found, sources, result, self.operand(result), region.inputs)


INLINE = Port("inline")
MOST_INSTRUCTIONS, MOST_WITH_SUMS = 64, 40  # of one program


def flat(x: Operand) -> Operand:
    """A contiguous operand as one row, or as one value."""
    size = math.prod(x.shape)
    return Operand((), x.dtype, ()) if size == 1 else Operand((size,), x.dtype, (1,))


def fused(
    draft: Draft,
    inputs: Sequence[int],
    members: Sequence[tuple[int, Port | None]],
    results: Sequence[int],
    behind: Callable[[int], int] = lambda j: j,
    anchor: tuple[Op, Sequence[int], Sequence[Spec]] | None = None,
) -> Region:
    """The region of some positions of a draft, each at a port; regions among them are laid flat.

    inputs   positions that it reads;  results: positions that it gives
    behind   the position of which another is a reshape
    anchor   an op that stands at no position yet, what it reads, and what it gives: its results
             come first among the region's, `results` after them
    """
    number = {j: k for k, j in enumerate(inputs)}
    values = [draft.specs[j] for j in inputs]
    links: list[Link] = []

    def add(op: Op, reads: Sequence[int], port: Port | None, specs: Sequence[Spec]) -> list[int]:
        if not isinstance(op, Region):
            links.append(Link(op, tuple(reads), port))
            start = len(values)
            values.extend(specs)
            return list(range(start, len(values)))
        names = list(reads)
        for k, link in enumerate(op.links):
            own = op.values[op.first[k] : op.first[k + 1]]
            at = link.port if link.port or op.anchor is not None else port
            names += add(link.op, [names[s] for s in link.sources], at, own)
        return [names[r] for r in op.results]

    for i, port in members:
        op, reads = draft.ops[i], [number[j if j in number else behind(j)] for j in draft.ins[i]]
        several = op.outputs > 1
        found = add(op, reads, port, draft.specs[i] if several else [draft.specs[i]])
        number.update({i + 1 + k if several else i: v for k, v in enumerate(found)})
    first: list[int] = []
    if anchor is not None:
        op, reads, specs = anchor
        first = add(op, [number[j] for j in reads], None, specs)
    return Region(len(inputs), links, values, [*first, *[number[j] for j in results]])
