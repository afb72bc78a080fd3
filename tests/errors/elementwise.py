"""How to trigger every error of the elementwise ops, and what its message must say."""

import numpy as np

from shoestring.ir import F, leaf


def floats(*shape):
    return leaf(np.zeros(shape, np.float32))


TRIGGERS = {
    "shape/elementwise.broadcast": (
        lambda: F.add(floats(2, 3), floats(2, 4)),
        [
            "add: shapes [2, 3] and [2, 4] do not broadcast",
            "a: [2, 3] float32",
            "b: [2, 4] float32",
            "expected  sizes that are equal, or 1",
            "x.reshape(2, 3, 1)",
        ],
    ),
    "type/elementwise.bool": (
        lambda: F.neg(leaf(np.array([True]))),
        ["neg: is not defined for bool", "x: [1] bool", 'x.astype("float32")'],
    ),
    "type/elementwise.bits": (
        lambda: F.bitwise_and(floats(2), floats(2)),
        ["bitwise_and: floats have no bits to combine", "float32", "x > 0"],
    ),
    "type/cast.unknown": (
        lambda: F.cast(floats(2), to="float23"),
        ["cast: there is no type 'float23'", "one of float32", 'x.astype("float32")'],
    ),
}
