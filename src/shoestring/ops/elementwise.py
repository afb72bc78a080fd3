"""Elementwise ops: y[i] = f(a[i], b[i], ...), broadcasting as in NumPy. Each is a line of the table below.

    row(name, parameters, formula, NumPy meaning, C expression, derivation, gradient, types)

The line is all there is: shape, types, cases, cost and launch follow from it, the build generates the CPU kernel's loop
from its C expression (elementwise.cpp), and its gradient composes other lines. `parameters` are the inputs' names; one
with a `?` is a condition: any type, read as true or false.

Types: NUMBER, REAL  the widest type of the inputs (REAL has kernels for float32 only)
       FLOAT         the same, but integers become float32
       TEST          compares in the widest type, gives bool
       LOGIC         reads true or false, gives bool

NaN goes through every op. A gradient's product with a factor that may be infinite or NaN is `absorb`: 0 where dy is 0,
so that the untaken side of a `where` never leaks. At a kink (abs, relu at 0; maximum of equals; clip at its bounds) the
gradient is what PyTorch gives: 0 at 0, half to each, and 1.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..backends import Launch
from ..errors import nearest
from ..ir import DTYPES, MIXED, Case, Cost, Op, bool_, promote, promote_float
from .elementwise_program import BYTES, TYPES, Instruction, encode, register

NUMBER, REAL, FLOAT, TEST, LOGIC = "number", "real", "float", "test", "logic"
NATIVE = {NUMBER: ("f32", "i64", "i32"), REAL: ("f32",), FLOAT: ("f32",), TEST: ("f32", "i64", "i32", "u8"),
          LOGIC: ("u8",)}
WEIGHTS = {"exp": 3, "log": 4, "log1p": 5, "tanh": 5, "erf": 6, "sin": 6, "cos": 6, "pow": 25, "sqrt": 2, "/": 2}


class Elementwise(Op):
    """What all lines share. rule: one of the types above; conditions: which inputs are read as true or false."""

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
            self.fail("shape/elementwise.broadcast", f"shapes {list(one)} and {list(other)} do not broadcast",
                      expected="sizes that are equal, or 1, counted from the last axis",
                      hint=f"x.reshape({', '.join(str(n) for n in one)}, 1)" if one else "x.reshape(...)")

    def compute_type(self, *dtypes) -> np.dtype:
        """The type in which the inputs that are no conditions meet."""
        kept = [d for d, condition in zip(dtypes, self.conditions, strict=True) if not condition] or [bool_]
        return promote_float(*kept) if self.rule == FLOAT else promote(*kept)

    def dtype(self, *dtypes):
        found = self.compute_type(*dtypes)
        if found == bool_ and self.name in ("sub", "neg"):
            self.fail("type/elementwise.bool", "is not defined for bool", hint='x.astype("float32")')
        return bool_ if self.rule in (TEST, LOGIC) else found

    def reference(self, *xs):
        dtypes = [np.asarray(x).dtype for x in xs]
        common = self.compute_type(*dtypes)
        with np.errstate(all="ignore"):
            y = self.meaning(*[np.asarray(x, bool_ if condition else common)
                               for x, condition in zip(xs, self.conditions, strict=True)])
        return np.asarray(y).astype(self.dtype(*dtypes), copy=False)

    def launch(self, device, inputs, outputs):
        common = self.compute_type(*[x.dtype for x in inputs]).name
        wanted = ["bool" if condition else common for condition in self.conditions]
        if device != "cpu" or any(x.dtype.name not in TYPES for x in inputs) \
                or TYPES.get(common) not in NATIVE[self.rule]:
            return None
        instructions, values = cast_inputs(inputs, wanted)
        instructions.append(Instruction(f"{self.name}_{TYPES[common]}", tuple(values)))
        return launched(instructions, inputs, outputs, weight=self.weight)

    def batch_axis(self, axes, *shapes):
        """The batch's place counted from the last axis is the same in every input that has it, and in the output."""
        rank = max(len(s) for s in shapes)
        places = {len(s) - a if isinstance(a, int) else a for a, s in zip(axes, shapes, strict=True)} - {None}
        if not places:
            return None
        place = places.pop()
        if places or not isinstance(place, int):
            return MIXED
        free = [s for a, s in zip(axes, shapes, strict=True) if a is None]
        if any(len(s) >= place and s[len(s) - place] != 1 for s in free):
            return MIXED                                         # a constant with one value per sample
        return rank - place

    def cost(self, *shapes):
        size = math.prod(np.broadcast_shapes(*shapes))
        return Cost(self.weight * size, 4.0 * (size + sum(math.prod(s) for s in shapes)))


