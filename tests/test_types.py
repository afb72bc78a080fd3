"""Types and numbers against NumPy 2: all pairs of types, all binary operators, Python numbers.

Where NumPy gives a type that does not exist here the result is the next one: float64 and float16
are float32, the int8 of bool ** bool is bool. Where NumPy raises, so do we, an error of its class.
"""

import operator
import warnings

import numpy as np
import pytest
import types_table

import shoestring as ss
from shoestring.backends.opencl import devices as opencl_devices

if np.lib.NumpyVersion(np.__version__) < "2.0.0":
    pytest.skip("compares with the rules of NumPy 2", allow_module_level=True)

TYPES = ["float32", "int64", "int32", "uint8", "bool"]
HERE = {"float64": "float32", "float16": "float32", "int8": "bool"}
ARITHMETIC = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
}
COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
BITS = {"&": operator.and_, "|": operator.or_, "^": operator.xor}
OPERATORS = ARITHMETIC | COMPARISONS | BITS | {"@": lambda a, b: a @ b}
FUNCTIONS = {"maximum": "maximum", "minimum": "minimum"}
BINARY = OPERATORS | {name: name for name in FUNCTIONS}
NUMBERS = [True, False, 0, 1, 3, -1, 200, 300, 2**31, 2**63, -(2**63), 2**64, 2.5, -0.5, 1e30]
DEVICES = ["cpu", "reference"]
ALL_DEVICES = [*DEVICES, *["opencl:0"][: len(opencl_devices())]]


def sample(dtype):
    return np.array([0, 1, 2, 7, 1, 0]).astype(dtype), np.array([1, 1, 3, 2, 0, 2]).astype(dtype)


