"""What tensors are made of: data of the user's as arrays of a type that the device has, and Python
numbers as the type that they meet. The rules are in docs/types.md; nothing wraps around and nothing
is cut off in silence.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NoReturn

import numpy as np

from . import runtime
from .backends.device import FACTORIES
from .backends.device import device as open_device
from .errors import NumberOverflowError, fail, nearest
from .ir import DTYPES, LIMITS, Node, bool_, float32, float64, int32, int64, leaf, weak

NAMES = [d.name for d in DTYPES]
SIZE_HINTS = {
    "normal": "ss.normal(2, 3, mean=0.0, std=1.0): numbers without a name are sizes",
    "uniform": "ss.uniform(2, 3, low=0.0, high=1.0): numbers without a name are sizes",
    "bernoulli": "ss.bernoulli(2, 3, p=0.5): numbers without a name are sizes",
}
INSTEAD = {"f": "float32", "i": "int32", "u": "int64"}  # for the kinds of types that do not exist


def named_dtype(dtype: Any, device: str, op: str = "tensor") -> np.dtype:
    """The type that a user calls `dtype`: one of DTYPES, which `device` has."""
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError):
        found = None
    if found is not None and not found.isnative:
        found = found.newbyteorder("=")
    if found is None or found not in DTYPES:
        close = nearest(str(dtype), NAMES) if found is None else INSTEAD.get(found.kind)
        fail(
            "type/dtype.unknown",
            f"there is no tensor of type {dtype if found is None else found}",
            op=op,
            tensors={},
            expected=f"one of {', '.join(NAMES)}",
            hint=f'dtype="{close or "float32"}"',
        )
    if found.kind == "f" and found.name not in open_device(device).floats:
        there = [n for n, f in FACTORIES.items() if found.name in getattr(f, "floats", ())]
        fail(
            "type/dtype.device",
            f"{device} has no {found}",
            op=op,
            tensors={},
            cause=f"of the devices {', '.join(there)} computes in {found}",
            hint=f'dtype="float32", or device="{there[0]}" (slow: for checking)',
        )
    return found


def whole(n: Any, op: str) -> int:
    """A size or an axis as an int: 2.9 is none, and neither is 2.0."""
    try:
        return operator.index(n)
    except TypeError as problem:
        fail(
            "type/size.whole",
            f"sizes and axes are whole numbers, got {n!r}",
            op=op,
            tensors={},
            source=problem,
            hint=SIZE_HINTS.get(op, "int(n), or n // 2 instead of n / 2"),
        )


def sizes(shape: tuple, op: str, least: int = 0) -> tuple[int, ...]:
    """(2, 3) from both f(2, 3) and f((2, 3)). least: the smallest size."""
    given = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    found = tuple([whole(n, op) for n in given])
    if min(found, default=least) < least:
        fail(
            "shape/size.negative",
            f"{list(found)} has a size below {least}",
            op=op,
            tensors={},
            hint="sizes of at least 0" if least == 0 else "-1 for the one size that follows",
        )
    return found


def as_data(data: Any, dtype: Any, device: str, floats: np.dtype = float32) -> np.ndarray:
    """NumPy array of an allowed type, native byte order.

    dtype   the type asked for; None: that of the data, small integers as int32
    floats  the type of floats where dtype is None
    """
    want = None if dtype is None else named_dtype(dtype, device)
    try:
        array = np.asarray(data)
    except (TypeError, ValueError) as problem:
        fail(
            "type/tensor.data",
            f"this is not an array of numbers: {problem}",
            op="tensor",
            tensors={},
            source=problem,
            hint="ss.tensor([[1, 2], [3, 4]])",
        )
    if array.dtype == np.float64 and isinstance(data, (tuple, list)):
        # NumPy makes floats of integers that no one type of its own holds
        if (np.abs(array) >= 2.0**63).any() and all_integers(np.array(data, object)):
            array = np.array(data, object)
    if array.dtype.kind not in "biuf" and not all_integers(array):
        fail(
            "type/tensor.dtype",
            f"there is no tensor of type {array.dtype}",
            op="tensor",
            tensors={},
            expected=f"one of {', '.join(NAMES)}, got {array.dtype}",
            hint='data.astype("float32")',
        )
    if want is None:
        want = floats if array.dtype.kind == "f" else array.dtype.newbyteorder("=")
        if want not in DTYPES:
            want = int32 if want.itemsize < 3 else int64
    if array.dtype == want:
        return array
    if array.dtype == object or (want.kind in "iu" and array.dtype != bool_):
        check_range(array, want)
    return array.astype(want)


def all_integers(array: np.ndarray) -> bool:
    """Whether this is an array of Python integers that are too large for any type of NumPy's."""
    return array.dtype == object and all(isinstance(v, int) for v in array.flat)


