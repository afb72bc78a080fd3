"""Specs, nodes, and `F`, which builds nodes. Names no op.

A node is immutable as far as meaning goes: op(inputs). What changes is only whether its value is
known. Everything that can differ between two runs of the same program (a learning rate, a random
key, an offset into a data set) is the
*value of a leaf*, never an attribute, so it is never part of a plan's key.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .. import errors
from ..errors import local
from .op import OPS, Op, Shape

serial = itertools.count().__next__
age = operator.attrgetter("serial")


SPENT, CLOSED = "its own backward()", "no graph"


class Spec:
    """Shape, type and device of one value. Interned: equal specs are the same object and hash by
    identity."""

    __slots__ = ("device", "dtype", "nbytes", "shape", "size")
    shape: Shape
    dtype: np.dtype
    device: str
    size: int
    nbytes: int
    _all: dict[tuple, Spec] = {}

    def __new__(cls, shape: Shape, dtype: np.dtype, device: str = "cpu") -> Spec:
        self = cls._all.get((shape, dtype, device))
        if self is None:
            self = super().__new__(cls)
            self.shape, self.dtype, self.device = shape, dtype, device
            self.size = math.prod(shape)
            self.nbytes = self.size * dtype.itemsize
            self = cls._all.setdefault((shape, dtype, device), self)
        return self

    def __reduce__(self) -> tuple:
        return Spec, (self.shape, self.dtype, self.device)  # the interned one, also when unpickled

    def __repr__(self) -> str:
        return errors.describe(self)


class Node:
    """op(inputs). A leaf has op None and a value. With several outputs `spec` is a tuple, and each
    output that somebody uses is a node of its own (see Output).

    inputs      nodes, all older than this one
    needs_grad  a gradient can flow through here
    value       the realized value, or None
    state       the state whose version this is (a leaf), or which it will become (a store)
    source      where a replay takes a leaf's value from; None: the value itself
    handle      weak reference to the tensor that the user holds, if any
    spent       a backward() went through: its value is not worth keeping
    stale       why no gradient flows through here: the name of an overwritten state that this value
                was computed from, or SPENT or CLOSED, of a result of a compiled step
    refused     raises the error for which it is not computed
    together    (of a store) the token of the assignment whose stores happen all or none
    layer       Location of the layer that built it;  line: the user's line, recorded for checks
                only
    """

    __slots__ = (
        "__weakref__",
        "handle",
        "inputs",
        "layer",
        "line",
        "needs_grad",
        "op",
        "refused",
        "serial",
        "source",
        "spec",
        "spent",
        "stale",
        "state",
        "together",
        "value",
    )

    def __init__(
        self,
        op: Op | None,
        inputs: tuple[Node, ...],
        spec: Any,
        needs_grad: bool = False,
        value: Any = None,
        state: Any = None,
        source: Any = None,
        layer: Any = None,
    ) -> None:
        self.op, self.inputs, self.spec, self.needs_grad = op, inputs, spec, needs_grad
        self.value, self.state, self.source = value, state, source
        self.handle = self.stale = self.refused = self.line = None
        self.layer = layer
        self.spent = False
        self.serial = serial()

    shape = property(lambda self: self.spec.shape)
    dtype = property(lambda self: self.spec.dtype)
    device = property(lambda self: self.spec.device)

    @property
    def strides(self) -> tuple[int, ...] | None:
        """In elements, of a known value that is not contiguous; None of one that is. The value
        itself says so, whatever has made it."""
        value = self.value
        if value.flags.c_contiguous:
            return None
        return tuple([s // value.dtype.itemsize for s in value.strides])

    def __repr__(self) -> str:
        return f"<{self.op.name if self.op else 'leaf'} {self.spec}>"


def leaf(
    value: Any, state: Any = None, source: Any = None, needs_grad: bool = False, device: str = ""
) -> Node:
    """A node whose value is known. `value` has shape, dtype and strides (in bytes), as a NumPy
    array does; its `device` attribute, or the argument, says where it is."""
    spec = Spec(tuple(value.shape), value.dtype, device or getattr(value, "device", None) or "cpu")
    try:
        now = local.context
    except AttributeError:  # the thread is new
        now = errors.context()
    return Node(None, (), spec, needs_grad, value, state, source, now.layer)


class Output(Op):
    """Output `index` of a node with several: a view, part of the graph's structure rather than of
    the registry."""

    kind, cheap_to_recompute, cases, strided = "view", True, (), True
    label = "output"

    def __init__(self, index: int) -> None:
        self.index = index

    def reference(self, values: Any) -> Any:
        return values[self.index]

    def __repr__(self) -> str:
        return f"output {self.index}"


Output.name = "output"
OUTPUTS = [Output(index) for index in range(16)]


def output(node: Node, index: int) -> Node:
    """The node of one output of a node with several. `node.value` holds all their values, once they
    are kept."""
    needs_grad = node.needs_grad and node.spec[index].dtype.kind == "f"
    value = None if node.value is None else node.value[index]
    return Node(
        OUTPUTS[index], (node,), node.spec[index], needs_grad, value, None, None, node.layer
    )


class _Builder:
    """`F.conv2d(x, w, stride=(2, 2))` builds a node. Ops are interned by their attributes, and the
    result of `shape` is remembered per (op, input specs). An op with several outputs gives a tuple
    of nodes."""

    @property
    def grad_enabled(self) -> bool:
        """Whether what the running thread builds is recorded for backward()."""
        return errors.context().grad_enabled

    def __getattr__(self, name: str) -> Any:
        if name not in OPS:
            close = errors.nearest(name, OPS)
            errors.fail(
                "value/op.unknown",
                f"no op is named {name!r}",
                tensors={},
                error=errors.NameUnknownError,
                hint=f"F.{close}" if close else f"one of {', '.join(sorted(OPS))}",
            )
        builder = self._builder(OPS[name])
        return vars(self).setdefault(name, builder)  # another thread may have been first

    def _builder(self, cls: type[Op]) -> Any:
        interned: dict[tuple, Op] = {}
        specs: dict[tuple, Any] = {}
        differentiable, several = cls.gradient is not None, cls.outputs > 1

        def build(*inputs: Node, **attributes: Any) -> Any:
            key: tuple = tuple(sorted(attributes.items())) if attributes else ()
            op = interned.get(key)
            if op is None:
                op = interned.setdefault(key, cls(**attributes))
            key = (op, *[i.spec for i in inputs])
            spec = specs.get(key)
            if spec is None:
                spec = specs[key] = infer(op, [i.spec for i in inputs])
            try:
                now = local.context
            except AttributeError:  # the thread is new
                now = errors.context()
            needs = differentiable and now.grad_enabled and any([i.needs_grad for i in inputs])
            if several:
                node = Node(op, inputs, spec, needs, None, None, None, now.layer)
                return tuple([output(node, index) for index in range(len(spec))])
            needs = needs and spec.dtype.kind == "f"
            return Node(op, inputs, spec, needs, None, None, None, now.layer)

        build.__name__ = cls.name
        return build


F = _Builder()


def serving(role: str) -> Any:
    """The builder of the op that serves passes for `role` (Op.serves)."""
    return getattr(F, next(cls.name for cls in OPS.values() if cls.serves == role))


def rebuilt(node: Node, inputs: Sequence[Node], attributes: dict[str, Any]) -> Any:
    """node's op with these attributes on other inputs, in node's place: its line, and the state
    that it becomes. Several outputs: a tuple."""
    made = getattr(F, node.op.name)(*inputs, **attributes)
    if node.op.outputs == 1:
        made.line = node.line
        if node.op.kind == "effect":
            made.state, made.needs_grad = node.state, node.needs_grad
    return made


def infer(op: Op, inputs: list[Spec]) -> Any:
    """Specs of the outputs: asks the op's shape and type rules, which complain with these inputs as
    evidence."""
    names = op.parameters if op.arity is not None else [f"input {k}" for k in range(len(inputs))]
    now = errors.context()
    before, now.inputs = now.inputs, tuple(zip(names, inputs, strict=False))
    try:
        if op.arity is not None and op.arity != len(inputs):
            op.fail(
                "shape/op.inputs",
                f"takes {op.arity} inputs ({', '.join(op.parameters)}), got {len(inputs)}",
                hint=f"F.{op.name}({', '.join(op.parameters)})",
            )
        devices = {spec.device for spec in inputs}
        if len(devices) > 1:
            first = inputs[0].device
            op.fail(
                "type/op.devices",
                f"inputs are on different devices: {', '.join(sorted(devices))}",
                hint=f"move them to one device first, for example x.to({first!r})",
                error=errors.DeviceError,
            )
        device = inputs[0].device if inputs else "cpu"
        shapes, dtypes = op.shape(*[s.shape for s in inputs]), op.dtype(*[s.dtype for s in inputs])
        if op.outputs == 1:
            return Spec(tuple(int(n) for n in shapes), np.dtype(dtypes), device)
        return tuple(
            Spec(tuple(int(n) for n in s), np.dtype(d), device)
            for s, d in zip(shapes, dtypes, strict=True)
        )
    finally:
        now.inputs = before


def ancestry(roots: Iterable[Node], differentiable: bool = False) -> list[Node]:
    """All ancestors of the roots, and the roots, by age. A node is younger than its inputs: a
    topological order. differentiable: only where a gradient flows; a version of a state is a leaf
    then, computed or not."""
    seen = set(roots)
    stack = list(seen)
    while stack:
        node = stack.pop()
        if differentiable and node.state is not None:
            continue
        for i in node.inputs:
            if i not in seen and (i.needs_grad or not differentiable):
                seen.add(i)
                stack.append(i)
    return sorted(seen, key=age)
