"""What the tests of compiled steps share."""

import numpy as np

import shoestring as ss

X = np.array([[1.0, -2.0], [3.0, 4.0]], np.float32)

SCALE = 2.0


class Scaled(ss.Module):
    factor = 3.0

    def __init__(self):
        self.layers = [ss.Linear(2, 2), ss.Tanh()]
        self.parts = {"a": ss.ReLU()}
        self.slope, self.name, self.extra = 0.5, "one", None
        self.table = ss.tensor([1.0, 2.0])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        x = self.parts["a"](x) * self.slope * self.factor + self.table * SCALE
        if self.extra is not None:
            x = x + self.extra
        return x if self.name == "one" else -x


def value(result):
    """A result as plain Python, to compare."""
    if isinstance(result, (tuple, list)):
        return [value(r) for r in result]
    if isinstance(result, dict):
        return {k: value(r) for k, r in result.items()}
    return None if result is None else (result.tolist(), str(result.dtype))


def checked(fn, *changes, x=X):
    """fn compiled against fn plain, after each change; twice, so that the second is a replay."""
    run, x = ss.compile(fn), ss.tensor(x)
    for change in [lambda: None, *changes]:
        change()
        ss.seed(0)
        expected = value(fn(x))
        for _ in range(2):
            ss.seed(0)
            assert value(run(x)) == expected
    traces = run.traces
    run(x)
    assert run.traces == traces, "a step whose surroundings stay is replayed"
    return run
