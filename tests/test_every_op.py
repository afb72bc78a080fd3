"""One test file for every op, present and future: it reads the registry and runs what each op says
of itself."""

from __future__ import annotations

import pytest

import shoestring  # noqa: F401  (registers the ops)
from shoestring import testing
from shoestring.ir import OPS

OURS = {name: cls for name, cls in sorted(OPS.items()) if cls.__module__.startswith("shoestring.")}
CASES = [
    pytest.param(cls, case, id=f"{name}-{k}")
    for name, cls in OURS.items()
    for k, case in enumerate(cls.cases)
]


@pytest.mark.parametrize("cls", [pytest.param(cls, id=name) for name, cls in OURS.items()])
def test_facts(cls):
    testing.check_facts(cls)


@pytest.mark.parametrize(("cls", "case"), CASES)
def test_shape_and_type_rules_say_what_the_reference_gives(cls, case):
    testing.check_shapes(cls, case)


@pytest.mark.parametrize(("cls", "case"), CASES)
def test_batch_axis_is_true(cls, case):
    testing.check_batch_axis(cls, case)


@pytest.mark.parametrize(("cls", "case"), CASES)
def test_gradients_of_first_and_second_order_equal_central_differences(cls, case):
    testing.check_gradient(cls, case)


@pytest.mark.parametrize(("cls", "case"), CASES)
def test_cpu_kernel_equals_reference(cls, case):
    testing.check_kernel(cls, case)


@pytest.mark.parametrize(("cls", "case"), [c for c in CASES if c.values[0].kind == "view"])
def test_view_places_the_elements_of_the_reference(cls, case):
    testing.check_view(cls, case)


@pytest.mark.parametrize(("cls", "case"), [c for c in CASES if c.values[0].kind == "expr"])
def test_special_values(cls, case):
    testing.check_special(cls, case)
