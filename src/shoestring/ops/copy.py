"""Ops that move elements without computing: side by side, into zeros, into contiguous memory.

    copy          y = x, contiguous
    concat        y = x_0, x_1, ... one after the other along `axis`
    pad           y = x with zeros around it
    unslice       y = 0, except y[index] = x: what `slice` is differentiated to
    update_slice  y = x, except y[index] = v

All run on two kernels (ops/copy.cpp): `zero`, and `copy`, which writes an array of any strides into
a region of any strides of another one. Concatenation is one copy per input, each at its own offset.
A pad clears the whole result first, the inner part included: that part is written twice, which
costs little beside what made it necessary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..backends import Kernel, Launch, Operand, row_major
from ..ir import MIXED, Case, Cost, Op, Shape, leaf, promote
from .copy_card import TYPES as ITEM_TYPES
from .copy_card import copy_card, zero_card
from .layout import Index, as_slices, check_index, copy_kernel, extent, resized, slice_strides


class Move(NamedTuple):
    """Input number `source`, to offset + sum_k i_k strides_k of the output."""

    source: int
    strides: Shape
    offset: int


class CopyOp(Op):
    """Moves elements: reads any strides, costs what reading and writing cost."""

    kind, cheap_to_recompute, strided = "kernel", True, True
    clears = False  # whether the output is zeroed first

    def moves(self, inputs: Sequence[Operand], y: Shape) -> list[Move]:
        """One per input that is copied."""
        raise NotImplementedError

    def launch_cpu(self, device, inputs, outputs):
        (y,), place = outputs, len(inputs)
        kernels = [
            copy_kernel(inputs[k], strides, offset, (k, place))
            for k, strides, offset in self.moves(inputs, y.shape)
        ]
        if None in kernels or any(x.dtype != y.dtype for x in inputs):
            return None
        zero = [Kernel("zero", (place,), (y.size * y.dtype.itemsize,))] if self.clears else []
        return Launch((*zero, *[k for k in kernels if k is not None]))

    def launch_card(self, device, inputs, outputs):
        (y,), place = outputs, len(inputs)
        if y.dtype.itemsize not in ITEM_TYPES or any(x.dtype != y.dtype for x in inputs):
            return None
        zero = [zero_card(y, place, device)] if self.clears else []
        moves = [
            copy_card(inputs[k], strides, offset, y, (k, place), device)
            for k, strides, offset in self.moves(inputs, y.shape)
        ]
        return Launch((*zero, *moves))

    def cost(self, *shapes):
        return Cost(0, 8 * float(math.prod(self.shape(*shapes))))


@dataclass(frozen=True, eq=False)
class Copy(CopyOp):
    """y = x, laid out row by row without gaps."""

    name, kind = "copy", "copy"
    cases = (
        Case([(3, 4)]),
        Case([(2, 3, 5)]),
        Case([()]),
        Case([(0, 2)]),
        Case([(5, 2, 3)], dtypes="int64"),
    )

    def shape(self, x):
        return x

    def batch_axis(self, axes, x):
        return axes[0]

    def reference(self, x):
        return x.copy(order="C")

    def gradient(self, F, dy, y, x):
        """y = x, so dx = dy."""
        return (dy,)

    def moves(self, inputs, y):
        return [Move(0, row_major(inputs[0].shape), 0)]


@dataclass(frozen=True, eq=False)
class Concat(CopyOp):
    """y[..., start_k + i, ...] = x_k[..., i, ...] along `axis`.

    start_k is the sum of the sizes of the inputs before x_k.
    """

    name, serves = "concat", "join"
    axis: int = 0
    cases = (
        Case([(2, 3), (2, 1), (2, 2)], dict(axis=1)),
        Case([(2, 3), (4, 3)]),
        Case([(0, 2), (1, 2)]),
        Case([(2, 3, 2)], dict(axis=2)),
    )

    def shape(self, *xs):
        first = xs[0] if xs else ()
        if not 0 <= self.axis < len(first):
            self.fail(
                "shape/concat.axis",
                f"there is no axis {self.axis}" if xs else "there is nothing to concatenate",
                expected=f"an axis from 0 to {len(first) - 1}",
                hint="ss.stack adds a new axis",
            )
        for k, x in enumerate(xs):
            if (
                len(x) != len(first)
                or x[: self.axis] != first[: self.axis]
                or x[self.axis + 1 :] != first[self.axis + 1 :]
            ):
                self.fail(
                    "shape/concat.sizes",
                    f"input {k} does not fit input 0",
                    cause=f"only axis {self.axis} may differ",
                    expected=f"{describe(first, self.axis)}, got {list(x)}",
                    hint=f"x.reshape({list(first)})",
                )
        return (*first[: self.axis], sum(x[self.axis] for x in xs), *first[self.axis + 1 :])

    def dtype(self, *xs):
        return promote(*xs)

    def batch_axis(self, axes, *xs):
        return axes[0] if len(set(axes)) == 1 and axes[0] != self.axis else MIXED

    def reference(self, *xs):
        return np.concatenate(xs, self.axis)

    def gradient(self, F, dy, y, *xs):
        """Each x_k appears once in y, from start_k on: dx_k is that part of dy (a view)."""
        found, start = [], 0
        for x in xs:
            part = tuple(
                (0, n, 1) if k != self.axis else (start, start + n, 1)
                for k, n in enumerate(x.shape)
            )
            found.append(F.slice(dy, index=part))
            start += x.shape[self.axis]
        return tuple(found)

    def moves(self, inputs, y):
        strides, start, found = row_major(y), 0, []
        for k, x in enumerate(inputs):
            found.append(Move(k, strides, start * strides[self.axis]))
            start += x.shape[self.axis]
        return found


@dataclass(frozen=True, eq=False)
class Pad(CopyOp):
    """y[before + i] = x[i], 0 elsewhere; widths = (before, after) per axis."""

    name, clears = "pad", True
    widths: tuple[tuple[int, int], ...] = ()
    cases = (
        Case([(2, 3)], dict(widths=((1, 0), (2, 1)))),
        Case([(3,)], dict(widths=((0, 2),))),
        Case([(2, 2, 2)], dict(widths=((0, 0), (1, 1), (1, 1)))),
        Case([()], dict(widths=())),
    )

    def shape(self, x):
        if len(self.widths) != len(x) or any(n < 0 for pair in self.widths for n in pair):
            self.fail(
                "shape/pad.widths",
                f"widths {list(self.widths)} do not fit {len(x)} axes",
                expected="(before, after) per axis, none below 0",
                hint="ss.pad(x, [(0, 0), (1, 1)])",
            )
        return tuple(a + n + b for n, (a, b) in zip(x, self.widths, strict=True))

    def batch_axis(self, axes, x):
        batch = axes[0]
        return MIXED if isinstance(batch, int) and self.widths[batch] != (0, 0) else batch

    def reference(self, x):
        return np.pad(x, self.widths) if self.widths else x

    def gradient(self, F, dy, y, x):
        """x stands in y once, after `before` zeros, which are constant: dx is that part of dy."""
        return (
            F.slice(
                dy,
                index=tuple((a, a + n, 1) for n, (a, _) in zip(x.shape, self.widths, strict=True)),
            ),
        )

    def moves(self, inputs, y):
        strides = row_major(y)
        offset = sum(a * s for (a, _), s in zip(self.widths, strides, strict=True))
        return [Move(0, strides, offset)]


@dataclass(frozen=True, eq=False)
class Unslice(CopyOp):
    """y[index] = x, 0 elsewhere; y has the sizes `to`. The mirror of slice."""

    name, clears = "unslice", True
    index: Index = ()
    to: Shape = ()
    cases = (
        Case([(3, 2)], dict(index=((1, 4, 1), (0, 4, 2)), to=(5, 4))),
        Case([(3,)], dict(index=((4, -1, -2),), to=(5,))),
        Case([(0, 2)], dict(index=((0, 0, 1), (0, 2, 1)), to=(3, 2))),
    )

    def shape(self, x):
        check_index(self, self.to, self.index)
        if x != extent(self.index):
            self.fail(
                "shape/unslice.sizes",
                f"{list(x)} does not fit the slice",
                hint=f"x.reshape({list(extent(self.index))})",
                expected=f"{list(extent(self.index))}, got {list(x)}",
            )
        return self.to

    def batch_axis(self, axes, x):
        batch = axes[0]
        return (
            MIXED
            if isinstance(batch, int) and self.index[batch] != (0, self.to[batch], 1)
            else batch
        )

    def for_part(self, axis, first, count):
        if axis is None:
            return {}
        index = resized(self.index, axis, (0, count, 1))
        return dict(index=index, to=resized(self.to, axis, count))

    def reference(self, x):
        y = np.zeros(self.to, x.dtype)
        y[as_slices(self.index)] = x
        return y

    def gradient(self, F, dy, y, x):
        """Each element of x stands in y once, at the slice: dx = dy[index]."""
        return (F.slice(dy, index=self.index),)

    def moves(self, inputs, y):
        return [Move(0, *slice_strides(self.index, row_major(self.to)))]


@dataclass(frozen=True, eq=False)
class UpdateSlice(CopyOp):
    """y[index] = v, elsewhere y = x: the value of x after x[index] = v."""

    name = "update_slice"
    index: Index = ()
    cases = (
        Case([(5, 4), (3, 2)], dict(index=((1, 4, 1), (0, 4, 2)))),
        Case([(4,), (4,)], dict(index=((3, -1, -1),))),
        Case([(2, 3), (1, 0)], dict(index=((1, 2, 1), (0, 0, 1)))),
        Case([(), ()]),
    )

    def shape(self, x, v):
        check_index(self, x, self.index)
        if v != extent(self.index):
            self.fail(
                "shape/update_slice.sizes",
                f"a value of {list(v)} does not fit the slice",
                expected=f"{list(extent(self.index))}, got {list(v)}",
                hint=f"v.reshape({list(extent(self.index))})",
            )
        return x

    def dtype(self, x, v):
        if x != v:
            self.fail(
                "type/update_slice.dtype",
                f"{v} cannot be written into {x}",
                hint=f'v.astype("{x}")',
            )
        return x

    def batch_axis(self, axes, x, v):
        batch = axes[0]
        if axes[0] != axes[1] or (isinstance(batch, int) and self.index[batch] != (0, x[batch], 1)):
            return MIXED if axes != (None, None) else None
        return batch

    def for_part(self, axis, first, count):
        return dict(index=resized(self.index, axis, (0, count, 1)))

    def reference(self, x, v):
        y = x.copy()
        y[as_slices(self.index)] = v
        return y

    def gradient(self, F, dy, y, x, v):
        """At the slice y is v, so dv = dy[index].

        What x held there is gone, so dx = dy with 0 at the slice.
        """
        nothing = F.expand(leaf(np.zeros((), dy.dtype), device=dy.device), to=v.shape)
        return F.update_slice(dy, nothing, index=self.index), F.slice(dy, index=self.index)

    def moves(self, inputs, y):
        whole = row_major(y)
        return [Move(0, whole, 0), Move(1, *slice_strides(self.index, whole))]


def describe(shape: Shape, free: int) -> str:
    """`[2, any, 3]`"""
    return f"[{', '.join('any' if k == free else str(n) for k, n in enumerate(shape))}]"
