"""ops/F.pyi is what the registry says now, and is valid."""

from __future__ import annotations

import ast

import shoestring  # noqa: F401  (registers the ops)
from shoestring.ir import OPS
from shoestring.ops import stubs


def test_the_stub_is_fresh():
    assert stubs.PATH.read_text() == stubs.text(), "run: python -m shoestring.ops.stubs"


def test_the_stub_declares_every_op_once():
    found = [f.name for f in ast.parse(stubs.text()).body if isinstance(f, ast.FunctionDef)]
    assert sorted(found) == sorted(
        name for name, cls in OPS.items() if cls.__module__.startswith("shoestring.ops.")
    )