def cast_inputs(inputs, wanted, constants=0):
    """(instructions that bring each input to the wanted type, the numbers of the values to use)."""
    instructions, values = [], []
    for k, (x, want) in enumerate(zip(inputs, wanted, strict=True)):
        have = x.dtype.name
        if have != want and not (want == "uint8" and have == "bool"):
            to = want if want == "bool" else TYPES[want]
            instructions.append(Instruction(f"cast_{TYPES[have]}_{to}", (k,)))
            k = len(inputs) + constants + len(instructions) - 1
        values.append(k)
    return instructions, values


def launched(instructions, inputs, outputs, constants=(), weight=1.0):
    """The launch of a program whose last instruction gives the only output."""
    last = len(inputs) + len(constants) + len(instructions) - 1
    kernel = encode(instructions, inputs, [(last, outputs[0])], constants, weight)
    return kernel and Launch((kernel,))


def fits(a, b):
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))


SHAPES = {1: ([(3, 5)], [()], [(2, 3, 4, 2)], [(0, 3)]),
          2: ([(3, 5), (3, 5)], [(4, 3, 2), (3, 1)], [(2, 1, 3), (1, 4, 1)], [(), (3,)], [(2, 3, 2, 2), (3, 1, 1)]),
          3: ([(3, 5), (3, 5), (3, 5)], [(4, 3, 2), (3, 1), ()], [(2, 1, 3), (4, 1), (3,)]),
          4: ([(2, 3, 4), (3, 1), (3, 1), (3, 1)], [(3, 5), (3, 5), (3, 5), (3, 5)])}


def row(name: str, parameters: str, formula: str, meaning: Callable, c: str, derivation: str = "",
        gradient: Callable | None = None, types: str = NUMBER, domains: Any = "any") -> None:
    """Make an op of a line. `c` has the parameters' names; with several native types it is compiled once for each."""
    names = [p.rstrip("?") for p in parameters.split()]
    arguments = inspect.Signature([inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in ("self", *names)])

    def shape(self, *shapes):
        return self.broadcast(*shapes)

    def backward(self, F, dy, y, *xs):
        found = gradient(F, dy, y, *xs)
        return tuple(dx if dx is None or dx.dtype == x.dtype or x.dtype.kind != "f" else F.cast(dx, to=x.dtype.name)
                     for dx, x in zip(found, xs, strict=True))

    dtypes = ["bool" if p.endswith("?") else "float32" for p in parameters.split()]
    shape.__signature__ = arguments                              # type: ignore[attr-defined]
    backward.__doc__ = derivation
    facts = dict(name=name, __doc__=formula, __module__=__name__, shape=shape, meaning=staticmethod(meaning), rule=types,
                 conditions=tuple(p.endswith("?") or types == LOGIC for p in parameters.split()),
                 weight=1.0 + sum(w for word, w in WEIGHTS.items() if word in c),
                 cases=tuple(Case(shapes, domains=domains, dtypes=dtypes) for shapes in SHAPES[len(names)]),
                 gradient=backward if gradient else None)
    cls = type(name.title().replace("_", ""), (Elementwise,), facts)
    dataclass(frozen=True, eq=False)(cls)
    for kind in NATIVE[types]:
        register(f"{name}_{kind}", c, "u8" if types in (TEST, LOGIC) else kind)


def erf(x):
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), x.dtype)


