"""Random eager programs on values in every layout; tests/layout_machine.py runs many more."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layout_machine import Tape, play

import shoestring as ss

TAPES = st.binary(min_size=800, max_size=800)
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=SLOW)
@given(TAPES)
def test_programs_on_the_cpu(tape):
    play(Tape(tape))


@pytest.fixture
def default():
    before = ss.default_device()
    yield ss.default_device
    ss.default_device(before)


def test_programs_on_the_reference_device(default):
    default("reference")
    for seed in range(100):
        play(Random(seed))
