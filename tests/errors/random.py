"""Triggers of the errors of random."""

import numpy as np

from shoestring.ir import F, leaf

key = leaf(np.array([0, 0], np.uint64))

TRIGGERS = {
    "shape/random.key": (
        lambda: F.uniform(leaf(np.zeros(3, np.uint64)), to=(2,)),
        ["a key has shape [2], got [3]"],
    ),
    "type/random.key": (
        lambda: F.normal(leaf(np.zeros(2, np.int64)), to=(2,)),
        ["a key is uint64, got int64", "np.uint64"],
    ),
    "shape/bernoulli.p": (
        lambda: F.bernoulli(key, leaf(np.zeros(3, np.float32)), to=(2,)),
        ["p has shape [3], which does not broadcast to [2]"],
    ),
}
