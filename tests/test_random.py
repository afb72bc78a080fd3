"""Random numbers: known answers, equal bits, and the edges that others get wrong."""

from __future__ import annotations

import numpy as np
import pytest

import shoestring  # noqa: F401  (registers the ops)
from shoestring.backends.cpu import _native
from shoestring.ir import OPS
from shoestring.ops import random
from shoestring.testing import run_launch


def key(seed=1, draw=0):
    return np.array([seed, draw], np.uint64)


def draw(name, count, *more, k=None):
    return run_launch(OPS[name](to=(count,)), [key() if k is None else k, *more])[0]


@pytest.mark.parametrize(
    ("counter", "key_words", "answer"),
    [
        (
            "00000000 00000000 00000000 00000000",
            "00000000 00000000",
            "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
        ),
        (
            "ffffffff ffffffff ffffffff ffffffff",
            "ffffffff ffffffff",
            "408f276d 41c83b0e a20bc7c6 6d5451fd",
        ),
        (
            "243f6a88 85a308d3 13198a2e 03707344",
            "a4093822 299f31d0",
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_known_answers_of_philox(counter, key_words, answer):
    """The vectors of Random123's kat_vectors for philox4x32-10."""
    words = [
        np.array([int(w, 16) for w in text.split()], np.uint64)
        for text in (counter, key_words, answer)
    ]
    assert np.array_equal(random.philox(words[0], words[1]), words[2])


@pytest.mark.parametrize("k", [key(0, 0), key(7, 3), key(2**63 - 1, 2**40 + 5)])
def test_kernel_equals_reference_bit_for_bit(k):
    for isa in _native.isas():
        before = _native.isa()
        _native.set_isa(isa)
        try:
            for count in (1, 3, 64, 65, 40_001):
                assert np.array_equal(draw("uniform", count, k=k), random.uniforms(k, count))
            p = np.float32(0.3).reshape(())
            assert np.array_equal(draw("bernoulli", 5000, p, k=k), random.uniforms(k, 5000) < p)
        finally:
            _native.set_isa(before)


def test_element_i_does_not_depend_on_how_many_there_are():
    assert np.array_equal(draw("uniform", 100), draw("uniform", 50_000)[:100])
    assert np.array_equal(draw("normal", 101), draw("normal", 50_000)[:101])


def test_draws_and_seeds_differ():
    found = {draw("uniform", 16, k=key(s, d)).tobytes() for s in range(20) for d in range(20)}
    assert len(found) == 400


def test_probabilities_zero_and_one_are_certain():
    """In particular for the words that round to 1.0 when divided by 2^32."""
    zero, one = np.float32(0).reshape(()), np.float32(1).reshape(())
    for d in range(20):  # 1e8 draws each
        assert not draw("bernoulli", 5_000_000, zero, k=key(5, d)).any()
        assert draw("bernoulli", 5_000_000, one, k=key(5, d)).all()
    largest = (np.uint64(0xFFFFFFFF) >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)
    assert largest < 1


def test_moments():
    u = draw("uniform", 1_000_000).astype("float64")
    assert (
        abs(u.mean() - 0.5) < 2e-3 and abs(u.var() - 1 / 12) < 1e-3 and u.min() >= 0 and u.max() < 1
    )
    n = draw("normal", 1_000_000).astype("float64")
    assert (
        abs(n.mean()) < 4e-3
        and abs(n.var() - 1) < 5e-3
        and abs((n**3).mean()) < 2e-2
        and abs((n**4).mean() - 3) < 5e-2
    )
    assert (
        abs(np.corrcoef(n[0::2], n[1::2])[0, 1]) < 5e-3
        and np.isfinite(n).all()
        and np.abs(n).max() > 4.5
    )
    assert abs(draw("bernoulli", 1_000_000, np.float32(0.25).reshape(())).mean() - 0.25) < 2e-3


def test_a_number_equal_to_p_gives_zero():
    u = random.uniforms(key(), 500)
    assert not draw("bernoulli", 500, u).any()
    assert not OPS["bernoulli"](to=(500,)).reference(key(), u).any()


def test_probability_per_element():
    p = np.linspace(0, 1, 1000, dtype=np.float32)
    assert np.array_equal(draw("bernoulli", 1000, p), random.uniforms(key(), 1000) < p)


def test_normal_is_close_to_its_formula():
    want = OPS["normal"](to=(200_000,)).reference(key(3, 9)).astype("float64")
    assert np.abs(draw("normal", 200_000, k=key(3, 9)) - want).max() < 2e-6
