"""Reverse-mode differentiation: a graph in, a bigger graph out.

For y = f(x) and a seed dy, dx = dy * df/dx is built node by node, from y back to its ancestors;
where a value is used several times its gradients add up. Only the walk is here: the rules live with
the ops. Usable alone, on a bare graph of any ops, with nothing of the package but `ir` imported.
The gradients are nodes, so they can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import errors
from ..ir import CLOSED, SPENT, F, Node, Output, ancestry


def gradients(
    y: Node, seed: Node, wrt: Iterable[Node] | None = None, spend: bool = False
) -> dict[Node, Node]:
    """{x: dy/dx contracted with the seed}, each of x's shape.

    y      the node to differentiate; seed: a node of its shape
    wrt    the nodes asked for, inner ones too (absent from the answer where y does not depend on
           them);
           None: every differentiable leaf. A version of a state is a leaf, computed or not
    spend  mark what the walk passes as of no more use to another backward()
    """
    asked = None if wrt is None else set(wrt)
    grads: dict[Node, Any] = {y: seed}
    found: dict[Node, Node] = {}
    order = ancestry([y], differentiable=True)
    for node in order:
        if node.stale in (SPENT, CLOSED):
            errors.fail(
                "compile/backward.closed",
                "this graph goes through a result of a compiled step that no gradient passes",
                op="backward",
                error=errors.StaleGraphError,
                tensors={"result": node.spec},
                cause="the step has called backward() on it itself"
                if node.stale is SPENT
                else "the step is cut into micro-batches, or has a memory limit of its own",
                hint="call backward() inside only or outside only; as a value: result.detach()",
            )
        if node.stale:
            errors.fail(
                "compile/backward.stale",
                f"this graph used a value of {node.stale} that has been replaced",
                op="backward",
                error=errors.StaleGraphError,
                layer=node.layer,
                hint="call backward() before step(), or compute the loss again",
            )
    now = errors.context()
    before = now.layer
    try:
        for node in reversed(order):
            dy = grads.pop(node, None)
            if dy is None:
                continue
            if asked is not None and node in asked:
                found[node] = dy
            if node.state is not None or node.op is None:
                if asked is None:
                    found[node] = dy
                continue
            node.spent = node.spent or spend
            now.layer = node.layer
            if isinstance(node.op, Output):
                parts = grads.setdefault(node.inputs[0], [None] * len(node.inputs[0].spec))
                parts[node.op.index] = dy
                continue
            value = tuple(output_of(node)) if node.op.outputs > 1 else node
            steps = node.op.gradient(
                F, tuple(dy) if node.op.outputs > 1 else dy, value, *node.inputs
            )
            for x, dx in zip(node.inputs, steps, strict=True):
                if dx is None or not x.needs_grad:
                    continue
                if dx.shape != x.shape:  # x was broadcast
                    dx = F.sum_to(dx, to=x.shape)
                grads[x] = F.add(grads[x], dx) if x in grads else dx
    finally:
        now.layer = before
    return found


def output_of(node: Node) -> list[Node]:
    """A node for each output of `node`."""
    from ..ir import output

    return [output(node, index) for index in range(len(node.spec))]
