"""Renders a kernel's file for a card: its #defines, the dialect, the fragments it uses, the file.

    #define N 32                  shapes, tile sizes and fused expressions of this launch
    dialect.h                     the words that CUDA and OpenCL share
    // uses: tile.h               a line of the file: fragments that stand in front of it
    KERNEL(...) void conv2d(...)  the file itself

`#line` keeps the compiler's messages on the real files. The rendered text is all that a compiler
sees, so it is the key under which the compiled kernel is kept.
"""

from __future__ import annotations

import functools
import pathlib
import re
from typing import Any, NamedTuple

from ..errors import fail
from .launch import Kernel

FOLDER = pathlib.Path(__file__).parents[1] / "ops"  # of kernels that are named without a folder
DIALECT = pathlib.Path(__file__).with_name("dialect.h")
USES = re.compile(r"^// uses: (.*)$", re.MULTILINE)
PARAMETER = re.compile(r"\b(READ|WRITE|UPDATE)\(\s*(\w+)\s*,\s*(\w+)\s*\)")
BYTES = {"float": 4, "int": 4, "uint32": 4, "int64": 8, "uint64": 8, "uchar": 1, "float4": 16}


class Parameter(NamedTuple):
    """access: READ, WRITE or UPDATE;  type: a word of the dialect."""

    access: str
    type: str
    name: str

    @property
    def bytes(self) -> int:
        """Of one element."""
        return BYTES[self.type]


class Source(NamedTuple):
    """text: what a compiler gets;  entry: the kernel's name in it;  parameters: in order."""

    text: str
    entry: str
    parameters: tuple[Parameter, ...]


def path_of(name: str) -> pathlib.Path:
    path = pathlib.Path(name)
    return path if len(path.parts) > 1 else FOLDER / name


@functools.cache
def contents(path: pathlib.Path) -> str:
    try:
        return path.read_text()
    except OSError as problem:
        fail(
            "launch/source.missing",
            f"the kernel file {path.name} cannot be read: {problem.strerror}",
            tensors={},
            source=problem,
            hint="pip install --force-reinstall shoestring",
        )


@functools.cache
def render(kernel: Kernel, aliased: bool = False) -> Source:
    """The text of a kernel. aliased: one of its outputs lies over one of its inputs."""
    assert kernel.source is not None
    path = path_of(kernel.source)
    file = contents(path)
    defines = [f"#define {name} {value}\n" for name, value in kernel.defines]
    if aliased:
        defines.append("#define ALIASED\n")
    names = [name for line in USES.findall(file) for name in line.split()]
    files = [DIALECT, *[path.with_name(name) for name in names], path]
    text = "".join(defines) + "".join(f'#line 1 "{f.name}"\n{contents(f)}\n' for f in files)
    return Source(text, kernel.entry, parameters(kernel, file))


def parameters(kernel: Kernel, file: str) -> tuple[Parameter, ...]:
    """Of the kernel, as its file declares them, #defines put in."""
    found = re.search(rf"\bvoid\s+{kernel.entry}\s*\((.*?)\)\s*{{", file, re.DOTALL)
    if found is None:
        fail(
            "launch/source.entry",
            f"{kernel.source} has no kernel {kernel.entry!r}",
            tensors={},
            hint=f"KERNEL(THREADS, 1) void {kernel.entry}(READ(float, x), WRITE(float, y))",
        )
    defines = {name: str(value) for name, value in kernel.defines}
    inside = re.sub(r"\w+", lambda word: defines.get(word[0], word[0]), found[1])
    inside = re.sub(r"\w+", lambda word: defines.get(word[0], word[0]), inside)
    made = tuple(Parameter(*groups) for groups in PARAMETER.findall(inside))
    if len(made) != len(kernel.buffers):
        fail(
            "launch/source.parameters",
            f"{kernel.entry} takes {len(made)} buffers, its launch gives {len(kernel.buffers)}",
            tensors={},
            expected=", ".join(f"{p.access}({p.type}, {p.name})" for p in made) or "none",
            hint="one number in Kernel.buffers per READ, WRITE or UPDATE",
        )
    return made


def define(**values: Any) -> tuple[tuple[str, Any], ...]:
    """Names and values as `Kernel.defines`; True and False are 1 and 0."""
    return tuple((k, int(v) if isinstance(v, bool) else v) for k, v in values.items())
