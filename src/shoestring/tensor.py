"""The face: Tensor, a handle on a value. (Variable and Parameter, handles on a state: variable.py)

Operations build nodes at once, so shape, type and device errors appear on the user's own line;
values are computed when somebody looks. A handle's value never changes; `x += 1` and `x[i:j] = v`
point the handle at a new value, and no other handle sees it. Methods that take axes accept both
spellings: axis / dim, keepdims / keepdim.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import runtime
from .autodiff import gradients
from .backends.device import TURN
from .backends.device import device as open_device
from .errors import fail
from .indexing import getitem, setitem
from .ir import F, Node, Spec, float32, leaf, promote
from .methods import Methods
from .operands import as_data, bound, data_node, float_type, number_node
from .runtime import default_device, session

NUMBERS = (int, float, np.integer, np.floating)


class Tensor(Methods):
    """A value that never changes. Make one with `ss.tensor`, `ss.zeros` ..., or by operations on
    others."""

    __slots__ = ("__weakref__", "node")
    node: Node
    __array_priority__ = 1000

    @property
    def spec(self) -> Spec:
        return self.node.spec

    @property
    def shape(self) -> tuple[int, ...]:
        return self.spec.shape

    @property
    def dtype(self) -> np.dtype:
        return self.spec.dtype

    @property
    def device(self) -> str:
        return self.spec.device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.spec.size

    @property
    def nbytes(self) -> int:
        return self.spec.nbytes

    @property
    def requires_grad(self) -> bool:
        return self.node.needs_grad

    # ---- looking at it ---------------------------------------------------------------------------
    def realize(self) -> Any:
        """Compute the value, and return the device's array that holds it: do not write."""
        if self.node.value is None or session.trace is not None:
            runtime.flush([self.node])
        return self.node.value

    def numpy(self) -> np.ndarray:
        """The value as a read-only NumPy array, which later steps never change."""
        view = open_device(self.device).read(self.realize()).view()
        view.flags.writeable = False
        return view

    def item(self) -> Any:
        """The value of a one-element tensor as a Python number."""
        if self.size != 1:
            fail(
                "shape/item.size",
                f"needs exactly one element, got {list(self.shape)}",
                op="item",
                tensors={"x": self.spec},
                hint="x.mean().item(), or x[0].item()",
            )
        return self.numpy().reshape(()).item()

    def tolist(self) -> Any:
        return self.numpy().tolist()

    def data_ptr(self) -> int:
        """Address of the first element; computes the value first."""
        value = self.realize()
        if isinstance(value, np.ndarray):
            return value.__array_interface__["data"][0]
        return value.base.address + value.offset

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance between neighbours along each axis, in elements; computes the value first."""
        return tuple(s // self.dtype.itemsize for s in self.realize().strides)

    @property
    def offset(self) -> int:
        """Elements between the start of the buffer and the first element; computes the value
        first."""
        array = base = self.realize()
        if not isinstance(array, np.ndarray):
            return array.offset // array.dtype.itemsize
        while isinstance(base.base, np.ndarray):
            base = base.base
        return (self.data_ptr() - base.__array_interface__["data"][0]) // array.itemsize

    def is_contiguous(self) -> bool:
        """Whether the elements lie one after the other, row by row; computes the value first."""
        return bool(self.realize().flags.c_contiguous)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return (
            np.array(self.numpy(), dtype=dtype) if copy else np.asarray(self.numpy(), dtype=dtype)
        )

    def __bool__(self) -> bool:
        if self.size != 1:
            fail(
                "shape/bool.size",
                f"the truth of {self.size} elements is ambiguous",
                op="bool",
                tensors={"x": self.spec},
                hint="(x > 0).all(), or x.any()",
            )
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.dtype.kind not in "iub":
            fail(
                "type/index.dtype",
                f"only an integer can be an index, this is {self.dtype}",
                op="index",
                tensors={"x": self.spec},
                hint="int(x)",
            )
        return int(self.item())

    def __len__(self) -> int:
        if not self.shape:
            fail(
                "shape/len.scalar",
                "a scalar has no length",
                op="len",
                tensors={"x": self.spec},
                hint="x.size",
            )
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        name = type(self).__name__.lower()
        if session.trace is None:
            values = np.array2string(
                np.asarray(self.realize()), precision=4, separator=", ", threshold=100, prefix=name
            )
        else:
            runtime.flush([self.node])
            values = ""
        extra = "" if self.dtype == float32 else f", dtype={self.dtype}"
        extra += "" if self.device == "cpu" else f", device={self.device!r}"
        return f"{name}({values}{extra}{', requires_grad=True' if self.requires_grad else ''})"

    # ---- differentiation -------------------------------------------------------------------------
    def detach(self) -> Tensor:
        """The same value, through which no gradient flows. Of a parameter: its value now, whatever
        becomes of it."""
        return wrap(F.alias(self.node))

    def backward(self, gradient: Tensor | None = None, retain_graph: bool = False) -> None:
        """Add d(self)/d(parameter) to the `grad` of every parameter that it depends on. Computes
        nothing yet.

        gradient      weights of the elements, of this shape; may be left out for a scalar (then 1)
        retain_graph  keep computed values for another backward(); without it another one recomputes
                      them
        """
        if gradient is None and self.shape != ():
            fail(
                "shape/backward.scalar",
                f"needs a scalar, got {list(self.shape)}",
                op="backward",
                tensors={"x": self.spec},
                hint="loss.mean().backward()",
            )
        given = None if gradient is None else node_of(gradient, self)
        if given is not None and given.shape != self.shape:
            fail(
                "shape/backward.gradient",
                "the gradient has another shape than what it weighs",
                op="backward",
                tensors={"x": self.spec, "gradient": given.spec},
                hint="ss.ones_like(x)",
            )
        if not self.node.needs_grad and not self.node.stale:
            fail(
                "value/backward.constant",
                "nothing here depends on a parameter",
                op="backward",
                tensors={"x": self.spec},
                cause="no parameter took part, or it was computed under no_grad() or detached",
                hint="ss.tensor(data, requires_grad=True), or a Module's parameters",
            )
        runtime.settle_pending()
        if given is None:
            seed = runtime.scalar(1.0, self.dtype, device=self.device)
        else:
            seed = given if given.dtype == self.dtype else F.cast(given, to=self.dtype.name)
        with TURN:
            found = gradients(self.node, seed, spend=not retain_graph)
            runtime.add_gradients(
                [(version.state, g) for version, g in found.items() if version.state is not None]
            )

    def __getitem__(self, index: Any) -> Tensor:
        return getitem(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.rebind(setitem(self, index, value))

    def rebind(self, node: Node) -> Tensor:
        """Point this handle at another value. Other handles keep theirs."""
        if session.trace is not None:
            session.trace.rebind(self)
        self.node.handle = None
        self.node = node
        attach(self, node)
        return self

    def to(self, target: Any) -> Tensor:
        """A copy on another device ("cpu", "reference"), or of another type ("float32", np.int64
        ...).

        Moving to another device computes the value; no gradient flows through it."""
        if isinstance(target, Tensor):
            return self.to(target.device).to(target.dtype)
        if isinstance(target, str) and not is_type_name(target):
            target = open_device(target).name  # complains if there is no such device
            return self if target == self.device else wrap(data_node(self.numpy(), None, target))
        return self.astype(target)

    def to_device(self, index: int) -> Tensor:
        """The same on graphics card number `index` ("cuda:index")."""
        return self.to(f"cuda:{index}")

    # ---- copies ----------------------------------------------------------------------------------
    def __copy__(self) -> Tensor:
        """Another handle on the same value: `+=` on one leaves the other alone, and gradients flow
        through both."""
        return self._view("reshape", to=self.shape)

    def __reduce__(self) -> tuple:
        """For copy.deepcopy and pickle: the value, in memory of its own, on the same device."""
        if self.requires_grad:
            fail(
                "type/copy.graph",
                "a deep copy or a pickle has no graph: gradients would stop there in silence",
                op="copy",
                tensors={"x": self.spec},
                cause="it was computed from a parameter",
                hint="copy.deepcopy(x.detach()), or copy.copy(x) for the same value with its graph",
            )
        return restored, (self.numpy(), self.device)

    def _wrap(self, node: Node) -> Tensor:
        return wrap(node)

    def _node(self, x: Any) -> Node:
        return node_of(x, self)

    def _nodes(self, *xs: Any) -> list[Node]:
        return nodes_of(*xs)

    def _compared(self, x: Any, comparison: str) -> Node:
        if self.dtype.kind != "f" and isinstance(x, NUMBERS):
            x = bound(x, comparison, self.dtype)
        return node_of(x, self)

    def _view(self, name: str, **attributes: Any) -> Tensor:
        return wrap_view(self, name, attributes)

    __hash__ = object.__hash__


def is_type_name(name: str) -> bool:
    try:
        return bool(np.dtype(name))
    except TypeError:
        return False


def attach(handle: Tensor, node: Node) -> None:
    reference = node.handle = weakref.ref(handle)
    if node.op is not None:
        handles = session.handles
        handles.append(reference)
        if len(handles) > runtime.MAX_HANDLES and session.trace is None:
            runtime.compact()


def wrap(node: Node) -> Tensor:
    """The handle of a node; there is at most one, so `node.handle` alone decides whether anybody
    can see the node."""
    handle = node.handle() if node.handle is not None else None
    if handle is None:
        handle = Tensor.__new__(Tensor)
        handle.node = node
        attach(handle, node)
    return handle


def wrap_view(source: Tensor, name: str, attributes: dict) -> Tensor:
    """A view of plain data is data: no node, so X[i:i+32] is an input whose offset no plan knows. A
    view of a differentiable value stays a node, or its gradient would vanish."""
    node = source.node
    built = getattr(F, name)(node, **attributes)
    if node.value is None or node.needs_grad or node.state is not None or session.trace is not None:
        return wrap(built)  # in a trace the plan must know what it looks at
    itemsize = node.dtype.itemsize
    if built.op.view(node.shape, tuple(s // itemsize for s in node.value.strides)) is None:
        return wrap(built)  # these strides need a copy
    return wrap(leaf(runtime.looked_at(built.op, node.value), device=node.device))


def node_of(x: Any, like: Any = None) -> Node:
    """The node of a tensor, or of a number or array that meets `like`: a Python number is weak, see
    docs/types.md."""
    if isinstance(x, Tensor):
        return x.node
    device, dtype = (like.device, like.dtype) if like is not None else (default_device(), None)
    if isinstance(x, (int, float, np.generic)):
        return number_node(x, dtype, device)
    return data_node(x, None, device, float_type(dtype))


def restored(value: np.ndarray, device: str) -> Tensor:
    """A tensor from what `Tensor.__reduce__` gave."""
    return wrap(data_node(value, value.dtype, device))


def nodes_of(*xs: Any, near: Any = None) -> list[Node]:
    """The nodes of operands that meet all at once. near: a tensor on their device, of any type."""
    near = next((x for x in xs if isinstance(x, Tensor)), near)
    device = near.device if near is not None else default_device()
    found = {}
    for k, x in enumerate(xs):
        if isinstance(x, np.generic) or not isinstance(x, (int, float)):
            found[k] = node_of(x, near)
    if not found:
        return [number_node(x, None, device) for x in xs]
    common = promote(*[node.dtype for node in found.values()])
    return [found[k] if k in found else number_node(x, common, device) for k, x in enumerate(xs)]


__all__ = [
    "Tensor",
    "as_data",
    "attach",
    "data_node",
    "node_of",
    "nodes_of",
    "wrap",
    "wrap_view",
]
