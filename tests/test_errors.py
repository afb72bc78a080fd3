"""Every place that raises has a message that a test asserts, passes the one function, and calls the
hooks."""

import ast
import importlib.util
import pathlib

import numpy as np
import pytest

import shoestring as ss
from shoestring import errors
from shoestring.ir import OPS, F, leaf

HERE = pathlib.Path(__file__).parent
PACKAGE = pathlib.Path(errors.PACKAGE)


def triggers():
    found = {}
    for path in sorted((HERE / "errors").glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"errors_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        twice = set(found) & set(module.TRIGGERS)
        assert not twice, f"{path.name} triggers {twice} again"
        found.update(module.TRIGGERS)
    return found


TRIGGERS = triggers()


def test_every_place_has_a_message_that_is_asserted():
    assert set(TRIGGERS) == set(errors.places())


@pytest.mark.parametrize("place", sorted(TRIGGERS))
def test_message(place):
    trigger, parts = TRIGGERS[place]
    seen = []
    with ss.debug.on_failure(seen.append), pytest.raises(errors.ShoestringError) as caught:
        trigger()
    error = caught.value
    assert error.place == place and error.stage in errors.STAGES
    assert parts and all(part in str(error) for part in parts), str(error)
    assert seen[-1] is error, "the hook was not called"
    assert "  try:  " in str(error), "the message does not say what to do"


def test_nothing_raises_past_the_one_function():
    """Allowed: `raise` alone, Python's attribute protocol, methods that subclasses must define, and
    parsers whose exceptions the caller expects (argparse, int-like conversions)."""
    allowed = {
        "AttributeError",
        "NotImplementedError",
        "ArgumentTypeError",
        "ValueError",
        "problem",
    }
    for path in PACKAGE.rglob("*.py"):
        # runs while building, not in the package
        if path.name.startswith("generate_"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and node.exc is not None:
                name = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                text = getattr(name, "attr", getattr(name, "id", "?"))
                assert text in allowed, f"{path.name}:{node.lineno} raises {text}"


@pytest.mark.parametrize("name", sorted(OPS))
def test_a_failing_op_of_any_kind_calls_the_hook(name):
    seen = []
    cls = OPS[name]
    count = 9 if cls.arity is not None else 0
    inputs = [leaf(np.zeros((2, 3, 5, 7), np.float32))] * count
    if cls.arity is None:
        inputs = [leaf(np.zeros(2, np.float32)), leaf(np.zeros((3, 3), np.float32))]
    with ss.debug.on_failure(seen.append), pytest.raises(errors.ShoestringError):
        getattr(F, name)(*inputs)
    assert len(seen) == 1 and name in str(seen[0])


def test_an_error_in_a_layer_names_its_path_even_if_the_root_is_not_called():
    class Net(ss.Module):
        def __init__(self):
            self.block = [ss.Sequential(ss.Conv2D(4, 8, 3))]

        def forward(self, x):
            return self.block[0](x)

    with pytest.raises(errors.ShapeError) as caught:
        Net().forward(ss.zeros(1, 3, 8, 8))
    assert "layer block.0.0, test_errors.py:" in str(caught.value)


def test_an_error_in_backward_names_the_forward_layer(monkeypatch):
    net = ss.Sequential(ss.Linear(3, 2))
    loss = net(ss.zeros(1, 3)).sum()
    monkeypatch.setattr(
        OPS["matmul"], "gradient", lambda self, F, dy, y, a, b: (F.conv2d(dy), None)
    )
    with pytest.raises(errors.ShapeError) as caught:
        loss.backward()
    assert "layer 0" in str(caught.value)
