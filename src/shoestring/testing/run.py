"""Running ops without the compiler: a graph by NumPy references, one op by its kernels."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..backends import Operand, placed
from ..backends.device import Device
from ..backends.device import device as open_device
from ..ir import Node, Op, Output, ancestry

LAYOUTS = ("transposed", "reversed", "spread", "repeated")


def evaluate(nodes: Iterable[Node], values: Mapping[Node, Any]) -> list[Any]:
    """Values of `nodes` by each op's NumPy reference. Slow and obvious: the oracle of the tests.

    values  {leaf: array}, in any type; a leaf that is not in it uses its own value
    """
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


def reference(op: Op, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """All outputs of the op's reference."""
    with np.errstate(all="ignore"):
        found = op.reference(*arrays)
    return tuple(found) if op.outputs > 1 else (np.asarray(found),)


def operand(array: np.ndarray) -> Operand:
    return Operand(array.shape, array.dtype, tuple(s // array.itemsize for s in array.strides))


def run_launch(
    op: Op, arrays: Sequence[np.ndarray], device: str | Device = "cpu"
) -> tuple[np.ndarray, ...] | None:
    """All outputs by the op's own kernels; None where it has none for these inputs.

    arrays  inputs in any layout; made contiguous where the op is not `strided`
    device  its name, or the device; a check's output is its record
    """
    device = open_device(device) if isinstance(device, str) else device
    inputs = [
        a if op.takes_strides(k) else np.ascontiguousarray(a).reshape(a.shape)
        for k, a in enumerate(arrays)
    ]
    shapes, dtypes = op.shape(*[a.shape for a in inputs]), op.dtype(*[a.dtype for a in inputs])
    if op.outputs == 1:
        shapes, dtypes = (shapes,), (dtypes,)
    outputs: list[Any] = [np.empty(s, d) for s, d in zip(shapes, dtypes, strict=True)]
    if op.launch is None or any(a.size == 0 for a in [*inputs, *outputs]):
        return None
    launch = op.launch(device, [operand(a) for a in inputs], [operand(a) for a in outputs])
    if launch is None:
        return None
    if op.kind == "check":
        outputs = [np.empty(2, np.int64)]
    for a in outputs:
        a.reshape(-1).view(np.uint8)[:] = 0xA5  # what a kernel does not write shows
    spaces = [device.empty((n,), np.dtype(np.uint8)) for n in launch.workspaces]
    places = [(b, 0) for b in range(len(inputs) + len(outputs) + len(spaces))]
    program = device.program([placed(kernel, places) for kernel in launch.kernels])
    there = [a if device.host else moved(a, device) for a in [*inputs, *outputs]]
    program.run([device.place(a) for a in [*there, *spaces]])
    return tuple(device.read(a) for a in there[len(inputs) :])


def moved(a: np.ndarray, device: Device) -> Any:
    """The array on a device with memory of its own, laid out as it is."""
    steps = [(n - 1) * s for n, s in zip(a.shape, a.strides, strict=True)]
    low = sum(s for s in steps if s < 0)
    span = sum(s for s in steps if s > 0) - low + a.itemsize
    start = a.__array_interface__["data"][0] + low
    raw = np.ctypeslib.as_array((ctypes.c_ubyte * span).from_address(start))
    return device.array(device.upload(raw), a.shape, a.dtype, -low, a.strides)


def laid_out(a: np.ndarray, layout: str) -> np.ndarray:
    """The values of a (for "repeated": of its first row) in another layout of memory."""
    if layout == "transposed":
        return a.copy(order="F")
    backwards = (..., *[slice(None, None, -1)] * a.ndim)
    if layout == "reversed":
        return a[backwards].copy()[backwards]
    if layout == "repeated":
        return np.broadcast_to(a[:1], a.shape) if a.ndim and len(a) else a
    wide = np.empty([2 * n + 1 for n in a.shape], a.dtype)
    wide.reshape(-1).view(np.uint8)[:] = 0xFF  # between the elements: NaN, or what no index allows
    inner = wide[(..., *[slice(1, 2 * n + 1, 2) for n in a.shape])]
    inner[...] = a
    return inner


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def distance(y: np.ndarray, want: np.ndarray) -> float:
    """Largest error relative to the largest finite value; infinite where types or NaN differ."""
    if y.shape != want.shape or y.dtype.kind != want.dtype.kind:
        return math.inf
    if y.dtype.kind != "f":
        return 0.0 if np.array_equal(y, want) else math.inf
    finite = np.isfinite(want)
    if not same(np.where(finite, 0, y), np.where(finite, 0, want)):
        return math.inf
    y, want = y[finite].astype(np.float64), want[finite].astype(np.float64)
    return float(
        np.max(np.abs(y - want), initial=0) / max(float(np.max(np.abs(want), initial=0)), 1e-30)
    )
