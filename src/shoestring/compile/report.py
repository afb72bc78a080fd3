"""MemoryReport: who has the memory at a plan's peak, by layer and by kind.

The peak is at the step at which the arena's tenants are largest together. What the plan finds there
(parameters, slots, inputs) and what it leaves behind (outputs, new homes) counts throughout. Bytes
of the arena that nobody has at that step are a row of their own, so the total is
predicted_peak_bytes, to the byte.
"""

from __future__ import annotations

from typing import NamedTuple

from .plan import Plan, layer_of

KINDS = (
    "parameters",
    "gradients",
    "optimizer state",
    "buffers",
    "inputs",
    "activations",
    "workspace",
    "outputs",
    "unused",
)


class Row(NamedTuple):
    """One buffer. kind: of KINDS;  layer: "" where it belongs to none;  what: its name."""

    layer: str
    kind: str
    what: str
    nbytes: int


class MemoryReport:
    """rows: one per buffer that is there at the peak;  total: their bytes, the plan's
    predicted_peak_bytes;  step: the number of the step at the peak. Prints as a table.

    kinds: parameters; gradients of parameters; optimizer state; buffers (running statistics, other
    variables); inputs; activations (and their gradients: all that is computed on the way);
    workspace; outputs; unused (of the arena at that step: gaps that no order of buffers fills)
    """

    def __init__(self, plan: Plan) -> None:
        self.device, self.step = plan.device, plan.peak_step
        self.at = plan.steps[self.step] if plan.steps else None
        self.steps = len(plan.steps)
        self.rows = [*outside(plan), *inside(plan)]
        self.total = sum(row.nbytes for row in self.rows)

    def by_kind(self) -> dict[str, int]:
        """{kind: bytes}, in the order of the table's columns."""
        sums = {kind: sum(r.nbytes for r in self.rows if r.kind == kind) for kind in KINDS}
        return {kind: nbytes for kind, nbytes in sums.items() if nbytes}

    def by_layer(self) -> dict[str, dict[str, int]]:
        """{layer: {kind: bytes}}, in the order of the plan; "" is what belongs to no layer."""
        found: dict[str, dict[str, int]] = {}
        for row in self.rows:
            kinds = found.setdefault(row.layer, {})
            kinds[row.kind] = kinds.get(row.kind, 0) + row.nbytes
        return found

    def __repr__(self) -> str:
        kinds, layers = self.by_kind(), self.by_layer()
        table = [["layer", *kinds, "total"]]
        for layer in sorted(layers, key=lambda name: name == ""):
            sizes = layers[layer]
            cells = [f"{sizes[k]:,}" if k in sizes else "" for k in kinds]
            table.append([layer or "(no layer)", *cells, f"{sum(sizes.values()):,}"])
        table.append(["total", *[f"{n:,}" for n in kinds.values()], f"{self.total:,}"])
        widths = [max(len(row[c]) for row in table) for c in range(len(table[0]))]
        lines = [
            "  ".join(
                cell.rjust(w) if c else cell.ljust(w)
                for c, (cell, w) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]
        lines.insert(-1, "-" * max(map(len, lines)))
        where = f", at step {self.step} of {self.steps}, {self.at.op.name}" if self.at else ""
        lines.append(f"bytes on {self.device} at the peak{where}")
        return "\n".join(lines)


def outside(plan: Plan) -> list[Row]:
    """What is there before and after the run."""
    rows = []
    for leaf in plan.resident:
        kind, name = plan.labels.get(leaf, ("inputs", ""))
        rows.append(Row(layer_of(name), kind, name or "input", plan.specs[leaf].nbytes))
    for root, spec in plan.external.items():
        kind, _ = plan.labels.get(root, ("outputs", ""))
        what, layer = plan.names[root]
        rows.append(Row(layer, kind, what, spec.nbytes))
    return rows


def inside(plan: Plan) -> list[Row]:
    """The arena at its peak."""
    rows = []
    for tenant in plan.at_peak():
        what, layer = plan.name_of(tenant)
        kind = "workspace"
        if tenant.what == "value":
            kind, _ = plan.labels.get(tenant.root, ("activations", ""))
        rows.append(Row(layer, kind, what, tenant.nbytes))
    spare = plan.arena_bytes - sum(row.nbytes for row in rows)
    return [*rows, Row("", "unused", "gaps in the arena", spare)] if spare else rows
