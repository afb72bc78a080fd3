"""Programs for the elementwise kernel: a few instructions, run block by block over any shape.

A program computes y[i] = f(a[i], b[i], ...) for all i of the output's shape; inputs may have any
strides, 0 included. One op is a program of one instruction (and the casts that its types need); a
chain of ops is one of several, whose intermediate values never leave the first-level cache.
`encode` turns a program into the integers that kernels read; program.h describes them.

This module knows no op: the table (elementwise.py) enters its operations with `register`. What it
does not do: choose which ops form a chain.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..backends import Attached, Kernel, Operand, row_major

TYPES = {"float32": "f32", "int64": "i64", "int32": "i32", "uint8": "u8", "bool": "u8"}
BYTES = {"f32": 4, "i64": 8, "i32": 4, "u8": 1}
SCRATCH, BLOCK = 65_536, 1024       # bytes of scratch; the most elements of a block in it
MOST_VALUES, MOST_AXES = 64, 16     # of one program; axes after merging
GRAIN = 32_768                      # additions worth a task of their own: some microseconds

# name -> (number, C expression, result's type, names of the values in the expression)
OPERATIONS: dict[str, tuple[int, str, str, tuple[str, ...]]] = {}


class Instruction(NamedTuple):
    """One value from others. operation: "add_f32"; sources: numbers of values, see `encode`."""

    operation: str
    sources: tuple[int, ...]


class Generated(NamedTuple):
    """An input that is in no memory: what a kernel would write, computed block by block as a
    program reads it. It stands where an Operand would.

    generator  the kernel's entry;  numbers: its integers
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    strides: tuple[int, ...]
    generator: str
    numbers: tuple[int, ...]


def register(operation: str, expression: str, result: str, names: Sequence[str] = ()) -> None:
    """Enter an operation. Their order is their numbering: it must be that of the generated C++."""
    OPERATIONS[operation] = (len(OPERATIONS), expression, result, tuple(names))


@functools.cache
def fingerprint() -> int:
    """A number that differs when the table does: kernels refuse programs for another table."""
    lines = [f"{name} {expression}" for name, (_, expression, *_) in OPERATIONS.items()]
    return zlib.crc32("\n".join(lines).encode())


def encode(instructions: Sequence[Instruction], inputs: Sequence[Operand | Generated],
           outputs: Sequence[tuple[int, Operand]], constants: Sequence[float] = (),
           weight: float = 1.0) -> Kernel | None:
    """The kernel call of a program; its buffers are the inputs, then the outputs. `as_attached` of
    the call makes it one at a port of another kernel.

    Values are numbered: inputs from 0, then constants (float32), then one per instruction.

    outputs  (number of a value made by an instruction, its operand); one shape, row-major
    weight   work per element in additions: how finely large shapes are cut into tasks

    One input may be Generated; it has the shape of the outputs, and the call has an attachment for
    it whose buffers are to be filled in.
    None: too many values or axes for the kernel. An output may lie over an input only if no later
    instruction reads that input.
    """
    first = len(inputs) + len(constants)
    shape, strides = collapse(outputs[0][1].shape, inputs)
    if first + len(instructions) > MOST_VALUES or len(shape) > MOST_AXES:
        return None
    target = {value - first: k for k, (value, _) in enumerate(outputs)}
    whole = list(row_major(shape))
    generated = [k for k, x in enumerate(inputs) if isinstance(x, Generated)]
    if len(generated) > 1 or any(strides[k] != whole for k in generated):
        return None
    direct = [s == whole and k not in generated for k, s in enumerate(strides)]
    slots, count = assign_slots(instructions, direct, len(constants), target)
    sizes = [BYTES[TYPES[x.dtype.name]] for x in inputs]
    width = max([*sizes, *[BYTES[OPERATIONS[i.operation][2]] for i in instructions]])
    grain = max(int(GRAIN / weight) // BLOCK, 4) * BLOCK
    block = min(BLOCK, SCRATCH // (width * count) // 64 * 64) if count else grain
    numbers = [fingerprint(), len(shape), len(inputs), len(constants), len(instructions),
               len(outputs), count, width, block, grain, *shape]
    for k, size in enumerate(sizes):
        numbers += [size, slots[k], *strides[k]]
    numbers += slots[len(inputs):first]
    for k, (operation, sources) in enumerate(instructions):
        place = -1 - target[k] if k in target else slots[first + k]
        numbers += [OPERATIONS[operation][0], place, *(*sources, 0, 0, 0, 0)[:4]]
    buffers = tuple(-1 if k in generated else k for k in range(len(inputs) + len(outputs)))
    reals = tuple(float(c) for c in constants)
    inline = tuple(Attached("inline", k, (), x.numbers, entry=x.generator)
                   for k, x in enumerate(inputs) if isinstance(x, Generated))
    return Kernel("elementwise", buffers, tuple(numbers), reals, attached=inline,
                  batched_by="elementwise_group")


def assign_slots(instructions: Sequence[Instruction], direct: Sequence[bool], constants: int,
                 target: Mapping[int, int]) -> tuple[list[int], int]:
    """(slot of scratch of every value, or -1; how many slots).

    Constants, and inputs that do not lie as the output does, keep a slot throughout; a result's
    slot is free again after its last use. target: instructions that write an output instead.
    """
    first = len(direct) + constants
    slots = [-1] * (first + len(instructions))
    count = 0
    for value in range(first):
        if value >= len(direct) or not direct[value]:
            slots[value], count = count, count + 1
    last = {s: k for k, instruction in enumerate(instructions) for s in instruction.sources}
    free: list[int] = []
    for k, instruction in enumerate(instructions):
        if k not in target:                   # never a slot that this instruction reads
            if not free:
                free, count = [count], count + 1
            slots[first + k] = free.pop()
        ended = {s for s in instruction.sources if s >= first and last[s] == k and slots[s] >= 0}
        free += [slots[s] for s in sorted(ended)]
    return slots, count


def collapse(shape: tuple[int, ...],
             inputs: Sequence[Operand | Generated]) -> tuple[list[int], list[list[int]]]:
    """The shape with as few axes as possible, and each input's strides over them.

    Broadcast axes get stride 0, axes of size 1 vanish, and neighbours that every input walks
    through as one become one.
    """
    full = []
    for x in inputs:
        own = [0 if n == 1 else step for n, step in zip(x.shape, x.strides, strict=True)]
        full.append([0] * (len(shape) - len(own)) + own)
    sizes: list[int] = []
    walks: list[list[int]] = [[] for _ in full]
    for axis, n in enumerate(shape):
        if n == 1:
            continue
        steps = [strides[axis] for strides in full]
        if sizes and all(walk[-1] == s * n for walk, s in zip(walks, steps, strict=True)):
            sizes[-1] *= n
            for walk, step in zip(walks, steps, strict=True):
                walk[-1] = step
        else:
            sizes.append(n)
            for walk, step in zip(walks, steps, strict=True):
                walk.append(step)
    return (sizes, walks) if sizes else ([1], [[1] for _ in full])
