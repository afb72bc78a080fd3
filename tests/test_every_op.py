"""One test file for every op, present and future: it reads the registry and runs what each op says
of itself."""

from __future__ import annotations

import numpy as np
import pytest

from shoestring import runtime, testing
from shoestring.backends.device import FACTORIES
from shoestring.backends.device import device as open_device
from shoestring.backends.opencl import devices
from shoestring.ir import OPS, F, leaf
from shoestring.tensor import wrap

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


@pytest.mark.parametrize(("cls", "case"), CASES)
def test_shapes_without_elements(cls, case):
    testing.check_empty(cls, case)


@pytest.mark.parametrize("device", [*sorted(FACTORIES), *["opencl:0"] * bool(devices())])
@pytest.mark.parametrize(("cls", "case"), CASES)
def test_shapes_without_elements_on_every_device(cls, case, device):
    """Forward and backward, through the compiler, what an op gives alone and beside its like."""
    for variant in testing.empty_cases(cls, case):
        arrays = [a for a in variant.inputs() if a.dtype != np.float64]
        if cls.kind == "effect" or len(arrays) < len(variant.shapes):
            continue
        there = open_device(device).upload
        xs = [leaf(there(a), needs_grad=a.dtype.kind == "f", device=device) for a in arrays]
        found = getattr(F, cls.name)(*xs, **variant.attributes)
        found = found if isinstance(found, tuple) else (found,)
        asked = list(found)
        if cls.gradient is not None:
            asked += [dx for _, dx in testing.derivatives(found, xs)]
        asked = [n for n in dict.fromkeys(asked) if n.value is None]
        with np.errstate(all="ignore"):
            wanted = testing.evaluate(asked, dict(zip(xs, arrays, strict=True)))
        handles = [wrap(n) for n in asked]
        runtime.flush(asked)
        for handle, want in zip(handles, wanted, strict=True):
            y = handle.numpy()
            assert (y.shape, y.dtype) == (handle.shape, handle.dtype)
            assert testing.distance(y, want) <= 1e-5, (variant, handle.node)
