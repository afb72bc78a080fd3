"""The intermediate representation: ops as classes, values as nodes. Knows no op, no device and no
memory."""

from .cases import Case
from .dtypes import DTYPES, bool_, float32, float64, int32, int64, promote, promote_float, uint8
from .node import (
    OUTPUTS,
    F,
    Node,
    Output,
    Spec,
    age,
    ancestry,
    infer,
    leaf,
    output,
    rebuilt,
    serving,
)
from .op import KINDS, MEAN, MIXED, OPS, SUM, Cost, Op, Shape, batch_leads, batch_mixed

__all__ = [
    "DTYPES",
    "KINDS",
    "MEAN",
    "MIXED",
    "OPS",
    "OUTPUTS",
    "SUM",
    "Case",
    "Cost",
    "F",
    "Node",
    "Op",
    "Output",
    "Shape",
    "Spec",
    "age",
    "ancestry",
    "batch_leads",
    "batch_mixed",
    "bool_",
    "float32",
    "float64",
    "infer",
    "int32",
    "int64",
    "leaf",
    "output",
    "promote",
    "promote_float",
    "rebuilt",
    "serving",
    "uint8",
]
