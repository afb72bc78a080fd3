"""shoestring ops: every operation, from the registry: formula, gradient, kernels, cost."""

from __future__ import annotations

import inspect
import json
import textwrap
from typing import Any

import numpy as np

from ..backends import Operand, row_major
from ..backends.device import device
from ..ir import OPS, Op


def add(commands: Any) -> None:
    parser = commands.add_parser("ops", help="the table of all operations")
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run)


def run(options: Any) -> int:
    from ..errors import fail, nearest

    for name in options.names:
        if name not in OPS:
            fail(
                "value/cli.op",
                f"there is no op {name!r}",
                tensors={},
                hint=nearest(name, OPS) or "shoestring ops",
            )
    rows = [row(OPS[name]) for name in sorted(options.names or OPS)]
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    for r in rows:
        print(f"{r['name']}  ({r['kind']})")
        for label in ("formula", "gradient", "kernels", "cost"):
            print(
                textwrap.fill(
                    r[label], 100, initial_indent=f"    {label:9} ", subsequent_indent=" " * 14
                )
            )
    print(f"{len(rows)} ops")
    return 0


def row(cls: type[Op]) -> dict[str, str]:
    """What one op says of itself."""
    gradient = (
        "none"
        if cls.gradient is None
        else " ".join((inspect.getdoc(cls.gradient) or "").split()) or "see its source"
    )
    return dict(
        name=cls.name,
        kind=cls.kind,
        formula=" ".join((inspect.getdoc(cls) or "").split()),
        gradient=gradient,
        **example(cls),
    )


def example(cls: type[Op]) -> dict[str, str]:
    """Kernels and cost of the op's first case."""
    if cls.kind == "view":
        return dict(kernels="none: a view", cost="nothing")
    if not cls.cases:
        return dict(kernels="", cost="")
    case = cls.cases[0]
    op, arrays = cls(**case.attributes), case.inputs()
    inputs = [Operand(a.shape, a.dtype, row_major(a.shape)) for a in arrays]
    shapes, dtypes = op.shape(*[a.shape for a in arrays]), op.dtype(*[a.dtype for a in arrays])
    if cls.outputs == 1:
        shapes, dtypes = (shapes,), (dtypes,)
    outputs = [
        Operand(tuple(s), np.dtype(d), row_major(tuple(s)))
        for s, d in zip(shapes, dtypes, strict=True)
    ]
    launch = op.launch(device("cpu"), inputs, outputs) if op.launch else None
    names = ", ".join(k.entry for k in launch.kernels) if launch else "its NumPy reference"
    cost = op.cost(*[a.shape for a in arrays])
    sizes = " ".join(str(list(a.shape)) for a in arrays)
    return dict(
        kernels=names, cost=f"{cost.flops:,.0f} operations and {cost.bytes:,.0f} bytes for {sizes}"
    )
