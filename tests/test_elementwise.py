"""Elementwise ops beyond their own cases: sizes, layouts, types, chains, gradients at kinks."""

from __future__ import annotations

import math
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from common import changed, program_of
from hypothesis import given, settings
from hypothesis import strategies as st

import shoestring
from shoestring.autodiff import gradients
from shoestring.backends import Operand
from shoestring.backends.device import device
from shoestring.ir import MIXED, OPS, F, leaf
from shoestring.ops.elementwise_program import OPERATIONS, Instruction, encode
from shoestring.testing import evaluate, operand, reference, run_launch

native = pytest.importorskip("shoestring.backends.cpu._native")
ROWS = {name: cls for name, cls in OPS.items() if cls.__module__ == "shoestring.ops.elementwise"}
rng = np.random.default_rng(0)


def numbers(*shape):
    return rng.uniform(0.1, 2, shape).astype(np.float32)


def close(y, want, op):
    assert y.dtype == want.dtype and y.shape == want.shape
    if y.dtype.kind != "f":
        assert np.array_equal(y, want)
    else:
        scale = np.max(np.abs(want), initial=1e-30)
        assert np.max(np.abs(y - want), initial=0) <= op.tolerance() * scale


def address(array):
    return array.__array_interface__["data"][0]


def execute(kernel, arrays):
    program_of(kernel).run([address(a) for a in arrays])


@pytest.mark.parametrize("name", sorted(set(ROWS) - {"affine", "cast"}))
@pytest.mark.parametrize("size", [1, 15, 1023, 1025, 70_001])
def test_all_ops_at_sizes_around_vectors_blocks_and_tasks(name, size):
    cls = ROWS[name]
    op = cls()
    arrays = [numbers(size) for _ in cls.parameters]
    if any(op.conditions) and op.rule != "LOGIC":
        arrays[0] = arrays[0] > 1
    if op.rule == "BITS":
        arrays = [(1000 * a).astype(np.int64) for a in arrays]
    found = run_launch(op, arrays)
    close(found[0], reference(op, arrays)[0], op)


LAYOUTS = [
    ((2, 3, 700, 2), (3, 1, 1)),
    ((5, 26, 26), (5, 1, 1)),
    ((64, 16), (16,)),
    ((64, 16), (64, 1)),
    ((300, 7), ()),
    ((3, 1, 5), (1, 4, 1)),
    ((1, 1, 1), (1,)),
    ((9, 8, 7, 6, 5), (8, 1, 6, 1)),
    ((2000, 3), (2000, 3)),
]


@pytest.mark.parametrize(("first", "second"), LAYOUTS)
@pytest.mark.parametrize("isa", native.isas())
def test_broadcasting_in_blocks_of_several_rows(first, second, isa):
    before = native.isa()
    native.set_isa(isa)
    try:
        op, a, b = ROWS["sub"](), numbers(*first), numbers(*second)
        for x, y in (
            (a, b),
            (b, a),
            (np.asfortranarray(a), b),
            (a[::-1], b),
            (a, np.asfortranarray(b)),
        ):
            assert np.array_equal(run_launch(op, [x, y])[0], x - y)
    finally:
        native.set_isa(before)


@st.composite
def broadcastable(draw):
    """Two shapes that broadcast, and for each a way to lie in memory."""
    whole = draw(st.lists(st.integers(1, 7), max_size=5))
    arrays = []
    for _ in range(2):
        shape = [1 if draw(st.booleans()) else n for n in whole[draw(st.integers(0, len(whole))) :]]
        layout = draw(st.permutations(range(len(shape))))
        wide = rng.standard_normal([shape[k] * 2 for k in layout]).astype(np.float32)
        x = wide.transpose(np.argsort(layout)) if shape else wide
        step = [draw(st.sampled_from([1, 2, -1])) for _ in shape]
        arrays.append(
            x[tuple(slice(None, None, s) if abs(s) == 1 else slice(0, None, 2) for s in step)][
                tuple(slice(0, n) for n in shape)
            ]
        )
    return [np.asarray(a) for a in arrays]


@settings(max_examples=150, deadline=None)
@given(broadcastable())
def test_any_shapes_and_strides(arrays):
    assert np.array_equal(run_launch(ROWS["mul"](), arrays)[0], arrays[0] * arrays[1])


