"""Checks that read an op's own contract. `check_op(MyOp)` runs the same ones on a user's op as on ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .ir import Node, Output, ancestry


def evaluate(nodes: Iterable[Node], values: Mapping[Node, Any]) -> list[Any]:
    """Values of `nodes` by each op's NumPy reference, in the types of `values` ({leaf: array}); a leaf that is not
    in `values` uses its own value. Slow and obvious: the oracle of the tests."""
    wanted = list(nodes)
    known: dict[Node, Any] = dict(values)
    for node in ancestry(wanted):
        if node in known:
            continue
        if node.op is None:
            known[node] = node.value
        elif isinstance(node.op, Output):
            known[node] = known[node.inputs[0]][node.op.index]
        else:
            found = node.op.reference(*[known[i] for i in node.inputs])
            known[node] = found if node.op.outputs > 1 else np.asarray(found)
    return [known[node] for node in wanted]