def larger(a, b):
    return np.where((a > b) | np.isnan(a), a, b)


def smaller(a, b):
    return np.where((a < b) | np.isnan(a), a, b)


def needed(x, build):
    """The gradient that `build` makes, if x takes one."""
    return build() if x.needs_grad else None


def truth(F, condition):
    return condition if condition.dtype == bool_ else F.cast(condition, to="bool")


# ---- arithmetic ------------------------------------------------------------------------------------------------------
row("add", "a b", "y = a + b", np.add, "a + b", "dy/da = dy/db = 1", lambda F, dy, y, a, b: (dy, dy))
row("sub", "a b", "y = a - b", np.subtract, "a - b", "dy/da = 1, dy/db = -1",
    lambda F, dy, y, a, b: (dy, needed(b, lambda: F.neg(dy))))
row("mul", "a b", "y = a b", np.multiply, "a * b", "dy/da = b, dy/db = a",
    lambda F, dy, y, a, b: (needed(a, lambda: F.mul(dy, b)), needed(b, lambda: F.mul(dy, a))))
row("div", "a b", "y = a / b", np.true_divide, "a / b", "dy/da = 1/b, dy/db = -a/b^2 = -y/b",
    lambda F, dy, y, a, b: (needed(a, lambda: F.absorb(dy, F.reciprocal(b))),
                            needed(b, lambda: F.absorb(F.neg(dy), F.div(y, b)))), FLOAT)
row("neg", "x", "y = -x", np.negative, "-x", "dy/dx = -1", lambda F, dy, y, x: (F.neg(dy),))
row("reciprocal", "x", "y = 1 / x", np.reciprocal, "1 / x", "dy/dx = -1/x^2 = -y^2",
    lambda F, dy, y, x: (F.absorb(F.neg(dy), F.mul(y, y)),), FLOAT)
row("abs", "x", "y = |x|", np.abs, "absolute(x)", "dy/dx = sign(x), 0 at 0", lambda F, dy, y, x: (F.mul(dy, F.sign(x)),))
row("minimum", "a b", "y = min(a, b), NaN if either is", smaller, "a < b || is_nan(a) ? a : b",
    "the smaller one takes dy, equals take half each",
    lambda F, dy, y, a, b: (needed(a, lambda: F.mul(dy, F.share(b, a))), needed(b, lambda: F.mul(dy, F.share(a, b)))))
row("maximum", "a b", "y = max(a, b), NaN if either is", larger, "a > b || is_nan(a) ? a : b",
    "the larger one takes dy, equals take half each",
    lambda F, dy, y, a, b: (needed(a, lambda: F.mul(dy, F.share(a, b))), needed(b, lambda: F.mul(dy, F.share(b, a)))))
row("share", "a b", "y = 1 where a > b, 1/2 where a = b, else 0: what part of max(a, b) is a",
    lambda a, b: np.where(a < b, 0, np.where(a == b, 0.5, 1)), "a < b ? 0.0f : a == b ? 0.5f : 1.0f", types=FLOAT)
row("clip", "x low high", "y = min(max(x, low), high)", lambda x, low, high: smaller(larger(x, low), high),
    "clipped(x, low, high)", "1 for x from low to high; a bound that is in force takes dy",
    lambda F, dy, y, x, low, high: (
        needed(x, lambda: F.mul(dy, F.inside(x, low, high))),
        needed(low, lambda: F.gate(dy, F.logical_and(F.less(x, low), F.less(low, high)))),
        needed(high, lambda: F.gate(dy, F.logical_or(F.greater(x, high), F.greater(low, high))))),
    types=REAL, domains=("any", "=-0.5", "=0.5"))
row("inside", "x low high", "y = 1 where low <= x <= high, else 0", lambda x, low, high: (x >= low) & (x <= high),
    "x >= low && x <= high ? 1 : 0", types=REAL, domains=("any", "=-0.5", "=0.5"))
