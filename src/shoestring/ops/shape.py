"""Views: the same elements under another shape. No kernel, no copy, no bytes moved.

    reshape    y = the elements of x in row-major order, under the sizes `to`
    transpose  y[i_axes[0], i_axes[1], ...] = x[i_0, i_1, ...]
    expand     y[i] = x[i], where axes of size 1 (and missing leading axes) repeat
    slice      y[i] = x[start + i*step] along every axis; step may be negative
    flip       y[i] = x[n - 1 - i] along `axes`
    alias      y = x, through which no gradient flows

A view is sizes, strides and an offset over its operand's memory. `view(shape, strides)` gives these
three, in elements, so that the compiler places a view without running anything; it gives None where
no strides can express the result, which happens to a reshape of an operand that is not contiguous:
the compiler then copies the operand first (ops/copy.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..backends import row_major
from ..ir import MIXED, Case, Cost, Op, Shape
from .layout import Index, as_slices, check_index, resized

View = tuple[Shape, Shape, int]


class ViewOp(Op):
    """What all views share: they move nothing, and any strides will do."""

    kind, cheap_to_recompute, strided = "view", True, True

    def batch_axis(self, axes, x):
        return self.moved(axes[0], x) if isinstance(axes[0], int) else axes[0]

    def moved(self, batch: int, x: Shape) -> int | str:
        """Where axis `batch` of x has gone; MIXED where its samples are not apart or in order."""
        raise NotImplementedError

    def view(self, shape: Shape, strides: Shape) -> View | None:
        """(sizes, strides, offset) of the result over an operand like this, in elements."""
        raise NotImplementedError

    def cost(self, x):
        return Cost(0, 0)


@dataclass(frozen=True, eq=False)
class Reshape(ViewOp):
    """y.reshape(-1)[i] = x.reshape(-1)[i], with the sizes `to`."""

    name = "reshape"
    to: Shape = ()
    cases = (
        Case([(2, 3, 4)], dict(to=(6, 4))),
        Case([(2, 6)], dict(to=(2, 1, 3, 2))),
        Case([()], dict(to=(1, 1))),
        Case([(3, 0)], dict(to=(0, 2))),
        Case([(1,)], dict(to=())),
    )

    def shape(self, x):
        if math.prod(self.to) != math.prod(x) or any(n < 0 for n in self.to):
            self.fail(
                "shape/reshape.size",
                f"{math.prod(x)} elements do not fit {list(self.to)}",
                expected=f"sizes whose product is {math.prod(x)}, got {math.prod(self.to)}",
                hint="x.reshape(x.shape[0], -1)",
            )
        return self.to

    def moved(self, batch, x):
        before = math.prod(x[:batch])
        return next(
            (
                k
                for k, n in enumerate(self.to)
                if n == x[batch] and math.prod(self.to[:k]) == before
            ),
            MIXED,
        )

    def blocks(self, axis, shape):
        before = math.prod(shape[:axis])
        return next(
            (k for k, n in enumerate(self.to) if math.prod(self.to[:k]) == before and n > 1), None
        )

    def for_part(self, axis, first, count):
        return dict(to=resized(self.to, axis, count))

    def reference(self, x):
        return x.reshape(self.to)

    def gradient(self, F, dy, y, x):
        """Element i of y is element i of x in row-major order, so dx = dy in the sizes of x."""
        return (F.reshape(dy, to=x.shape),)

    def view(self, shape, strides):
        """NumPy's rule.

        Neighbouring axes of the operand merge into one run where the outer stride is inner size
        times inner stride. Reading `to` from its end, every size must divide what is left of the
        current run.
        """
        if 0 in self.to:
            return self.to, row_major(self.to), 0
        runs: list[tuple[int, int]] = []
        for n, stride in zip(shape, strides, strict=True):
            if n == 1:
                continue
            if runs and runs[-1][1] == n * stride:
                runs[-1] = (runs[-1][0] * n, stride)
            else:
                runs.append((n, stride))
        found: list[int] = []
        left, step = 1, 1
        for n in reversed(self.to):
            if n != 1 and left == 1:
                left, step = runs.pop()
            if left % n:
                return None
            found.append(step)
            left, step = left // n, step * n
        return self.to, tuple(reversed(found)), 0


@dataclass(frozen=True, eq=False)
class Transpose(ViewOp):
    """y[i_axes[0], i_axes[1], ...] = x[i_0, i_1, ...]: axis k of y is axis axes[k] of x."""

    name = "transpose"
    axes: tuple[int, ...] = ()
    cases = (
        Case([(2, 3, 4)], dict(axes=(2, 0, 1))),
        Case([(3, 2)], dict(axes=(1, 0))),
        Case([()], dict(axes=())),
        Case([(2, 1, 3, 2)], dict(axes=(0, 3, 1, 2))),
    )

    def shape(self, x):
        if sorted(self.axes) != list(range(len(x))):
            self.fail(
                "shape/transpose.axes",
                f"{list(self.axes)} is not an order of {len(x)} axes",
                expected=f"each of {list(range(len(x)))} once, got {list(self.axes)}",
                hint=f"x.transpose({', '.join(str(k) for k in reversed(range(len(x))))})",
            )
        return tuple(x[k] for k in self.axes)

    def moved(self, batch, x):
        return self.axes.index(batch)

    def reference(self, x):
        return x.transpose(self.axes)

    def gradient(self, F, dy, y, x):
        """Axis k of dy belongs to axis axes[k] of x: the inverse order brings it back."""
        return (F.transpose(dy, axes=tuple(int(k) for k in np.argsort(self.axes))),)

    def view(self, shape, strides):
        return tuple(shape[k] for k in self.axes), tuple(strides[k] for k in self.axes), 0


@dataclass(frozen=True, eq=False)
class Expand(ViewOp):
    """y[..., i, ...] = x[..., 0, ...] along axes of size 1 and new leading axes, up to `to`."""

    name = "expand"
    to: Shape = ()
    cases = (
        Case([(3, 1)], dict(to=(2, 3, 4))),
        Case([()], dict(to=(2, 2))),
        Case([(1, 2)], dict(to=(1, 2))),
        Case([(2, 1, 2)], dict(to=(2, 0, 2))),
    )

    def shape(self, x):
        tail = self.to[len(self.to) - len(x) :]
        fits = len(self.to) >= len(x) and min(self.to, default=0) >= 0
        if not fits or any(a not in (1, b) for a, b in zip(x, tail, strict=True)):
            self.fail(
                "shape/expand.to",
                f"{list(x)} cannot be expanded to {list(self.to)}",
                cause="only axes of size 1 repeat, and new axes come in front",
                hint="x.unsqueeze(-1).expand(...)",
            )
        return self.to

    def moved(self, batch, x):
        place = batch + len(self.to) - len(x)
        return place if x[batch] == self.to[place] else MIXED

    def makes_rows(self, axis, x):
        place = axis - (len(self.to) - len(x))
        return place < 0 or x[place] == 1

    def for_part(self, axis, first, count):
        return dict(to=resized(self.to, axis, count))

    def reference(self, x):
        return np.broadcast_to(x, self.to)

    def gradient(self, F, dy, y, x):
        """x[0] appears in every y[i] of a repeated axis, so dx[0] = sum_i dy[i]."""
        return (F.sum_to(dy, to=x.shape),)

    def view(self, shape, strides):
        new = len(self.to) - len(shape)
        stretched = [
            0 if a != b else s for a, b, s in zip(shape, self.to[new:], strides, strict=True)
        ]
        return self.to, (0,) * new + tuple(stretched), 0


@dataclass(frozen=True, eq=False)
class Slice(ViewOp):
    """y[i, j, ...] = x[start_0 + i*step_0, start_1 + j*step_1, ...].

    index[k] = (start, stop, step) as in range().
    """

    name, serves = "slice", "part"
    index: Index = ()
    cases = (
        Case([(5, 4)], dict(index=((1, 4, 1), (0, 4, 2)))),
        Case([(5,)], dict(index=((4, -1, -2),))),
        Case([(3, 4)], dict(index=((2, 3, 1), (3, 0, -1)))),
        Case([(3, 2)], dict(index=((0, 0, 1), (0, 2, 1)))),
        Case([()], dict(index=())),
    )

    def shape(self, x):
        check_index(self, x, self.index)
        return tuple(len(range(*part)) for part in self.index)

    def moved(self, batch, x):
        return batch if self.index[batch] == (0, x[batch], 1) else MIXED

    def for_part(self, axis, first, count):
        return dict(index=resized(self.index, axis, (0, count, 1)))

    def reference(self, x):
        return x[(..., *as_slices(self.index))]

    def gradient(self, F, dy, y, x):
        """y takes each element of x at most once: dx = dy at the slice, 0 elsewhere."""
        return (F.unslice(dy, index=self.index, to=x.shape),)

    def view(self, shape, strides):
        sizes = tuple(len(range(*part)) for part in self.index)
        offset = (
            sum(part[0] * s for part, s in zip(self.index, strides, strict=True))
            if math.prod(sizes)
            else 0
        )
        return (
            sizes,
            tuple(part[2] * s for part, s in zip(self.index, strides, strict=True)),
            offset,
        )


@dataclass(frozen=True, eq=False)
class Flip(ViewOp):
    """y[..., i, ...] = x[..., n - 1 - i, ...] along each of `axes`."""

    name = "flip"
    axes: tuple[int, ...] = ()
    cases = (
        Case([(3, 4)], dict(axes=(1,))),
        Case([(2, 3)], dict(axes=(0, 1))),
        Case([(0, 2)], dict(axes=(0,))),
    )

    def shape(self, x):
        if any(not 0 <= k < len(x) for k in self.axes):
            self.fail(
                "shape/flip.axes",
                f"there is no axis {max(self.axes)}" if self.axes else "no axis",
                expected=f"axes from 0 to {len(x) - 1}, got {list(self.axes)}",
                hint="x.flip(-1)",
            )
        return x

    def moved(self, batch, x):
        return MIXED if batch in self.axes else batch

    def reference(self, x):
        return x[(..., *[slice(None, None, -1 if k in self.axes else 1) for k in range(x.ndim)])]

    def gradient(self, F, dy, y, x):
        """dy[i] belongs to x[n - 1 - i]: the same flip again."""
        return (F.flip(dy, axes=self.axes),)

    def view(self, shape, strides):
        ends = [
            (n - 1) * s
            for k, (n, s) in enumerate(zip(shape, strides, strict=True))
            if k in self.axes
        ]
        turned = tuple(-s if k in self.axes else s for k, s in enumerate(strides))
        return shape, turned, sum(ends) if math.prod(shape) else 0


@dataclass(frozen=True, eq=False)
class Alias(ViewOp):
    """y = x, a constant as far as gradients are concerned."""

    name = "alias"
    cases = (Case([(2, 3)]), Case([()]))

    def shape(self, x):
        return x

    def moved(self, batch, x):
        return batch

    def reference(self, x):
        return x

    gradient = None

    def view(self, shape, strides):
        return shape, strides, 0
