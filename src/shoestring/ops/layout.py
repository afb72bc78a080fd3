"""Sizes, strides and ranges: the arithmetic that several families share. No op is here.

An array of sizes n_0, n_1, ... has strides s_0, s_1, ... in elements: element (i_0, i_1, ...) lies
at sum_k i_k s_k. Axes of size 1 never matter; neighbouring axes merge into one where outer stride =
inner size * inner stride. Kernels get merged axes, so that a contiguous array of any rank is one
long row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backends import Kernel, Launch, Operand, row_major
from ..backends.device import Device
from ..ir import Node, Op, Shape, leaf

Index = tuple[tuple[int, int, int], ...]  # (start, stop, step) per axis, as in range()
Axes = list[tuple[int, ...]]  # (size, stride in one array, in another, ...)
MAX_AXES = 12  # merged axes that kernels take
COPY_SIZES = (1, 4, 8)  # item sizes of the copy kernel
REDUCE_TYPES = {"float32": 0, "int64": 1, "int32": 2, "uint8": 3, "bool": 3}
REDUCE_COLUMNS, SLICE_TERMS, MAX_SLICES = 256, 1 << 15, 32  # of the reduction kernels


def resized(sizes: tuple, axis: int, size: Any) -> tuple:
    """`sizes` with another entry for one axis."""
    return (*sizes[:axis], size, *sizes[axis + 1 :])


def merged(axes: Axes) -> Axes:
    """The same places in the same order with the fewest axes; all arrays must agree on a merge."""
    found: Axes = []
    for n, *strides in axes:
        if n == 1:
            continue
        if found and all(
            outer == n * inner for outer, inner in zip(found[-1][1:], strides, strict=True)
        ):
            found[-1] = (found[-1][0] * n, *strides)
        else:
            found.append((n, *strides))
    return found


def check_index(op: Op, x: Shape, index: Index) -> None:
    """Complain unless `index` names existing places of an array of shape x."""
    if len(index) != len(x):
        op.fail(
            "shape/slice.axes",
            f"{len(index)} ranges for {len(x)} axes",
            expected=f"one per axis, {len(x)} in all",
            hint="index=((start, stop, step), ...)",
        )
    for axis, (n, part) in enumerate(zip(x, index, strict=True)):
        places = range(*part) if part[2] else range(n, n + 1)
        if len(places) and not (0 <= places[0] < n and 0 <= places[-1] < n):
            op.fail(
                "shape/slice.range",
                f"the range {part} leaves axis {axis} of size {n}",
                expected=f"places from 0 to {n - 1} and a step that is not 0",
                hint="x[start:stop:step]",
            )


def extent(index: Index) -> Shape:
    """The sizes of a slice."""
    return tuple(len(range(*part)) for part in index)


def as_slices(index: Index) -> tuple[slice, ...]:
    """Ranges as Python slices, in which a stop below 0 would count from the end."""
    found = []
    for (start, _, step), length in zip(index, extent(index), strict=True):
        end = start + length * step
        found.append(slice(start, end if end >= 0 else None, step) if length else slice(0, 0))
    return tuple(found)


def slice_strides(index: Index, strides: Shape) -> tuple[Shape, int]:
    """(strides, offset) in elements of a slice, not empty, of an array with these strides."""
    offset = sum(part[0] * s for part, s in zip(index, strides, strict=True))
    return tuple(part[2] * s for part, s in zip(index, strides, strict=True)), offset


def copy_kernel(
    source: Operand, target: Shape, offset: int, buffers: tuple[int, int]
) -> Kernel | None:
    """The kernel that writes all of `source` to offset + sum_k i_k target_k of another array.

    Axes come in the order in which the target lies in memory. If another axis than the last is the
    one along which the source is dense, it becomes the last but one: the kernel works on tiles of
    these two. None: no kernel for it.
    """
    axes = merged(
        sorted(
            (
                (n, s, t)
                for n, s, t in zip(source.shape, source.strides, target, strict=True)
                if n != 1
            ),
            key=lambda axis: -abs(axis[2]),
        )
    )
    if source.dtype.itemsize not in COPY_SIZES or len(axes) > MAX_AXES:
        return None
    if len(axes) > 2 and axes[-1][1] not in (0, 1):
        dense = min(range(len(axes) - 1), key=lambda k: abs(axes[k][1]) or math.inf)
        axes.insert(len(axes) - 2, axes.pop(dense))
    axes = [(1, 0, 0)] * (2 - len(axes)) + axes
    sizes, source_strides, target_strides = zip(*axes, strict=True)
    return Kernel(
        "copy",
        buffers,
        (source.dtype.itemsize, offset, len(axes), *sizes, *source_strides, *target_strides),
    )


def resolve(op: Op, axes: tuple[int, ...] | None, count: int) -> tuple[int, ...]:
    """Axes as sorted numbers from 0 to count - 1; None: all. Complains about unknown ones."""
    if axes is None:
        return tuple(range(count))
    found = tuple(sorted(k % count if count else k for k in axes))
    if any(not -count <= k < count for k in axes) or len(set(found)) < len(found):
        op.fail(
            "shape/axes.range",
            f"axes {list(axes)} do not fit {count} axes",
            expected=f"different axes from {-count} to {count - 1}, got {list(axes)}"
            if count
            else "a scalar has no axes",
            hint="axis=-1 is the last",
        )
    return found


def reduction(
    device: Device,
    entry: str,
    x: Operand,
    over: tuple[int, ...],
    dtype: np.dtype,
    end: int = 0,
    divisor: float = 1.0,
    cut: bool = True,
) -> Launch | None:
    """The launch of one kernel of ops/reduce.cpp or ops/position.cpp: x reduced over `over`.

    Axes come from the widest stride to the narrowest; which of the narrowest two, kept or reduced,
    is narrower decides between columns and rows. cut: few outputs of many terms are computed in
    slices. None: no kernel for it.
    """
    shape, strides = x.shape, x.strides
    keep = [k for k in range(len(shape)) if k not in over]
    place = dict(zip(keep, row_major([shape[k] for k in keep]), strict=True))
    order = sorted(range(len(shape)), key=lambda k: (strides[k] != 0, -abs(strides[k])))
    kept = merged([(shape[k], strides[k], place[k]) for k in order if k in place]) or [(1, 0, 0)]
    reduced = merged([(shape[k], strides[k]) for k in order if k not in place]) or [(1, 0)]
    if (
        x.dtype.name not in REDUCE_TYPES
        or dtype.name == "float64"
        or max(len(kept), len(reduced)) > MAX_AXES
    ):
        return None
    by_columns = kept[-1][0] > 1 and 0 < abs(kept[-1][1]) < abs(reduced[-1][1])
    outputs, terms = math.prod(n for n, *_ in kept), math.prod(n for n, *_ in reduced)
    tasks = math.ceil(outputs / min(kept[-1][0], REDUCE_COLUMNS)) if by_columns else outputs
    slices = (
        max(1, min(MAX_SLICES // tasks, outputs * terms // (tasks * SLICE_TERMS), terms))
        if cut
        else 1
    )
    columns = [
        number
        for axes in (kept, reduced)
        for column in zip(*axes, strict=True)
        for number in column
    ]
    integers = (
        REDUCE_TYPES[x.dtype.name],
        end,
        int(by_columns),
        slices,
        len(kept),
        len(reduced),
        *columns,
    )
    space = (slices * outputs * 8,) if slices > 1 else ()
    return Launch((Kernel(entry, (0, 1, 2)[: 2 + len(space)], integers, (divisor,)),), space)


def kept_block(x: Shape, over: Sequence[int]) -> tuple[int, int, int] | None:
    """x as [outer, kept, inner], reduced over outer and inner; None if its axes do not lie so, or
    there is nothing."""
    stays = [k for k in range(len(x)) if k not in over and x[k] != 1]
    first, end = (stays[0], stays[-1] + 1) if stays else (0, 0)
    if any(k in over and x[k] != 1 for k in range(first, end)) or 0 in x:
        return None
    return math.prod(x[:first]), math.prod(x[first:end]), math.prod(x[end:])


def halves(F: Any, x: Node) -> tuple[Node, Node | None]:
    """(x[..., :2m] as [..., m, 2]; the last element if there is an odd one), over the last axis."""
    *kept, n = x.shape
    front = [(0, k, 1) for k in kept]
    pairs = F.reshape(F.slice(x, index=(*front, (0, n - n % 2, 1))), to=(*kept, n // 2, 2))
    return pairs, F.slice(x, index=(*front, (n - 1, n, 1))) if n % 2 else None


def constant(value: float, like: Node) -> Node:
    """A number in the type of `like`, as an input of the plan."""
    return leaf(np.asarray(value, like.dtype), device=like.device)
