"""What all tests share: data, a clean runtime, and the verification of every draft that the
compiler makes."""

import gc
import os
import pathlib

import pytest

_data = pathlib.Path(__file__).parent.parent.parent / "shared" / "data"
if _data.exists():
    os.environ.setdefault("SHOESTRING_DATA", str(_data))


@pytest.fixture(autouse=True)
def clean_runtime():
    """Nothing pending from the test before, seed 0, no plans, drafts verified."""
    import shoestring as ss
    from shoestring import runtime

    runtime.DIRTY.clear()
    runtime.session.settle, runtime.session.keep, runtime.session.check = False, True, True
    runtime.session.trace = None
    ss.memory_limit(None)
    runtime.PLANS.clear()
    ss.seed(0)
    ss.reset_stats()
    yield
    runtime.session.check = True


@pytest.fixture(autouse=True, scope="module")
def collect():
    yield
    gc.collect()
