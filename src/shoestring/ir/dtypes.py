"""Element types and how they combine.

float32 computes. float64 exists on the `reference` device, for checking. int64, int32, uint8 and
bool hold labels, indices, images and masks. Two types combine as in PyTorch: any float beats any
integer, otherwise the type that holds the values of both. A Python number is weak, as in NumPy 2
and PyTorch: only its kind counts, and only where it is of a higher kind (bool < int < float) than
the type that it meets. docs/types.md is the table of all this.
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
KIND_ORDER = {"b": 0, "u": 1, "i": 1, "f": 2}
LIMITS = {d: (int(np.iinfo(d).min), int(np.iinfo(d).max)) for d in INTEGERS}
LIMITS |= {d: (int(np.finfo(d).min), int(np.finfo(d).max)) for d in FLOATS}


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


def weak(number: type, dtype: np.dtype) -> np.dtype:
    """The type that a Python number takes where it meets `dtype`. number: bool, int or float."""
    if number is bool:
        return dtype
    if number is int:
        return int64 if dtype == bool_ else dtype
    return dtype if dtype.kind == "f" else float32
