"""Triggers of the errors of shape, copy and take: {place: (what raises it, what the message must
contain)}."""

import numpy as np

from shoestring.ir import F, leaf

x23, indices = leaf(np.zeros((2, 3), np.float32)), leaf(np.zeros((4,), np.int64))

TRIGGERS = {
    "shape/reshape.size": (
        lambda: F.reshape(x23, to=(4, 2)),
        ["6 elements do not fit [4, 2]", "x.reshape("],
    ),
    "shape/transpose.axes": (
        lambda: F.transpose(x23, axes=(0, 0)),
        ["[0, 0] is not an order of 2 axes", "x.transpose(1, 0)"],
    ),
    "shape/expand.to": (
        lambda: F.expand(x23, to=(4, 3)),
        ["[2, 3] cannot be expanded to [4, 3]", "only axes of size 1"],
    ),
    "shape/slice.axes": (lambda: F.slice(x23, index=((0, 1, 1),)), ["1 ranges for 2 axes"]),
    "shape/slice.range": (
        lambda: F.slice(x23, index=((0, 3, 1), (0, 3, 1))),
        ["(0, 3, 1) leaves axis 0 of size 2"],
    ),
    "shape/flip.axes": (lambda: F.flip(x23, axes=(2,)), ["there is no axis 2", "x.flip(-1)"]),
    "shape/concat.axis": (lambda: F.concat(x23, axis=2), ["there is no axis 2", "ss.stack"]),
    "shape/concat.sizes": (
        lambda: F.concat(x23, leaf(np.zeros((2, 4), np.float32)), axis=0),
        ["input 1 does not fit input 0", "[any, 3], got [2, 4]"],
    ),
    "shape/pad.widths": (
        lambda: F.pad(x23, widths=((1, 1),)),
        ["do not fit 2 axes", "ss.pad(x, [(0, 0), (1, 1)])"],
    ),
    "shape/unslice.sizes": (
        lambda: F.unslice(x23, index=((0, 2, 1), (0, 2, 1)), to=(4, 4)),
        ["[2, 3] does not fit the slice", "[2, 2], got [2, 3]"],
    ),
    "shape/update_slice.sizes": (
        lambda: F.update_slice(x23, indices, index=((0, 2, 1), (0, 2, 1))),
        ["a value of [4] does not fit the slice", "v.reshape([2, 2])"],
    ),
    "type/update_slice.dtype": (
        lambda: F.update_slice(x23, leaf(np.zeros((1, 1), np.int64)), index=((0, 1, 1), (0, 1, 1))),
        ["int64 cannot be written into float32", 'v.astype("float32")'],
    ),
    "shape/take.axis": (lambda: F.take(x23, indices, axis=2), ["there is no axis 2"]),
    "type/take.indices": (
        lambda: F.take(x23, x23),
        ["indices must be integers, got float32", 'indices.astype("int64")'],
    ),
    "shape/put_add.axis": (lambda: F.put_add(x23, indices, axis=1, to=(5,)), ["[5] has no axis 1"]),
    "shape/put_add.sizes": (
        lambda: F.put_add(x23, indices, axis=0, to=(5, 3)),
        ["[2, 3] does not fit [4] indices along axis 0", "[4, 3], got [2, 3]"],
    ),
}