def call(f, library, a, b):
    """f(a, b), or the exception."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            y = f(a, b) if callable(f) else getattr(library, f)(a, b)
            return y.numpy() if isinstance(y, ss.Tensor) else np.asarray(y)
    except Exception as problem:
        return problem


def agree(found, want):
    if isinstance(want, Exception):
        if getattr(found, "place", "") == "value/pow.negative":
            return  # NumPy says ValueError, or OverflowError where the exponent is uint8
        assert isinstance(found, type(want)) and isinstance(found, ss.ShoestringError), repr(found)
        return
    assert not isinstance(found, Exception), repr(found)
    assert found.dtype.name == HERE.get(want.dtype.name, want.dtype.name)
    assert found.shape == want.shape
    if want.dtype.kind == "f":
        with np.errstate(all="ignore"):
            want = want.astype(np.float32)
        np.testing.assert_allclose(found, want, rtol=2e-6)
    else:
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("a", TYPES)
@pytest.mark.parametrize("b", TYPES)
def test_pairs_of_types(a, b, name, device):
    x, y = sample(a)[0], sample(b)[1]
    if name == "**":
        y = np.abs(y)
    f = BINARY[name]
    found = call(f, ss, ss.tensor(x, device=device), ss.tensor(y, device=device))
    agree(found, call(f, np, x, y))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("number", NUMBERS, ids=repr)
@pytest.mark.parametrize("dtype", TYPES)
def test_python_numbers(dtype, number, name, device):
    if dtype == "float32" and number == 2**64 and name in FUNCTIONS:
        pytest.skip("np.maximum takes such a number for an object")
    if dtype == "bool" and name in COMPARISONS and not -(2**63) <= number < 2**63:
        pytest.skip("NumPy refuses what it answers for integers; see the test below")
    x, f = sample(dtype)[0], BINARY[name]
    t = ss.tensor(x, device=device)
    agree(call(f, ss, t, number), call(f, np, x, number))
    if name in ("**", *FUNCTIONS) and isinstance(call(f, np, number, x), Exception):
        return
    agree(call(f, ss, number, t), call(f, np, number, x))


@pytest.mark.parametrize("device", ALL_DEVICES)
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_of_integers_with_numbers_are_exact(name, device):
    """Python compares integers with floats exactly; a float32 could not tell these apart."""
    values = [2**53 - 1, 2**53, 2**53 + 1, -(2**63), 2**63 - 1, 0, -1, 16777217]
    x = ss.tensor(np.array(values), device=device)
    numbers = [2**53, 2**53 + 1, 2.0**53, 2.0**63, -(2.0**63), 2**63, -(2**63) - 1, 16777216.0]
    numbers += [16777217, 0.5, -0.5, 1e300, float("inf"), -float("inf"), float("nan"), True, 2**200]
    numbers += [np.float64(2.0**53), np.int64(2**53 + 1), np.float32(16777216)]
    for number in numbers:
        plain = number.item() if isinstance(number, np.generic) else number
        f = COMPARISONS[name]
        assert f(x, number).tolist() == [f(v, plain) for v in values], number
        assert f(number, x).tolist() == [f(plain, v) for v in values], number
    small = ss.tensor([0, 1, 255], dtype="uint8", device=device)
    for number in (-1, 255, 256, 254.5, 2**70):
        assert f(small, number).tolist() == [f(v, number) for v in (0, 1, 255)], number
    flags = ss.tensor([True, False], device=device)
    for number in (0, 1, 2, 0.5, True, -(2**70)):
        assert f(flags, number).tolist() == [f(v, number) for v in (True, False)], number


BIG = 2**53 + 1


@pytest.mark.parametrize("device", ALL_DEVICES)
@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.clip(0),
        lambda x: x.clip(maximum=2**62),
        lambda x: x.clip(-1, 2**62),
        lambda x: ss.clip(x, 0),
        lambda x: x.clip(ss.tensor([0], device=x.device)),
        lambda x: ss.maximum(x, 0),
        lambda x: ss.minimum(x, 2**62),
        lambda x: ss.maximum(0, x),
        lambda x: ss.where(x > 0, x, 0),
        lambda x: ss.where(True, x, 0),
        lambda x: x.abs(),
        lambda x: -1 * -x,
        lambda x: ss.sign(x) * x,
        lambda x: x + 0 - 0,
        lambda x: 1 * x,
        lambda x: x**1,
        lambda x: x.sum(),
        lambda x: x.max(),
        lambda x: x.min(),
        lambda x: ss.concat([x, x])[0],
        lambda x: x.relu(),
    ],
)
def test_int64_stays_exact(make, device):
    y = make(ss.tensor([BIG], device=device))
    assert y.dtype == np.int64 and np.asarray(y.tolist()).reshape(-1).tolist() == [BIG]


@pytest.mark.parametrize("device", ALL_DEVICES)
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
def test_bits(dtype, device):
    a, b = np.array([6, 1, 0, 127]).astype(dtype), np.array([3, 2, 1, 85]).astype(dtype)
    x, y = ss.tensor(a, device=device), ss.tensor(b, device=device)
    for found, want in (
        (x & y, a & b),
        (x | y, a | b),
        (x ^ y, a ^ b),
        (~x, ~a),
        (1 & x, 1 & a),
        (x | 2, a | 2),
        (True ^ x, True ^ a),
    ):
        assert found.dtype == want.dtype and found.tolist() == want.tolist()


def test_clip_meets_its_bounds_as_other_operands_do():
    x = ss.tensor([1, 200, 3], dtype="uint8")
    assert x.clip(2, 100).dtype == np.uint8 and x.clip(2, 100).tolist() == [2, 100, 3]
    assert x.clip(1.5).dtype == np.float32 and x.clip(1.5).tolist() == [1.5, 200, 3]
    low = ss.tensor([2**40])
    assert ss.tensor([5], dtype="int32").clip(low).tolist() == [2**40]
    assert ss.tensor([True, False]).clip(True).tolist() == [True, True]
    assert x.clip().tolist() == x.tolist()
    with pytest.raises(OverflowError):
        x.clip(0, 300)


def test_where_chooses_between_numbers():
    c = ss.tensor([True, False])
    assert ss.where(c, 3, 0).dtype == np.int64 and ss.where(c, 3, 0).tolist() == [3, 0]
    assert ss.where(c, 1, 0.5).dtype == np.float32 and ss.where(c, 1, 0.5).tolist() == [1, 0.5]
    assert ss.where(c, True, False).dtype == np.bool_
    small = ss.tensor([9, 9], dtype="uint8")
    assert ss.where(c, small, 0).dtype == np.uint8 and ss.where(c, 2.5, small).tolist() == [2.5, 9]
    with pytest.raises(OverflowError):
        ss.where(c, small, 256)


@pytest.mark.parametrize("scalar", ["bool", "int8", "int16", "uint16", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_numpy_scalars_have_a_type_of_their_own(dtype, scalar):
    x = np.array([1, 2], dtype)
    y = ss.tensor(x) + np.dtype(scalar).type(1)
    small = {"int8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64"}
    own = np.dtype("int64" if scalar == "uint64" else small.get(scalar, scalar))
    assert y.tolist() == [2, 3] and y.dtype == np.result_type(x, own)
    assert (ss.tensor(x) * np.float64(0.5)).dtype == np.float32
    assert (ss.tensor([0.5]) + np.float16(1)).dtype == np.float32


def test_in_place_keeps_type_and_shape():
    x = ss.tensor([1, 2], dtype="int32")
    x += ss.tensor([1, 1])
    x *= 2
    x **= 2
    assert x.dtype == np.int32 and x.tolist() == [16, 36]
    f = ss.tensor([1.0, 2.0])
    f -= ss.tensor([1, 1])
    f /= 2
    assert f.dtype == np.float32 and f.tolist() == [0, 0.5]
    for change in (lambda: x.__itruediv__(2), lambda: x.__iadd__(0.5)):
        with pytest.raises(TypeError):
            change()
    with pytest.raises(OverflowError):
        x += 2**31
    with pytest.raises(ValueError):
        x += ss.zeros(3, 2, dtype="int32")
    assert x.tolist() == [16, 36]


def test_integer_powers():
    x = ss.tensor([2, 1, -1, -1, 0, 3])
    assert (x ** ss.tensor([-1, -5, -2, -3, -1, 2])).tolist() == [0, 1, 1, -1, 0, 9]
    assert (2 ** ss.tensor([3, 0])).tolist() == [8, 1]
    for bad in (lambda: x**-1, lambda: ss.tensor([True]) ** -2, lambda: x ** np.int64(-1)):
        with pytest.raises(ValueError):
            bad()
    assert (x**-1.0).dtype == np.float32


def test_the_tables_of_the_page_are_fresh():
    assert types_table.page() == types_table.PATH.read_text(), (
        "run: python tests/types_table.py --write"
    )
