"""Launches of reduce.cl: sums on cards."""

from __future__ import annotations

from collections.abc import Sequence

from ..backends import Kernel, Launch
from ..backends.device import Device
from .card import index_type, literal, merged_defines

THREADS = 256


def sums_card(
    device: Device,
    layout: tuple[int, int, int],
    divisors: Sequence[float],
    load: dict,
    loaded: int,
    first: int,
) -> Launch:
    """Several sums over outer and inner of what is read as [outer, kept, inner].

    divisors  one per sum;  load: how elements are read (card.py)
    loaded    the buffer that is read, -1: a program makes it;  first: that of the first result
    """
    outer, kept, inner = layout
    count, threads = len(divisors), THREADS
    while threads > max(32, device.largest_block) or threads * count * 4 > device.local_bytes:
        threads //= 2
    while threads > 32 and threads >= 2 * outer * inner:
        threads //= 2
    names = [f"y{s}" for s in range(count)]
    divide = [f"f[{s}] /= {literal(d)};" for s, d in enumerate(divisors) if d != 1]
    words = {
        "INDEX": index_type(outer * kept * inner, []),
        "OUTER": outer,
        "KEPT": kept,
        "INNER": inner,
        "SUMS": count,
        "THREADS": threads,
        "SUM_WRITES": ", ".join(f"WRITE(float, {name})" for name in names),
        "BEGIN": " ".join(f"AT({name});" for name in names),
        "DIVIDE": " ".join(divide),
        "WRITE_SUMS": " ".join(f"{name}[k] = f[{s}];" for s, name in enumerate(names)),
        "END(k, f)": "",
    }
    kernel = Kernel(
        "sums",
        (loaded, *range(first, first + count)),
        source="reduce.cl",
        defines=merged_defines(load, words),
        grid=(min(kept, 65535),),
        block=(threads,),
    )
    return Launch((kernel,))
