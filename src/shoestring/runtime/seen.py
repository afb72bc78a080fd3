"""What a compiled step can read of Python: noted before its trace, compared before each replay.

  cells, globals   what the step's function, and the functions that it reaches, name
  attributes       of plain objects and classes of the user's, as far as those functions name them
  containers       lists, tuples, dicts and sets found there or held by modules: item by item
  handles          tensors found there: by node, which `t += 1` replaces
  arrays           NumPy arrays found there: small ones byte by byte; a larger one is an input of
                   the plan where it becomes a tensor, read again at each replay
  modules, optimisers   their attributes raise session.structure when they are set (Watched)

Values are compared by identity; numbers, strings and None also by type and value. Code of the
standard library, of installed packages and of this one is not followed.
"""

from __future__ import annotations

import dis
import functools
import os
import types
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from .session import session

SMALL = 1 << 16  # bytes of an array that are compared at each replay
PLAIN = {type(None), bool, int, float, complex, str, bytes}
MISSING = object()
OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
OPEN = {"types", "argparse"}  # of the standard library: classes that only hold attributes


def same(a: Any, b: Any) -> bool:
    """Whether a step could not tell these apart. b may be a weak reference to a handle."""
    if a is b:
        return True
    if type(b) is weakref.ref:
        return b() is a
    return type(a) is type(b) and type(a) in PLAIN and a == b and repr(a) == repr(b)


class Watched:
    """Base of modules and optimisers: setting an attribute to something else makes compiled steps
    look again. _bookkeeping: attributes that are no setting and may change at any time."""

    _bookkeeping: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: Any) -> None:
        before = attribute(self, name)
        object.__setattr__(self, name, value)
        self._changed(name, before)

    def __delattr__(self, name: str) -> None:
        before = attribute(self, name)
        object.__delattr__(self, name)
        self._changed(name, before)

    def _changed(self, name: str, before: Any) -> None:
        """An attribute was set. A new one concerns only steps that have seen this object."""
        if name in self._bookkeeping or same(attribute(self, name), before):
            return
        if before is not MISSING or "_seen" in vars(self):
            session.structure += 1
            if session.trace is not None:
                session.trace.writes.setdefault((id(self), name), (self, name, before))
                session.trace.raised += 1


def attribute(owner: Any, name: str) -> Any:
    return vars(owner).get(name, getattr(type(owner), name, MISSING))