row("scale_shift", "x mean scale shift", "y = (x - mean) scale + shift",
    lambda x, mean, scale, shift: (x - mean) * scale + shift, "(x - mean) * scale + shift",
    "dy/dx = scale, dy/dmean = -scale, dy/dscale = x - mean, dy/dshift = 1",
    lambda F, dy, y, x, mean, scale, shift: (
        needed(x, lambda: F.mul(dy, scale)), needed(mean, lambda: F.neg(F.mul(dy, scale))),
        needed(scale, lambda: F.mul(dy, F.sub(x, mean))), dy), types=REAL)

# ---- powers, exponentials, logarithms --------------------------------------------------------------------------------
row("exp", "x", "y = e^x", np.exp, "exp(x)", "dy/dx = y", lambda F, dy, y, x: (F.absorb(dy, y),), FLOAT)
row("log", "x", "y = ln x", np.log, "log(x)", "dy/dx = 1/x", lambda F, dy, y, x: (F.absorb(dy, F.reciprocal(x)),), FLOAT,
    "positive")
row("sqrt", "x", "y = x^(1/2)", np.sqrt, "sqrt(x)", "dy/dx = 1/(2y)",
    lambda F, dy, y, x: (F.absorb(dy, F.affine(F.reciprocal(y), scale=0.5)),), FLOAT, "positive")
row("rsqrt", "x", "y = x^(-1/2)", lambda x: 1 / np.sqrt(x), "1 / sqrt(x)", "dy/dx = -x^(-3/2)/2 = -y^3/2",
    lambda F, dy, y, x: (F.absorb(dy, F.affine(F.mul(F.mul(y, y), y), scale=-0.5)),), FLOAT, "positive")
row("pow", "a b", "y = a^b", np.power, "power(a, b)",
    "dy/da = b a^(b-1), 0 where b = 0; dy/db = y ln a, 0 where a = 0 and b >= 0: the limit from above",
    lambda F, dy, y, a, b: (
        needed(a, lambda: F.absorb(dy, F.absorb(b, F.pow(a, F.affine(b, shift=-1.0))))),
        needed(b, lambda: F.absorb(dy, F.absorb(F.cast(F.logical_or(a, F.positive(F.neg(b))), to=y.dtype.name),
                                                F.mul(y, F.log(a)))))), types=REAL, domains=("positive", "any"))

# ---- activations -----------------------------------------------------------------------------------------------------
row("relu", "x", "y = max(x, 0)", lambda x: np.where((x > 0) | np.isnan(x), x, 0), "x > 0 || is_nan(x) ? x : 0",
    "1 where x > 0, which is where y > 0, else 0", lambda F, dy, y, x: (F.gate(dy, y),), types=REAL)
row("leaky_relu", "x slope", "y = x where x > 0, else slope x", lambda x, slope: np.where(x > 0, x, slope * x),
    "x > 0 ? x : slope * x", "dy/dx = 1 where x > 0, else slope; dy/dslope = min(x, 0)",
    lambda F, dy, y, x, slope: (
        needed(x, lambda: F.leaky_gate(dy, x, slope)),
        needed(slope, lambda: F.mul(dy, F.neg(F.relu(F.neg(x)))))), FLOAT)
row("sigmoid", "x", "y = 1 / (1 + e^-x)", lambda x: 1 / (1 + np.exp(-x)), "1 / (1 + exp(-x))", "dy/dx = y (1 - y)",
    lambda F, dy, y, x: (F.mul(dy, F.mul(y, F.affine(y, scale=-1.0, shift=1.0))),), FLOAT)
row("tanh", "x", "y = (e^x - e^-x) / (e^x + e^-x)", np.tanh, "tanh(x)", "dy/dx = 1 - y^2",
    lambda F, dy, y, x: (F.mul(dy, F.affine(F.mul(y, y), scale=-1.0, shift=1.0)),), FLOAT)
