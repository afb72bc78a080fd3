"""Messages of the checks at run time."""

import numpy as np

import shoestring as ss
from shoestring.backends.device import device
from shoestring.runtime.inspection import Comparison, inspect_ranges

X = np.ones((3, 4), np.float32)


def plan():
    return ss.compile(lambda x: x * 2).plan(ss.tensor(X))


def another_layout():
    inspect_ranges(plan(), np.empty(0, np.uint8), [X.copy("F"), np.float32(2)], [X])


def a_launch_that_did_nothing():
    found, cpu = plan(), device("cpu")
    result = np.zeros_like(X)
    bases = [0, *[cpu.place(a) for a in (X, np.array(2, np.float32), result)]]
    Comparison(found.steps, cpu, bases).finish()


TRIGGERS = {
    "launch/inspection.layout": (
        another_layout,
        ["not its own, at input 0", "planned for strides None, it has (1, 3)"],
    ),
    "launch/inspection.result": (
        a_launch_that_did_nothing,
        ["other values than its reference: 12 of 12", "2.0 at flat position 0, got 0.0"],
    ),
}
