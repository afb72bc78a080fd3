"""Elementwise programs as text for cards: the C expressions of elementwise.py, one statement each.

    a program        add_f32(0, 1), relu_f32(2)  of inputs x0, x1
    becomes          const float v0 = x0[i]; const float v1 = x1[i];
                     const float v2 = v0 + v1; const float v3 = v2 > 0 || is_nan(v2) ? v2 : 0;

Each statement is one instruction, as the CPU runs it, so a chain has the bits of its links.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..backends import Kernel, Launch, Operand, row_major
from ..backends.device import Device
from ..backends.source import define
from ..ir import Port
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


# ---- programs at ports of a kernel -------------------------------------------------------------
# A kernel's file names what may run inside it, and its launch says what these words are without a
# program (`plain_load`, `plain_store`); `attach_card` puts a program in their place:
#
#     PROGRAMS              a line before the kernel: functions that the programs are
#     LOAD_READS            parameters that are read for an input (in place of READ(float, x))
#     LOAD(i, f)            f[0], f[1], ... = the values at element i of the loaded inputs
#     STORE(i, v)           element i of the result, from its raw value v
#     END(k, f)             all of a reduction's results at k, from the raw values f[0], f[1], ...
#     MORE                  further parameters, at the end of the list, each with a comma before it
#     BEGIN                 AT(name); of every parameter


def plain_load(dtype: np.dtype, name: str = "x") -> dict[str, Any]:
    """An input that is read from memory."""
    return {
        "LOAD_READS": f"READ({c_type(dtype)}, {name})",
        "LOAD(i, f)": f"(f)[0] = {name}[i];",
        "BEGIN": f"AT({name});",
    }


def strided_load(x: Operand, name: str = "x") -> dict[str, Any]:
    """An input that is read from memory at its strides, where it is wanted row by row."""
    sizes, (steps,) = collapse(x.shape, [x])
    whole, words = list(row_major(sizes)), plain_load(x.dtype, name)
    if list(steps) == whole:
        return words
    body = " ".join([*positions(sizes), f"f[0] = {name}[{place(steps, whole)}];"])
    parameters = f"const INDEX i, float *f, const GLOBAL {c_type(x.dtype)} *{name}"
    words["PROGRAMS"] = f"DEVICE void load_strided({parameters}) {{ {body} }}"
    words["LOAD(i, f)"] = f"load_strided((i), (f), {name});"
    return words


def plain_store(name: str = "y") -> dict[str, Any]:
    """A result that is written as it is."""
    return {"STORE(i, v)": f"{name}[i] = (v);", "BEGIN": f"AT({name});"}


def merged_defines(*parts: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Several sets of words as one: BEGIN and MORE add up, and exist in any case."""
    found: dict[str, Any] = {"PROGRAMS": "", "MORE": "", "BEGIN": ""}
    for part in parts:
        for name, value in part.items():
            adds_up = name in ("PROGRAMS", "MORE", "BEGIN")
            found[name] = f"{found[name]} {value}".strip() if adds_up else value
    return tuple(found.items())


def attach_card(
    kernel: Kernel,
    port: Port,
    found: Any,
    inputs: Sequence[tuple[Operand, int]],
    outputs: Sequence[tuple[int, Operand, int]],
    raw: Sequence[int],
) -> Kernel | None:
    """The kernel with a program (ops/part.py) at a port. raw: names of values that the kernel
    itself has computed."""
    space = outputs[0][1].shape
    names = [f"{port.where}{k}" for k in range(len(inputs))]
    sizes, strides = collapse(space, [x for x, _ in inputs])
    whole = list(row_major(sizes))
    loads, reads, begin, buffers = [], [], [], []
    for (x, buffer), name, steps, value in zip(inputs, names, strides, found.inputs, strict=True):
        if value in raw:
            loads.append((c_type(x.dtype), f"f[{list(raw).index(value)}]"))
            continue
        loads.append((c_type(x.dtype), f"{name}[{place(steps, whole)}]"))
        reads.append((c_type(x.dtype), name))
        begin.append(f"AT({name});")
        buffers.append(buffer)
    lines, numbers = statements(found.instructions, found.constants, loads)
    if any(list(steps) != whole for steps in strides):
        lines = positions(sizes) + lines
    results = [numbers[found.number[v]] for v, _, _ in outputs]
    types = [f"const GLOBAL {kind} *{name}" for kind, name in reads]
    given = "".join(f", {name}" for _, name in reads)
    where = port.where
    words = dict(kernel.defines)
    if where == "end":
        written = [(c_type(x.dtype), f"z{k}", b) for k, (_, x, b) in enumerate(outputs)]
        types += [f"GLOBAL {kind} *{name}" for kind, name, _ in written]
        given += "".join(f", {name}" for _, name, _ in written)
        begin += [f"AT({name});" for _, name, _ in written]
        lines += [f"{name}[i] = {r};" for (_, name, _), r in zip(written, results, strict=True)]
    else:
        lines += [f"f[{k}] = {r};" for k, r in enumerate(results)]
        written = []
    function = (
        f"DEVICE void {where}_program(const INDEX i, float *f{''.join(', ' + t for t in types)}) "
        f"{{ {' '.join(lines)} }}"
    )
    more = [f"READ({kind}, {name})" for kind, name in reads]
    if where == "load":
        if not more:
            return None
        at = kernel.buffers.index(-1)
        own = [b for b in kernel.buffers if b != -1]
        words["LOAD_READS"] = ", ".join(more)
        words["LOAD(i, f)"] = f"load_program((i), (f){given});"
        words["BEGIN"] = f"{words['BEGIN'].replace('AT(x);', '')} {' '.join(begin)}".strip()
        all_buffers = (*own[:at], *buffers, *own[at:])
    else:
        more += [f"WRITE({kind}, {name})" for kind, name, _ in written]
        words["MORE"] = f"{words['MORE']} {''.join(', ' + m for m in more)}".strip()
        words["BEGIN"] = f"{words['BEGIN']} {' '.join(begin)}".strip()
        if where == "end":
            words["END(k, f)"] = f"end_program((k), (f){given});"
        else:
            target = words["STORE(i, v)"].partition("[")[0]
            words["STORE(i, v)"] = (
                f"{{ float f[1]; f[0] = (v); store_program((i), f{given}); {target}[i] = f[0]; }}"
            )
        all_buffers = (*kernel.buffers, *buffers, *[b for _, _, b in written])
    words["PROGRAMS"] = f"{words['PROGRAMS']} {function}".strip()
    return kernel._replace(defines=tuple(words.items()), buffers=all_buffers)


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
