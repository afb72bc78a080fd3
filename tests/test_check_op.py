"""A user's own op, defined outside the package: check_op accepts a right one and catches every
planted mistake."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import shoestring  # noqa: F401  (registers the ops)
from shoestring.backends import Kernel, Launch
from shoestring.ir import OPS, SUM, Case, Cost, F, Op, batch_leads, batch_mixed
from shoestring.testing import CheckFailed, check_op


@pytest.fixture(autouse=True)
def registry():
    """Ops declared by a test leave the registry with it."""
    before = set(OPS)
    yield
    for name in set(OPS) - before:
        del OPS[name]
        F.__dict__.pop(name, None)


def cube(**changes):
    """y = x^3 as an op of a user, with `changes` to its members."""

    class Cube(Op):
        """y = x^3"""

        name, kind, cheap_to_recompute = "cube", "kernel", True
        cases = (Case([(2, 3)]), Case([()]))
        launch = None
        batch_axis = batch_leads

        def shape(self, x):
            return x

        def reference(self, x):
            return x**3

        def gradient(self, F, dy, y, x):
            """dy/dx = 3 x^2 = x^2 + x^2 + x^2, so dx = dy (x^2 + x^2 + x^2)."""
            square = F.mul(x, x)
            return (F.mul(dy, F.add(F.add(square, square), square)),)

        def cost(self, x):
            return Cost(2, 8)

    for name, member in changes.items():
        setattr(Cube, name, member)
    return Cube


def halved(self, device, inputs, outputs):
    """A kernel that gives x instead of x^3."""
    return Launch((Kernel("copy", (0, 1), (4, 0, 2, 1, inputs[0].size, 0, 1, 0, 1)),))


def detached_gradient(self, F, dy, y, x):
    """dx = dy 3 x^2, but x is taken as a constant: the second order is wrong."""
    x = F.alias(x)
    return (F.mul(dy, F.add(F.add(F.mul(x, x), F.mul(x, x)), F.mul(x, x))),)


def anything_goes(self, x):
    """A reason that is no good."""
    return 1.0


def largest_first(self, x):
    """x^3 by a way that needs an element."""
    return (x / x.max()) ** 3 * x.max() ** 3


def averaged_gradient(self, F, dy, y, x):
    """dx = dy 3 x^2 = dy (3/n) n x^2, n the number of elements."""
    share = 3 / x.spec.size
    return (F.mul(dy, F.affine(F.mul(x, x), scale=share * x.spec.size)),)


def no_derivation(self, F, dy, y, x):
    return (dy,)


def wrong_gradient(self, F, dy, y, x):
    """dx = dy, claimed without reason."""
    return (dy,)


def test_a_right_op_passes():
    check_op(cube())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(gradient=wrong_gradient), "the first gradient of input 0 .* is wrong"),
        (dict(gradient=detached_gradient), "the second gradient of input 0 .* is wrong"),
        (dict(gradient=no_derivation), "carries no derivation"),
        (dict(gradient=lambda self, F, dy, y, x: (None,)), "carries no derivation"),
        (dict(shape=lambda self, x: (*x, 1)), "output 0: the shape rule says"),
        (dict(dtype=lambda self, x: np.dtype("int64")), "output 0: the type rule says int64"),
        (dict(__doc__="A cube."), "no formula"),
        (dict(cost=lambda self, x: 3), "its cost is 3"),
        (dict(cases=()), "no cases"),
        (dict(tolerance=lambda self, x: 1.0), "its own tolerance gives no reason"),
        (dict(tolerance=anything_goes), "its tolerance is 1.0"),
        (dict(batch_axis=lambda self, axes, x: None), "batch_axis says it does not"),
        (
            dict(batch_axis=lambda self, axes, x: 1 if axes[0] == 0 else None),
            "do not become axis 1",
        ),
        (dict(launch=halved), "of its kernel differs from the reference"),
        (dict(reference=largest_first), "fails without elements: ValueError: zero-size array"),
        (dict(gradient=averaged_gradient), "fails without elements: ZeroDivisionError"),
    ],
)
def test_a_mistake_is_caught(changes, message):
    with pytest.raises(CheckFailed, match=message) as caught:
        check_op(cube(**changes))
    assert str(caught.value).startswith("cube: ") and caught.value.place == "value/check_op.broken"


def test_a_part_that_is_not_its_part_of_the_whole_is_caught():
    @dataclass(frozen=True, eq=False)
    class Numbered(Op):
        """y[n] = x[n] + first + n"""

        name, kind, cheap_to_recompute = "numbered", "kernel", True
        first: int = 0
        cases = (Case([(3, 2)]),)
        launch = gradient = None
        batch_axis = batch_leads

        def shape(self, x):
            return x

        def reference(self, x):
            return x + np.arange(self.first, self.first + len(x), dtype=x.dtype).reshape(-1, 1)

        def cost(self, x):
            return Cost(1, 8)

    with pytest.raises(CheckFailed, match="parts along axis 0 are not the whole"):
        check_op(Numbered)
    Numbered.for_part = lambda self, axis, first, count: dict(first=first)
    check_op(Numbered)


def test_an_input_that_matters_needs_a_gradient_or_a_reason():
    class Scale(Op):
        """y = x a"""

        name, kind, cheap_to_recompute = "scale", "kernel", True
        cases = (Case([(2, 3), ()]),)
        launch = None
        batch_axis = batch_mixed

        def shape(self, x, a):
            return x

        def reference(self, x, a):
            return x * a

        def gradient(self, F, dy, y, x, a):
            """dy/dx = a; a is a constant by definition."""
            return F.mul(dy, a), None

        def cost(self, x, a):
            return Cost(1, 8)

    with pytest.raises(CheckFailed, match="first gradient of input 1"):
        check_op(Scale)
    Scale.constant_inputs = ("a",)
    check_op(Scale)


def test_an_op_with_two_outputs_and_a_sum_over_samples():
    @dataclass(frozen=True, eq=False)
    class Powers(Op):
        """y = x^2 and z = sum over n of x[n]"""

        name, kind, cheap_to_recompute, outputs = "powers", "kernel", True, 2
        cases = (Case([(4, 3)]),)
        launch = None
        total: object = SUM

        def shape(self, x):
            return x, x[1:]

        def batch_axis(self, axes, x):
            return (
                (None, None) if axes[0] is None else (axes[0], SUM if axes[0] == 0 else axes[0] - 1)
            )

        def reference(self, x):
            return x * x, x.sum(0)

        def gradient(self, F, dy, y, x):
            """dy[0] weighs x^2, whose slope is x + x; dy[1] reaches every sample of x alike."""
            square = None if dy[0] is None else F.mul(dy[0], F.add(x, x))
            total = None if dy[1] is None else F.expand(dy[1], to=x.shape)
            return (total if square is None else square if total is None else F.add(square, total),)

        def cost(self, x):
            return Cost(2, 8)

    check_op(Powers)
    Powers.batch_axis = lambda self, axes, x: (None, None) if axes[0] is None else (SUM, SUM)
    with pytest.raises(CheckFailed, match="parts do not add up"):
        check_op(Powers)


def test_an_elementwise_gradient_must_absorb_infinite_factors():
    class Root(Op):
        """y = sqrt(x)"""

        name, kind, cheap_to_recompute = "root", "expr", True
        cases = (Case([(3,)], domains="positive"),)
        launch = None
        batch_axis = batch_leads

        def shape(self, x):
            return x

        def reference(self, x):
            return np.sqrt(x)

        def gradient(self, F, dy, y, x):
            """dy/dx = 1 / (2 y), so dx = dy / (y + y): 0/0 where dy = 0 at x = 0."""
            return (F.div(dy, F.add(y, y)),)

        def cost(self, x):
            return Cost(1, 8)

    with pytest.raises(CheckFailed, match="dy = 0 gives gradient 0 another value than 0"):
        check_op(Root)


def test_a_view_must_place_the_elements_of_its_reference():
    class Tail(Op):
        """y[i] = x[i + 1]"""

        name, kind, cheap_to_recompute, strided = "tail", "view", True, True
        cases = (Case([(4,)]),)
        launch = gradient = None
        offset = 1

        def shape(self, x):
            return (max(x[0] - 1, 0),)

        def batch_axis(self, axes, x):
            return "mixed" if axes[0] == 0 else axes[0]

        def reference(self, x):
            return x[1:]

        def view(self, shape, strides):
            return (max(shape[0] - 1, 0),), strides, self.offset * strides[0]

        def cost(self, x):
            return Cost(0, 0)

    check_op(Tail)
    Tail.offset = 0
    with pytest.raises(CheckFailed, match="view\\(\\) places other elements"):
        check_op(Tail)
