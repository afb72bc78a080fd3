"""Random eager programs on values in every layout, against NumPy in float64.

A program is a few rounds of a training loop. Each round computes on parameters, on fresh data laid
out in odd ways and on values kept from the rounds before; it looks at some results, differentiates
some, updates parameters. NumPy does the same beside it; a gradient is compared along a random
direction with the central difference of NumPy's own program. Every launch is compared with its
reference too (runtime/inspection.py).

    PYTHONPATH=src python tests/layout_machine.py 20000 [first seed]
"""

import math
import sys
from random import Random

import numpy as np

import shoestring as ss
from shoestring import runtime
from shoestring.ir import OPS
from shoestring.runtime.inspection import Sample
from shoestring.tensor import wrap_view
from shoestring.testing import LAYOUTS, laid_out

MOST_ELEMENTS, LARGEST, STEP = 240, 30.0, 1e-5


class Tape(Random):
    """Decisions read from bytes, so that hypothesis can shorten a program; after their end always
    the first choice."""

    def __new__(cls, tape):
        return super().__new__(cls)

    def __init__(self, tape):
        super().__init__(0)
        self.bytes = iter(tape)

    def getrandbits(self, k):
        found = 0
        for _ in range(-(-k // 8)):
            found = found << 8 | next(self.bytes, 0)
        return found & ((1 << k) - 1)

    def random(self):
        return self.getrandbits(16) / 2**16

    def _randbelow(self, n):
        return self.getrandbits(8 if n <= 256 else 40) % n


class Unfit(Exception):
    """An instruction that these operands do not allow."""


def need(holds):
    if not holds:
        raise Unfit


def axis_of(rng, a):
    need(a.ndim)
    return rng.randrange(a.ndim)


def some_axes(rng, a):
    return tuple(k for k in range(a.ndim) if rng.random() < 0.5)


# ---- instructions: (rng, operands as arrays) -> (on tensors, on arrays) --------------------------
def transpose(rng, a):
    order = list(range(a.ndim))
    rng.shuffle(order)
    return lambda x: x.transpose(*order) if order else x, lambda x: x.transpose(order)


def swap(rng, a):
    need(a.ndim == 2)
    return lambda x: x.T, lambda x: x.T


def flip(rng, a):
    axis = axis_of(rng, a)
    return lambda x: x.flip(axis), lambda x: np.flip(x, axis)


def part(rng, n):
    if rng.random() < 0.3:
        return slice(None)
    if rng.random() < 0.3:
        return rng.randrange(n)
    first, end = sorted(rng.sample(range(n + 1), 2))
    step = rng.choice([1, 1, 2, 3])
    if rng.random() < 0.3:
        return slice(end - 1, first - 1 if first else None, -step)
    return slice(first, end, step)


def picked(rng, a):
    need(a.ndim)
    index = tuple(part(rng, n) for n in a.shape)
    return lambda x: x[index], lambda x: x[index]


def expand(rng, a):
    shape = tuple(rng.choice([2, 3, 4]) if n == 1 and rng.random() < 0.7 else n for n in a.shape)
    shape = (rng.choice([2, 3]), *shape) if rng.random() < 0.5 else shape
    return lambda x: x.expand(*shape), lambda x: np.broadcast_to(x, shape)


def unsqueeze(rng, a):
    axis = rng.randrange(a.ndim + 1)
    need(a.ndim < 4)
    return lambda x: x.unsqueeze(axis), lambda x: np.expand_dims(x, axis)


def reshape(rng, a):
    left, shape = a.size, []
    for prime in (2, 3, 2, 5):
        if left % prime == 0 and rng.random() < 0.6:
            shape.append(prime)
            left //= prime
    shape.insert(rng.randrange(len(shape) + 1), left)
    return lambda x: x.reshape(*shape), lambda x: x.reshape(shape)


def contiguous(rng, a):
    return lambda x: x.contiguous(), lambda x: x.copy()


UNARY = {
    "tanh": (lambda x: ss.tanh(x), np.tanh),
    "exp": (lambda x: ss.exp(ss.tanh(x)), lambda x: np.exp(np.tanh(x))),
    "sigmoid": (lambda x: ss.sigmoid(x), lambda x: 1 / (1 + np.exp(-x))),
    "silu": (lambda x: ss.silu(x), lambda x: x / (1 + np.exp(-x))),
    "softplus": (lambda x: ss.softplus(x), lambda x: np.logaddexp(x, 0)),
    "relu": (lambda x: ss.relu(x), lambda x: np.maximum(x, 0)),
    "neg": (lambda x: -x, lambda x: -x),
    "square": (lambda x: x * x, lambda x: x * x),
    "root": (lambda x: (x * x + 1.0).sqrt(), lambda x: np.sqrt(x * x + 1)),
    "scale": (lambda x: x * 0.5 + 1.0, lambda x: x * 0.5 + 1),
    "into": (lambda x: in_place(x), lambda x: x * 2 - 1),
}


def in_place(x):
    y = x * 1
    y *= 2
    y -= 1.0
    return y


def unary(rng, a):
    return UNARY[rng.choice(sorted(UNARY))]


BINARY = {
    "add": (lambda x, y: x + y, np.add),
    "sub": (lambda x, y: x - y, np.subtract),
    "mul": (lambda x, y: x * y, np.multiply),
    "div": (lambda x, y: x / (ss.tanh(y) + 2.0), lambda x, y: x / (np.tanh(y) + 2)),
    "maximum": (lambda x, y: ss.maximum(x, y), np.maximum),
    "where": (
        lambda x, y: ss.where(x > y, x - y, (y - x) * 2),  # no jump where they are equal
        lambda x, y: np.where(x > y, x - y, (y - x) * 2),
    ),
}


def binary(rng, a, b):
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise Unfit from None
    return BINARY[rng.choice(sorted(BINARY))]


def product(rng, a, b):
    need(a.ndim >= 2 and b.ndim >= 2 and a.ndim + b.ndim < 7)
    if a.shape[-1] != b.shape[-2]:
        need(a.shape[-1] == b.shape[-1])
        return (
            (
                lambda x, y: x @ y.transpose(*range(y.ndim - 2), y.ndim - 1, y.ndim - 2),
                lambda x, y: x @ y.swapaxes(-1, -2),
            )
            if a.shape[:-2] == b.shape[:-2]
            else binary(rng, a, b)
        )
    need(a.shape[:-2] == b.shape[:-2] or 2 in (a.ndim, b.ndim))
    return lambda x, y: x @ y, lambda x, y: x @ y


REDUCTIONS = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "var": lambda x, axis, keepdims: np.var(x, axis=axis, keepdims=keepdims),
}


def reduction(rng, a):
    axes, name, keep = some_axes(rng, a), rng.choice(sorted(REDUCTIONS)), rng.random() < 0.5
    need(axes)
    more = dict(correction=0) if name == "var" else {}
    return (
        lambda x: getattr(x, name)(axis=axes, keepdims=keep, **more),
        lambda x: REDUCTIONS[name](x, axis=axes, keepdims=keep),
    )


def softmax(rng, a):
    axis = axis_of(rng, a)

    def on_arrays(x):
        e = np.exp(x - x.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    return lambda x: ss.softmax(x, axis=axis), on_arrays


def log_softmax(rng, a):
    axis = axis_of(rng, a)

    def on_arrays(x):
        x = x - x.max(axis, keepdims=True)
        return x - np.log(np.exp(x).sum(axis, keepdims=True))

    return lambda x: ss.log_softmax(x, axis=axis), on_arrays


def concat(rng, a, b):
    need(a.ndim == b.ndim and a.ndim)
    axis = axis_of(rng, a)
    need(all(n == m for k, (n, m) in enumerate(zip(a.shape, b.shape, strict=True)) if k != axis))
    return lambda x, y: ss.concat([x, y], axis=axis), lambda x, y: np.concatenate([x, y], axis)


def stack(rng, a, b):
    need(a.shape == b.shape and a.ndim < 4)
    axis = rng.randrange(a.ndim + 1)
    return lambda x, y: ss.stack([x, y], axis=axis), lambda x, y: np.stack([x, y], axis)


def pad(rng, a):
    widths = [(rng.randrange(2), rng.randrange(2)) for _ in a.shape]
    need(widths)
    return lambda x: ss.pad(x, widths), lambda x: np.pad(x, widths)


def taken(rng, a):
    axis = axis_of(rng, a)
    index = [rng.randrange(a.shape[axis]) for _ in range(rng.randrange(1, 5))]
    at = (*[slice(None)] * axis, np.array(index))
    return lambda x: x[at], lambda x: x[at]


def assigned(rng, a, b):
    index = tuple(part(rng, n) for n in a.shape)
    need(a.ndim and np.zeros(a.shape)[index].shape == b.shape)

    def on_tensors(x, y):
        x = x * 1
        x[index] = y
        return x

    def on_arrays(x, y):
        x = x.copy()
        x[index] = y
        return x

    return on_tensors, on_arrays


def convolution(rng, a, w):
    need(a.ndim == 4 and w.ndim == 4 and a.shape[1] == w.shape[1])
    stride, padding = rng.choice([1, 2]), rng.choice([0, 1])
    need(all(n + 2 * padding >= r for n, r in zip(a.shape[2:], w.shape[2:], strict=True)))
    op = OPS["conv2d"](stride=(stride,) * 2, padding=((padding,) * 2,) * 2)
    return lambda x, w: ss.conv2d(x, w, stride=stride, padding=padding), op.reference


def pooling(rng, a):
    need(a.ndim == 4 and min(a.shape[2:]) >= 2)
    N, C, P, Q = a.shape[0], a.shape[1], a.shape[2] // 2, a.shape[3] // 2

    def windows(x):
        return x[:, :, : 2 * P, : 2 * Q].reshape(N, C, P, 2, Q, 2)

    if rng.random() < 0.5:
        return lambda x: ss.avg_pool2d(x, 2), lambda x: windows(x).mean((3, 5))
    return lambda x: ss.max_pool2d(x, 2), lambda x: windows(x).max((3, 5))


def normalised(rng, a):
    need(a.ndim == 4 and a.size > 2 * a.shape[1])
    axes, layer = (0, 2, 3), ss.BatchNorm2D(a.shape[1])

    def on_arrays(x):
        return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)

    need(a.var(axes).min() > 1e-2)
    return layer, on_arrays


def cross_entropy(rng, a):
    need(a.ndim == 2)
    labels = np.array([rng.randrange(a.shape[1]) for _ in range(a.shape[0])])

    def on_arrays(x):
        x = x - x.max(1, keepdims=True)
        return (np.log(np.exp(x).sum(1)) - x[np.arange(len(x)), labels]).mean()

    return lambda x: ss.cross_entropy(x, ss.tensor(labels)), on_arrays


def counted(rng, a, b):
    """A comparison as numbers: no gradient flows through it."""
    need(a.shape == b.shape)
    return lambda x, y: (x > y).float(), lambda x, y: (x > y).astype(np.float64)


VIEWS = (transpose, swap, flip, picked, picked, expand, unsqueeze, reshape)
ONE = (unary, unary, reduction, softmax, log_softmax, pad, taken, pooling, pooling, normalised)
ONE += (cross_entropy, contiguous)
TWO = (binary, binary, binary, product, product, concat, stack, assigned, convolution, counted)


class Machine:
    """tensors, arrays  values of the program, the same in both;  program: how this round's came
    about, {number: (function on arrays, numbers of its operands)}"""

    def __init__(self, rng):
        self.rng = rng
        self.tensors, self.arrays, self.program, self.log = [], [], {}, []
        self.parameters = [ss.Parameter(self.data(self.shape())) for _ in range(rng.choice([1, 2]))]
        self.values = [p.numpy().astype(np.float64) for p in self.parameters]

    def shape(self):
        kind = self.rng.random()
        if kind < 0.3:  # images and filters that fit each other
            return (
                self.rng.choice([1, 2]),
                self.rng.choice([2, 2, 3]),
                *self.rng.choices([2, 3, 4], k=2),
            )
        return tuple(self.rng.choices([1, 2, 3, 4, 6], k=self.rng.choice([0, 1, 2, 2, 2, 3])))

    def data(self, shape):
        draw = np.random.default_rng(self.rng.randrange(2**32))
        return draw.uniform(-1, 1, shape).astype(np.float32)

    def add(self, tensor, array, how=None):
        self.tensors.append(tensor)
        self.arrays.append(array)
        if how is not None:
            self.program[len(self.arrays) - 1] = how

    # ---- a round ---------------------------------------------------------------------------------
    def start(self):
        """What is left of the rounds before is data now; parameters and fresh data join it."""
        self.program.clear()
        old = [(t.detach(), a) for t, a in zip(self.tensors, self.arrays, strict=True)]
        self.tensors, self.arrays = [], []
        for tensor, array in self.rng.sample(old, min(len(old), 3)):
            self.add(tensor, array)
        for k, p in enumerate(self.parameters):
            self.add(p, self.values[k], ("parameter", k))
        for _ in range(self.rng.choice([1, 2])):
            data = self.data(self.shape())
            self.add(self.placed(data), data.astype(np.float64))

    def placed(self, data):
        """Data in some layout, as views of plain tensors give it."""
        layout = self.rng.choice(["", *LAYOUTS[:3]])
        if layout == "transposed":
            return ss.tensor(data.T.copy()).transpose(*reversed(range(data.ndim)))
        if layout == "reversed" and data.ndim:
            x = ss.tensor(data[::-1].copy())
            return wrap_view(x, "flip", dict(axes=(0,)))
        if layout == "spread" and data.ndim:
            wide = laid_out(data, "spread").base
            return ss.tensor(wide)[tuple(slice(1, 2 * n + 1, 2) for n in data.shape)]
        return ss.tensor(data)

    def instruction(self):
        rng = self.rng
        kind = rng.random()
        make = rng.choice(VIEWS if kind < 0.4 else ONE if kind < 0.7 else TWO)
        numbers = [self.operand() for _ in range(1 if make in VIEWS or make in ONE else 2)]
        try:
            on_tensors, on_arrays = make(rng, *[self.arrays[k] for k in numbers])
            array = np.asarray(on_arrays(*[self.arrays[k] for k in numbers]))
            need(0 < array.size <= MOST_ELEMENTS and array.ndim <= 6)
            need(float(np.max(np.abs(array))) < LARGEST)
        except Unfit:
            return
        self.log.append(f"{len(self.arrays)} = {make.__name__}{numbers} {list(array.shape)}")
        tensor = on_tensors(*[self.tensors[k] for k in numbers])
        how = ("constant", array) if make is counted else (on_arrays, numbers)
        self.add(tensor, array, how)
        assert tensor.shape == array.shape, (self.log, tensor.shape)

    def operand(self):
        """The younger a value is, the likelier."""
        n = len(self.arrays)
        return n - 1 - min(int(self.rng.expovariate(0.5)), n - 1)

    def look(self, k):
        self.log.append(f"look {k}")
        self.compare(self.tensors[k].numpy(), self.arrays[k], f"value {k}")

    def compare(self, got, want, what):
        allowed = 3e-4 * (1 + float(np.max(np.abs(want), initial=0)))
        error = float(np.max(np.abs(got - want), initial=0))
        assert got.shape == want.shape and error <= allowed, (what, error, self.log)

    def again(self, values):
        """NumPy's arrays of this round from other values of the parameters."""
        arrays = list(self.arrays)
        for k, (how, what) in self.program.items():
            if how == "parameter":
                arrays[k] = values[what]
            elif how == "constant":
                arrays[k] = what
            else:
                arrays[k] = np.asarray(how(*[arrays[n] for n in what]))
        return arrays

    def differentiate(self):
        rng = self.rng
        ends = [k for k in self.program if self.tensors[k].requires_grad]
        ends = rng.sample(ends, min(len(ends), rng.choice([1, 2])))
        weights = [self.data(self.arrays[k].shape) for k in ends]
        if not ends:
            return
        self.log.append(f"backward of {ends}")
        loss = sum(
            ((self.tensors[k] * self.placed(w)).sum() for k, w in zip(ends, weights, strict=True)),
            start=ss.tensor(0.0),
        )
        if rng.random() < 0.3:
            loss.item()
        loss.backward()

        def value(arrays):
            return sum(float((arrays[k] * w).sum()) for k, w in zip(ends, weights, strict=True))

        grads = [p.grad for p in self.parameters]
        if rng.random() < 0.3:
            self.look(rng.randrange(len(self.arrays)))
        update = rng.random() < 0.7
        if update and rng.random() < 0.5:
            self.update(grads)
            update = False
        for k, gradient in enumerate(grads):
            direction = self.data(self.values[k].shape)
            up, here, down = (
                value(self.again(replaced(self.values, k, self.values[k] + s * direction)))
                for s in (STEP, 0, -STEP)
            )
            want = (up - down) / (2 * STEP)
            products = gradient.numpy() * direction if gradient is not None else np.zeros(1)
            scale = 0.1 + float(np.abs(products).sum()) + abs(want)
            error = abs(float(products.sum()) - want)
            if abs(up - 2 * here + down) > 1e-3 * STEP * scale:
                continue  # a kink or a jump: two values that happen to be equal
            assert error <= 2e-3 * scale, (f"gradient {k}", float(products.sum()), want, self.log)
        if update:
            self.update(grads)
        for p in self.parameters:
            p.grad = None
        self.values = [p.numpy().astype(np.float64) for p in self.parameters]

    def update(self, grads):
        self.log.append("update")
        for p, gradient in zip(self.parameters, grads, strict=True):
            if gradient is not None:
                p.assign(p - 0.1 * ss.tanh(gradient))

    def run(self):
        for _ in range(self.rng.choice([1, 2, 3])):
            self.start()
            for _ in range(self.rng.randrange(2, 10)):
                self.instruction()
                if self.rng.random() < 0.3:
                    self.look(self.rng.randrange(len(self.arrays)))
            kept = list(zip(self.tensors, self.arrays, strict=True))
            kept = [(t, a) for t, a in kept if not isinstance(t, ss.Parameter)]
            if self.rng.random() < 0.7:
                self.differentiate()
            for tensor, array in kept:  # values never change, whatever came after them
                if self.rng.random() < 0.5:
                    self.compare(tensor.numpy(), array, "kept")
            self.tensors, self.arrays = [t for t, _ in kept], [a for _, a in kept]


def replaced(values, k, value):
    return [*values[:k], value, *values[k + 1 :]]


def play(rng):
    """One program, every launch of it compared."""
    share, Sample.share = Sample.share, 1.0
    runtime.session.check = True
    try:
        Machine(rng).run()
    finally:
        Sample.share = share
        runtime.PLANS.clear()
        runtime.session.settle = False
        runtime.DIRTY.clear()


if __name__ == "__main__":
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    failures = []
    for seed in range(first, first + count):
        try:
            play(Random(seed))
        except Exception as problem:
            failures.append(seed)
            print(f"seed {seed}: {type(problem).__name__}: {str(problem)[:1500]}", flush=True)
    print(f"{count} programs, {len(failures)} failed: {failures[:20]}")
    assert math.isfinite(count) and not failures
