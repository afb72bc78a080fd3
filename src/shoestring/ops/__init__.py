"""All operations, one file per family. Importing a family registers its ops."""

from . import (
    conv,
    copy,
    elementwise,
    elementwise_chain,
    loss,
    matmul,
    norm,
    pool,
    pool_max,
    position,
    random,
    reduce,
    shape,
    state,
    take,
)

__all__ = [
    "conv",
    "copy",
    "elementwise",
    "elementwise_chain",
    "loss",
    "matmul",
    "norm",
    "pool",
    "pool_max",
    "position",
    "random",
    "reduce",
    "shape",
    "state",
    "take",
]
