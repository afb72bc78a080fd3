"""A part of a region at a port: the program that runs there, whatever the device.

`program` lays the ops of a part end to end: each op says how it is computed by a few instructions
(Op.program), whose values get numbers in one common order. `attach` hands the result to a kernel in
the form that its device takes: integers for the interpreter on the CPU, text on a card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..backends import Attached, Kernel, Launch, Operand
from ..backends.device import Device
from ..ir import Op, Port
from .card import attach_card, card_elementwise
from .elementwise_program import MOST_VALUES, Generated, Instruction, encode


class Program(NamedTuple):
    """inputs: names of values that it reads;  number: of each value in the program: inputs first,
    then constants, then one per instruction"""

    inputs: tuple[int, ...]
    constants: tuple[float, ...]
    instructions: tuple[Instruction, ...]
    number: Mapping[int, int]
    weight: float


def program(
    links: Sequence[tuple[Op, Sequence[int], int]], inputs: Sequence[int], types: Sequence[np.dtype]
) -> Program | None:
    """The program of some ops, given as (op, names of its inputs, name of its result).

    inputs, types  names and types of what it reads from elsewhere
    returns        None where an op has no program for its types, or the whole is too long
    """
    known = dict(zip(inputs, types, strict=True))
    parts = []
    for op, sources, result in links:
        dtypes = [known[s] for s in sources]
        found = op.program(dtypes)
        if found is None:
            return None
        known[result] = np.dtype(op.dtype(*dtypes))
        parts.append(found)
    constants = tuple(c for _, own in parts for c in own)
    first = len(inputs) + len(constants)
    if first + sum(len(found) for found, _ in parts) > MOST_VALUES:
        return None
    number = {name: k for k, name in enumerate(inputs)}
    instructions: list[Instruction] = []
    constant = len(inputs)
    for (_, sources, result), (found, own) in zip(links, parts, strict=True):
        names = [number[s] for s in sources] + list(range(constant, constant + len(own)))
        constant += len(own)
        for operation, reads in found:
            instructions.append(Instruction(operation, tuple(names[r] for r in reads)))
            names.append(first + len(instructions) - 1)
        number[result] = names[-1]
    weight = max(1.0, sum(op.weight for op, _, _ in links))
    return Program(tuple(inputs), constants, tuple(instructions), number, weight)


def results_of(
    found: Program, wanted: Sequence[tuple[int, Operand]]
) -> tuple[list[Instruction], list[tuple[int, Operand]]]:
    """(instructions, [(number, operand)]) where every result has an instruction of its own: a value
    that is asked for twice, or that nothing computes, is copied."""
    instructions = list(found.instructions)
    first, taken, results = len(found.inputs) + len(found.constants), set(), []
    for name, operand in wanted:
        number = found.number[name]
        if number < first or number in taken:
            instructions.append(Instruction("maximum_f32", (number, number)))
            number = first + len(instructions) - 1
        taken.add(number)
        results.append((number, operand))
    return instructions, results


class Inline(NamedTuple):
    """An input that is in no memory: its producer computes a block of it as a program reads it.

    kernel  the producer's, on the CPU;  buffers: what it reads;  operand: what it would write
    """

    kernel: Kernel
    buffers: tuple[int, ...]
    operand: Operand


def attach(
    device: Device,
    kernel: Kernel,
    port: Port,
    found: Program,
    inputs: Sequence[tuple[Operand | Inline, int]],
    outputs: Sequence[tuple[int, Operand, int]],
    raw: Sequence[int] = (),
) -> Kernel | None:
    """The kernel with a program at a port; None: no kernel takes it so.

    inputs   per input of the program: its operand, the number of its buffer
    outputs  (name of the value, its operand, the number of its buffer; -1: the kernel's own)
    raw      names of values that the kernel itself has computed
    """
    if device.kind == "card":
        plain = [(x, b) for x, b in inputs if isinstance(x, Operand)]
        return attach_card(kernel, port, found, plain, outputs, raw)
    own = encoded(found, inputs, [(name, operand) for name, operand, _ in outputs])
    if own is None:
        return None
    buffers = (*[b for _, b in inputs], *[b for _, _, b in outputs])
    whole = Attached(port.where, max(port.index, 0), buffers, own.integers, own.reals)
    return kernel._replace(attached=(*kernel.attached, whole, *inlined(inputs)))


def elementwise(
    device: Device,
    found: Program,
    inputs: Sequence[tuple[Operand | Inline, int]],
    name: int,
    output: Operand,
    buffer: int,
) -> Launch | None:
    """The launch of a program of its own, whose value `name` is written."""
    if device.kind == "card":
        plain = [x for x, _ in inputs if isinstance(x, Operand)]
        return card_elementwise(found.instructions, plain, output, found.constants, device)
    kernel = encoded(found, inputs, [(name, output)]) if device.kind == "cpu" else None
    if kernel is None:
        return None
    buffers = (*[b for _, b in inputs], buffer)
    return Launch((kernel._replace(buffers=buffers, attached=tuple(inlined(inputs))),))


def encoded(
    found: Program,
    inputs: Sequence[tuple[Operand | Inline, int]],
    wanted: Sequence[tuple[int, Operand]],
) -> Kernel | None:
    """A program as integers for the CPU's interpreter."""
    instructions, results = results_of(found, wanted)
    operands = [as_generated(x) if isinstance(x, Inline) else x for x, _ in inputs]
    return encode(instructions, operands, results, found.constants, found.weight)


def as_generated(x: Inline) -> Generated:
    return Generated(*x.operand, x.kernel.entry, x.kernel.integers)


def inlined(inputs: Sequence[tuple[Operand | Inline, int]]) -> list[Attached]:
    """The producers of a program's inputs."""
    return [
        Attached("inline", k, x.buffers, x.kernel.integers, (), x.kernel.entry)
        for k, (x, _) in enumerate(inputs)
        if isinstance(x, Inline)
    ]
