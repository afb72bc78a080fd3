"""Programs for the elementwise kernel: a few instructions that run block by block over any number of elements.

A program computes y[i] = f(a[i], b[i], ...) for all i of the output's shape; inputs may have any strides, 0 included.
One op is a program of one instruction (and the casts that its types need); a chain of ops is one of several, whose
intermediate values never leave the first-level cache. `encode` turns one into the integers that the kernel reads; the
encoding is described in elementwise.cpp.

This module knows no op: the table (elementwise.py) enters its operations with `register`. What it does not do: choose
which ops form a chain.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from ..backends import Kernel, Operand

TYPES = {"float32": "f32", "int64": "i64", "int32": "i32", "uint8": "u8", "bool": "u8"}    # NumPy's name -> the kernel's
BYTES = {"f32": 4, "i64": 8, "i32": 4, "u8": 1}
SCRATCH, BLOCK = 65_536, 1024                # bytes of scratch; elements of a block
MOST, MOST_AXES = 64, 16                     # values a program may have; axes after merging
GRAIN = 65_536                               # cheap elements worth a task of their own

OPERATIONS: dict[str, tuple[int, str, str]] = {}     # "add_f32" -> (number, C expression, type of the result)


class Instruction(NamedTuple):
    """value = operation(sources). `operation`: "add_f32"; sources: numbers of values, see `encode`."""

    operation: str
    sources: tuple[int, ...]


def register(operation: str, expression: str, result: str) -> None:
    """Enter an operation. Their order is their numbering, so it must be that of the generated C++."""
    OPERATIONS[operation] = (len(OPERATIONS), expression, result)


def fingerprint() -> int:
    """A number that differs when the table does: the kernel refuses programs for another table."""
    return zlib.crc32("\n".join(f"{name} {c}" for name, (_, c, _) in OPERATIONS.items()).encode())


def encode(instructions: Sequence[Instruction], inputs: Sequence[Operand], outputs: Sequence[tuple[int, Operand]],
           constants: Sequence[float] = (), weight: float = 1.0) -> Kernel | None:
    """The kernel call of a program; its buffers are the inputs, then the outputs.

    Values are numbered: the inputs from 0, then the constants (float32), then one per instruction.
    outputs: (number of a value computed by an instruction, its operand); all have one shape, row-major.
    weight: how much work an element is compared with an addition. None: too many values or axes for the kernel.

    An output may lie over an input only if no later instruction reads that input.
    """
    shape, strides = collapse(outputs[0][1].shape, [i.strides for i in inputs], [i.shape for i in inputs])
    first = len(inputs) + len(constants)
    target = {value - first: k for k, (value, _) in enumerate(outputs)}
    if first + len(instructions) > MOST or len(shape) > MOST_AXES:
        return None
    whole = row_major(shape)
    direct = [s == whole for s in strides]
    slots, count = assign_slots(instructions, direct, len(constants), target)
    width = max([BYTES[TYPES[i.dtype.name]] for i in inputs] + [BYTES[OPERATIONS[i.operation][2]] for i in instructions])
    block = min(BLOCK, SCRATCH // (width * max(count, 1)) // 64 * 64)
    grain = max(int(GRAIN / weight) // BLOCK * BLOCK, 4 * BLOCK)
    numbers = [fingerprint(), len(shape), len(inputs), len(constants), len(instructions), len(outputs),
               count, width, block if count else grain, grain, *shape]
    for k, i in enumerate(inputs):
        numbers += [BYTES[TYPES[i.dtype.name]], slots[k], *strides[k]]
    numbers += slots[len(inputs):first]
    for k, instruction in enumerate(instructions):
        place = -1 - target[k] if k in target else slots[first + k]
        sources = [*instruction.sources, 0, 0, 0, 0][:4]
        numbers += [OPERATIONS[instruction.operation][0], place, *sources]
    return Kernel("elementwise", tuple(range(len(inputs) + len(outputs))), tuple(int(n) for n in numbers),
                  tuple(float(c) for c in constants))


def assign_slots(instructions: Sequence[Instruction], direct: Sequence[bool], constants: int,
                 target: dict[int, int]) -> tuple[list[int], int]:
    """(slot of scratch of every value or -1, how many slots). Inputs that must be gathered and constants keep theirs;
    a result's slot is free again after its last use."""
    first = len(direct) + constants
    slots: list[int] = [-1] * (first + len(instructions))
    count = 0
    for value in range(first):
        if value >= len(direct) or not direct[value]:
            slots[value], count = count, count + 1
    last = {s: k for k, instruction in enumerate(instructions) for s in instruction.sources}
    free: list[int] = []
    for k, instruction in enumerate(instructions):
        if k not in target:                                      # never a slot that this instruction reads
            if free:
                slots[first + k] = free.pop()
            else:
                slots[first + k], count = count, count + 1
        free += [slots[s] for s in {*instruction.sources} if s >= first and last[s] == k and slots[s] >= 0]
    return slots, count


def collapse(shape: tuple[int, ...], strides: Sequence[tuple[int, ...]],
             shapes: Sequence[tuple[int, ...]]) -> tuple[list[int], list[list[int]]]:
    """The shape with as few axes as possible, and each input's strides over them: broadcast axes get stride 0, axes of
    size 1 vanish, neighbours that every input walks through as one become one."""
    rank = len(shape)
    full = []
    for s, own in zip(strides, shapes, strict=True):
        missing = rank - len(own)
        full.append([0] * missing + [0 if n == 1 else step for n, step in zip(own, s, strict=True)])
    sizes: list[int] = []
    walks: list[list[int]] = [[] for _ in full]
    for axis in range(rank):
        n = shape[axis]
        if n == 1:
            continue
        if sizes and all(walk[-1] == step[axis] * n for walk, step in zip(walks, full, strict=True)):
            sizes[-1] *= n
            for walk, step in zip(walks, full, strict=True):
                walk[-1] = step[axis]
        else:
            sizes.append(n)
            for walk, step in zip(walks, full, strict=True):
                walk.append(step[axis])
    return (sizes, walks) if sizes else ([1], [[1] for _ in full])


def row_major(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[k + 1:]) for k in range(len(shape))]
