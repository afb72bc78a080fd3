"""Programs of a card: kernels in order, launched one by one at first, as one CUDA graph once they
are replayed.

All arguments are addresses. They lie in one array, and each launch points to its part of it:
    values     address of every buffer of every kernel
    arguments  per kernel, where in `values` each of its buffers is
A run writes the addresses of those bases that have moved. A graph holds copies of its arguments, so
the nodes that read a moved base are told anew; that costs less than to launch them all.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from ctypes import byref, c_size_t, c_uint64, c_void_p
from typing import Any

from ..card import CardProgram
from ..launch import Placed
from .driver import KernelNode

DIRECT = 2  # runs before a graph is worth its making


class CudaProgram(CardProgram):
    """What CardProgram is, for CUDA."""

    def __init__(self, device: Any, launches: Sequence[Placed]) -> None:
        super().__init__(device, launches)
        flat = [place for _, _, _, places in self.kernels for place in places]
        self.values = (c_uint64 * max(len(flat), 1))()
        self.known: dict[int, int | None] = dict.fromkeys(sorted({base for base, _ in flat}))
        self.slots: dict[int, list[tuple[int, int]]] = {base: [] for base in self.known}
        self.readers: dict[int, list[int]] = {base: [] for base in self.known}
        self.arguments, self.shapes, slot = [], [], 0
        first = ctypes.addressof(self.values)
        for k, (function, kernel, _, places) in enumerate(self.kernels):
            function.check(kernel, len(places))
            pointers = [first + 8 * (slot + n) for n in range(len(places))]
            self.arguments.append((c_void_p * len(places))(*pointers))
            self.shapes.append((*three(kernel.grid), *three(kernel.block)))
            for base, offset in places:
                self.slots[base].append((slot, offset))
                self.readers[base].append(k)
                slot += 1
        self.entries = tuple(kernel.entry for _, kernel, _, _ in self.kernels)
        self.runs, self.graph = 0, None

    def point(self, bases: Sequence[Any]) -> list[int]:
        """Write the addresses of the bases that are not where they were. Which these are."""
        moved = []
        for base, before in self.known.items():
            memory, offset = bases[base]
            address = memory.handle + offset
            if address != before:
                self.known[base] = address
                moved.append(base)
                for slot, offset in self.slots[base]:
                    self.values[slot] = address + offset
        return moved

    def run(self, bases: Sequence[Any]) -> None:
        device = self.device
        device.enter()
        moved = self.point(bases)
        self.runs += 1
        if self.runs <= DIRECT or len(self.kernels) < 2:
            self.launch(0, len(self.kernels))
            return
        if self.graph is None:
            self.graph = Graph(self)
        elif moved:
            self.graph.update({k for base in moved for k in self.readers[base]})
        device.started(self.entries)
        device.check("cuGraphLaunch", device.graph_launch(self.graph.executable, device.stream))

    def run_range(self, bases: Sequence[Any], first: int, end: int) -> None:
        """Watched: a fault is told before the next kernel starts, so it is known whose it is."""
        self.device.enter()
        moved = self.point(bases)
        if self.graph is not None:
            self.graph.update({k for base in moved for k in self.readers[base]})
        self.launch(first, end)
        self.device.synchronize()

    def launch(self, first: int, end: int) -> None:
        device = self.device
        device.started(self.entries[first:end])
        launch, stream = device.kernel_launch, device.stream
        for k in range(first, end):
            handle = self.kernels[k].function.handle
            code = launch(handle, *self.shapes[k], 0, stream, self.arguments[k], None)
            if code:
                device.check(f"the launch of {self.entries[k]}", code)


class Graph:
    """The launches of a program as one: a chain of kernel nodes."""

    def __init__(self, program: CudaProgram) -> None:
        self.device, call = program.device, program.device.call
        graph, executable, before = c_void_p(), c_void_p(), None
        self.nodes: list[tuple[c_void_p, KernelNode]] = []
        call("cuGraphCreate", byref(graph), 0)
        for k, bound in enumerate(program.kernels):
            facts, node = KernelNode(), c_void_p()
            facts.function = bound.function.handle
            facts.grid[:], facts.block[:] = program.shapes[k][:3], program.shapes[k][3:]
            facts.arguments = program.arguments[k]
            after = None if before is None else byref(before)
            call(
                "cuGraphAddKernelNode",
                byref(node),
                graph,
                after,
                c_size_t(before is not None),
                byref(facts),
            )
            self.nodes.append((node, facts))
            before = node
        if self.device.driver.has("cuGraphInstantiateWithFlags"):
            call("cuGraphInstantiateWithFlags", byref(executable), graph, 0)
        else:
            call("cuGraphInstantiate_v2", byref(executable), graph, None, None, 0)
        self.executable = executable
        weakref.finalize(self, self.device.destroy_graph, executable, graph).atexit = False

    def update(self, kernels: set[int]) -> None:
        """The arguments of these kernels have changed."""
        for k in sorted(kernels):
            node, facts = self.nodes[k]
            self.device.call("cuGraphExecKernelNodeSetParams", self.executable, node, byref(facts))


def three(sizes: Sequence[int]) -> tuple[int, ...]:
    return (*sizes, *(1,) * (3 - len(sizes)))
