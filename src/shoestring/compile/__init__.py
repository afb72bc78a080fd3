"""From graph to plan. One pass, one file; no pass names an op: what they ask is a fact on the op.

    Graph (nodes, by age) -> Draft -> simplify -> place -> schedule -> memory -> Plan

`plan(graph, outputs, device)` runs them all. Nothing here needs a device to be present.
"""

from .draft import Draft
from .graph import Graph
from .memory import assign_offsets
from .microbatch import microbatch, part_sizes
from .pipeline import plan
from .plan import Plan, Step
from .report import MemoryReport

__all__ = [
    "Draft",
    "Graph",
    "MemoryReport",
    "Plan",
    "Step",
    "assign_offsets",
    "microbatch",
    "part_sizes",
    "plan",
]
