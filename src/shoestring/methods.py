"""Tensor's arithmetic, comparisons, reductions and changes of shape. Each builds one node (or a
few).

A mixin, so that tensor.py holds only what a handle is. Axes: `axis` or `dim`, `keepdims` or
`keepdim`; negative axes count from the end; None means all.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import runtime
from .errors import fail
from .ir import KIND_ORDER, LIMITS, F, Node, bool_, float32, promote, uint8
from .operands import named_dtype, number_node, sizes, whole

Axis = int | tuple[int, ...] | None


class Methods:
    """What Tensor inherits. `_wrap` makes a handle, `_node` a node of any operand, `_view` a
    view."""

    __slots__ = ()
    node: Any
    shape: Any
    dtype: Any
    ndim: Any
    spec: Any

    def _wrap(self, node: Node) -> Any: ...
    def _node(self, x: Any) -> Node: ...
    def _nodes(self, *xs: Any) -> list[Node]: ...
    def _compared(self, x: Any, comparison: str) -> Node: ...
    def _view(self, name: str, **attributes: Any) -> Any: ...
    def rebind(self, node: Node) -> Any: ...

    def _compare(self, name: str, other: Any) -> Any:
        return self._wrap(getattr(F, name)(self.node, self._compared(other, name)))

    def _become(self, node: Node) -> Any:
        """This handle with the result of `x += y` or its like; it keeps its shape and type."""
        if node.spec is not self.spec:
            if node.shape != self.shape:
                fail(
                    "shape/inplace.shape",
                    f"the result is {list(node.shape)} and cannot take the place of x",
                    tensors={"x": self.spec, "result": node.spec},
                    hint="x = x + y instead of x += y",
                )
            if KIND_ORDER[node.dtype.kind] > KIND_ORDER[self.dtype.kind]:
                fail(
                    "type/inplace.dtype",
                    f"the result is {node.dtype} and cannot take the place of {self.dtype}",
                    tensors={"x": self.spec, "result": node.spec},
                    hint="x = x + y instead of x += y",
                )
            node = F.cast(node, to=self.dtype.name)
        return self.rebind(node)

    def __invert__(self) -> Any:
        """All bits of integers turned over, as in NumPy; not x of bool."""
        if self.dtype == bool_:
            return self._wrap(F.logical_not(self.node))
        ones = 255 if self.dtype == uint8 else -1
        return self._wrap(F.bitwise_xor(self.node, self._node(ones)))

    def _divided(self, other: Any) -> Node:
        """An operand of a division, which integers enter as floats: uint8 / 1000 is no overflow."""
        whole = self.dtype.kind != "f" and isinstance(other, int)
        return number_node(other, float32, self.node.device) if whole else self._node(other)

    def __pow__(self, exponent: Any) -> Any:
        """x^exponent. Integers to a negative power that is a tensor: 0, but for 1 and -1."""
        if isinstance(exponent, (int, np.integer)) and exponent < 0 and self.dtype.kind != "f":
            fail(
                "value/pow.negative",
                f"integers have no power {exponent} among the integers",
                op="pow",
                tensors={"x": self.spec},
                hint=f'x.astype("float32") ** {exponent}',
            )
        return self._wrap(F.pow(self.node, self._node(exponent)))

    def _number(self, value: Any, dtype: np.dtype) -> Node:
        return runtime.scalar(value, dtype, device=self.node.device)

    # fmt: off
    # ---- arithmetic ---
    def __add__(self, other): return self._wrap(F.add(self.node, self._node(other)))
    def __radd__(self, other): return self._wrap(F.add(self._node(other), self.node))
    def __sub__(self, other): return self._wrap(F.sub(self.node, self._node(other)))
    def __rsub__(self, other): return self._wrap(F.sub(self._node(other), self.node))
    def __mul__(self, other): return self._wrap(F.mul(self.node, self._node(other)))
    def __rmul__(self, other): return self._wrap(F.mul(self._node(other), self.node))
    def __truediv__(self, other): return self._wrap(F.div(self.node, self._divided(other)))
    def __rtruediv__(self, other): return self._wrap(F.div(self._divided(other), self.node))
    def __rpow__(self, other): return self._wrap(F.pow(self._node(other), self.node))
    def __neg__(self): return self._wrap(F.neg(self.node))
    def __abs__(self): return self._wrap(F.abs(self.node))
    def __and__(self, other): return self._wrap(F.bitwise_and(self.node, self._node(other)))
    def __rand__(self, other): return self._wrap(F.bitwise_and(self._node(other), self.node))
    def __or__(self, other): return self._wrap(F.bitwise_or(self.node, self._node(other)))
    def __ror__(self, other): return self._wrap(F.bitwise_or(self._node(other), self.node))
    def __xor__(self, other): return self._wrap(F.bitwise_xor(self.node, self._node(other)))
    def __rxor__(self, other): return self._wrap(F.bitwise_xor(self._node(other), self.node))

    def __iadd__(self, other): return self._become(F.add(self.node, self._node(other)))
    def __isub__(self, other): return self._become(F.sub(self.node, self._node(other)))
    def __imul__(self, other): return self._become(F.mul(self.node, self._node(other)))
    def __itruediv__(self, other): return self._become(F.div(self.node, self._divided(other)))
    def __ipow__(self, other): return self._become((self**other).node)
    def __iand__(self, other): return self._become((self & other).node)
    def __ior__(self, other): return self._become((self | other).node)
    def __ixor__(self, other): return self._become((self ^ other).node)

    def __eq__(self, other): return self._compare("equal", other)
    def __ne__(self, other): return self._compare("not_equal", other)
    def __lt__(self, other): return self._compare("less", other)
    def __le__(self, other): return self._compare("less_equal", other)
    def __gt__(self, other): return self._compare("greater", other)
    def __ge__(self, other): return self._compare("greater_equal", other)
    __hash__ = object.__hash__

    def exp(self): return self._wrap(F.exp(self.node))
    def log(self): return self._wrap(F.log(self.node))
    def sqrt(self): return self._wrap(F.sqrt(self.node))
    def abs(self): return self._wrap(F.abs(self.node))
    def tanh(self): return self._wrap(F.tanh(self.node))
    def sigmoid(self): return self._wrap(F.sigmoid(self.node))
    def relu(self): return self._wrap(F.relu(self.node))

    def clip(self, minimum: Any = None, maximum: Any = None):
        """Values below `minimum` become it, values above `maximum` become that; None: no bound."""
        given = [bound for bound in (minimum, maximum) if bound is not None]
        nodes = self._nodes(self, *given)
        dtype = promote(*[node.dtype for node in nodes])
        infinite = dtype.kind == "f"
        least, most = (-math.inf, math.inf) if infinite else LIMITS.get(dtype, (False, True))
        low = self._number(least, dtype) if minimum is None else nodes[1]
        high = self._number(most, dtype) if maximum is None else nodes[-1]
        return self._wrap(F.clip(self.node, low, high))

    clamp = clip

    # ---- types -----------------------------------------------------------------------------------
    def astype(self, dtype: Any):
        """The values as another type: float32, int64, int32, uint8 or bool. Floats are cut towards
        0; what an integer type cannot hold wraps around."""
        dtype = named_dtype(dtype, self.device, "astype")
        return self if dtype == self.dtype else self._wrap(F.cast(self.node, to=dtype.name))

    def float(self): return self.astype(float32)
    def long(self): return self.astype("int64")
    def int(self): return self.astype("int32")
    def bool(self): return self.astype("bool")

    # ---- products --------------------------------------------------------------------------------
    def __matmul__(self, other): return self._wrap(matmul_nodes(self.node, self._node(other)))
    def __rmatmul__(self, other): return self._wrap(matmul_nodes(self._node(other), self.node))
    def matmul(self, other): return self @ other

    # fmt: on
    # ---- reductions ---
    def _reduce(self, name: str, axis: Axis, keepdims: bool, dim: Axis, keepdim: bool, **more: Any):
        axes = self._axes(one_of(axis, dim))
        return self._wrap(
            getattr(F, name)(self.node, axes=axes, keepdims=keepdims or keepdim, **more)
        )

    def sum(
        self, axis: Axis = None, keepdims: bool = False, *, dim: Axis = None, keepdim: bool = False
    ):
        """Sum over `axis`; integers add up as int64."""
        return self._reduce("sum", axis, keepdims, dim, keepdim)

    def mean(
        self, axis: Axis = None, keepdims: bool = False, *, dim: Axis = None, keepdim: bool = False
    ):
        """Mean over `axis`, a float always; NaN over nothing."""
        return self._reduce("mean", axis, keepdims, dim, keepdim)

    def max(
        self, axis: Axis = None, keepdims: bool = False, *, dim: Axis = None, keepdim: bool = False
    ):
        """Largest value over `axis` (the value alone: for its place use argmax); NaN wins."""
        return self._reduce("max", axis, keepdims, dim, keepdim)

    def min(
        self, axis: Axis = None, keepdims: bool = False, *, dim: Axis = None, keepdim: bool = False
    ):
        """Smallest value over `axis`; NaN wins."""
        return self._reduce("min", axis, keepdims, dim, keepdim)

    def var(
        self,
        axis: Axis = None,
        keepdims: bool = False,
        correction: Any = 1,
        *,
        dim: Axis = None,
        keepdim: bool = False,
    ):
        """Variance over `axis`, divided by n - correction (1: unbiased, as in PyTorch; 0: as in
        NumPy)."""
        return self._reduce("var", axis, keepdims, dim, keepdim, correction=correction)

    def std(
        self,
        axis: Axis = None,
        keepdims: bool = False,
        correction: Any = 1,
        *,
        dim: Axis = None,
        keepdim: bool = False,
    ):
        """Square root of var(); its gradient where all values are equal is 0."""
        variance = self.var(axis, keepdims, correction, dim=dim, keepdim=keepdim)
        zero, one = variance._node(0.0), variance._node(1.0)
        flat = F.equal(variance.node, zero)
        root = F.sqrt(F.where(flat, one, variance.node))  # away from 0, where its slope is infinite
        return self._wrap(F.where(flat, zero, root))

    def _position(self, name: str, axis: Any, keepdims: bool, dim: Any, keepdim: bool):
        axis, keep = one_of(axis, dim), keepdims or keepdim
        if axis is not None:
            axis = self._axis(axis, name)
            return self._wrap(getattr(F, name)(self.node, axis=axis, keepdims=keep))
        place = self._wrap(getattr(F, name)(self.reshape(-1).node, axis=0, keepdims=False))
        return place.reshape((1,) * self.ndim) if keep else place

    def argmax(
        self, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False
    ):
        """Position of the largest value, int64; the first among equals. axis None: in the flattened
        tensor."""
        return self._position("argmax", axis, keepdims, dim, keepdim)

    def argmin(
        self, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False
    ):
        """Position of the smallest value, int64; the first among equals."""
        return self._position("argmin", axis, keepdims, dim, keepdim)

    def any(
        self, axis: Axis = None, keepdims: bool = False, *, dim: Axis = None, keepdim: bool = False
    ):
        """Whether some element is not 0."""
        return self.astype("bool").sum(axis, keepdims, dim=dim, keepdim=keepdim) > 0

    def all(
        self, axis: Axis = None, keepdims: bool = False, *, dim: Axis = None, keepdim: bool = False
    ):
        """Whether no element is 0."""
        return (~self.astype("bool")).sum(axis, keepdims, dim=dim, keepdim=keepdim) == 0

    # ---- shape -----------------------------------------------------------------------------------
    def reshape(self, *shape: Any):
        """The same elements in another shape; one size may be -1. A view where strides allow,
        otherwise a copy."""
        to = sizes(shape, "reshape", -1)
        if to.count(-1) == 1:
            rest = -math.prod(to)
            if rest == 0 and self.spec.size == 0:
                fail(
                    "shape/reshape.ambiguous",
                    f"any size would do for the -1 in {list(to)}",
                    op="reshape",
                    tensors={"x": self.spec},
                    hint="name every size",
                )
            left = self.spec.size // rest if rest else 0
            to = tuple([left if n == -1 else n for n in to])
        return self._view("reshape", to=to)

    view = reshape

    def flatten(self, start: Any = 0):
        """One axis instead of all from `start` on."""
        start = self._axis(start, "flatten") if self.ndim else 0
        return self.reshape(*self.shape[:start], math.prod(self.shape[start:]))

    def transpose(self, *axes: Any):
        """Axes in another order; without arguments reversed. A view."""
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        order = self._axes(tuple(order)) if order else tuple(reversed(range(self.ndim)))
        return self._view("transpose", axes=order)

    permute = transpose

    @property
    def T(self):
        return self.transpose()

    def expand(self, *shape: Any):
        """Repeat axes of size 1 (and new ones in front) to reach `shape`; -1 keeps a size. A
        view."""
        to = sizes(shape, "expand", -1)
        own = (-1,) * (len(to) - self.ndim) + tuple(self.shape)
        return self._view(
            "expand", to=tuple([m if n == -1 else n for n, m in zip(to, own, strict=False)])
        )

    def squeeze(self, axis: Axis = None, *, dim: Axis = None):
        """Without axes of size 1: all of them, or those of `axis` (whose other sizes stay)."""
        drop = self._axes(one_of(axis, dim))
        return self.reshape(*[n for k, n in enumerate(self.shape) if k not in drop or n != 1])

    def unsqueeze(self, axis: Any):
        """With an axis of size 1 at `axis`, from -ndim - 1 to ndim."""
        (axis,) = normal_axes((axis,), self.ndim + 1, self.spec)
        return self.reshape(*self.shape[:axis], 1, *self.shape[axis:])

    def contiguous(self):
        """The same values, laid out row by row."""
        return self._wrap(F.copy(self.node))

    def flip(self, axis: Axis = None, *, dim: Axis = None):
        """Reversed along `axis`; None: along all. A view."""
        return self._view("flip", axes=self._axes(one_of(axis, dim)))

    def _axes(self, axis: Axis) -> tuple[int, ...]:
        """Axes as a tuple of non-negative numbers."""
        if axis is None:
            return tuple(range(self.ndim))
        axes = tuple(axis) if isinstance(axis, (tuple, list, range)) else (axis,)
        return normal_axes(axes, self.ndim, self.spec)

    def _axis(self, axis: Any, op: str) -> Any:
        """The number of the one axis that an operation works along."""
        if axis is None or isinstance(axis, (tuple, list)):
            fail(
                "type/axis.one",
                f"works along one axis, got {axis}",
                op=op,
                tensors={"x": self.spec},
                hint="axis=-1; for several, x.flatten(start) makes one of the last axes",
            )
        return self._axes(axis)[0]


def normal_axes(axes: tuple, ndim: int, x: Any) -> tuple[int, ...]:
    """Axes of `ndim` as non-negative numbers, each once. x: evidence."""
    axes = tuple([whole(a, "axis") for a in axes])
    for a in axes:
        if not -ndim <= a < ndim:
            fail(
                "shape/axis.range",
                f"there is no axis {a}",
                tensors={"x": x},
                expected=f"an axis from {-ndim} to {ndim - 1}, got {a}"
                if ndim
                else "a scalar has no axes",
                hint="axis=-1 is the last",
            )
    normal = tuple([a % ndim for a in axes])
    if len(set(normal)) < len(normal):
        fail(
            "shape/axis.twice",
            f"an axis stands twice in {axes}",
            tensors={"x": x},
            hint="name each axis once",
        )
    return normal


def one_of(axis: Any, dim: Any) -> Any:
    """The axes that are meant where both spellings are accepted."""
    if axis is not None and dim is not None and axis != dim:
        fail(
            "value/axis.both",
            f"axis={axis} and dim={dim} say different things",
            tensors={},
            hint="name the axes once, axis=... or dim=...",
        )
    return axis if dim is None else dim


def matmul_nodes(a: Node, b: Node) -> Node:
    """a @ b as NumPy does it: a vector is a row on the left, a column on the right, and its axis is
    dropped again."""
    if not a.shape or not b.shape:
        fail(
            "shape/matmul.scalar",
            "a scalar has no matrix product",
            op="matmul",
            tensors={"a": a.spec, "b": b.spec},
            hint="a * b",
        )
    row, column = len(a.shape) == 1, len(b.shape) == 1
    left = F.reshape(a, to=(1, *a.shape)) if row else a
    right = F.reshape(b, to=(*b.shape, 1)) if column else b
    y = F.matmul(left, right)
    if not row and not column:
        return y
    drop = ([len(y.shape) - 2] if row else []) + ([len(y.shape) - 1] if column else [])
    return F.reshape(y, to=tuple(n for k, n in enumerate(y.shape) if k not in drop))
