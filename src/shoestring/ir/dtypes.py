"""Element types and how they combine.

float32 computes. float64 exists on the `reference` device, for checking. int64, int32, uint8 and
bool hold labels, indices, images and masks. Two types combine as in PyTorch: any float beats any
integer; a Python number never widens.
"""

from __future__ import annotations

import numpy as np

float32, float64 = np.dtype("float32"), np.dtype("float64")
int64, int32, uint8, bool_ = (
    np.dtype("int64"),
    np.dtype("int32"),
    np.dtype("uint8"),
    np.dtype("bool"),
)
FLOATS, INTEGERS = (float32, float64), (int64, int32, uint8)
DTYPES = (*FLOATS, *INTEGERS, bool_)


def promote(*dtypes: np.dtype) -> np.dtype:
    """The type of `a + b`: the widest float if there is one, else the widest integer, else bool."""
    floats = [d for d in dtypes if d.kind == "f"]
    if floats:
        return float64 if float64 in floats else float32
    return np.result_type(*dtypes)


def promote_float(*dtypes: np.dtype) -> np.dtype:
    """The type of `a / b` and of exp(a): a float always."""
    found = promote(*dtypes)
    return found if found.kind == "f" else float32
