"""Arguments of compiled steps work as in the plain call: their kinds, and what is assigned to
them."""

import math

import numpy as np
import pytest
from steps import X, value

import shoestring as ss
from shoestring.errors import TraceError


def test_assigning_to_an_argument_is_seen_by_the_caller():
    def step(x, y):
        x[0] = 5
        y *= 2
        return x.sum() + y.sum()

    run = ss.compile(step)
    for k in range(3):
        results = []
        for fn in (step, run):
            x, y = ss.tensor(X + k), ss.tensor(X * k)
            other = x[:]
            results.append(value((fn(x, y), x, y, other)))
        assert results[0] == results[1]
    same = ss.tensor(X), ss.tensor(X)
    step(same[0], same[0])
    run(same[1], same[1])
    assert same[0].tolist() == same[1].tolist()
    with pytest.raises(TraceError, match="an array"):
        run(X, ss.tensor(X))


def test_containers_as_arguments():
    def step(batch, *rest, options, flag=True):
        x, (y, names) = batch
        z = x * options["scale"] + y[0] if flag else x
        return {"z": z, "rest": [r * 2 for r in rest], "n": ss.tensor(len(names))}

    run = ss.compile(step)
    for scale, flag, names in [(2, True, "ab"), (3.5, True, "abc"), (3.5, False, "abc")]:
        given = ((ss.tensor(X), ([ss.tensor(X), None], names)), ss.tensor([1, 2]))
        options = {"scale": scale, "other": None}
        expected = value(step(*given, options=options, flag=flag))
        for _ in range(2):
            assert value(run(*given, options=options, flag=flag)) == expected
    with pytest.raises(TraceError, match="a list that it got"):
        ss.compile(lambda out, x: out.append(1))([], ss.tensor(X))


def test_plain_values_as_arguments():
    def step(x, kind, power, where, n, dtype, part):
        y = x**power if kind == "power" else ss.tanh(x)
        y = y if where is None else y + where
        return y.astype(dtype)[:n, part] + n

    run = ss.compile(step)
    cases = [
        ("power", 2, None, 1, "float32", slice(None)),
        ("power", 3, None, 1, "float32", slice(None)),
        ("tanh", 3, 1, 2, "int64", slice(1, None)),
        ("tanh", 3, True, 2, "int64", slice(1, None)),
        ("tanh", 3, 1.5, 2, np.dtype("int32"), slice(1, None)),
    ]
    for case in cases:
        assert value(run(ss.tensor(X), *case)) == value(step(ss.tensor(X), *case))


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "uint8", "bool"])
def test_python_numbers_stay_weak(dtype):
    x = ss.tensor(np.array([0, 1, 1]).astype(dtype))
    for number in (2, 2.5, True, np.float32(1.5), np.int64(3)):
        for fn in (lambda t, n: t + n, lambda t, n: n * t, lambda t, n: t > n):
            assert value(ss.compile(fn)(x, number)) == value(fn(x, number))
        assert value(ss.compile(lambda t, n=number: t * n)(x)) == value(x * number)


def test_floats_are_inputs_where_they_meet_tensors_and_values_elsewhere():
    run = ss.compile(lambda x, rate: x * rate + rate)
    for rate in (0.1, 0.7, math.pi):
        assert value(run(ss.tensor(X), rate)) == value(ss.tensor(X) * rate + rate)
    assert run.traces == 1
    wide = ss.tensor(X.astype(np.float64), dtype="float64", device="reference")
    for rate in (0.1, 1 / 3):
        assert value(run(wide, rate)) == value(wide * rate + rate)

    def uses(x, rate):
        assert isinstance(rate, float)
        y = x if rate > 0.5 else -x
        return y * (1 - rate) + math.sqrt(rate) + float(f"{rate:.3f}") + np.sqrt(rate)

    run = ss.compile(uses)
    for rate in (0.1, 0.7, 0.7):
        assert value(run(ss.tensor(X), rate)) == value(uses(ss.tensor(X), rate))
    assert run.traces == 2


def test_parameters_modules_and_functions_as_arguments():
    def step(net, p, activation, x):
        loss = (activation(net(x)) * p).sum()
        loss.backward()
        return loss

    run, results = ss.compile(step), []
    for fn in (step, run):
        ss.seed(1)
        nets, ps = [ss.Linear(2, 2), ss.Linear(2, 2)], [ss.Parameter(X), ss.Parameter(-X)]
        found = [
            fn(net, p, act, ss.tensor(X)).item()
            for net in nets
            for p in ps
            for act in (ss.tanh, lambda y: y * 2)
        ]
        results.append((found, [p.grad.tolist() for p in ps], nets[0].weight.grad.tolist()))
    assert results[0] == results[1]
    v = ss.Variable(X)
    ss.compile(lambda v: v.assign(v * 2))(v)
    assert v.tolist() == (X * 2).tolist()


def test_modes_and_defaults_are_looked_at():
    def step(x):
        return (x + ss.ones(2)).to("cpu") if ss.default_device() == "cpu" else x * 3

    run = ss.compile(step)
    before = ss.default_device()
    try:
        assert run(ss.tensor(X, device="cpu")).tolist() == (X + 1).tolist()
        ss.default_device("reference")
        assert run(ss.tensor(X, device="cpu")).tolist() == (X * 3).tolist()
    finally:
        ss.default_device(before)
