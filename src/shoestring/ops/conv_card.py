"""Launches of conv.cl and conv_weights.cl: convolutions on cards, as matrix products."""

from __future__ import annotations

import math
from typing import Any

from ..backends import Launch
from ..backends.device import Device
from ..ir import Shape
from .card import index_type
from .product_card import choose, product

WASTE = 1.25  # channels of tiles that share a tap may be so many times the real ones


def conv_card(
    device: Device,
    x: Shape,
    w: Shape,
    y: Shape,
    stride: tuple[int, int],
    start: tuple[int, int],
    forward: bool,
) -> Launch:
    """y from x and w, or (not forward) dx from dy and w. start: padding at the top and left."""
    read, made = (x, y) if forward else (y, x)
    R, S = w[2:]
    span = (1, 1) if forward else stride
    classes = span[0] * span[1]
    taps = -(-R // span[0]) * -(-S // span[1])  # of the class with most
    columns = made[0] * -(-made[2] // span[0]) * -(-made[3] // span[1])
    choice = choose(device, made[1], columns, read[1] * taps, classes)
    tile = choice.tile
    whole = -(-read[1] // tile.depth) * tile.depth
    together = whole <= WASTE * read[1]
    steps = -(-(whole if together else read[1]) * taps // tile.depth)
    choice = choice._replace(each=-(-steps // choice.parts))
    tiles_m, tiles_n = -(-made[1] // tile.rows), -(-columns // tile.columns)
    move = stride if forward else (1, 1)
    words: dict[str, Any] = {
        "INDEX": index_type(max(map(math.prod, (x, w, y))), []),
        "IMAGES": x[0],
        "IN_C": read[1],
        "IN_H": read[2],
        "IN_W": read[3],
        "OUT_C": made[1],
        "OUT_H": made[2],
        "OUT_W": made[3],
        "W_OUT": math.prod(w[1:]) if forward else R * S,
        "W_IN": R * S if forward else math.prod(w[1:]),
        "R": R,
        "S": S,
        "TOP": start[0],
        "LEFT": start[1],
        "FORWARD": int(forward),
        "SPAN_Y": span[0],
        "SPAN_X": span[1],
        "MOVE_Y": move[0],
        "MOVE_X": move[1],
        "TURN": 1 if forward else -1,
        "TOGETHER": int(together),
        "TILES_M": tiles_m,
        "TILES_N": tiles_n,
    }
    blocks = tiles_m * tiles_n * choice.parts * classes
    return product("conv", "conv.cl", ("in", "w"), words, choice, math.prod(made), blocks)


def weights_card(
    device: Device,
    x: Shape,
    w: Shape,
    y: Shape,
    stride: tuple[int, int],
    start: tuple[int, int],
) -> Launch:
    """dw from dy and x."""
    rows, columns, depth = w[0], math.prod(w[1:]), y[0] * y[2] * y[3]
    choice = choose(device, rows, columns, depth)
    tile = choice.tile
    words: dict[str, Any] = {
        "INDEX": index_type(max(map(math.prod, (x, w, y))), []),
        **dict(zip("NCHW", x, strict=True)),
        **dict(zip("KRS", (w[0], *w[2:]), strict=True)),
        **dict(zip("PQ", y[2:], strict=True)),
        "STRIDE_Y": stride[0],
        "STRIDE_X": stride[1],
        "TOP": start[0],
        "LEFT": start[1],
        "STEPS": -(-depth // tile.depth),
    }
    blocks = -(-rows // tile.rows) * -(-columns // tile.columns) * choice.parts
    return product("conv_weights", "conv_weights.cl", ("dy", "x"), words, choice,
                   rows * columns, blocks)  # fmt: skip