row("gelu", "x", "y = x P(x), P(x) = (1 + erf(x / sqrt 2)) / 2: the normal distribution",
    lambda x: 0.5 * x * (1 + erf(x * math.sqrt(0.5))), "0.5f * x * (1 + erf(x * 0.707106781f))",
    "dy/dx = P(x) + x p(x) with the density p(x) = e^(-x^2/2) / sqrt(2 pi)",
    lambda F, dy, y, x: (F.absorb(dy, F.add(
        F.affine(F.erf(F.affine(x, scale=math.sqrt(0.5))), scale=0.5, shift=0.5),
        F.mul(x, F.affine(F.exp(F.affine(F.mul(x, x), scale=-0.5)), scale=1 / math.sqrt(2 * math.pi))))),), FLOAT)
row("silu", "x", "y = x s(x), s(x) = 1 / (1 + e^-x)", lambda x: x / (1 + np.exp(-x)), "x / (1 + exp(-x))",
    "dy/dx = s + x s (1 - s) = s + y (1 - s)",
    lambda F, dy, y, x: (F.absorb(dy, F.add(F.sigmoid(x), F.mul(y, F.sigmoid(F.neg(x))))),), FLOAT)
row("softplus", "x", "y = ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|)",
    lambda x: np.where((x > 0) | np.isnan(x), x, 0) + np.log1p(np.exp(-np.abs(x))),
    "(x > 0 || is_nan(x) ? x : 0) + log1p(exp(-absolute(x)))", "dy/dx = e^x / (1 + e^x) = sigmoid(x)",
    lambda F, dy, y, x: (F.mul(dy, F.sigmoid(x)),), FLOAT)
row("erf", "x", "y = 2/sqrt(pi) integral of e^(-t^2) from 0 to x", erf, "erf(x)", "dy/dx = 2/sqrt(pi) e^(-x^2)",
    lambda F, dy, y, x: (F.mul(dy, F.affine(F.exp(F.neg(F.mul(x, x))), scale=2 / math.sqrt(math.pi))),), FLOAT)
row("sin", "x", "y = sin x", np.sin, "sin(x)", "dy/dx = cos x", lambda F, dy, y, x: (F.mul(dy, F.cos(x)),), FLOAT)
row("cos", "x", "y = cos x", np.cos, "cos(x)", "dy/dx = -sin x", lambda F, dy, y, x: (F.neg(F.mul(dy, F.sin(x))),), FLOAT)

# ---- steps: no gradient ----------------------------------------------------------------------------------------------
row("sign", "x", "y = -1, 0 or 1", np.sign, "x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x", types=REAL)
row("positive", "x", "y = 1 where x > 0, else 0", lambda x: x > 0, "x > 0 ? 1 : 0", types=REAL)
row("floor", "x", "y = the largest whole number <= x", np.floor, "floor(x)", types=FLOAT)

# ---- gradients of others, made of one pass ---------------------------------------------------------------------------
row("absorb", "dy factor", "y = 0 where dy = 0, else dy factor", lambda dy, factor: np.where(dy == 0, 0, dy * factor),
    "dy == 0 ? 0 : dy * factor", "as for a product: g factor and g dy, but 0 where g is 0, whatever the other",
    lambda F, g, y, dy, factor: (needed(dy, lambda: F.absorb(g, factor)), needed(factor, lambda: F.absorb(g, dy))), types=REAL)
row("gate", "dy x", "y = 0 where x <= 0, else dy", lambda dy, x: np.where(x <= 0, 0, dy), "x <= 0 ? 0 : dy",
    "what passes passes with factor 1; x only decides", lambda F, g, y, dy, x: (F.gate(g, x), None), types=REAL)
row("leaky_gate", "dy x slope", "y = dy where x > 0, else dy slope",
    lambda dy, x, slope: np.where(x > 0, dy, dy * slope), "x > 0 ? dy : dy * slope",
    "g times 1 or slope; x only decides; dy/dslope = dy where x <= 0",
    lambda F, g, y, dy, x, slope: (needed(dy, lambda: F.leaky_gate(g, x, slope)), None,
                                   needed(slope, lambda: F.gate(F.mul(g, dy), F.logical_not(F.positive(x))))), FLOAT)