def check_range(array: np.ndarray, dtype: np.dtype) -> None:
    """Complain about numbers that `dtype`, an integer type unless they are objects, cannot hold."""
    low, high = LIMITS[dtype]
    if array.dtype.kind == "f":  # cut towards 0; a NaN compares false. -(2**63) and 2**63 are exact
        cut = np.trunc(array.astype(np.float64, copy=False))
        fits = (cut >= float(low)) & (cut < float(high + 1))
    elif array.dtype != object and np.can_cast(array.dtype, dtype):
        return
    elif array.dtype.kind == "u":
        fits = array <= array.dtype.type(high)
    else:
        fits = np.asarray((array >= low) & (array <= high), bool)
    if not fits.all():
        does_not_fit(array[~fits].reshape(-1)[0], dtype)


def does_not_fit(number: Any, dtype: np.dtype) -> NoReturn:
    low, high = LIMITS[dtype]
    wider = "float32" if dtype.kind == "f" or not abs(number) < 2**63 else "int64"
    fail(
        "value/number.range",
        f"{number} does not fit {dtype}",
        tensors={},
        expected=f"a number from {low} to {high}" if dtype.kind in "iu" else f"at most {high:.3g}",
        error=NumberOverflowError,
        hint=f'x.astype("{wider}") first, or dtype="{wider}"'
        if wider != dtype.name
        else "a number within the range",
    )


def number_dtype(x: Any, dtype: np.dtype | None = None) -> np.dtype:
    """The type that the Python number x takes where it meets a tensor of `dtype` (None: alone)."""
    kind = bool if isinstance(x, bool) else int if isinstance(x, int) else float
    want = weak(kind, bool_ if dtype is None else dtype)
    if kind is int and not LIMITS[want][0] <= x <= LIMITS[want][1]:
        does_not_fit(x, want)
    return want


def float_type(dtype: np.dtype | None) -> np.dtype:
    """The type of float data that meets `dtype`. (NumPy takes None for float64.)"""
    return float64 if dtype is not None and dtype == float64 else float32


def number_node(x: Any, dtype: np.dtype | None, device: str) -> Node:
    """A Python number or NumPy scalar as an input of the plan, of the type that it takes where it
    meets a tensor of `dtype`. A NumPy scalar has a type of its own, as an array has."""
    if isinstance(x, np.generic) and type(x) is not runtime.Number:
        return runtime.scalar(as_data(x, None, device, float_type(dtype)), None, device=device)
    return runtime.scalar(x, number_dtype(x, dtype), device=device)


def bound(x: Any, comparison: str, dtype: np.dtype) -> Any:
    """A number to which values of the integer type `dtype` compare exactly as they do to x.

    x < 2.5 is x < 3, and x == 2.5 is never true; beyond the type's range any number has the answer
    of infinity. Floats could not tell 2**53 from 2**53 + 1.
    """
    x = x.item() if isinstance(x, np.generic) else x
    if isinstance(x, float):
        if not math.isfinite(x):
            return x
        if x != math.floor(x) and comparison in ("equal", "not_equal"):
            return math.nan
        x = math.ceil(x) if comparison in ("less", "greater_equal") else math.floor(x)
    low, high = LIMITS[weak(int, dtype)]
    return x if low <= x <= high else math.copysign(math.inf, x)


def data_node(data: Any, dtype: Any, device: str, floats: np.dtype = float32) -> Node:
    """A leaf with a copy of `data` on `device`. A large array from outside a trace is read again
    at each replay."""
    there = open_device(device)

    def read() -> Any:
        return there.upload(as_data(data, dtype, device, floats))

    outside = runtime.session.trace is not None and id(data) in runtime.session.trace.seen.inputs
    return leaf(read(), source=("array", read) if outside else None, device=there.name)
