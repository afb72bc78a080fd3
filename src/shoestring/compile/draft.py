"""The form that passes work on: a graph as parallel lists over positions, without nodes, values or
devices.

ops[i]      the op, None for a leaf; an Output reads one output of the node before it
ins[i]      positions of its inputs
specs[i]    shape, type, device (a tuple for a node with several outputs)
rank[i]     age: the order in which the user wrote it
outputs     positions whose values leave the plan;  same: a position that simplify replaced -> what
            stands for it
stores      position of a state's newest store -> position of its home (None: it has no memory yet)
twins       positions that compute the same of several micro-batches -> a number that they share
groups      positions that run as one launch;  chained: piece by piece behind the one before
repeated    positions that compute what another has computed before, under a budget
homes       leaves that are homes;  numbers: leaves that the host holds (a rate, a random key)
staged      numbers that a plan copies to where the device can read them
labels      leaves and stores of states, and values of versions that a newer one supersedes ->
            (kind, name), for reports
strides     leaves that are not contiguous -> strides in elements
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from ..backends.device import Device
from ..errors import fail
from ..ir import OPS, OUTPUTS, Node, Op, Output, Spec
from .graph import Graph, is_number


class Draft:
    def __init__(self, graph: Graph, outputs: Sequence[int], device: Device) -> None:
        self.device = device
        self.ops: list[Op | None] = []
        self.ins: list[list[int]] = []
        self.specs: list[Any] = []
        self.rank: list[float] = []
        self.layers: list[Any] = []
        self.homes, self.numbers, self.strides = set(), set(), {}
        self.staged: set[int] = set()
        self.leaves, self.outputs = list(graph.leaves), list(outputs)
        self.stores = dict(graph.stores)
        self.labels: dict[int, tuple[str, str]] = {}
        self.same: dict[int, int] = {}
        self.repeated: set[int] = set()
        self.groups: list[list[int]] = []
        self.twins: dict[int, int] = {}
        self.chained: set[int] = set()
        owner: tuple[int, Node] | None = None
        for position, node in enumerate(graph.nodes):
            if node is not None and node.state is not None:
                self.labels[position] = node.state.kind, str(node.state.name)
            if node is None or (type(node.op) is Output and node.value is None):
                assert owner is not None  # an output stands right after its node
                first, source = owner
                k = position - first - 1
                self._add(OUTPUTS[k], [first], source.spec[k], source.serial, source.layer)
            elif node.value is not None:
                self._add(None, [], node.spec, node.serial, node.layer)
                if node.state is not None:
                    self.homes.add(position)
                elif is_number(node):
                    self.numbers.add(position)
                if (strides := node.strides) is not None:
                    self.strides[position] = strides
            else:
                self._add(
                    node.op,
                    [graph.index[i] for i in node.inputs],
                    node.spec,
                    node.serial,
                    node.layer,
                )
                owner = position, node
                if node.source:
                    self.twins[position] = node.source[1]
        for i, label in list(self.labels.items()):
            while (op := self.ops[i]) is not None and op.kind == "effect" and i not in self.stores:
                i = self.ins[i][0]
            self.labels.setdefault(i, label)

    def _add(self, op: Op | None, ins: list[int], spec: Any, rank: float, layer: Any) -> int:
        self.ops.append(op)
        self.ins.append(ins)
        self.specs.append(spec)
        self.rank.append(rank)
        self.layers.append(layer)
        return len(self.ops) - 1

    def add(self, op: Op, ins: list[int], spec: Spec, before: int) -> int:
        """A position that a pass adds; it runs just before position `before`."""
        return self._add(op, ins, spec, self.rank[before] - 0.5, self.layers[before])

    def redirect(self, moved: dict[int, int]) -> None:
        """Let everybody read moved[i] instead of i. What nobody needs any more reads nothing."""
        self.ins = [[moved.get(j, j) for j in ins] for ins in self.ins]
        self.outputs = [moved.get(i, i) for i in self.outputs]
        self.same = {i: moved.get(j, j) for i, j in self.same.items()} | moved
        alive = reachable(self)
        for i, op in enumerate(self.ops):  # superseded versions keep what they stand for
            if i not in alive and op is not None and op.kind != "effect":
                self.ins[i] = []

    def copy(self) -> Draft:
        """A draft that passes may change without changing this one."""
        other = object.__new__(Draft)
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, (list, dict, set)) else value)
        return other

    def __len__(self) -> int:
        return len(self.ops)

    def consumers(self) -> list[list[int]]:
        """Who reads each position."""
        found: list[list[int]] = [[] for _ in self.ops]
        for i, ins in enumerate(self.ins):
            for j in ins:
                found[j].append(i)
        return found

    def readers(self) -> dict[int, set[int]]:
        """{position: who reads it}, as far as an output or a store needs them."""
        found: dict[int, set[int]] = defaultdict(set)
        for i in reachable(self):
            for j in self.ins[i]:
                found[j].add(i)
        return found

    def depends(self, i: int, other: int) -> bool:
        """Whether position i is computed from `other`."""
        stack, seen = [i], set()
        while stack:
            j = stack.pop()
            if j == other:
                return True
            if j not in seen:
                seen.add(j)
                stack += self.ins[j]
        return False

    def by_age(self) -> list[int]:
        """Positions by age as far as inputs come first: a kernel that stands for several has one
        age, and may be older than what it reads."""
        waiting = [len(set(ins)) for ins in self.ins]
        ready = [(self.rank[i], i) for i, count in enumerate(waiting) if not count]
        heapq.heapify(ready)
        consumers, found = self.consumers(), []
        while ready:
            _, i = heapq.heappop(ready)
            found.append(i)
            for reader in set(consumers[i]):
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(ready, (self.rank[reader], reader))
        return found

    def topological(self) -> Iterator[int]:
        """Positions with inputs first (positions that passes have added stand at the end of the
        lists)."""
        done: set[int] = set()
        entered: set[int] = set()
        for start in range(len(self)):
            stack = [start]
            while stack:
                i = stack[-1]
                waiting = [j for j in self.ins[i] if j not in done] if i not in done else []
                if waiting:
                    if i in entered:  # its inputs were visited, and lead back to it
                        fail(
                            "compile/draft.cycle",
                            f"{self.ops[i].name} at position {i} depends on itself",
                            tensors={},
                            hint="this is a bug in a pass; please report it with the program",
                        )
                    entered.add(i)
                    stack.extend(waiting)
                    continue
                stack.pop()
                if i not in done:
                    done.add(i)
                    yield i


def reachable(draft: Draft) -> set[int]:
    """Positions that an output or a store needs. Every output of a node with several is written,
    used or not."""
    stack, seen = [*draft.outputs, *draft.stores, *draft.leaves], set()
    while stack:
        i = stack.pop()
        if i not in seen:
            seen.add(i)
            stack.extend(draft.ins[i])
            op = draft.ops[i]
            if op is not None and op.outputs > 1:
                stack.extend(range(i + 1, i + 1 + op.outputs))
    return seen


def copy_op() -> Op:
    """The op of the registry whose kind says that it only makes its input contiguous."""
    return next(cls for cls in OPS.values() if cls.kind == "copy")()
