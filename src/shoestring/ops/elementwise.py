"""Elementwise ops: y[i] = f(a[i], b[i], ...), broadcasting as in NumPy. Each is one `row`:

    row(name, parameters, formula, NumPy meaning, C expression, derivation, gradient per input)

That is all there is to an op: shapes, types, cases, cost and launch follow from it
(elementwise_rules.py), the build makes the CPU kernel's loop of its C expression (elementwise.cpp),
and its gradient composes other rows. A parameter that ends with ? is a condition.

NaN goes through every op. Where a gradient multiplies dy with a factor that may be infinite or NaN
it uses `absorb`: 0 where dy is 0, so that the untaken side of a `where` never leaks. At a kink the
gradient is PyTorch's: 0 for abs and relu at 0, half each for the maximum or minimum of equals, 1
for clip at its bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import nearest
from ..ir import DTYPES, Case, bool_
from .elementwise_program import BYTES, TYPES, Instruction, register
from .elementwise_rules import BITS, FLOAT, LOGIC, REAL, TEST, Elementwise, casts, row


def erf(x):
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), x.dtype)


def larger(a, b):
    return np.where((a > b) | np.isnan(a), a, b)


def smaller(a, b):
    return np.where((a < b) | np.isnan(a), a, b)


def power(a, b):
    """a^b. Integers: 0 for a negative b, but for a = 1 and -1, as in PyTorch."""
    if a.dtype.kind not in "iu":
        return np.power(a, b)
    unit = np.where(np.abs(a) == 1, np.where(b % 2 == 0, 1, a), 0)
    return np.where(b < 0, unit, np.power(a, np.maximum(b, 0)))


def rectified(x):
    return np.where((x > 0) | np.isnan(x), x, 0)


def against(F, dy, scale, mean):
    """-dy scale. Where several x have one mean and one scale their dy are summed first: it is the
    sum that shift needs too."""
    if scale.shape == mean.shape != dy.shape:
        dy = F.sum_to(dy, to=mean.shape)
    return F.neg(F.mul(dy, scale))


def density(F, x):
    """e^(-x^2/2) / sqrt(2 pi), that of the normal distribution."""
    power = F.exp(F.affine(F.mul(x, x), scale=-0.5))
    return F.affine(power, scale=1 / math.sqrt(2 * math.pi))


def distribution(F, x):
    """(1 + erf(x / sqrt 2)) / 2, the part of the normal distribution below x."""
    return F.affine(F.erf(F.affine(x, scale=math.sqrt(0.5))), scale=0.5, shift=0.5)


# ---- arithmetic ----------------------------------------------------------------------------------
row("add", "a b", "y = a + b", np.add, "a + b", "dy/da = dy/db = 1",
    lambda F, dy, y, a, b: dy,
    lambda F, dy, y, a, b: dy)
row("sub", "a b", "y = a - b", np.subtract, "a - b", "dy/da = 1, dy/db = -1",
    lambda F, dy, y, a, b: dy,
    lambda F, dy, y, a, b: F.neg(dy))
row("mul", "a b", "y = a b", np.multiply, "a * b", "dy/da = b, dy/db = a",
    lambda F, dy, y, a, b: F.mul(dy, b),
    lambda F, dy, y, a, b: F.mul(dy, a))
row("div", "a b", "y = a / b", np.true_divide, "a / b", "dy/da = 1/b, dy/db = -a/b^2 = -y/b",
    lambda F, dy, y, a, b: F.absorb(dy, F.reciprocal(b)),
    lambda F, dy, y, a, b: F.absorb(F.neg(dy), F.div(y, b)), types=FLOAT)
row("neg", "x", "y = -x", np.negative, "-x", "dy/dx = -1",
    lambda F, dy, y, x: F.neg(dy))
row("reciprocal", "x", "y = 1 / x", np.reciprocal, "1 / x", "dy/dx = -1/x^2 = -y^2",
    lambda F, dy, y, x: F.absorb(F.neg(dy), F.mul(y, y)), types=FLOAT)
row("abs", "x", "y = |x|", np.abs, "absolute(x)", "dy/dx = sign(x), 0 at 0",
    lambda F, dy, y, x: F.mul(dy, F.sign(x)))
row("scale_shift", "x mean scale shift", "y = (x - mean) scale + shift",
    lambda x, mean, scale, shift: (x - mean) * scale + shift, "(x - mean) * scale + shift",
    "dy/dx = scale, dy/dmean = -scale, dy/dscale = x - mean, dy/dshift = 1",
    lambda F, dy, y, x, mean, scale, shift: F.mul(dy, scale),
    lambda F, dy, y, x, mean, scale, shift: against(F, dy, scale, mean),
    lambda F, dy, y, x, mean, scale, shift: F.mul(dy, F.sub(x, mean)),
    lambda F, dy, y, x, mean, scale, shift: dy, types=REAL)

# ---- the larger and the smaller ------------------------------------------------------------------
row("minimum", "a b", "y = min(a, b), NaN if either is", smaller, "a < b || is_nan(a) ? a : b",
    "the smaller one takes dy, equals take half each",
    lambda F, dy, y, a, b: F.mul(dy, F.share(b, a)),
    lambda F, dy, y, a, b: F.mul(dy, F.share(a, b)))
row("maximum", "a b", "y = max(a, b), NaN if either is", larger, "a > b || is_nan(a) ? a : b",
    "the larger one takes dy, equals take half each",
    lambda F, dy, y, a, b: F.mul(dy, F.share(a, b)),
    lambda F, dy, y, a, b: F.mul(dy, F.share(b, a)))
row("share", "a b", "y = 0 where a < b, 1/2 where a = b, else 1: the part of max(a, b) that is a",
    lambda a, b: np.where(a < b, 0, np.where(a == b, 0.5, 1)),
    "a < b ? 0.0f : a == b ? 0.5f : 1.0f", types=FLOAT)
row("clip", "x low high", "y = min(max(x, low), high)",
    lambda x, low, high: smaller(larger(x, low), high), "clipped(x, low, high)",
    "1 for x from low to high; a bound that is in force takes dy",
    lambda F, dy, y, x, low, high: F.mul(dy, F.inside(x, low, high)),
    lambda F, dy, y, x, low, high: F.gate(dy, F.logical_and(F.less(x, low), F.less(low, high))),
    lambda F, dy, y, x, low, high: F.gate(
        dy, F.logical_or(F.greater(x, high), F.greater(low, high))),
    types=REAL, domains=("any", "=-0.5", "=0.5"))
row("inside", "x low high", "y = 1 where low <= x <= high, else 0",
    lambda x, low, high: (x >= low) & (x <= high), "x >= low && x <= high ? 1 : 0", types=REAL,
    domains=("any", "=-0.5", "=0.5"))

# ---- powers, exponentials, logarithms, circles ---------------------------------------------------
row("exp", "x", "y = e^x", np.exp, "exp(x)", "dy/dx = y",
    lambda F, dy, y, x: F.absorb(dy, y), types=FLOAT)
row("log", "x", "y = ln x", np.log, "log(x)", "dy/dx = 1/x",
    lambda F, dy, y, x: F.absorb(dy, F.reciprocal(x)), types=FLOAT, domains="positive")
row("sqrt", "x", "y = x^(1/2)", np.sqrt, "sqrt(x)", "dy/dx = x^(-1/2)/2 = 1/(2y)",
    lambda F, dy, y, x: F.absorb(dy, F.affine(F.reciprocal(y), scale=0.5)),
    types=FLOAT, domains="positive")
row("rsqrt", "x", "y = x^(-1/2)", lambda x: 1 / np.sqrt(x), "1 / sqrt(x)",
    "dy/dx = -x^(-3/2)/2 = -y^3/2",
    lambda F, dy, y, x: F.absorb(dy, F.affine(F.mul(F.mul(y, y), y), scale=-0.5)),
    types=FLOAT, domains="positive")
row("pow", "a b", "y = a^b", power, "power(a, b)",
    "dy/da = b a^(b-1), 0 where b = 0; dy/db = y ln a, 0 where a = 0 and b >= 0: its limit",
    lambda F, dy, y, a, b: F.absorb(dy, F.absorb(b, F.pow(a, F.affine(b, shift=-1.0)))),
    lambda F, dy, y, a, b: F.absorb(dy, F.absorb(
        F.cast(F.logical_or(a, F.positive(F.neg(b))), to=y.dtype.name), F.mul(y, F.log(a)))),
    types=REAL, domains=("positive", "any"))
row("erf", "x", "y = 2/sqrt(pi) integral of e^(-t^2) from 0 to x", erf, "erf(x)",
    "dy/dx = 2/sqrt(pi) e^(-x^2)",
    lambda F, dy, y, x: F.mul(
        dy, F.affine(F.exp(F.neg(F.mul(x, x))), scale=2 / math.sqrt(math.pi))), types=FLOAT)
row("sin", "x", "y = sin x", np.sin, "sin(x)", "dy/dx = cos x",
    lambda F, dy, y, x: F.mul(dy, F.cos(x)), types=FLOAT)
row("cos", "x", "y = cos x", np.cos, "cos(x)", "dy/dx = -sin x",
    lambda F, dy, y, x: F.neg(F.mul(dy, F.sin(x))), types=FLOAT)

# ---- activations ---------------------------------------------------------------------------------
row("relu", "x", "y = max(x, 0)", rectified, "x > 0 || is_nan(x) ? x : 0",
    "1 where x > 0, which is where y > 0, else 0",
    lambda F, dy, y, x: F.gate(dy, y), types=REAL)
row("leaky_relu", "x slope", "y = x where x > 0, else slope x",
    lambda x, slope: np.where(x > 0, x, slope * x), "x > 0 ? x : slope * x",
    "dy/dx = 1 where x > 0, else slope; dy/dslope = min(x, 0) = -relu(-x)",
    lambda F, dy, y, x, slope: F.leaky_gate(dy, x, slope),
    lambda F, dy, y, x, slope: F.mul(dy, F.neg(F.relu(F.neg(x)))), types=FLOAT)
row("sigmoid", "x", "y = 1 / (1 + e^-x)", lambda x: 1 / (1 + np.exp(-x)), "1 / (1 + exp(-x))",
    "dy/dx = y (1 - y)",
    lambda F, dy, y, x: F.mul(dy, F.mul(y, F.affine(y, scale=-1.0, shift=1.0))), types=FLOAT)
row("tanh", "x", "y = (e^x - e^-x) / (e^x + e^-x)", np.tanh, "tanh(x)", "dy/dx = 1 - y^2",
    lambda F, dy, y, x: F.mul(dy, F.affine(F.mul(y, y), scale=-1.0, shift=1.0)), types=FLOAT)
row("gelu", "x", "y = x P(x), P(x) = (1 + erf(x / sqrt 2)) / 2: the normal distribution",
    lambda x: 0.5 * x * (1 + erf(x * math.sqrt(0.5))), "0.5f * x * (1 + erf(x * 0.707106781f))",
    "dy/dx = P(x) + x p(x), where p = P' is the density e^(-x^2/2) / sqrt(2 pi)",
    lambda F, dy, y, x: F.absorb(dy, F.add(distribution(F, x), F.mul(x, density(F, x)))),
    types=FLOAT)
row("silu", "x", "y = x s(x), s(x) = 1 / (1 + e^-x)", lambda x: x / (1 + np.exp(-x)),
    "x / (1 + exp(-x))", "dy/dx = s + x s (1 - s) = s(x) + y s(-x)",
    lambda F, dy, y, x: F.absorb(dy, F.add(F.sigmoid(x), F.mul(y, F.sigmoid(F.neg(x))))),
    types=FLOAT)
row("softplus", "x", "y = ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|)",
    lambda x: rectified(x) + np.log1p(np.exp(-np.abs(x))),
    "(x > 0 || is_nan(x) ? x : 0) + log1p(exp(-absolute(x)))",
    "dy/dx = e^x / (1 + e^x) = sigmoid(x)",
    lambda F, dy, y, x: F.mul(dy, F.sigmoid(x)), types=FLOAT)

# ---- steps: their gradient is 0, so none flows ---------------------------------------------------
row("sign", "x", "y = -1, 0 or 1", np.sign, "x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x", types=REAL)
row("positive", "x", "y = 1 where x > 0, else 0", lambda x: x > 0, "x > 0 ? 1 : 0", types=REAL)
row("floor", "x", "y = the largest whole number <= x", np.floor, "floor(x)", types=FLOAT)

# ---- products of gradients, in one pass ----------------------------------------------------------
row("absorb", "dy factor", "y = 0 where dy = 0, else dy factor",
    lambda dy, factor: np.where(dy == 0, 0, dy * factor), "dy == 0 ? 0 : dy * factor",
    "that of a product, g factor and g dy, but 0 where g is 0, whatever the other one is",
    lambda F, g, y, dy, factor: F.absorb(g, factor),
    lambda F, g, y, dy, factor: F.absorb(g, dy), types=REAL)
row("gate", "dy x", "y = 0 where x <= 0, else dy", lambda dy, x: np.where(x <= 0, 0, dy),
    "x <= 0 ? 0 : dy", "what passes has factor 1; x only decides",
    lambda F, g, y, dy, x: F.gate(g, x), None, types=REAL)
row("leaky_gate", "dy x slope", "y = dy where x > 0, else dy slope",
    lambda dy, x, slope: np.where(x > 0, dy, dy * slope), "x > 0 ? dy : dy * slope",
    "g times 1 or slope; x only decides; for the slope g dy, where x <= 0",
    lambda F, g, y, dy, x, slope: F.leaky_gate(g, x, slope), None,
    lambda F, g, y, dy, x, slope: F.gate(F.mul(g, dy), F.logical_not(F.positive(x))), types=FLOAT)

# ---- choosing and comparing ----------------------------------------------------------------------
row("where", "condition? a b", "y = a where the condition holds, else b", np.where,
    "condition ? a : b", "dy goes to the side that was taken, 0 to the other", None,
    lambda F, dy, y, c, a, b: F.gate(dy, c if c.dtype == bool_ else F.cast(c, to="bool")),
    lambda F, dy, y, c, a, b: F.gate(dy, F.logical_not(c)), domains=("bool", "any", "any"))
row("equal", "a b", "y = a == b", np.equal, "a == b", types=TEST)
row("not_equal", "a b", "y = a != b", np.not_equal, "a != b", types=TEST)
row("less", "a b", "y = a < b", np.less, "a < b", types=TEST)
row("less_equal", "a b", "y = a <= b", np.less_equal, "a <= b", types=TEST)
row("greater", "a b", "y = a > b", np.greater, "a > b", types=TEST)
row("greater_equal", "a b", "y = a >= b", np.greater_equal, "a >= b", types=TEST)
row("logical_and", "a b", "y = a and b", np.logical_and, "a & b", types=LOGIC)
row("logical_or", "a b", "y = a or b", np.logical_or, "a | b", types=LOGIC)
row("logical_not", "x", "y = not x", np.logical_not, "!x", types=LOGIC)
row("bitwise_and", "a b", "y = a & b, bit by bit", np.bitwise_and, "a & b", types=BITS)
row("bitwise_or", "a b", "y = a | b, bit by bit", np.bitwise_or, "a | b", types=BITS)
row("bitwise_xor", "a b", "y = a ^ b, bit by bit", np.bitwise_xor, "a ^ b", types=BITS)


# ---- with attributes -----------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Affine(Elementwise):
    """y = scale x + shift, with numbers that belong to a formula, such as those of 1 - x^2/2."""

    name, rule, conditions, serves = "affine", FLOAT, (False,), "scale"
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

    def program(self, dtypes):
        if dtypes[0].name not in TYPES:
            return None
        instructions, values = casts(dtypes, ["float32"], 3)
        instructions.append(Instruction("scale_shift_f32", (*values, 1, 2, 3)))
        return instructions, (0.0, self.scale, self.shift)


@dataclass(frozen=True, eq=False)
class Accumulate(Elementwise):
    """y = a + b, in a kernel of its own: joined to the sums before and after it, it would keep all
    that they add up in memory until the last one is there."""

    name, conditions, serves = "accumulate", (False, False), "add_up"
    cases = (Case([(3, 5), (3, 5)]), Case([(), ()]), Case([(4,), (4,)], {}, "labels 9", "int64"))

    def shape(self, a, b):
        return self.broadcast(a, b)

    def meaning(self, a, b):
        return a + b

    def gradient(self, F, dy, y, a, b):
        """dy/da = dy/db = 1"""
        return dy, dy

    def program(self, dtypes):
        common = self.common(*dtypes).name
        if any(d.name != common for d in dtypes) or TYPES.get(common) not in ("f32", "i64", "i32"):
            return None
        return [Instruction(f"add_{TYPES[common]}", (0, 1))], ()


@dataclass(frozen=True, eq=False)
class Cast(Elementwise):
    """y = x as the type `to`: floats are cut towards 0 to integers; all but 0 is true."""

    name, conditions = "cast", (False,)
    to: str = "float32"
    cases = (
        Case([(3, 5)], dict(to="int64"), "labels 9", "int32"),
        Case([(3, 5)], dict(to="float32"), "labels 9", "uint8"),
        Case([(2, 3)], dict(to="bool"), "labels 2"),
        Case([(2, 3)], dict(to="float32"), "bool", "bool"),
        Case([(2, 3)], dict(to="float64")),
        Case([()], dict(to="int32"), "labels 9"),
    )

    def shape(self, x):
        return x

    def dtype(self, x):
        names = [d.name for d in DTYPES]
        if self.to not in names:
            self.fail("type/cast.unknown", f"there is no type {self.to!r}",
                      expected=f"one of {', '.join(names)}",
                      hint=f'x.astype("{nearest(self.to, names) or "float32"}")')
        return np.dtype(self.to)

    def reference(self, x):
        with np.errstate(all="ignore"):
            return np.asarray(x).astype(self.to)

    def gradient(self, F, dy, y, x):
        """Between floats y = x up to rounding, so dx = dy in x's type."""
        return (F.cast(dy, to=x.dtype.name),)

    def program(self, dtypes):
        if self.to not in TYPES or dtypes[0].name not in TYPES:
            return None
        instructions, _ = casts(dtypes, [self.to])
        return (instructions, ()) if instructions else None


for _have in BYTES:
    for _want in (*BYTES, "bool"):
        if _have != _want:
            register(f"cast_{_have}_{_want}", "", "u8" if _want == "bool" else _want)
