"""Writes F.pyi: the typed signature of every `F.<op>`, read from the registry.

    python -m shoestring.ops.stubs        writes ops/F.pyi; a test finds a stale one

An op's inputs are the parameters of its `shape` rule, its attributes the fields of its dataclass.
One text for all ops is also the shortest list of what exists.
"""

from __future__ import annotations

import dataclasses
import inspect
import pathlib
import textwrap
import typing

from ..ir import OPS, Op

PATH = pathlib.Path(__file__).with_name("F.pyi")
HEADER = '''"""Signatures of all ops, as `F` builds them.

Written by `python -m shoestring.ops.stubs`: do not edit.
"""

{needed}from ..ir import Node
'''


def text() -> str:
    """The whole stub, ops by family and name."""
    families: dict[str, list[type[Op]]] = {}
    for _, cls in sorted(OPS.items()):
        if cls.__module__.startswith(__package__ + "."):
            families.setdefault(cls.__module__.rpartition(".")[2], []).append(cls)
    parts = []
    for family, ops in sorted(families.items()):
        parts.append(f"\n# ---- {family} ----\n" + "".join(signature(cls) for cls in ops))
    body = "\n".join(parts)
    needed = "from typing import Any\n\n" if "Any" in body else ""
    return HEADER.format(needed=needed) + "\n" + body


def signature(cls: type[Op]) -> str:
    """`def mean(x: Node, *, keepdims: bool = False) -> Node:` and the formula."""
    inputs = (
        [f"*{cls.parameters[0]}: Node"]
        if cls.arity is None
        else [f"{name}: Node" for name in cls.parameters]
    )
    hints = typing.get_type_hints(cls)
    fields = [
        f"{f.name}: {spelt(hints[f.name])}"
        + ("" if f.default is dataclasses.MISSING else f" = {f.default!r}")
        for f in (dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ())
    ]
    star = ["*"] if fields and cls.arity is not None else []
    result = "Node" if cls.outputs == 1 else f"tuple[{', '.join(['Node'] * cls.outputs)}]"
    head = f"def {cls.name}({', '.join([*inputs, *star, *fields])}) -> {result}:"
    if len(head) > 100:
        inner = "".join(f"    {part},\n" for part in [*inputs, *star, *fields])
        head = f"def {cls.name}(\n{inner}) -> {result}:"
    formula = inspect.cleandoc(cls.__doc__ or "").replace("\\", "\\\\").partition("\n\n")[0]
    prose = textwrap.indent(f'"""{formula}"""', "    ")
    return f"{head}\n{prose}\n"


def spelt(hint: object) -> str:
    """A type as it is written in source."""
    return (
        hint.__name__
        if isinstance(hint, type) and not typing.get_args(hint)
        else str(hint).replace("typing.", "")
    )


if __name__ == "__main__":
    PATH.write_text(text())