# ---- choosing and comparing ------------------------------------------------------------------------------------------
row("where", "condition? a b", "y = a where the condition holds, else b", np.where, "condition ? a : b",
    "dy goes to the side that was taken, 0 to the other",
    lambda F, dy, y, c, a, b: (None, needed(a, lambda: F.gate(dy, truth(F, c))),
                               needed(b, lambda: F.gate(dy, F.logical_not(c)))), domains=("bool", "any", "any"))
row("equal", "a b", "y = a == b", np.equal, "a == b", types=TEST)
row("not_equal", "a b", "y = a != b", np.not_equal, "a != b", types=TEST)
row("less", "a b", "y = a < b", np.less, "a < b", types=TEST)
row("less_equal", "a b", "y = a <= b", np.less_equal, "a <= b", types=TEST)
row("greater", "a b", "y = a > b", np.greater, "a > b", types=TEST)
row("greater_equal", "a b", "y = a >= b", np.greater_equal, "a >= b", types=TEST)
row("logical_and", "a b", "y = a and b", np.logical_and, "a & b", types=LOGIC)
row("logical_or", "a b", "y = a or b", np.logical_or, "a | b", types=LOGIC)
row("logical_not", "x", "y = not x", np.logical_not, "!x", types=LOGIC)


# ---- with attributes -------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Affine(Elementwise):
    """y = scale x + shift, with numbers that belong to a formula, such as the 2 of 1 - x^2/2."""

    name, rule, conditions = "affine", FLOAT, (False,)
    scale: float = 1.0
    shift: float = 0.0
    cases = (Case([(3, 5)], dict(scale=-0.5, shift=2.0)), Case([()], dict(scale=3.0)))

    def shape(self, x):
        return x

    def meaning(self, x):
        return x * self.scale + self.shift

    def gradient(self, F, dy, y, x):
        """dy/dx = scale, so dx = scale dy."""
        return (F.affine(dy, scale=self.scale),)

    def launch(self, device, inputs, outputs):
        if device != "cpu" or inputs[0].dtype.name not in TYPES:
            return None
        instructions, values = cast_inputs(inputs, ["float32"], 3)
        instructions.append(Instruction("scale_shift_f32", (*values, 1, 2, 3)))
        return launched(instructions, inputs, outputs, (0.0, self.scale, self.shift))


@dataclass(frozen=True, eq=False)
class Cast(Elementwise):
    """y = x as the type `to`: floats are cut towards 0 to integers, and everything but 0 is true."""

    name, conditions = "cast", (False,)
    to: str = "float32"
    cases = (Case([(3, 5)], dict(to="int64"), "labels 9", "int32"), Case([(3, 5)], dict(to="float32"), "labels 9", "uint8"),
             Case([(2, 3)], dict(to="bool"), "labels 2"), Case([(2, 3)], dict(to="float32"), "bool", "bool"),
             Case([(2, 3)], dict(to="float64")), Case([()], dict(to="int32"), "labels 9"))

    def shape(self, x):
        return x

    def dtype(self, x):
        names = [d.name for d in DTYPES]
        if self.to not in names:
            self.fail("type/cast.unknown", f"there is no type {self.to!r}", expected=f"one of {', '.join(names)}",
                      hint=f'x.astype("{nearest(self.to, names) or "float32"}")')
        return np.dtype(self.to)

    def reference(self, x):
        with np.errstate(all="ignore"):
            return np.asarray(x).astype(self.to)

    def gradient(self, F, dy, y, x):
        """Between floats y = x up to rounding, so dx = dy in x's type."""
        return (F.cast(dy, to=x.dtype.name),)

    def launch(self, device, inputs, outputs):
        instructions, _ = cast_inputs(inputs, [self.to]) if self.to in TYPES and inputs[0].dtype.name in TYPES else ([], [])
        return launched(instructions, inputs, outputs) if instructions and device == "cpu" else None


for _have in BYTES:
    for _want in (*BYTES, "bool"):
        if _have != _want:
            register(f"cast_{_have}_{_want}", "", "u8" if _want == "bool" else _want)
