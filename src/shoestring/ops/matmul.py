"""Matrix product, batched, either operand transposed: y = op(a) @ op(b).

Leading axes broadcast as in NumPy. Bilinear, so its gradients are matrix products of its own kind.
The kernel takes any strides of the last two axes: a transposed view costs no copy. Kernel:
matmul.cpp, matmul.cl. Vectors are handled by Tensor.__matmul__.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..backends import Kernel, Launch
from ..ir import MIXED, SUM, Case, Cost, Op, Port, promote
from .layout import kept_block
from .matmul_card import matmul_card

MAX_BATCH_AXES = 6
MOST_AXES = MAX_BATCH_AXES + 2
MAX_SLOTS = 8  # products computed side by side, each in its own workspace
SMALL = 1 << 18  # products of fewer multiplications are not worth several threads


@dataclass(frozen=True, eq=False)
class MatMul(Op):
    """y[..., m, n] = sum_k A[..., m, k] * B[..., k, n], A = a or its transpose, B = b or its
    transpose."""

    name, kind, cheap_to_recompute, strided = "matmul", "kernel", False, True
    transpose_a: bool = False
    transpose_b: bool = False
    cases = (
        Case([(3, 4), (4, 5)]),
        Case([(4, 3), (4, 5)], dict(transpose_a=True)),
        Case([(3, 4), (5, 4)], dict(transpose_b=True)),
        Case([(4, 3), (5, 4)], dict(transpose_a=True, transpose_b=True)),
        Case([(2, 1, 3, 2), (3, 2, 4)]),
        Case([(1, 1), (1, 1)]),
    )

    def shape(self, a, b):
        if len(a) < 2 or len(b) < 2:
            self.fail(
                "shape/matmul.rank",
                f"needs matrices, got {list(a)} and {list(b)}",
                hint="a @ b handles vectors",
            )
        M, K = (a[-1], a[-2]) if self.transpose_a else a[-2:]
        L, N = (b[-1], b[-2]) if self.transpose_b else b[-2:]
        if K != L:
            self.fail(
                "shape/matmul.inner",
                f"the inner sizes differ: {K} and {L}",
                expected=f"{[M, K]} @ {[K, N]}, got {[M, K]} @ {[L, N]}",
                hint="a @ b.T" if K == N else "check which axis is summed over",
            )
        try:
            return (*np.broadcast_shapes(a[:-2], b[:-2]), M, N)
        except ValueError:
            self.fail(
                "shape/matmul.batch",
                f"the leading axes {list(a[:-2])} and {list(b[:-2])} do not broadcast",
                hint="a.unsqueeze(1), so that axes line up from the right",
            )

    def dtype(self, a, b):
        return promote(a, b)  # integers stay exact, and run the reference

    def batch_axis(self, axes, a, b):
        free = [k for k in range(2) if axes[k] is not None]
        if not free:
            return None
        rank = max(len(a), len(b))
        rows = len(a) - (1 if self.transpose_a else 2)
        columns = len(b) - (2 if self.transpose_b else 1)
        inner_a, inner_b = 2 * len(a) - 3 - rows, 2 * len(b) - 3 - columns
        if free == [0] and axes[0] == rows:
            return rank - 2
        if free == [1] and axes[1] == columns:
            return rank - 1
        if free == [0, 1] and axes == (inner_a, inner_b):
            return SUM
        places = {axes[k] - len((a, b)[k]) for k in free}
        whole = len(places) == 1 and max(places) < -2
        return (
            rank + places.pop()
            if whole and all((a, b)[k][axes[k]] == (a, b)[free[0]][axes[free[0]]] for k in free)
            else MIXED
        )

    def terms(self, a, b):
        return a[-2] if self.transpose_a else a[-1]

    def reference(self, a, b):
        return (np.swapaxes(a, -1, -2) if self.transpose_a else a) @ (
            np.swapaxes(b, -1, -2) if self.transpose_b else b
        )

    def gradient(self, F, dy, y, a, b):
        """With A = op(a), B = op(b): dA = dy @ B^T and dB = A^T @ dy; the transposes of a and b
        swap the factors. Where leading axes were broadcast the gradient is summed over them
        (autodiff does that)."""
        ta, tb = self.transpose_a, self.transpose_b
        da = (
            F.matmul(b, dy, transpose_a=tb, transpose_b=True)
            if ta
            else F.matmul(dy, b, transpose_b=not tb)
        )
        db = (
            F.matmul(dy, a, transpose_a=True, transpose_b=ta)
            if tb
            else F.matmul(a, dy, transpose_a=not ta)
        )
        return da, db

    def launch_cpu(self, device, inputs, outputs):
        a, b, (y,) = *inputs, outputs
        if not single(a, b, y) or len(y.shape) - 2 > MAX_BATCH_AXES:
            return None
        (M, N, K), (rows_a, rows_b), lead, (strides_a, strides_b) = self.walk(a, b, y)
        places, room = math.prod(lead), packed_floats(M, N, K)
        slots = min(places, MAX_SLOTS) if places >= MAX_SLOTS or M * N * K < SMALL else 1
        integers = (M, N, K, *rows_a, *rows_b, slots, room, len(lead), *lead, *strides_a)
        kernel = Kernel("matmul", (0, 1, 2, 3), (*integers, *strides_b))
        return Launch((kernel,), (4 * slots * room,))

    def launch_card(self, device, inputs, outputs):
        a, b, (y,) = *inputs, outputs
        return matmul_card(device, a, b, *self.walk(a, b, y)) if single(a, b, y) else None

    def walk(self, a, b, y):
        """(M, N, K), strides along (m, k) and (k, n), leading axes, strides of a and b along
        them."""
        lead = y.shape[:-2]
        (M, N), K = y.shape[-2:], self.terms(a.shape, b.shape)
        rows_a = (a.strides[-1], a.strides[-2]) if self.transpose_a else a.strides[-2:]
        rows_b = (b.strides[-1], b.strides[-2]) if self.transpose_b else b.strides[-2:]
        batch = spread(a, lead), spread(b, lead)
        if lead and not any(batch[1]) and stacked(lead, batch[0], M * rows_a[0]):
            M, lead, batch = M * math.prod(lead), (), ((), ())  # one tall matrix
        return (M, N, K), (rows_a, rows_b), lead, batch

    def ports_cpu(self, device, inputs, outputs):
        """also: A summed over its columns, or B over its rows: what the product multiplies away."""
        most = max(len(s.shape) for s in inputs)
        if most > MOST_AXES or any(s.dtype != np.float32 for s in inputs):
            return ()
        over = ((0,) if self.transpose_a else (1,), (1,) if self.transpose_b else (0,))
        also = [Port("also", k, kept_block(inputs[k].shape, over[k])) for k in (0, 1)]
        return (Port("store"), *(also if most == 2 else ()))

    def ports_card(self, device, inputs, outputs):
        return (Port("store"),) if single(*inputs) else ()

    def cost(self, a, b):
        y = self.shape(a, b)
        return Cost(
            2.0 * math.prod(y) * self.terms(a, b),
            4.0 * (math.prod(a) + math.prod(b) + math.prod(y)),
        )


def single(*operands) -> bool:
    """Whether all are float32, which the kernels multiply."""
    return all(o.dtype == np.float32 for o in operands)


def spread(operand, lead: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of the leading axes after broadcasting: 0 where the operand repeats."""
    own, strides = operand.shape[:-2], operand.strides[:-2]
    new = len(lead) - len(own)
    return (0,) * new + tuple(0 if n == 1 else s for n, s in zip(own, strides, strict=True))


def stacked(lead: tuple[int, ...], strides: tuple[int, ...], step: int) -> bool:
    """Whether the places of the leading axes follow each other, `step` elements apart."""
    for n, stride in zip(reversed(lead), reversed(strides), strict=True):
        if n > 1 and stride != step:
            return False
        step *= n
    return True


def packed_floats(M: int, N: int, K: int) -> int:
    """Workspace of one product: both matrices repacked into whole panels, of at most 14 rows and 32
    columns; a multiple of 64 bytes."""
    return -(-K * (M + 13 + N + 31) // 16) * 16
