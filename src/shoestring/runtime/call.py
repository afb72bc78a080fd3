"""What a compiled step is called with."""

from __future__ import annotations

from typing import Any


class Call:
    """arguments, named  as they came
    key      what they are but for values that a replay reads anew
    values   arrays of the tensors and arrays among them;  devices: where each is
    handles  the tensor of each value, None for an array
    numbers  Python floats among them
    held     what the key names by id: parameters, modules, functions"""

    def __init__(self, arguments: tuple, named: dict[str, Any]) -> None:
        self.arguments, self.named = arguments, named
        self.key: tuple = ()
        self.values: list[Any] = []
        self.devices: list[str] = []
        self.handles: list[Any] = []
        self.numbers: list[Any] = []
        self.held: list[Any] = []

    def first(self, n: int) -> Call:
        """The same with the first n samples only."""
        part = Call(self.arguments, self.named)
        vars(part).update(vars(self))
        part.values = [v[:n] if v.shape else v for v in self.values]
        return part

    def clear(self) -> None:
        """Let go of all arrays."""
        self.values.clear()
        self.handles.clear()
        self.arguments, self.named = (), {}
