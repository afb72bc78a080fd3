"""Handles on states: Variable, always its newest version, and Parameter, one that training changes;
and `tensor`.

A state keeps its memory for life. assign() gives it a new version without computing anything;
values built from older versions keep theirs.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from . import runtime
from .backends.device import device as open_device
from .errors import fail
from .ir import F, Node, Spec, leaf
from .operands import as_data, data_node
from .runtime import State, default_device, session
from .tensor import Tensor, node_of, wrap


class Variable(Tensor):
    """A handle on a state: always its newest version. assign() gives it a new one.

    value          array, tensor or number; copied
    name           how messages call it
    requires_grad  whether backward() adds to `grad`;  device, dtype: as in `ss.tensor`
    """

    __slots__ = ("state",)
    settles = False

    def __init__(
        self,
        value: Any,
        name: str = "variable",
        requires_grad: bool = False,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        device = device or (value.device if isinstance(value, Tensor) else default_device())
        device = open_device(device).name
        array = as_data(*plain(value, dtype, device), device)
        check_differentiable(array.dtype, requires_grad)
        home = open_device(device).upload(array, name)
        kind = "parameters" if isinstance(self, Parameter) else ""  # also while it is frozen
        self.state = State(name, home, requires_grad, device, kind)

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self.settles:
            runtime.settle_pending()
        return self.state.node

    @property
    def spec(self) -> Spec:
        return self.state.node.spec

    @property
    def requires_grad(self) -> bool:
        return self.state.needs_grad

    @requires_grad.setter
    def requires_grad(self, needs: bool) -> None:
        check_differentiable(self.dtype, needs)
        runtime.flush([self.state.node])
        self.state.needs_grad = needs
        session.structure += 1  # compiled steps were traced for the other case
        self.state.grad = self.state.grad or (
            State(f"{self.state.name}.grad", device=self.device, kind="gradients")
            if needs
            else None
        )
        self.state.node = self.state.leaf = leaf(
            self.state.home, self.state, needs_grad=needs, device=self.device
        )

    @property
    def name(self) -> str:
        return str(self.state.name)

    @property
    def grad(self) -> Tensor | None:
        """What backward() has added up, or None. Setting it replaces it; None frees it."""
        node = runtime.present(self.state.grad)
        return None if node is None else wrap(F.alias(node))

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is None:
            if self.state.grad is not None:
                self.state.grad.clear()
            return
        node = node_of(value, self)
        if node.spec is not self.spec or self.state.grad is None:
            fail(
                "shape/grad.spec",
                f"a gradient of {self.name} must be like it",
                op="grad",
                tensors={"parameter": self.spec, "gradient": node.spec},
                hint=f"{self.name}.grad = ss.zeros_like(p)",
            )
        runtime.assign([(self.state.grad, node)], settle=True)

    def assign(self, value: Any) -> None:
        """Give it a new value of the same shape and type. Computes nothing yet; values built before
        keep theirs."""
        node = (
            value.node if isinstance(value, Tensor) else data_node(value, self.dtype, self.device)
        )
        runtime.assign([(self.state, node)])

    def rebind(self, node: Node) -> Tensor:
        runtime.assign([(self.state, node)])
        return self

    def move(self, device: str) -> None:
        """Take the value to another device; the gradient is forgotten."""
        device = open_device(device).name
        if device != self.device:
            value, state = self.numpy(), self.state
            if state.grad is not None:
                state.grad.clear()
            state.home = open_device(device).upload(value, self.name)
            state.node = state.leaf = leaf(
                state.home, state, needs_grad=state.needs_grad, device=device
            )

    def realize(self) -> Any:
        return open_device(self.device).upload(self.numpy(), self.name)

    def numpy(self) -> np.ndarray:
        """A snapshot: a copy of the value now."""
        return runtime.read(self.state)

    def __copy__(self) -> Variable:
        """Another handle on the same state: assign() to one is seen through both."""
        return restored(type(self), self.state, vars(self) if hasattr(self, "__dict__") else {})

    def __reduce__(self) -> tuple:
        """For copy.deepcopy and pickle: a state of its own, without a gradient."""
        attributes = vars(self) if hasattr(self, "__dict__") else {}  # of a subclass
        return restored, (type(self), self.state, attributes)

    def __deepcopy__(self, memo: dict) -> Variable:
        """As __reduce__; with the gradient, unless this is a Parameter."""
        copied = restored(*copy.deepcopy(self.__reduce__()[1], memo))
        if not isinstance(self, Parameter) and self.grad is not None:
            copied.grad = self.grad.numpy()
        return copied

    def data_ptr(self) -> int:
        """Address of the home, which never changes."""
        home = self.state.home
        if isinstance(home, np.ndarray):
            return home.__array_interface__["data"][0]
        return home.base.address + home.offset

    __hash__ = object.__hash__


class Parameter(Variable):
    """A Variable that training changes: it requires a gradient."""

    __slots__ = ()
    settles = True

    def __init__(self, value: Any, name: str = "parameter", device: str | None = None) -> None:
        super().__init__(value, name, requires_grad=True, device=device)


def restored(kind: type[Variable], state: State, attributes: dict[str, Any]) -> Variable:
    """Another handle on `state`, without the work of __init__."""
    handle = kind.__new__(kind)
    handle.state = state
    vars(handle).update(attributes) if attributes else None
    return handle


def check_differentiable(dtype: np.dtype, needs: bool) -> None:
    if needs and dtype.kind != "f":
        fail(
            "type/tensor.grad",
            f"only floats have gradients, this is {dtype}",
            op="tensor",
            tensors={},
            hint="ss.tensor(data, dtype='float32', requires_grad=True)",
        )


def plain(data: Any, dtype: Any, device: str) -> tuple[Any, Any]:
    """Data and type asked for; a tensor's values keep their type where they stay on its device."""
    if not isinstance(data, Tensor):
        return data, dtype
    return data.numpy(), data.dtype if dtype is None and device == data.device else dtype


def tensor(
    data: Any, dtype: Any = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """A tensor with a copy of `data`: nobody else can change what it holds.

    data           array, nested lists or number; float64 becomes float32, small integers int32,
                   unless dtype says
    dtype          float32, int64, int32, uint8 or bool (float64 on the reference device)
    device         "cpu", "reference"; default: ss.default_device()
    requires_grad  backward() will add to its `grad`; such a tensor is a Variable
    """
    device = device or (data.device if isinstance(data, Tensor) else default_device())
    data, dtype = plain(data, dtype, device)
    if requires_grad:
        return Variable(data, "tensor", True, device, dtype)
    return wrap(data_node(data, dtype, device))
