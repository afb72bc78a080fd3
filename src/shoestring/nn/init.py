"""Initial weights. Drawn on the host by a counter-based generator from `ss.seed`, so the same on
every device.

    Kaiming   std = sqrt(2 / fan_in): keeps the variance of signals through ReLU layers (He et al.,
              2015)
    Xavier    std = sqrt(2 / (fan_in + fan_out)): for tanh and linear layers (Glorot and Bengio,
              2010)

fan_in: how many inputs one output sums over, [out, in, ...] -> in * ...; fan_out likewise.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .. import runtime
from ..backends.device import device as open_device
from ..errors import fail


def generator() -> np.random.Generator:
    """A generator of its own for each draw since ss.seed()."""
    random = runtime.random
    found = np.random.Generator(np.random.Philox(key=[random.seed, random.draws]))
    random.draws += 1
    return found


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) < 2:
        fail(
            "shape/init.rank",
            f"fans need a weight of two axes or more, got {list(shape)}",
            op="init",
            tensors={},
            hint="ss.zeros(n) for a bias",
        )
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def normal(shape: tuple[int, ...], std: float) -> np.ndarray:
    return drawn(shape, lambda: generator().standard_normal(shape) * std)


def uniform(shape: tuple[int, ...], bound: float) -> np.ndarray:
    return drawn(shape, lambda: generator().uniform(-bound, bound, shape))


def drawn(shape: tuple[int, ...], draw: Callable[[], np.ndarray]) -> np.ndarray:
    """float32 of `shape`. A device in outline keeps no values, so none are drawn for it, and no
    memory is asked for."""
    if not open_device(runtime.default_device()).keeps_values:
        return np.broadcast_to(np.zeros((), np.float32), shape)
    return draw().astype(np.float32)


def kaiming_normal(shape: tuple[int, ...]) -> np.ndarray:
    """float32 of `shape`, normal with std sqrt(2 / fan_in)."""
    return normal(shape, math.sqrt(2 / fans(shape)[0]))


def kaiming_uniform(shape: tuple[int, ...]) -> np.ndarray:
    """float32 of `shape`, uniform with the variance of kaiming_normal."""
    return uniform(shape, math.sqrt(6 / fans(shape)[0]))


def xavier_normal(shape: tuple[int, ...]) -> np.ndarray:
    """float32 of `shape`, normal with std sqrt(2 / (fan_in + fan_out))."""
    return normal(shape, math.sqrt(2 / sum(fans(shape))))


def xavier_uniform(shape: tuple[int, ...]) -> np.ndarray:
    """float32 of `shape`, uniform with the variance of xavier_normal."""
    return uniform(shape, math.sqrt(6 / sum(fans(shape))))
