"""Module: a part of a network, made of parameters, buffers and other modules.

    class Net(ss.Module):
        def __init__(self):                      # super().__init__() may be left out
            self.fc = ss.Linear(784, 10)

        def forward(self, x):
            return self.fc(ss.flatten(x))

What is assigned to an attribute (alone, or in a list, tuple or dict) belongs to the module under
that attribute's name. Every module has a Location, a name and the parent's Location, so that errors
can say `layer block.0.conv` without the root ever being called, and without a node keeping a module
alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import runtime
from ..errors import context, fail, local
from ..operands import data_node
from ..tensor import Tensor
from ..variable import Parameter, Variable


class Location:
    """A place in a network; its text is the path from the root, such as `block.0.conv`."""

    __slots__ = ("name", "parent")

    def __init__(self, name: str = "", parent: Location | None = None) -> None:
        self.name, self.parent = name, parent

    def __str__(self) -> str:
        before = str(self.parent) if self.parent is not None else ""
        return f"{before}.{self.name}" if before and self.name else before or self.name

    def __bool__(self) -> bool:
        """Whether there is anything to say: the root has no path."""
        return bool(str(self))

    def inside(self, other: Location) -> bool:
        """Whether `other` is this place or one around it."""
        place: Location | None = self
        while place is not None and place is not other:
            place = place.parent
        return place is other


class Module(runtime.Watched):
    """Base of all layers and networks. Subclasses define `forward`; calling the module runs it."""

    training = True
    _bookkeeping = ("_location", "_seen")

    def forward(self, *inputs: Any) -> Any:
        """What the module computes."""
        fail(
            "value/module.forward",
            f"{type(self).__name__} defines no forward()",
            tensors={},
            hint="def forward(self, x): return ...",
        )

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        try:
            now = local.context
        except AttributeError:  # the thread is new
            now = context()
        before, now.layer = now.layer, self.location
        if runtime.session.trace is not None:
            runtime.session.trace.seen.look(self)
        try:
            for x in inputs:
                if isinstance(x, np.ndarray):
                    fail(
                        "type/module.array",
                        f"{type(self).__name__} takes tensors, got a NumPy array",
                        tensors={"x": f"{list(x.shape)} {x.dtype}"},
                        hint="ss.tensor(x)",
                    )
            return self.forward(*inputs, **named)
        finally:
            now.layer = before

    @property
    def location(self) -> Location:
        """Where this module stands in the network that it belongs to."""
        found = self.__dict__.get("_location")
        if found is None:
            found = self.__dict__["_location"] = Location()
        return found

    def __copy__(self) -> Module:
        """A module with attributes of its own and a place of its own, that shares parts and
        parameters."""
        copied = type(self).__new__(type(self))
        vars(copied).update(vars(self))
        vars(copied).pop("_location", None)
        return copied

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, (Module, Variable, list, tuple, dict)) and name != "_location":
            adopt(value, name, self.location)

    # ---- what it is made of ----------------------------------------------------------------------
    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """(path, module) of this module (path "") and all in it, each once."""
        for path, value in walk(self, prefix):
            if isinstance(value, Module):
                yield path, value

    def modules(self) -> Iterator[Module]:
        return (m for _, m in self.named_modules())

    def children(self) -> list[Module]:
        """The modules directly inside."""
        return [
            m for path, m in self.named_modules() if path and m.location.parent is self.location
        ]

    def named_variables(self) -> Iterator[tuple[str, Variable]]:
        """(path, variable) of all parameters and buffers, each once."""
        for path, value in walk(self):
            if isinstance(value, Variable):
                yield path, value

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """(path, parameter), each once; a shared one under the first of its names."""
        return ((path, v) for path, v in self.named_variables() if isinstance(v, Parameter))

    def parameters(self) -> list[Parameter]:
        return [p for _, p in self.named_parameters()]

    def named_buffers(self) -> Iterator[tuple[str, Variable]]:
        """(path, variable) of what lasts but is not trained, such as running statistics."""
        return ((path, v) for path, v in self.named_variables() if not isinstance(v, Parameter))

    def buffers(self) -> list[Variable]:
        return [b for _, b in self.named_buffers()]

    # ---- modes -----------------------------------------------------------------------------------
    def train(self, mode: bool = True) -> Module:
        """Training mode (or, with False, evaluation mode) for this module and all in it."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """Evaluation mode: running statistics instead of the batch's, no dropout."""
        return self.train(False)

    def zero_grad(self) -> None:
        """Forget all gradients and free their memory."""
        for p in self.parameters():
            p.grad = None

    def requires_grad_(self, needs: bool = True) -> Module:
        """Whether training changes the parameters in here."""
        for p in self.parameters():
            p.requires_grad = needs
        return self

    def apply(self, function: Callable[[Module], Any]) -> Module:
        """Call `function` on every module in here, this one last."""
        for module in reversed(list(self.modules())):
            function(module)
        return self

    def to(self, device: str) -> Module:
        """Move all parameters and buffers to `device`; gradients are forgotten."""
        for _, variable in self.named_variables():
            variable.move(device)
        runtime.session.structure += 1
        return self

    # ---- saving ----------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, np.ndarray]:
        """{path: snapshot} of all parameters and buffers: copies, which training does not
        change."""
        return {path: variable.numpy() for path, variable in self.named_variables()}

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Take over values saved by state_dict(). If something does not fit, nothing changes and
        the error lists it all.

        strict: names must match exactly; otherwise only shapes of common names must.
        """
        own = dict(self.named_variables())
        state = {name: np.asarray(value) for name, value in state.items()}
        missing, extra = [n for n in own if n not in state], [n for n in state if n not in own]
        wrong = [
            f"{n}: expected {list(v.shape)}, got {list(state[n].shape)}"
            if state[n].dtype.kind in "fiub"
            else f"{n}: expected numbers, got {state[n].dtype}"
            for n, v in own.items()
            if n in state and (state[n].shape != v.shape or state[n].dtype.kind not in "fiub")
        ]
        problems = (
            [f"missing {n}" for n in missing] + [f"unexpected {n}" for n in extra] if strict else []
        ) + wrong
        if problems:
            fail(
                "value/module.load",
                f"{len(problems)} entries do not fit: {'; '.join(problems)}",
                op="load_state_dict",
                tensors={},
                hint="load into the network that was saved, or strict=False for a part of it",
            )
        runtime.assign(
            [
                (v.state, data_node(state[n].astype(v.dtype), v.dtype, v.device))
                for n, v in own.items()
                if n in state
            ]
        )

    def describe(self) -> str:
        """The arguments that `repr` shows in brackets."""
        return ""

    def __repr__(self) -> str:
        parts = self.children()
        count = sum(p.size for p in self.parameters())
        head = f"{type(self).__name__}({self.describe()})"
        if not parts:
            return head
        lines = [f"{type(self).__name__}({self.describe()}  # {count:,} parameters"]
        for part in parts:
            lines += [f"  {part.location.name}: " + repr(part).replace("\n", "\n  ")]
        return "\n".join([*lines, ")"])


def adopt(value: Any, name: str, parent: Location) -> None:
    """Tell what is assigned to an attribute where it now stands."""
    if isinstance(value, Module):
        if not parent.inside(value.location):  # a part that points back at its owner stays a part
            value.location.name, value.location.parent = name, parent
    elif isinstance(value, Variable):
        value.state.name = Location(name, parent)
    elif isinstance(value, (list, tuple)):
        for k, item in enumerate(value):
            adopt(item, f"{name}.{k}", parent)
    elif isinstance(value, dict):
        for k, item in value.items():
            adopt(item, f"{name}.{k}", parent)


def walk(value: Any, path: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """(path, module or variable) of everything in `value`, each once, in order of assignment."""
    seen = set() if seen is None else seen
    identity = id(value.state) if isinstance(value, Variable) else id(value)
    if isinstance(value, (Module, Variable)):
        if identity in seen:
            return
        seen.add(identity)
        yield path, value
    if isinstance(value, Module):
        location, items = value.location, list(vars(value).items())
        for name, item in items:
            adopt(item, name, location)
    elif isinstance(value, (list, tuple)):
        items = [(str(k), item) for k, item in enumerate(value)]
    elif isinstance(value, dict):
        items = [(str(k), item) for k, item in value.items()]
    else:
        return
    for name, item in items:
        if isinstance(item, (Module, Variable, list, tuple, dict)):
            yield from walk(item, f"{path}.{name}" if path else name, seen)


def parameters(thing: Any) -> list[Parameter]:
    """All Parameters in a Module, a list, a dict, or any plain object's attributes, each once."""
    if not isinstance(thing, (Module, Variable, list, tuple, dict)):
        if not hasattr(thing, "__dict__") and not hasattr(thing, "__iter__"):
            fail(
                "type/parameters.thing",
                f"there are no parameters in a {type(thing).__name__}",
                op="parameters",
                tensors={},
                hint="ss.parameters(model), or of a list, a dict or an object with attributes",
            )
        thing = vars(thing) if hasattr(thing, "__dict__") else list(thing)
    return [v for _, v in walk(thing) if isinstance(v, Parameter)]


class Sequential(Module):
    """Modules one after the other: Sequential(a, b)(x) = b(a(x)). Any function of a tensor may
    stand among them."""

    def __init__(self, *modules: Callable) -> None:
        for k, module in enumerate(modules):
            setattr(self, str(k), module)
        self.order = len(modules)

    def forward(self, x: Tensor) -> Tensor:
        for module in self:
            x = module(x)
        return x

    def __len__(self) -> int:
        return self.order

    def __iter__(self) -> Iterator[Callable]:
        return (getattr(self, str(k)) for k in range(self.order))

    def __getitem__(self, k: int) -> Callable:
        return list(self)[k]


class Flatten(Module):
    """[N, C, H, W] -> [N, C*H*W]: all axes from `start` on become one."""

    def __init__(self, start: int = 1) -> None:
        self.start = start

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(self.start)


class Identity(Module):
    """y = x"""

    def forward(self, x: Tensor) -> Tensor:
        return x