class Seen:
    """names       [(mapping, name, value)]: globals, attributes;  cells: [(cell, value)]
    containers  [(container, items)];  handles: [(weak reference, node, its
                stale)]
    arrays      [(array, its bytes)];  inputs: {id: array} of those too large to be compared"""

    def __init__(self, *things: Any) -> None:
        self.names: list[tuple[Mapping, Any, Any]] = []
        self.cells: list[tuple[Any, Any]] = []
        self.containers: list[tuple[Any, Any]] = []
        self.handles: list[tuple[Any, Any, Any]] = []
        self.arrays: list[tuple[np.ndarray, bytes]] = []
        self.inputs: dict[int, np.ndarray] = {}
        self.done: dict[Any, Any] = {}  # what was visited; kept, so that no id is used again
        self.spaces: list[Mapping] = []  # attributes of objects, classes, Python modules
        self.attributes: set[str] = set()  # names that the code reads as attributes
        self.roots = {code_of(thing) for thing in things}
        for thing in things:
            self.look(thing)

    def look(self, value: Any) -> None:
        """Note `value` and all that it leads to."""
        if id(value) in self.done:
            return
        self.visit(value)
        count = -1
        while count != (count := len(self.names)):
            exist = {name for space in self.spaces for name in self.attributes & space.keys()}
            for space in self.spaces:  # also where it is missing: there it could be shadowed
                for name in exist:
                    self.name(space, name)

    def name(self, space: Mapping, name: Any) -> None:
        key = "name", id(space), name
        if key not in self.done:
            self.done[key] = space
            value = space.get(name, MISSING)
            self.names.append((space, name, kept(value)))
            self.visit(value)

    def visit(self, value: Any) -> None:
        kind = type(value)
        if kind in PLAIN or value is MISSING or id(value) in self.done:
            return
        if hasattr(kind, "rebind"):  # a tensor; of a Variable the plan reads the newest version
            if not hasattr(kind, "state"):
                self.handles.append((weakref.ref(value), value.node, value.node.stale))
            return
        self.done[id(value)] = value
        if isinstance(value, np.ndarray):
            if value.nbytes > SMALL:
                self.inputs[id(value)] = value
            else:
                self.arrays.append((value, value.tobytes()))
        elif isinstance(value, (list, tuple, set, frozenset)):
            self.containers.append((value, [kept(v) for v in value]))
            for item in value:
                self.visit(item)
        elif isinstance(value, dict):
            self.containers.append((value, {k: kept(v) for k, v in value.items()}))
            for item in value.values():
                self.visit(item)
        elif isinstance(value, types.FunctionType):
            self.function(value)
        elif isinstance(value, types.MethodType):
            self.visit(value.__self__)
            self.visit(value.__func__)
        elif isinstance(value, functools.partial):
            self.visit((value.func, value.args, value.keywords))
        elif isinstance(value, (staticmethod, classmethod, property)):
            self.visit(getattr(value, "__func__", None) or getattr(value, "fget", None))
        elif isinstance(value, types.ModuleType):
            if follows(getattr(value, "__file__", None)):
                self.spaces.append(vars(value))
        elif isinstance(value, type):
            self.classes(value)
        else:
            space = getattr(value, "__dict__", {})
            self.visit(space.get("__wrapped__"))
            self.classes(kind)
            if isinstance(value, Watched):
                space["_seen"] = ...
                for name, item in list(space.items()):
                    if name not in value._bookkeeping:
                        self.visit(item)
            elif is_users(kind) or kind.__module__ in OPEN:
                self.spaces.append(space)

    def classes(self, kind: type) -> None:
        """Attributes of the user's classes that `kind` is made of; of modules, what they run."""
        for cls in kind.__mro__:
            if is_users(cls) and ("class", id(cls)) not in self.done:
                self.done["class", id(cls)] = cls
                self.spaces.append(vars(cls))
                for name in ("__call__", "forward"):
                    if name in vars(cls):
                        self.name(vars(cls), name)

    def function(self, function: types.FunctionType) -> None:
        code = function.__code__
        if not follows(code.co_filename) and code not in self.roots:
            return
        read, attributes = names_of(code)
        self.attributes |= attributes
        for cell in function.__closure__ or ():
            value = contents(cell)
            self.cells.append((cell, kept(value)))
            self.visit(value)
        for name in read:
            self.name(function.__globals__, name)
        self.visit(function.__defaults__)
        self.visit(function.__kwdefaults__)
        self.visit(vars(function).get("__wrapped__"))

    def holds(self) -> bool:
        """Whether everything is as it was."""
        for space, name, value in self.names:
            found = space.get(name, MISSING)
            if found is not value and not same(found, value):
                return False
        for cell, value in self.cells:
            found = contents(cell)
            if found is not value and not same(found, value):
                return False
        for container, items in self.containers:
            if not unchanged(container, items):
                return False
        for array, content in self.arrays:
            if array.tobytes() != content:
                return False
        for reference, node, stale in self.handles:
            handle = reference()
            if handle is None or handle.node is not node or node.stale != stale:
                return False
        return True


def unchanged(container: Any, items: Any) -> bool:
    """Whether a container holds the items that it held."""
    if len(container) != len(items):
        return False
    if isinstance(items, dict):
        if list(container) != list(items):
            return False
        container, items = container.values(), items.values()
    return all([a is b or same(a, b) for a, b in zip(container, items, strict=True)])


def kept(value: Any) -> Any:
    """What stands for `value` in a comparison: a tensor is not kept alive."""
    return weakref.ref(value) if hasattr(type(value), "rebind") else value


def code_of(thing: Any) -> Any:
    return getattr(getattr(thing, "__func__", thing), "__code__", None)


def contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return MISSING


@functools.cache
def names_of(code: types.CodeType) -> tuple[set[str], set[str]]:
    """(globals, attributes) that the code names, also of the functions that it defines."""
    read, attributes = set(), set()
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            read.add(step.argval)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"):
            attributes.add(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = names_of(constant)
            read, attributes = read | inner[0], attributes | inner[1]
    return read, attributes


@functools.cache
def follows(file: str | None) -> bool:
    """Whether code of this file is the user's."""
    if not file or file.startswith("<frozen"):
        return False
    file = file if file.startswith("<") else os.path.abspath(file)
    return not file.startswith((OWN, LIBRARY)) and "site-packages" not in file


@functools.cache
def is_users(kind: type) -> bool:
    import sys

    module = sys.modules.get(kind.__module__)
    if module is None or kind.__module__ == "builtins":
        return False
    file = getattr(module, "__file__", None)
    return kind.__module__ == "__main__" or follows(file)