@pytest.mark.parametrize("have", ["float32", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("want", ["float32", "int64", "int32", "uint8", "bool"])
def test_casts(have, want):
    x = np.array([0, 1, 2, 200, 255, 3, 0]).astype(have)
    op = ROWS["cast"](to=want)
    found = run_launch(op, [x])
    assert (found is None) == (have == want or (have, want) == ("bool", "uint8"))
    if found is not None:
        assert found[0].dtype == want and np.array_equal(found[0], x.astype(want))


@pytest.mark.parametrize("a", ["float32", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("b", ["float32", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize(
    "name", ["add", "mul", "div", "maximum", "equal", "less", "logical_and", "where"]
)
def test_types_meet_as_in_pytorch(name, a, b):
    op = ROWS[name]()
    x, y = np.array([0, 1, 2, 100, 7]).astype(a), np.array([3, 1, 0, 50, 7]).astype(b)
    arrays = [np.array([True, False, True, False, True]), x, y] if name == "where" else [x, y]
    want = reference(op, arrays)[0]
    if name not in ("equal", "less", "logical_and"):
        widest = "float32" if "float32" in (a, b) or name == "div" else np.result_type(a, b).name
        assert want.dtype == widest
    found = run_launch(op, arrays)
    assert found is None or (found[0].dtype == want.dtype and np.array_equal(found[0], want))
    if {a, b} <= {"float32", "int64"}:
        assert found is not None


def test_int64_beyond_what_a_float_can_hold():
    big = np.array([2**62, 2**53 + 1, -(2**63)], np.int64)
    near = big + np.array([0, -1, 0])
    assert run_launch(ROWS["equal"](), [big, near])[0].tolist() == [True, False, True]
    assert (
        run_launch(ROWS["add"](), [big, big])[0].tolist() == (big + big).tolist()
    )  # wraps, as NumPy does


def test_output_over_input():
    a, b = numbers(5000), numbers(5000)
    want = a - b
    kernel = ROWS["sub"]().launch(device("cpu"), [operand(a), operand(b)], [operand(a)]).kernels[0]
    execute(kernel, [a, b, a])
    assert np.array_equal(a, want)
    row = numbers(100, 1)
    x = numbers(100, 30)
    want = row - x
    execute(
        ROWS["sub"]().launch(device("cpu"), [operand(row), operand(x)], [operand(x)]).kernels[0],
        [row, x, x],
    )
    assert np.array_equal(x, want)


def test_chain_in_one_program_equals_ops_one_by_one():
    """y = relu((x - m) * s + t) + z, and also its middle value: two outputs, six instructions."""
    x, z = numbers(8, 5, 26, 26), numbers(8, 5, 26, 26)
    m, s, t = numbers(5, 1, 1), numbers(5, 1, 1), numbers()
    y, middle = np.empty_like(x), np.empty_like(x)
    arrays = [x, m, s, t, z]
    program = [
        Instruction("sub_f32", (0, 1)),
        Instruction("mul_f32", (6, 2)),
        Instruction("add_f32", (7, 3)),
        Instruction("relu_f32", (8,)),
        Instruction("add_f32", (9, 4)),
        Instruction("mul_f32", (10, 5)),
    ]
    kernel = encode(
        program, [operand(a) for a in arrays], [(11, operand(y)), (8, operand(middle))], [2.0]
    )
    execute(kernel, [*arrays, y, middle])
    want = (x - m) * s + t
    assert np.array_equal(middle, want)
    assert np.array_equal(y, (np.maximum(want, 0) + z) * np.float32(2))


def test_long_chain_keeps_within_scratch():
    x = numbers(3, 4000)
    y = np.empty_like(x)
    program = [Instruction("add_f32", (k, 0)) for k in range(60)]
    kernel = encode(program, [operand(x)], [(60, operand(y))])
    execute(kernel, [x, y])
    want = x
    for _ in range(60):
        want = want + x
    assert np.array_equal(y, want)
    assert encode(program * 2, [operand(x)], [(60, operand(y))]) is None


def test_malformed_programs_are_refused():
    x = numbers(10)
    kernel = encode([Instruction("add_f32", (0, 0))], [operand(x)], [(1, operand(x))])
    good = kernel.integers
    for position, value, message in [
        (0, 5, "build again"),
        (1, 99, "out of range"),
        (4, 3, "sizes that its header"),
        (len(good) - 6, 5000, "operation"),
        (len(good) - 4, 1, "does not exist yet"),
    ]:
        with pytest.raises(ValueError, match=message):
            program_of(kernel._replace(integers=changed(good, position, value)))
    with pytest.raises(ValueError, match="sizes that its header"):
        program_of(kernel._replace(buffers=(0,)))
    with pytest.raises(ValueError, match="no header"):
        program_of(kernel._replace(integers=()))


def test_sizes_beyond_32_bits():
    """[2^17, 1] - [2^17]: the output has 2^34 elements, and no number is cut to 32 bits."""
    n = 2**17
    f32 = np.dtype("float32")
    column, line = Operand((n, 1), f32, (1, 1)), Operand((n,), f32, (1,))
    whole = Operand((n, n), f32, (n, 1))
    kernel = encode([Instruction("sub_f32", (0, 1))], [column, line], [(2, whole)])
    assert list(kernel.integers[10:12]) == [n, n]
    x = Operand((n, n), f32, (n, 1))
    kernel = encode([Instruction("neg_f32", (0,))], [x], [(1, whole)])
    assert kernel.integers[10] == 2**34
    program_of(kernel)


def test_a_new_op_is_one_line(tmp_path):
    ops = pathlib.Path(shoestring.__file__).parent / "ops"
    table = tmp_path / "elementwise.py"
    line = 'row("cube", "x", "y = x^3", lambda x: x**3, "x * x * x", types=REAL)\n'
    table.write_text((ops / "elementwise.py").read_text() + line)
    script = ops.parent / "backends" / "cpu" / "generate_elementwise.py"
    if not script.exists():
        pytest.skip("an installation has no sources")
    loops = tmp_path / "loops.inc"
    subprocess.run([sys.executable, script, ops / "elementwise_rules.py", table, loops], check=True)
    assert "to[i] = static_cast<float>(x * x * x);" in loops.read_text()


def test_every_operation_is_reached_by_some_op():
    assert len(OPERATIONS) == len({number for number, *_ in OPERATIONS.values()})
    assert {name.rsplit("_", 1)[0] for name in OPERATIONS if not name.startswith("cast_")} <= set(
        OPS
    )


# ---- gradients at kinks and for infinities: values from PyTorch ----------------------------------
def grad(name, *values, seed=1.0, wrt=0, **attributes):
    xs = [leaf(np.array(v, np.float32), needs_grad=True) for v in values]
    y = getattr(F, name)(*xs, **attributes)
    dx = gradients(y, leaf(np.full(y.shape, seed, np.float32)), xs)[xs[wrt]]
    with np.errstate(all="ignore"):
        return evaluate([dx], {})[0].tolist()


def test_gradients_at_kinks():
    assert grad("relu", [-1, 0, 2]) == [0, 0, 1]
    assert grad("abs", [-2, 0, 3]) == [-1, 0, 1]
    assert grad("maximum", [1, 2, 3], [2, 2, 2]) == [0, 0.5, 1]
    assert grad("maximum", [1, 2, 3], [2, 2, 2], wrt=1) == [1, 0.5, 0]
    assert grad("minimum", [1, 2, 3], [2, 2, 2]) == [1, 0.5, 0]
    assert grad("clip", [-2, -1, 0, 1, 2], -1, 1) == [0, 1, 1, 1, 0]
    assert grad("leaky_relu", [-1, 0, 2], 0.25) == [0.25, 0.25, 1]


def test_gradients_of_pow():
    assert grad("pow", [-2, 0, 3], 2) == [-4, 0, 6]
    assert grad("pow", [0, 5], 0) == [0, 0]
    assert grad("pow", [0, 0], 1) == [1, 1]
    assert grad("pow", [0, 2], [3, 3], wrt=1) == [0, pytest.approx(8 * math.log(2))]
    assert math.isnan(grad("pow", [-2], [2], wrt=1)[0])
    assert grad("pow", [0], [-1]) == [-math.inf]


def test_untaken_branch_leaks_nothing():
    """where(a <= 0, exp(a), 1 + a) at a = 100: the gradient is 1, though exp(100) overflows."""
    a = leaf(np.array([100.0, -1.0], np.float32), needs_grad=True)
    zero, one = leaf(np.float32(0)), leaf(np.float32(1))
    y = F.where(F.less_equal(a, zero), F.exp(a), F.add(one, a))
    dx = gradients(y, leaf(np.ones(2, np.float32)))[a]
    with np.errstate(all="ignore"):
        assert evaluate([dx], {})[0].tolist() == [1, pytest.approx(math.exp(-1))]


def test_quotient_by_zero_then_masked():
    """[0, 1] / [0, 1] with the first masked out: the gradient is [0, 1]."""
    a, b = leaf(np.array([0, 1], np.float32), needs_grad=True), leaf(np.array([0, 1], np.float32))
    y = F.where(leaf(np.array([False, True])), F.div(a, b), leaf(np.float32(0)))
    dx = gradients(y, leaf(np.ones(2, np.float32)))[a]
    with np.errstate(all="ignore"):
        assert evaluate([dx], {})[0].tolist() == [0, 1]


def test_gradient_keeps_the_type_of_its_input():
    x = leaf(np.ones(3, np.float32), needs_grad=True)
    y = F.mul(x, leaf(np.ones(3, np.float64)))
    dx = gradients(y, leaf(np.ones(3)))[x]
    assert y.dtype == np.float64 and dx.dtype == np.float32


def test_batch_axis_counts_from_the_last_axis():
    add = ROWS["add"]()
    assert add.batch_axis((0, None), (8, 3, 4), (3, 1)) == 0
    assert add.batch_axis((None, 0), (3, 1), (8, 3, 4)) == 0
    assert add.batch_axis((1, 0), (2, 8, 3), (8, 1)) == 1
    assert add.batch_axis((0, 0), (8, 8), (8,)) == MIXED
    assert add.batch_axis((0, None), (8, 3), (8, 3)) == MIXED
    assert add.batch_axis((None, None), (8, 3), (8, 3)) is None
