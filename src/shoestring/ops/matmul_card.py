"""Launches of matmul.cl: matrix products on cards."""

from __future__ import annotations

import math
from typing import Any

from ..backends import Launch, Operand, row_major
from ..backends.device import Device
from .card import index_type, place, positions
from .product_card import choose, product


def matmul_card(
    device: Device,
    a: Operand,
    b: Operand,
    size: tuple[int, int, int],
    steps: tuple[tuple[int, int], tuple[int, int]],
    lead: tuple[int, ...],
    batch: tuple[tuple[int, ...], tuple[int, ...]],
) -> Launch:
    """size   M, N, K
    steps  strides: of a along m and k, of b along k and n
    lead   sizes of the leading axes;  batch: strides of a and b along them
    """
    M, N, K = size
    (a_m, a_k), (b_k, b_n) = steps
    count = math.prod(lead)
    choice = choose(device, M, N, K, count)
    tile = choice.tile
    words: dict[str, Any] = {
        "INDEX": index_type(max(count * M * N, a.size, b.size), [a, b]),
        "M": M,
        "N": N,
        "K": K,
        "A_M": f"({a_m})",
        "A_K": f"({a_k})",
        "B_K": f"({b_k})",
        "B_N": f"({b_n})",
        "A_ALONG_K": int(denser(a_k, a_m)),
        "B_ALONG_K": int(denser(b_k, b_n)),
        "POSITIONS": " ".join(positions(lead)),
        "A_AT": place(batch[0], row_major(lead)),
        "B_AT": place(batch[1], row_major(lead)),
    }
    blocks = -(-M // tile.rows) * -(-N // tile.columns) * choice.parts * count
    return product("matmul", "matmul.cl", ("a", "b"), words, choice, count * M * N, blocks)


def denser(one: int, other: int) -> bool:
    """Whether neighbours along the first axis are nearer in memory."""
    return 0 < abs(one) < abs(other) or other == 0
