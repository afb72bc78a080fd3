"""Arguments and results of compiled steps: what a plan gets from a call, what stands for it in the
trace, and how results come back in the same structure.

  Tensor, array         an input of the plan; in the trace a tensor
  Parameter, Variable   itself: the plan reads its newest version
  float                 in the trace a runtime.Number
  other plain values, modules, functions   themselves, part of the record's key
  tuple, list, dict     what they hold, in containers of their own
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from . import runtime
from .backends.device import device as open_device
from .errors import TraceError, fail
from .ir import F, Node
from .operands import as_data
from .runtime import Call, Number, default_device, session
from .tensor import Tensor, wrap
from .variable import Variable

BY_VALUE = (bool, int, complex, str, bytes, np.bool_, np.integer, np.dtype, type)


def lower(arguments: tuple, named: dict[str, Any]) -> Call:
    """The call, with the values of its tensors, and its key."""
    call = Call(arguments, named)
    places: dict[int, int] = {}
    key = [key_of(x, call, places) for x in arguments]
    if named:
        key += [(name, key_of(named[name], call, places)) for name in sorted(named)]
    call.key = tuple(key)
    return call


def key_of(x: Any, call: Call, places: dict[int, int]) -> Any:
    if isinstance(x, Tensor):
        if isinstance(x, Variable):
            call.held.append(x)
            return "state", id(x.state)
        if id(x) in places:
            return places[id(x)]  # the same tensor again
        places[id(x)] = len(places)
        return taken(call, x.realize(), x.device, x)
    kind = type(x)
    if x is None or x is Ellipsis or isinstance(x, BY_VALUE):
        return kind, x
    if isinstance(x, (float, np.floating)):
        call.numbers.append(x)
        return kind
    if isinstance(x, np.ndarray):
        home = home_of(call.arguments, call.named) or default_device()
        return taken(call, open_device(home).upload(as_data(x, None, home)), home, None)
    if isinstance(x, (tuple, list)):
        return kind, *[key_of(item, call, places) for item in x]
    if isinstance(x, dict):
        return kind, *[(type(k), k, key_of(x[k], call, places)) for k in x]
    if isinstance(x, slice):
        return kind, *[key_of(i, call, places) for i in (x.start, x.stop, x.step)]
    if isinstance(x, runtime.Watched) or callable(x):
        call.held.append(x)
        return kind, id(x)
    fail(
        "type/compile.argument",
        "a compiled step takes tensors, arrays, numbers, strings, modules, functions, and "
        f"containers of them, got {kind.__name__}",
        op="compile",
        tensors={},
        hint="use it inside the step as a closure instead of passing it",
    )


def taken(call: Call, value: Any, device: str, handle: Tensor | None) -> tuple:
    call.values.append(value)
    call.devices.append(device)
    call.handles.append(handle)
    strides = None if value.flags.c_contiguous else value.strides
    needs = handle is not None and handle.node.needs_grad
    return value.shape, value.dtype, strides, device, handle is None, needs


def home_of(*things: Any) -> str:
    """The device of the first tensor among the arguments."""
    for x in things:
        if isinstance(x, Tensor):
            return x.device
        if isinstance(x, (tuple, list, dict)):
            found = home_of(*(x.values() if isinstance(x, dict) else x))
            if found:
                return found
    return ""


class StandIns:
    """What the function gets in a trace: the call's arguments, with the given nodes instead of
    tensors and arrays. finish() says what the function has assigned to them."""

    def __init__(self, call: Call, nodes: list[Node]) -> None:
        self.call, self.nodes = call, nodes
        self.tensors, self.known, self.floats = [], {}, 0
        self.containers: list[tuple[Any, Any]] = []
        self.arguments = [self.of(x) for x in call.arguments]
        named = {name: self.of(call.named[name]) for name in sorted(call.named)}
        self.named = {name: named[name] for name in call.named}

    def of(self, x: Any) -> Any:
        if isinstance(x, Variable):
            return x
        if isinstance(x, (Tensor, np.ndarray)):
            if id(x) not in self.known or not isinstance(x, Tensor):
                self.known[id(x)] = tensor = wrap(self.nodes[len(self.tensors)])
                self.tensors.append(tensor)
            return self.known[id(x)]
        if isinstance(x, (float, np.floating)):
            self.floats += 1
            return Number(x, self.floats - 1, session.trace.fixed)
        if isinstance(x, tuple):
            items = [self.of(item) for item in x]
            return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
        if isinstance(x, (list, dict)):
            made, keys = copy.copy(x), list(x) if isinstance(x, dict) else range(len(x))
            for k in keys:
                made[k] = self.of(x[k])
            self.containers.append((made, copy.copy(made)))
            return made
        return x

    def finish(self) -> dict[int, Node]:
        """{place: node} of the tensors that the function has assigned to."""
        for now, before in self.containers:
            if not runtime.unchanged(now, before):
                refuse_change(f"a {type(now).__name__} that it got", "return what is new instead")
        assigned = {}
        for k, (tensor, node) in enumerate(zip(self.tensors, self.nodes, strict=True)):
            if tensor.node is not node:
                if self.call.handles[k] is None:
                    refuse_change("an array that it got", "pass ss.tensor(array)")
                assigned[k] = known_as(tensor.node)
        return assigned


def refuse_change(what: str, hint: str) -> None:
    fail(
        "compile/trace.argument",
        f"the step changes {what}, which its caller would not see",
        op="compile",
        tensors={},
        error=TraceError,
        hint=hint,
    )


def known_as(node: Node) -> Node:
    """A node that the plan computes, also of a value that is known. It needs a gradient if that
    does: the caller could differentiate it."""
    made = node if node.value is None else F.alias(node)
    made.needs_grad = node.needs_grad
    return made


def collect(result: Any) -> tuple[Callable, list[Node]]:
    """The nodes of a step's result, and how to put the replayed values into the same structure."""
    if result is None:
        return (lambda leaves: None), []
    if isinstance(result, Tensor):
        if isinstance(result, Variable):
            node, version = F.alias(result.state.node), result.state.node
            node.needs_grad = version.needs_grad
        else:
            node = known_as(result.node)
        return (lambda leaves: wrap(leaves[0])), [node]
    if isinstance(result, dict):
        keys = list(result)
        build, nodes = collect(list(result.values()))
        return (lambda leaves: dict(zip(keys, build(leaves), strict=True))), nodes
    if isinstance(result, (tuple, list)):
        parts = [collect(r) for r in result]
        counts = [len(nodes) for _, nodes in parts]
        starts = [int(s) for s in np.cumsum([0, *counts])]
        kind = type(result)

        def rebuild(leaves: list) -> Any:
            items = [
                build(leaves[s : s + n])
                for (build, _), s, n in zip(parts, starts, counts, strict=False)
            ]
            return kind(*items) if hasattr(kind, "_fields") else kind(items)

        return rebuild, [n for _, nodes in parts for n in nodes]
    fail(
        "type/compile.result",
        f"a compiled step returns tensors, got {type(result).__name__}",
        op="compile",
        tensors={},
        hint="return tensors, alone or in a tuple, list or dict",
    )


__all__ = ["StandIns", "collect", "lower"]
