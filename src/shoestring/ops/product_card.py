"""Matrix products on cards: which tiles (tile.cl), and into how many parts a sum is split.

A product has `rows` x `columns` results, `count` times over, each a sum of `depth` products. A
block of threads computes a tile of them. Large tiles read less per multiplication; small ones give
all cores something to do, and waste less at the edges. Where even these are too few, several blocks
share each sum and parts.cl adds up what they found. The cost model weighs these for the card at
hand; it counts in multiplications of one core.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..backends import Kernel, Launch
from ..backends.device import Device
from .card import merged_defines, plain_store

LANES = 32  # threads that run together on most cards; only speed depends on it
REGISTERS, CORE_THREADS, CORE_BLOCKS = 65536, 2048, 16  # of a core
SATURATED = 2048  # sums under way in a core for half its speed
START = 64  # what a block does before and after its sum is worth so many k
SECOND_PASS, PART = 400_000, 44  # what starting the second pass, and a float of a part, cost
MOST_PARTS, PARTS_BYTES = 64, 16 << 20
THREADS = 256  # of the second pass


class Tile(NamedTuple):
    """rows x columns results, `depth` terms at a time; thread_rows x thread_columns of a thread."""

    rows: int
    columns: int
    depth: int
    thread_rows: int
    thread_columns: int

    @property
    def threads(self) -> int:
        return self.rows * self.columns // (self.thread_rows * self.thread_columns)

    @property
    def local_bytes(self) -> int:
        return 4 * 2 * self.depth * (self.rows + 4 + self.columns + 4)

    @property
    def defines(self) -> dict[str, Any]:
        lanes_x = min(self.columns // self.thread_columns, 8)
        lanes_y = min(self.rows // self.thread_rows, LANES // lanes_x)
        return {
            "BM": self.rows,
            "BN": self.columns,
            "BK": self.depth,
            "TM": self.thread_rows,
            "TN": self.thread_columns,
            "LANES_X": lanes_x,
            "LANES_Y": lanes_y,
        }

    @property
    def work(self) -> float:
        """Instructions per multiplication: what is read from local memory, and brought there."""
        own = self.thread_rows * self.thread_columns
        read = (self.thread_rows + self.thread_columns) / 2
        brought = 6 * (self.rows + self.columns) / self.threads
        return 1 + (read + brought) / own

    @property
    def resident(self) -> int:
        """Blocks that a core holds at a time."""
        own = self.thread_rows * self.thread_columns
        registers = own + 2 * (self.thread_rows + self.thread_columns) + 24
        most = (CORE_THREADS, REGISTERS // registers)
        return max(1, min(CORE_BLOCKS, *(n // self.threads for n in most)))


# Every tile has at least as many threads as columns: conv.cl gives each thread one column to fetch.
TILES = (
    Tile(128, 128, 8, 8, 8),
    Tile(64, 128, 8, 8, 8),
    Tile(128, 64, 8, 8, 8),
    Tile(64, 64, 8, 8, 8),
    Tile(64, 64, 16, 4, 4),
    Tile(32, 128, 8, 4, 8),
    Tile(32, 64, 16, 4, 4),
    Tile(64, 32, 16, 4, 4),
    Tile(32, 32, 16, 4, 4),
    Tile(16, 128, 8, 4, 4),
    Tile(16, 64, 16, 4, 4),
    Tile(16, 32, 16, 4, 4),
)


class Choice(NamedTuple):
    """parts: of each sum;  each: steps of tile.depth terms in a part."""

    tile: Tile
    parts: int
    each: int


def choose(device: Device, rows: int, columns: int, depth: int, count: int = 1) -> Choice:
    """The cheapest tile and split for this product on this card."""
    options = []
    for tile in TILES:
        if tile.threads > device.largest_block or tile.local_bytes > device.local_bytes:
            continue
        steps, most = -(-depth // tile.depth), PARTS_BYTES // (4 * rows * columns * count)
        parts = 1
        while parts == 1 or parts <= min(steps, MOST_PARTS, most):
            each = -(-steps // parts)
            if -(-steps // each) == parts:  # none of them empty
                options.append(Choice(tile, parts, each))
            parts *= 2
    return min(options, key=lambda option: cost(device, rows, columns, count, *option))


def cost(
    device: Device, rows: int, columns: int, count: int, tile: Tile, parts: int, each: int
) -> float:
    """Of the core that has most to do; it runs some blocks at a time, faster if they are more."""
    blocks = -(-rows // tile.rows) * -(-columns // tile.columns) * count * parts
    busiest = -(-blocks // device.cores)
    sums = min(busiest, tile.resident) * tile.rows * tile.columns
    terms = each * tile.depth + START
    found = busiest * tile.rows * tile.columns * terms * tile.work * (1 + SATURATED / sums)
    if parts > 1:
        found += SECOND_PASS + PART * parts * rows * columns * count / device.cores
    return found


def product(
    entry: str, source: str, names: tuple[str, str], words: Mapping[str, Any], choice: Choice,
    size: int, blocks: int,
) -> Launch:  # fmt: skip
    """The launch: one kernel with STORE in it, or two, of which the second has it.

    names   parameters that are read;  words: the kernel's own defines
    size    results in all;  blocks: with its parts
    """
    tile, parts = choice.tile, choice.parts
    words = {**words, **tile.defines, "SPLITS": parts, "EACH": choice.each}
    begin = {"BEGIN": " ".join(f"AT({name});" for name in names)}
    block = (tile.threads,)
    if parts == 1:
        defines = merged_defines(begin, plain_store(), words)
        return Launch(
            (Kernel(entry, (0, 1, 2), source=source, defines=defines, grid=(blocks,), block=block),)
        )
    part = {"STORE(i, v)": f"y[(INDEX)split * {size} + i] = (v);", "BEGIN": "AT(y);"}
    first = Kernel(
        entry,
        (0, 1, 3),
        source=source,
        defines=merged_defines(begin, part, words),
        grid=(blocks,),
        block=block,
    )
    own = {"INDEX": words["INDEX"], "SIZE": size, "PARTS": parts, "THREADS": THREADS}
    second = Kernel(
        "add_parts",
        (3, 2),
        source="parts.cl",
        defines=merged_defines({"BEGIN": "AT(parts);"}, plain_store(), own),
        grid=(-(-size // THREADS),),
        block=(THREADS,),
    )
    return Launch((first, second), (4 * parts * size,))
