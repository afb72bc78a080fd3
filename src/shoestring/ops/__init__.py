"""All operations, one file per family. Importing a family registers its ops."""

from . import (
    conv,
    copy,
    elementwise,
    loss,
    matmul,
    norm,
    pool,
    pool_max,
    position,
    random,
    reduce,
    reduce_products,
    shape,
    state,
    take,
)

__all__ = [
    "conv",
    "copy",
    "elementwise",
    "loss",
    "matmul",
    "norm",
    "pool",
    "pool_max",
    "position",
    "random",
    "reduce",
    "reduce_products",
    "shape",
    "state",
    "take",
]
