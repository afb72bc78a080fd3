"""Triggers of the errors of reduce and position."""

import numpy as np

from shoestring.ir import F, leaf

x, empty = leaf(np.zeros((2, 3), np.float32)), leaf(np.zeros((2, 0), np.float32))

TRIGGERS = {
    "shape/axes.range": (
        lambda: F.sum(x, axes=(0, 2)),
        ["axes [0, 2] do not fit 2 axes", "from -2 to 1", "axis=-1 is the last"],
    ),
    "shape/sum_to.to": (lambda: F.sum_to(x, to=(3, 1)), ["[3, 1] does not broadcast to [2, 3]"]),
    "shape/extreme.empty": (
        lambda: F.max(empty),
        ["the max of no elements does not exist", "axes [0, 1] of [2, 0]"],
    ),
    "shape/position.empty": (
        lambda: F.argmax(empty, axis=1),
        ["axis 1 is empty", "if x.size: x.argmax(-1)"],
    ),
    "type/norm.dtype": (
        lambda: F.norm(leaf(np.zeros(3, np.int64))),
        ["needs floats, got int64", "x.float()"],
    ),
}
