"""Which nodes a plan computes, as numbered positions, and the key under which the plan is cached.

The key holds, per node by age: for a leaf (its spec, is it a state's home, its strides if not
contiguous, does the host hold it); for the rest (the interned op, positions of its inputs); then
which positions are outputs and which store writes which home. It holds no value, address, offset,
name or Python float. A leaf used twice has one position, and nothing shares memory with a home
except that state's current version, so positions are the aliasing pattern. CPU kernels accept any
alignment; a device whose kernels do not adds the alignment class of each leaf.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import StaleGraphError, fail
from ..ir import Node, Output


class Graph:
    """targets  nodes to compute
    finals      the newest store of each changed state (also targets)
    order       at least all ancestors of the targets, by age

    nodes[i] is the node at position i; the outputs of a node with several have the positions after
    it, whether or not somebody uses them. Leaves stand where they are first used: their own age
    says nothing."""

    def __init__(
        self, targets: Sequence[Node], finals: Sequence[Node], order: Iterable[Node]
    ) -> None:
        order = list(order)
        want = set(targets)
        for node in reversed(order):
            if node in want and not known(node):
                want.update(node.inputs)
        self.nodes: list[Node | None] = []
        self.index: dict[Node, int] = {}
        self.leaves: list[int] = []
        self.signature: list[tuple] = []
        for node in order:
            if node.value is None and node in want:
                self._add(node)
        for node in targets:  # a leaf that is itself asked for
            if node.value is not None:
                self._leaf(node)
        for node in finals:  # a home is an input even if nobody reads it
            if node.state.leaf is not None:
                self._leaf(node.state.leaf)
        self.stores: dict[int, int | None] = {
            self.index[n]: self.index.get(n.state.leaf) if n.state.leaf is not None else None
            for n in finals
        }

    def _leaf(self, node: Node) -> None:
        if node not in self.index:
            self.index[node] = len(self.nodes)
            self.leaves.append(len(self.nodes))
            self.nodes.append(node)
            self.signature.append(
                (node.spec, node.state is not None, node.strides, is_number(node))
            )

    def _add(self, node: Node) -> None:
        index, op = self.index, node.op
        if op is None:
            overwritten(node)
        if type(op) is Output:
            position = index[node.inputs[0]] + 1 + op.index
            index[node] = position
            self.nodes[position] = self.nodes[position] or node
            return
        for i in node.inputs:
            if i.value is not None and i not in index:
                self._leaf(i)
        self.signature.append((op, *[index[i] for i in node.inputs]))
        index[node] = len(self.nodes)
        self.nodes.append(node)
        if op.outputs > 1:
            self.nodes.extend([None] * op.outputs)

    def node_at(self, position: int) -> Node | None:
        """The node that is computed at a position; None where a pass has added it."""
        while 0 <= position < len(self.nodes) and self.nodes[position] is None:
            position -= 1  # an output that nobody uses: its node is before it
        return self.nodes[position] if position < len(self.nodes) else None

    def key(self, outputs: Sequence[int], *modes: Any) -> tuple:
        return tuple(self.signature), tuple(outputs), tuple(self.stores.items()), modes


def overwritten(node: Node) -> None:
    """Within one thread every live value is computed before a version that it needs is lost."""
    try:
        fail(
            "compile/graph.overwritten",
            f"another thread overwrote {node.stale} while this thread built on its old value",
            tensors={"value": node.spec},
            error=StaleGraphError,
            layer=node.layer,
            hint="with lock: ... around the step of one thread and around all that the other "
            "builds and reads",
        )
    except StaleGraphError as problem:
        vars(problem)["bad"] = node  # nothing but what depends on it is given up
        raise


def is_number(node: Node) -> bool:
    """A leaf in the host's own memory: a rate, a random key, a constant of a gradient rule. What a
    device allocated is an array over that memory."""
    return node.state is None and getattr(node.value.flags, "owndata", False)


def known(node: Node) -> bool:
    """Whether the value is there. An output of a node whose outputs were all kept takes its own
    from there."""
    if node.value is None and type(node.op) is Output and node.inputs[0].value is not None:
        node.value = node.inputs[0].value[node.op.index]
    return node.value is not None
