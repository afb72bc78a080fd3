"""x[index] and x[index] = value, as in NumPy: integers, slices, None, ..., and one array of
integers.

Basic indices are views. A boolean mask would give a shape that depends on values, so that no plan
could be made before it runs: the message says what to write instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import OutOfRange, fail
from .ir import F, Node
from .operands import data_node


def normal(x: Any, index: Any) -> tuple[tuple, tuple, tuple[int, Any, int] | None]:
    """(slices, one per axis as (start, stop, step); shape of the result; None, or (axis of x, array
    of integers, axis of the result))."""
    items = list(index) if isinstance(index, tuple) else [index]
    count = sum(1 for i in items if i is not None and i is not Ellipsis)
    if sum(1 for i in items if i is Ellipsis) > 1:
        fail(
            "value/index.ellipsis",
            "an index can have one `...`",
            op="index",
            tensors={"x": x.spec},
            hint="x[..., 0]",
        )
    if count > x.ndim:
        fail(
            "shape/index.count",
            f"{count} indices for {x.ndim} axes",
            op="index",
            tensors={"x": x.spec},
            hint="one index per axis at most",
        )
    if not any(i is Ellipsis for i in items):
        items.append(Ellipsis)
    at = next(k for k, i in enumerate(items) if i is Ellipsis)
    items[at : at + 1] = [slice(None)] * (x.ndim - count)
    slices, shape, array, axis = [], [], None, 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        n = x.shape[axis]
        if isinstance(item, slice):
            slices.append(one_slice(x, item, n))
            shape.append(len(range(*slices[-1])))
        elif is_integer(item):
            slices.append(one_integer(x, int(item), n, axis))
        else:
            if array is not None:
                fail(
                    "value/index.arrays",
                    "an index can hold one array of integers",
                    op="index",
                    tensors={"x": x.spec},
                    hint="x[rows][:, columns]",
                )
            array = (axis, integers(x, item), len(shape))
            slices.append((0, n, 1))
            shape.append(n)
        axis += 1
    return tuple(slices), tuple(shape), array


def is_integer(item: Any) -> bool:
    return isinstance(item, (int, np.integer)) and not isinstance(item, (bool, np.bool_))


def one_slice(x: Any, item: slice, n: int) -> tuple[int, int, int]:
    try:
        start, stop, step = item.indices(n)
    except (TypeError, ValueError) as problem:
        fail(
            "value/index.slice",
            f"{problem}",
            op="index",
            tensors={"x": x.spec},
            source=problem,
            hint="x[2:10:2]",
        )
    length = len(range(start, stop, step))
    return (start, start + length * step, step) if length else (0, 0, 1)


def one_integer(x: Any, i: int, n: int, axis: int) -> tuple[int, int, int]:
    if not -n <= i < n:
        fail(
            "value/index.range",
            f"index {i} is out of range for axis {axis}",
            op="index",
            tensors={"x": x.spec},
            expected=f"from {-n} to {n - 1}, got {i}",
            error=OutOfRange,
            hint=f"x[{n - 1}] is the last",
        )
    i %= n
    return i, i + 1, 1


def integers(x: Any, item: Any) -> Any:
    """An index array as something with a node: integers, not boolean. [] has none of either."""
    if isinstance(item, list) and np.size(item) == 0:
        return np.zeros(np.shape(item), np.int64)
    dtype = item.dtype if hasattr(item, "dtype") else np.asarray(item).dtype
    if dtype.kind == "b":
        fail(
            "type/index.mask",
            "a mask would give a shape that depends on values",
            op="index",
            tensors={"x": x.spec},
            hint="ss.where(mask, x, 0), or x.numpy()[mask]",
        )
    if dtype.kind not in "iu":
        fail(
            "type/index.dtype",
            f"indices must be integers, got {dtype}",
            op="index",
            tensors={"x": x.spec},
            hint='x[index.astype("int64")]',
        )
    return item


def getitem(x: Any, index: Any) -> Any:
    slices, shape, array = normal(x, index)
    if array is not None:
        return take(x, slices, shape, array)
    whole = all(s == (0, n, 1) for s, n in zip(slices, x.shape, strict=True))
    picked = x if whole and not isinstance(index, slice) else x._view("slice", index=slices)
    return picked if picked.shape == shape else picked.reshape(shape)


def take(x: Any, slices: tuple, shape: tuple, array: tuple[int, Any, int]) -> Any:
    """x[..., indices, ...]: the other indices must be whole axes, or new ones."""
    axis, item, place = array
    if any(
        s != (0, n, 1) for k, (s, n) in enumerate(zip(slices, x.shape, strict=True)) if k != axis
    ):
        fail(
            "value/index.mixed",
            "an array of integers stands alone or with `:`",
            op="index",
            tensors={"x": x.spec},
            hint="x[rows][:, 2:5]",
        )
    node = x._node(item)
    n = x.shape[axis]
    if isinstance(node.value, np.ndarray) and not node.source:
        wrong = (node.value < -n) | (node.value >= n)
        if np.any(wrong):
            bad = int(np.asarray(node.value)[wrong].reshape(-1)[0])
            fail(
                "value/index.array",
                f"index {bad} is out of range for axis {axis}",
                op="index",
                tensors={"x": x.spec, "indices": node.spec},
                expected=f"from {-n} to {n - 1}, got {bad}",
                error=OutOfRange,
                hint="check the indices",
            )
        if np.any(node.value < 0):
            node = x._node(np.where(node.value < 0, node.value + n, node.value))
    else:
        from .runtime import guarded

        node = guarded(F.check_index(node, limit=n, what="index", of=f"entries of axis {axis}"))
    y = x._wrap(F.take(x.node, node, axis=axis))
    shape = (*shape[:place], *node.shape, *shape[place + 1 :])
    return y if y.shape == shape else y.reshape(shape)


def setitem(x: Any, index: Any, value: Any) -> Node:
    """The node of x with `value` written at `index`."""
    slices, shape, array = normal(x, index)
    if array is not None:
        fail(
            "value/setitem.array",
            "an array of integers cannot be assigned to",
            op="setitem",
            tensors={"x": x.spec},
            hint="x[i:j] = value, or ss.where(mask, value, x)",
        )
    # numbers and arrays must fit the type; a tensor of another type is cast
    new = value.node if hasattr(value, "node") else data_node(value, x.dtype, x.device)
    if new.dtype != x.dtype:
        new = F.cast(new, to=x.dtype.name)
    try:
        fits = np.broadcast_shapes(new.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        fail(
            "shape/setitem.value",
            f"a value of shape {list(new.shape)} does not fit",
            op="setitem",
            tensors={"x": x.spec, "value": new.spec},
            expected=f"{list(shape)}, got {list(new.shape)}",
            hint=f"value.reshape({list(shape)})",
        )
    extent = tuple(len(range(*s)) for s in slices)
    new = F.reshape(F.expand(new, to=shape), to=extent) if new.shape != extent else new
    return F.update_slice(x.node, new, index=slices)
