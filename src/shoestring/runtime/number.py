"""A Python float as an argument of a compiled step."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


class Number:
    """Stands for a Python float that was passed to a compiled step. Where it meets a tensor it is
    an input of the plan, of the tensor's type; any other use of it makes its value a part of the
    trace: `fixed` notes {place: value}."""

    __slots__ = ("fixed", "place", "value")

    def __init__(self, value: Any, place: int, fixed: dict[int, Any]) -> None:
        self.value, self.place, self.fixed = value, place, fixed

    @property
    def __class__(self) -> Any:  # isinstance(number, float)
        return type(self.value)

    def look(self) -> Any:
        self.fixed[self.place] = self.value
        return self.value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # NumPy's protocols are those defined here
            raise AttributeError(name)
        return getattr(self.look(), name)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.look(), dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        inputs = tuple(i.look() if type(i) is Number else i for i in inputs)
        return getattr(ufunc, method)(*inputs, **options)


def unary(name: str) -> Any:
    return lambda self, *more: getattr(self.look(), name)(*more)


def binary(function: Any, swapped: bool = False) -> Any:
    def method(self: Number, other: Any, *more: Any) -> Any:
        if type(other) is Number:
            other = other.look()
        if not isinstance(other, (int, float, complex, np.generic, np.ndarray)):
            return NotImplemented  # a tensor takes the number as it is
        return function(other, self.look()) if swapped else function(self.look(), other, *more)

    return method


UNARY = "float int bool neg pos abs round trunc floor ceil hash str repr format complex"
for _name in UNARY.split():
    setattr(Number, f"__{_name}__", unary(f"__{_name}__"))
for _name in "add sub mul truediv floordiv mod".split():
    _function = getattr(operator, _name)
    setattr(Number, f"__{_name}__", binary(_function))
    setattr(Number, f"__r{_name}__", binary(_function, swapped=True))
for _name, _function in (("pow", pow), ("divmod", divmod)):
    setattr(Number, f"__{_name}__", binary(_function))
    setattr(Number, f"__r{_name}__", binary(_function, swapped=True))
for _name in "eq ne lt le gt ge".split():
    setattr(Number, f"__{_name}__", binary(getattr(operator, _name)))
