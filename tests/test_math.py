"""exp, log, tanh, erf, sin, cos, pow against float64: errors in units in the last place."""

from __future__ import annotations

import math

import numpy as np
import pytest

import shoestring  # noqa: F401  (registers the ops)
from shoestring.ir import OPS
from shoestring.testing import run_launch

native = pytest.importorskip("shoestring.backends.cpu._native")


def every(stride: int) -> np.ndarray:
    """Each stride-th of all 2^32 floats, NaN and infinities among them."""
    return np.arange(0, 2**32, stride, np.uint32).view(np.float32)


def between(low: float, high: float, count: int = 400_000) -> np.ndarray:
    return np.linspace(low, high, count, dtype=np.float32)


def units(y: np.ndarray, want: np.ndarray) -> float:
    """The largest error in units in the last place; infinite where NaN or infinity is missed."""
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
    special = ~np.isfinite(rounded)
    if (
        not np.array_equal(y[special], rounded[special], equal_nan=True)
        or not np.isfinite(y[~special]).all()
    ):
        return math.inf
    _, exponent = np.frexp(want[~special])
    unit = np.ldexp(1.0, np.maximum(exponent, -125) - 24)
    return float(np.max(np.abs(y[~special] - want[~special]) / unit, initial=0))


EXACT = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
    "erf": np.frompyfunc(math.erf, 1, 1),
    "softplus": lambda x: np.logaddexp(0, x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
DENSE = {
    "exp": (-104, 89),
    "log": (0.3, 3),
    "tanh": (-10, 10),
    "erf": (-4.5, 4.5),
    "sin": (-30, 30),
    "cos": (-30, 30),
    "sqrt": (0, 4),
    "softplus": (-20, 20),
    "sigmoid": (-20, 20),
}
FEWER = {"erf": 60_000}  # math.erf has no vector form


@pytest.fixture(params=native.isas())
def isa(request):
    before = native.isa()
    native.set_isa(request.param)
    yield request.param
    native.set_isa(before)


@pytest.mark.parametrize("name", EXACT)
def test_within_four_units(name, isa):
    x = np.concatenate(
        [
            every(4_000_037 if name == "erf" else 40_009),
            between(*DENSE[name], FEWER.get(name, 400_000)),
        ]
    )
    if name in ("sin", "cos"):
        x = x[~(np.abs(x) > 2**20) | np.isinf(x)]
    with np.errstate(all="ignore"):
        want = EXACT[name](x.astype(np.float64)).astype(np.float64)
    y = run_launch(OPS[name](), [x])[0]
    tiny = (
        np.abs(want) < 1e-37 if name == "sigmoid" else np.zeros(x.shape, bool)
    )  # e^-x overflows before its inverse
    assert units(np.where(tiny, want, y), want) <= 4


def test_pow_within_four_units(isa):
    rng = np.random.default_rng(0)
    a = np.concatenate(
        [
            rng.uniform(0, 4, 200_000),
            rng.uniform(-50, 50, 50_000),
            10 ** rng.uniform(-38, 38, 50_000),
        ]
    )
    b = np.concatenate(
        [rng.uniform(-10, 10, 200_000), rng.integers(-12, 12, 50_000), rng.uniform(-3, 3, 50_000)]
    )
    a, b = a.astype(np.float32), b.astype(np.float32)
    with np.errstate(all="ignore"):
        want = np.power(a.astype(np.float64), b.astype(np.float64))
    assert units(run_launch(OPS["pow"](), [a, b])[0], want) <= 4


def test_pow_of_special_values(isa):
    values = [
        0.0,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        1,
        -1,
        0.5,
        -0.5,
        2,
        -2,
        3,
        -3,
        1e-45,
        2.5,
        -2.5,
        1e30,
        2.0**24,
        2.0**24 - 1,
        -(2.0**24) + 1,
    ]
    a, b = (np.ascontiguousarray(g, np.float32).reshape(-1) for g in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        want = np.power(a.astype(np.float64), b.astype(np.float64)).astype(np.float32)
    y = run_launch(OPS["pow"](), [a, b])[0]
    assert np.allclose(y, want, rtol=1e-6, atol=0, equal_nan=True)
    assert (
        np.array_equal(np.signbit(y), np.signbit(want))
        or (np.signbit(y) != np.signbit(want))[~np.isnan(want)].sum() == 0
    )


@pytest.mark.parametrize("name", ["tanh", "erf", "sin"])
def test_odd_functions_keep_the_sign_of_zero(name, isa):
    y = run_launch(OPS[name](), [np.array([0.0, -0.0], np.float32)])[0]
    assert np.signbit(y).tolist() == [False, True]
