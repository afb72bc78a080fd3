"""Elementwise programs as text for cards: the C expressions of elementwise.py, one statement each.

    a program        add_f32(0, 1), relu_f32(2)  of inputs x0, x1
    becomes          const float v0 = x0[i]; const float v1 = x1[i];
                     const float v2 = v0 + v1; const float v3 = v2 > 0 || is_nan(v2) ? v2 : 0;

Each statement is one instruction, as the CPU runs it, so a chain has the bits of its links.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from ..backends import Kernel, Launch, Operand, row_major
from ..backends.device import Device
from ..backends.source import define
from .elementwise_program import OPERATIONS, TYPES, Instruction, collapse

C_TYPES = {"f32": "float", "i64": "int64", "i32": "int", "u8": "uchar"}
WORDS = {"uint64": "uint64"}  # types that are moved but not computed with
THREADS, UNROLL = 256, 4
MOST_INDEX = 2**31 - 1


def c_type(dtype: np.dtype) -> str:
    """The dialect's word for a type."""
    return WORDS.get(dtype.name) or C_TYPES[TYPES[dtype.name]]


def literal(value: float) -> str:
    """A float32 constant, exactly."""
    number = float(np.float32(value))
    if math.isnan(number):
        return "NAN"
    if math.isinf(number):
        return "INFINITY" if number > 0 else "(-INFINITY)"
    text = f"{number:.9g}"
    text += "" if "." in text or "e" in text else ".0"
    return f"({text}f)" if number < 0 else f"{text}f"


def expression(operation: str, names: Sequence[str]) -> str:
    """What computes an operation from values of these names."""
    _, text, result, parameters = OPERATIONS[operation]
    if operation.startswith("cast_"):
        if operation.endswith("_bool"):
            return f"{names[0]} != 0"
        return f"({C_TYPES[result]}){'(int)' if result == 'u8' else ''}{names[0]}"
    named = dict(zip(parameters, names, strict=True))
    return re.sub(r"[A-Za-z_]\w*", lambda word: named.get(word[0], word[0]), text)


def statements(
    instructions: Sequence[Instruction], constants: Sequence[float], loads: Sequence[tuple]
) -> tuple[list[str], list[str]]:
    """(C statements, the name of every value). loads: (type, expression) of each input."""
    lines = [f"const {kind} v{k} = {load};" for k, (kind, load) in enumerate(loads)]
    names = [f"v{k}" for k in range(len(loads))] + [literal(c) for c in constants]
    for operation, sources in instructions:
        name = f"v{len(names)}"
        kind = C_TYPES[OPERATIONS[operation][2]]
        lines.append(f"const {kind} {name} = {expression(operation, [names[s] for s in sources])};")
        names.append(name)
    return lines, names


def positions(sizes: Sequence[int]) -> list[str]:
    """Statements for p0, p1, ...: where element i lies along each axis."""
    found, inner = [], 1
    for axis in reversed(range(len(sizes))):
        rest = f"i / {inner}" if inner > 1 else "i"
        if axis:
            rest = f"({rest}) % {sizes[axis]}"
        found.append(f"const INDEX p{axis} = {rest};")
        inner *= sizes[axis]
    return found[::-1]


def place(strides: Sequence[int], whole: Sequence[int]) -> str:
    """Where in an input with these strides the element is."""
    if list(strides) == list(whole):
        return "i"
    terms = [f"p{k} * {s}" if s != 1 else f"p{k}" for k, s in enumerate(strides) if s]
    return " + ".join(terms) or "0"


def index_type(size: int, inputs: Sequence[Operand]) -> str:
    """int, unless something counts beyond it: an element of the result, or of what is read."""
    reach = [sum((n - 1) * abs(s) for n, s in zip(x.shape, x.strides, strict=True)) for x in inputs]
    return "int64" if max([2 * size, *reach]) > MOST_INDEX else "int"


def card_elementwise(
    instructions: Sequence[Instruction],
    inputs: Sequence[Operand],
    output: Operand,
    constants: Sequence[float],
    device: Device,
) -> Launch:
    """The launch of a program whose last instruction gives the only output."""
    sizes, strides = collapse(output.shape, inputs)
    whole = list(row_major(sizes))
    loads = [
        (c_type(x.dtype), f"x{k}[{place(steps, whole)}]")
        for k, (x, steps) in enumerate(zip(inputs, strides, strict=True))
    ]
    lines, names = statements(instructions, constants, loads)
    places = positions(sizes) if any(steps != whole for steps in strides) else []
    given = [f"READ({kind}, x{k})" for k, (kind, _) in enumerate(loads)]
    size = math.prod(sizes)
    threads = min(THREADS, device.largest_block)
    kernel = Kernel(
        "elementwise",
        tuple(range(len(inputs) + 1)),
        source="elementwise.cl",
        defines=define(
            INDEX=index_type(size, inputs),
            SIZE=size,
            THREADS=threads,
            UNROLL=UNROLL,
            PARAMETERS=", ".join([*given, f"WRITE({c_type(output.dtype)}, y)"]),
            BEGIN=" ".join(f"AT({name});" for name in [*[f"x{k}" for k in range(len(loads))], "y"]),
            POSITIONS=" ".join(places),
            BODY=" ".join([*lines, f"y[i] = {names[-1]};"]),
        ),
        grid=(-(-size // (threads * UNROLL)),),
        block=(threads,),
    )
    return Launch((kernel,))
