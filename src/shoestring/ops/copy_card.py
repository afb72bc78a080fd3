"""Launches of copy.cl: elements from one layout to another, on cards."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..backends import Kernel, Operand, row_major
from ..backends.device import Device
from ..backends.source import define
from .card import index_type, place, positions
from .layout import merged

TYPES = {1: "uchar", 4: "uint32", 8: "uint64"}  # of elements by their bytes: nothing is computed
THREADS, EACH = 256, 4  # elements per thread


def launch_over(
    entry: str, buffers: tuple[int, ...], size: int, device: Device, index: str, **defines: object
) -> Kernel:
    threads = min(THREADS, device.largest_block)
    return Kernel(
        entry,
        buffers,
        source="copy.cl",
        defines=define(INDEX=index, SIZE=size, THREADS=threads, **defines),
        grid=(-(-size // (threads * EACH)),),
        block=(threads,),
    )


def copy_card(
    source: Operand,
    target: Sequence[int],
    offset: int,
    output: Operand,
    buffers: tuple[int, int],
    device: Device,
) -> Kernel:
    """All of `source` to offset + sum_k p_k target_k of another array."""
    walks = zip(source.shape, source.strides, target, strict=True)
    axes = sorted((axis for axis in walks if axis[0] != 1), key=lambda axis: -abs(axis[2]))
    sizes, reads, writes = zip(*(merged(axes) or [(1, 0, 0)]), strict=True)
    size = math.prod(sizes)
    whole = row_major(sizes)
    return launch_over(
        "copy",
        buffers,
        size,
        device,
        index_type(max(size, output.size), [source]),
        TYPE=TYPES[source.dtype.itemsize],
        POSITIONS=" ".join(positions(sizes)),
        FROM=place(reads, whole),
        TO=f"{offset} + {place(writes, whole)}" if offset else place(writes, whole),
    )


def zero_card(output: Operand, buffer: int, device: Device) -> Kernel:
    """Zeros all over an array."""
    return launch_over(
        "zero",
        (buffer,),
        output.size,
        device,
        index_type(output.size, []),
        TYPE=TYPES[output.dtype.itemsize],
        POSITIONS="",
        FROM=0,
        TO=0,
    )
