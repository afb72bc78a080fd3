"""The differentiation engine alone: `ir` and `autodiff`, on ops defined here.

Each program runs in a process of its own, in which neither the native module nor an op family can
be imported, and the package's own __init__.py is not run, so that what the engine imports is seen.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap

import shoestring

PREAMBLE = f"""
import importlib.util, sys, types

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if "_native" in name or name.startswith("shoestring.ops"):
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Blocked())
package = types.ModuleType("shoestring")  # the package without its __init__.py
package.__path__ = [{str(pathlib.Path(shoestring.__file__).parent)!r}]
sys.modules["shoestring"] = package

from dataclasses import dataclass
import numpy as np
from shoestring.autodiff import gradients
from shoestring.ir import OPS, Case, Cost, F, Op, ancestry, batch_leads, leaf

class Simple(Op):
    kind, cheap_to_recompute, cases, launch = "kernel", True, (), None
    batch_axis = batch_leads
    def cost(self, *shapes): return Cost(0, 0)

class Add(Simple):
    name = "add"
    def shape(self, a, b): return np.broadcast_shapes(a, b)
    def reference(self, a, b): return a + b
    def gradient(self, F, dy, y, a, b): return dy, dy

class Mul(Simple):
    name = "mul"
    def shape(self, a, b): return np.broadcast_shapes(a, b)
    def reference(self, a, b): return a * b
    def gradient(self, F, dy, y, a, b): return F.mul(dy, b), F.mul(dy, a)

class Sine(Simple):
    name = "sine"
    def shape(self, x): return x
    def reference(self, x): return np.sin(x)
    def gradient(self, F, dy, y, x): return (F.mul(dy, F.cosine(x)),)

class Cosine(Simple):
    name = "cosine"
    def shape(self, x): return x
    def reference(self, x): return np.cos(x)
    def gradient(self, F, dy, y, x):
        return (F.mul(F.mul(dy, F.sine(x)), leaf(np.full(x.shape, -1.0))),)

@dataclass(frozen=True, eq=False)
class SumTo(Simple):
    name = "sum_to"
    to: tuple = ()
    def shape(self, x): return self.to
    def reference(self, x):
        y = x.sum(tuple(range(x.ndim - len(self.to))))
        return y.sum(tuple(k for k, n in enumerate(self.to) if n != y.shape[k]), keepdims=True)
    def gradient(self, F, dy, y, x): return (F.add(dy, leaf(np.zeros(x.shape))),)

class Halves(Simple):
    name, outputs = "halves", 2
    def shape(self, x): return (x[0] // 2,), (x[0] // 2,)
    def reference(self, x): return x[:len(x) // 2], x[len(x) // 2:]
    def gradient(self, F, dy, y, x):
        return (F.join(*[d or leaf(np.zeros(v.shape)) for d, v in zip(dy, y)]),)

class Join(Simple):
    name = "join"
    def shape(self, a, b): return (a[0] + b[0],)
    def reference(self, a, b): return np.concatenate([a, b])
    def gradient(self, F, dy, y, a, b): return F.halves(dy)

def run(node):
    known = {{}}
    for n in ancestry([node]):
        if n.op is None: known[n] = n.value
        elif type(n.op).__name__ == "Output": known[n] = known[n.inputs[0]][n.op.index]
        else: known[n] = n.op.reference(*[known[i] for i in n.inputs])
    return known[node]

def one(y): return leaf(np.ones(y.shape))
"""


def alone(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(program)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_only_the_engine_is_imported():
    alone("""
        loaded = {name for name in sys.modules if name.startswith("shoestring.")}
        assert {name.split(".")[1] for name in loaded} == {"autodiff", "ir", "errors"}, loaded
        assert set(OPS) == {"add", "mul", "sine", "cosine", "sum_to", "halves", "join"}
    """)


def test_derivatives_of_any_order():
    alone("""
        x = leaf(np.array([0.3, 1.1]), needs_grad=True)
        y = F.sine(x)
        for order, want in enumerate([np.cos, lambda v: -np.sin(v), lambda v: -np.cos(v), np.sin]):
            y = gradients(y, one(y))[x]
            assert np.allclose(run(y), want(x.value)), order
    """)


def test_values_used_several_times_add_up():
    alone("""
        x = leaf(np.array([2.0]), needs_grad=True)
        square = F.mul(x, x)
        y = F.add(F.mul(square, square), x)                      # x^4 + x
        assert run(gradients(y, one(y))[x]) == 4 * 2.0 ** 3 + 1
        assert run(gradients(y, one(y), [square])[square]) == 2 * 4.0
    """)


def test_a_broadcast_input_gets_a_gradient_of_its_own_shape():
    alone("""
        x, b = leaf(np.ones((4, 3)), needs_grad=True), leaf(np.ones((1,)), needs_grad=True)
        grads = gradients(F.mul(x, b), leaf(np.arange(12.0).reshape(4, 3)))
        assert grads[b].shape == (1,) and run(grads[b]) == 66
    """)


def test_several_outputs_of_which_one_is_used():
    alone("""
        x = leaf(np.array([1.0, 2.0, 3.0, 4.0]), needs_grad=True)
        left, right = F.halves(x)
        assert run(gradients(right, one(right))[x]).tolist() == [0, 0, 1, 1]
        both = F.mul(left, right)
        assert run(gradients(both, one(both))[x]).tolist() == [3, 4, 1, 2]
    """)


def test_what_takes_no_gradient_gets_none():
    alone("""
        x, c = leaf(np.ones(2), needs_grad=True), leaf(np.ones(2))
        y = F.mul(x, c)
        assert set(gradients(y, one(y))) == {x}
        assert gradients(F.mul(c, c), one(c), [x]) == {}
    """)


def test_a_deep_graph_needs_no_deep_stack():
    alone("""
        x = y = leaf(np.ones(1), needs_grad=True)
        for _ in range(20_000):
            y = F.add(y, x)
        assert run(gradients(y, one(y))[x]) == 20_001
    """)
