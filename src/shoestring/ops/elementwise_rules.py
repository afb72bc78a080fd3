"""What all elementwise ops share; the ops themselves are the table in elementwise.py.

`row` makes an op of one line: its shape rule broadcasts as NumPy does, its type rule is one of

    NUMBER  the widest type of the inputs
    REAL    the same, with kernels for float32 only
    FLOAT   the same, but integers become float32
    TEST    compares in the widest type, gives bool
    LOGIC   reads true or false, gives bool
    BITS    the widest type, which is an integer or bool

and its launch is a program of one instruction, after the casts that its inputs need. Conditions are
read as true or false whatever their type.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ..backends import Launch
from ..ir import MIXED, Case, Cost, Op, bool_, promote, promote_float
from .card import card_elementwise
from .elementwise_program import TYPES, Instruction, encode, register

NUMBER, REAL, FLOAT, TEST, LOGIC, BITS = "NUMBER", "REAL", "FLOAT", "TEST", "LOGIC", "BITS"
NATIVE = {                                    # types for which the build makes a loop of each line
    "NUMBER": ("f32", "i64", "i32"),
    "REAL": ("f32",),
    "FLOAT": ("f32",),
    "TEST": ("f32", "i64", "i32", "u8"),
    "LOGIC": ("u8",),
    "BITS": ("i64", "i32", "u8"),
}
WEIGHTS = {                                   # work of a word in a C expression, in additions
    "exp": 3, "log": 4, "log1p": 5, "tanh": 5, "erf": 6, "sin": 6, "cos": 6, "power": 25, "sqrt": 2,
    "/": 2,
}
SHAPES = {                                    # cases by the number of inputs
    1: ([(3, 5)], [()], [(2, 3, 4, 2)], [(0, 3)]),
    2: ([(3, 5), (3, 5)], [(4, 3, 2), (3, 1)], [(2, 1, 3), (1, 4, 1)], [(), (3,)],
        [(2, 3, 2, 2), (3, 1, 1)]),
    3: ([(3, 5), (3, 5), (3, 5)], [(4, 3, 2), (3, 1), ()], [(2, 1, 3), (4, 1), (3,)]),
    4: ([(2, 3, 4), (3, 1), (3, 1), (3, 1)], [(3, 5), (3, 5), (3, 5), (3, 5)]),
}


class Elementwise(Op):
    """y[i] = f(a[i], b[i], ...). rule: how types combine; conditions: which inputs are conditions;
    weight: work per element in additions; meaning: the function in NumPy."""

    kind, cheap_to_recompute, strided, inplace = "expr", True, True, True
    rule: ClassVar[str] = NUMBER
    conditions: ClassVar[tuple[bool, ...]] = ()
    weight: ClassVar[float] = 1.0
    meaning: ClassVar[Callable[..., Any]]

    def broadcast(self, *shapes):
        try:
            return np.broadcast_shapes(*shapes)
        except ValueError:
            one, other = next((a, b) for a in shapes for b in shapes if not fits(a, b))
            axes = ", ".join(str(n) for n in one)
            self.fail("shape/elementwise.broadcast",
                      f"shapes {list(one)} and {list(other)} do not broadcast",
                      expected="sizes that are equal, or 1, counted from the last axis",
                      hint=f"x.reshape({axes}, 1), if its axes are the first ones of the other")

    def common(self, *dtypes) -> np.dtype:
        """The type in which the inputs meet, conditions aside."""
        pairs = zip(dtypes, self.conditions, strict=True)
        values = [d for d, condition in pairs if not condition] or [bool_]
        return promote_float(*values) if self.rule == FLOAT else promote(*values)

    def dtype(self, *dtypes):
        found = self.common(*dtypes)
        if found == bool_ and self.name in ("sub", "neg", "sign"):
            self.fail("type/elementwise.bool", "is not defined for bool",
                      hint='x.astype("float32")')
        if found.kind == "f" and self.rule == BITS:
            self.fail("type/elementwise.bits", f"floats have no bits to combine, this is {found}",
                      hint='x.astype("int64"), or x > 0 for true and false')
        return bool_ if self.rule in (TEST, LOGIC) else found

    def batch_axis(self, axes, *shapes):
        """Counted from the last axis, the batch is at the same place in every input that has it,
        and in the output."""
        places = {len(s) - a if isinstance(a, int) else a
                  for a, s in zip(axes, shapes, strict=True)} - {None}
        if not places:
            return None
        place = places.pop()
        if places or not isinstance(place, int):
            return MIXED
        free = [s for a, s in zip(axes, shapes, strict=True) if a is None]
        if any(len(s) >= place and s[len(s) - place] != 1 for s in free):
            return MIXED                      # a constant with one value per sample
        return max(len(s) for s in shapes) - place

    def reference(self, *xs):
        dtypes = [np.asarray(x).dtype for x in xs]
        common = self.common(*dtypes)
        wanted = [bool_ if condition else common for condition in self.conditions]
        with np.errstate(all="ignore"):
            y = self.meaning(*[np.asarray(x, want) for x, want in zip(xs, wanted, strict=True)])
        return np.asarray(y).astype(self.dtype(*dtypes), copy=False)

    def program(self, dtypes):
        """(instructions, constants) that compute it from inputs of these types; None: no kernel.

        Values are numbered: inputs, constants, then one per instruction; the last is the result."""
        common = self.common(*dtypes).name
        known = common in TYPES and all(d.name in TYPES for d in dtypes)
        if not known or TYPES[common] not in NATIVE[self.rule]:
            return None
        wanted = ["bool" if condition else common for condition in self.conditions]
        instructions, values = casts(dtypes, wanted)
        instructions.append(Instruction(f"{self.name}_{TYPES[common]}", tuple(values)))
        return instructions, ()

    def launch_cpu(self, device, inputs, outputs):
        found = self.program([x.dtype for x in inputs])
        if found is None:
            return None
        instructions, constants = found
        last = len(inputs) + len(constants) + len(instructions) - 1
        kernel = encode(instructions, inputs, [(last, outputs[0])], constants, self.weight)
        return None if kernel is None else Launch((kernel,))

    def launch_card(self, device, inputs, outputs):
        found = self.program([x.dtype for x in inputs])
        return found and card_elementwise(found[0], inputs, outputs[0], found[1], device)

    def cost(self, *shapes):
        size = math.prod(np.broadcast_shapes(*shapes))
        return Cost(self.weight * size, 4.0 * (size + sum(math.prod(s) for s in shapes)))


def fits(a, b):
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))


def casts(dtypes, wanted, constants=0):
    """(instructions that bring each input to its wanted type, the numbers of the values to use)."""
    instructions, values = [], []
    for k, (dtype, want) in enumerate(zip(dtypes, wanted, strict=True)):
        have = dtype.name
        if have != want and (have, want) != ("bool", "uint8"):
            to = want if want == "bool" else TYPES[want]
            instructions.append(Instruction(f"cast_{TYPES[have]}_{to}", (k,)))
            k = len(dtypes) + constants + len(instructions) - 1
        values.append(k)
    return instructions, values


def row(name: str, parameters: str, formula: str, meaning: Callable, c: str, derivation: str = "",
        *gradients: Callable | None, types: str = NUMBER, domains: Any = "any") -> None:
    """Make an op.

    parameters  names of the inputs, as in `c`; one that ends with ? is a condition
    meaning     the NumPy function;  c: the C expression, compiled for each native type
    gradients   one per input, (F, dy, y, *inputs) -> node; None: no gradient flows there
    domains     which values the cases take
    """
    names = [p.rstrip("?") for p in parameters.split()]
    conditions = tuple(p.endswith("?") for p in parameters.split())
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD

    def shape(self, *shapes):
        return self.broadcast(*shapes)

    def gradient(self, F, dy, y, *xs):
        found = []
        for rule, x in zip(gradients, xs, strict=True):
            dx = rule(F, dy, y, *xs) if rule and x.needs_grad else None
            found.append(dx if dx is None or dx.dtype == x.dtype else F.cast(dx, to=x.dtype.name))
        return tuple(found)

    shape.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, kind) for n in ("self", *names)])
    gradient.__doc__ = derivation
    dtypes = ["bool" if condition else "float32" for condition in conditions]
    if types == BITS:
        domains, dtypes = "labels 99", ["int64"] * len(names)
    facts = dict(
        __doc__=formula, __module__=__name__.replace("_rules", ""), name=name, rule=types,
        conditions=conditions if types != LOGIC else (True,) * len(names), shape=shape,
        cases=tuple(Case(s, domains=domains, dtypes=dtypes) for s in SHAPES[len(names)]),
        meaning=staticmethod(meaning), gradient=gradient if gradients else None,
        weight=1.0 + sum(w for word, w in WEIGHTS.items() if word in c))
    type(name.title().replace("_", ""), (Elementwise,), facts)
    for kind_of_loop in NATIVE[types]:
        result = "u8" if types in (TEST, LOGIC) else kind_of_loop
        register(f"{name}_{kind_of_loop}", c, result, names)
