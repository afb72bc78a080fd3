"""Picking places along one axis by integer indices, and its mirror.

    take     y[a, i, b] = x[a, indices[i], b]
    put_add  y[a, j, b] = sum over i with indices[i] = j of x[a, i, b]

a and b stand for the axes before and after `axis`.

An embedding is a take along axis 0. Each op is linear in x and the gradient of the other. The sum
runs over i in order, whatever the number of threads: a task owns a part of the axes a and b, never
of the indices.

Indices lie in [0, n): a negative one is not counted from the end, and one outside reads or adds
nothing (take gives NaN there, 0 for integers). Complaining is the part of `check_index`, whose
error names the first offender.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..backends import Kernel, Launch
from ..ir import MIXED, SUM, Case, Cost, Op, Shape
from .layout import resized

INDEX_TYPES, ITEM_SIZES = ("int64", "int32", "uint8"), (1, 4, 8)


class IndexOp(Op):
    kind, cheap_to_recompute = "kernel", True
    axis: int

    def dtype(self, x, indices):
        if indices.kind not in "iu":
            self.fail(
                "type/take.indices",
                f"indices must be integers, got {indices}",
                hint='indices.astype("int64")',
            )
        return x

    def cost(self, x, indices):
        return Cost(0, 8 * float(math.prod(self.shape(x, indices))) + 8 * math.prod(indices))

    def inside(self, indices: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """(which indices lie in [0, n), as a flat mask; all of them flat)."""
        flat = indices.reshape(-1).astype(np.int64)
        return (flat >= 0) & (flat < n), flat


@dataclass(frozen=True, eq=False)
class Take(IndexOp):
    """y[a, i, b] = x[a, indices[i], b]; the axes of `indices` take the place of `axis`."""

    name = "take"
    axis: int = 0
    cases = (
        Case([(5, 3), (4,)], domains=("any", "labels 5"), dtypes=("float32", "int64")),
        Case([(2, 4, 3), (2, 2)], dict(axis=1), ("any", "labels 4"), ("float32", "int32")),
        Case([(3, 6), ()], dict(axis=1), ("any", "labels 6"), ("float32", "int64")),
        Case([(3, 2), (0,)], domains=("any", "labels 3"), dtypes=("float32", "int64")),
        Case([(7,), (9,)], domains=("labels 200", "labels 7"), dtypes=("uint8", "uint8")),
    )

    def shape(self, x, indices):
        if not 0 <= self.axis < len(x):
            self.fail(
                "shape/take.axis",
                f"there is no axis {self.axis}",
                expected=f"an axis from 0 to {len(x) - 1}",
                hint="axis=0",
            )
        return (*x[: self.axis], *indices, *x[self.axis + 1 :])

    def batch_axis(self, axes, x, indices):
        batch, picked = axes
        if picked is None and isinstance(batch, int) and batch != self.axis:
            return batch if batch < self.axis else batch + len(indices) - 1
        if batch is None and isinstance(picked, int):
            return self.axis + picked
        return batch if picked is None and batch in (None, SUM) else MIXED

    def reference(self, x, indices):
        ok, flat = self.inside(indices, x.shape[self.axis])
        y = np.full(
            (*x.shape[: self.axis], flat.size, *x.shape[self.axis + 1 :]),
            np.nan if x.dtype.kind == "f" else 0,
            x.dtype,
        )
        front = (slice(None),) * self.axis
        y[(*front, ok)] = x[(*front, flat[ok])]
        return y.reshape(self.shape(x.shape, indices.shape))

    def gradient(self, F, dy, y, x, indices):
        """x[j] stands in y[i] for every i with indices[i] = j: dx[j] is the sum of those dy[i]."""
        return F.put_add(dy, indices, axis=self.axis, to=x.shape), None

    def launch_cpu(self, device, inputs, outputs):
        x, indices = inputs
        if (
            indices.dtype.name not in INDEX_TYPES
            or x.dtype.itemsize not in ITEM_SIZES
            or x.dtype.name == "float64"
        ):
            return None
        sizes = (
            math.prod(x.shape[: self.axis]),
            x.shape[self.axis],
            indices.size,
            math.prod(x.shape[self.axis + 1 :]),
        )
        return Launch(
            (
                Kernel(
                    "take",
                    (0, 1, 2),
                    (x.dtype.itemsize, indices.dtype.itemsize, x.dtype.kind == "f", *sizes),
                ),
            )
        )


@dataclass(frozen=True, eq=False)
class PutAdd(IndexOp):
    """y[a, j, b] = sum over i with indices[i] = j of x[a, i, b]; y has the sizes `to`.

    The mirror of take.
    """

    name, kind, cheap_to_recompute = "put_add", "reduce", False
    axis: int = 0
    to: Shape = ()
    cases = (
        Case([(4, 3), (4,)], dict(to=(5, 3)), ("any", "labels 3"), ("float32", "int64")),
        Case(
            [(2, 2, 2, 3), (2, 2)],
            dict(axis=1, to=(2, 4, 3)),
            ("any", "labels 4"),
            ("float32", "int32"),
        ),
        Case([(3,), ()], dict(axis=1, to=(3, 6)), ("any", "labels 6"), ("float32", "uint8")),
        Case([(0, 2), (0,)], dict(to=(3, 2)), ("any", "labels 3"), ("float32", "int64")),
    )

    def shape(self, x, indices):
        if not 0 <= self.axis < len(self.to):
            self.fail(
                "shape/put_add.axis",
                f"{list(self.to)} has no axis {self.axis}",
                hint="axis=0",
                expected=f"an axis from 0 to {len(self.to) - 1}",
            )
        fits = (*self.to[: self.axis], *indices, *self.to[self.axis + 1 :])
        if x != fits:
            self.fail(
                "shape/put_add.sizes",
                f"{list(x)} does not fit {list(indices)} indices along axis {self.axis}",
                expected=f"{list(fits)}, got {list(x)}",
                hint=f"x.reshape({list(fits)})",
            )
        return self.to

    def terms(self, x, indices):
        return math.prod(indices)

    def batch_axis(self, axes, x, indices):
        batch, picked = axes
        first, past = self.axis, self.axis + len(indices)
        if isinstance(batch, int) and first <= batch < past:
            return SUM if picked == batch - first else MIXED
        if picked is None and isinstance(batch, int):
            return batch if batch < first else batch - len(indices) + 1
        return batch if picked is None and batch in (None, SUM) else MIXED

    def for_part(self, axis, first, count):
        return {} if axis is None else dict(to=resized(self.to, axis, count))

    def reference(self, x, indices):
        ok, flat = self.inside(indices, self.to[self.axis])
        rows = x.reshape(*self.to[: self.axis], flat.size, *self.to[self.axis + 1 :])
        y = np.zeros(self.to, x.dtype)
        front = (slice(None),) * self.axis
        np.add.at(y, (*front, flat[ok]), rows[(*front, ok)])
        return y

    def gradient(self, F, dy, y, x, indices):
        """x[i] is added to y[indices[i]] and nowhere else: dx[i] = dy[indices[i]]."""
        return F.take(dy, indices, axis=self.axis), None

    def launch_cpu(self, device, inputs, outputs):
        x, indices = inputs
        if indices.dtype.name not in INDEX_TYPES or x.dtype != np.float32:
            return None
        sizes = (
            math.prod(self.to[: self.axis]),
            self.to[self.axis],
            indices.size,
            math.prod(self.to[self.axis + 1 :]),
        )
        return Launch((Kernel("put_add", (0, 1, 2), (indices.dtype.itemsize, *sizes)),))
