"""Writes the loops of the elementwise kernel from the table in ops/; run by the build.

    python generate_elementwise.py elementwise_rules.py elementwise.py loops.inc

Reads both as text (`ast`), so it needs nothing but Python itself. Out come one function per row and
type, in the order of the table, then the casts; then the list of them, and the fingerprint by which
a program proves that it was encoded with the same table.
"""

from __future__ import annotations

import ast
import pathlib
import sys
import zlib
from typing import Any, NamedTuple

C_TYPES = {"f32": "float", "i64": "int64_t", "i32": "int32_t", "u8": "uint8_t"}


class Line(NamedTuple):
    """One loop. operation: "add_f32"; parameters: (name, type); result: the type of y."""

    operation: str
    parameters: list[tuple[str, str]]
    expression: str
    result: str


def native_types(path: str) -> Any:
    """NATIVE of elementwise_rules.py: for which types a rule has loops."""
    for node in ast.parse(pathlib.Path(path).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "NATIVE":
            return ast.literal_eval(node.value)
    raise SystemExit(f"{path} has no NATIVE")


def read(rules: str, table: str) -> list[Line]:
    native, found = native_types(rules), []
    for node in ast.parse(pathlib.Path(table).read_text()).body:
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "row":
            continue
        name, parameters, c = (ast.literal_eval(call.args[k]) for k in (0, 1, 4))
        rule = {k.arg: ast.unparse(k.value) for k in call.keywords}.get("types", "NUMBER")
        for kind in native[rule]:
            typed = [(p.rstrip("?"), "u8" if p.endswith("?") else kind) for p in parameters.split()]
            result = "u8" if rule in ("TEST", "LOGIC") else kind
            found.append(Line(f"{name}_{kind}", typed, c, result))
    for have in C_TYPES:
        for want in (*C_TYPES, "bool"):
            if have != want:
                result = "u8" if want == "bool" else want
                found.append(Line(f"cast_{have}_{want}", [("x", have)], "", result))
    return found


def function(line: Line) -> str:
    cast = "x != 0" if line.operation.endswith("_bool") else f"to_{line.result}(x)"
    y = C_TYPES[line.result]
    rows = [f"static void {line.operation}(int64_t n, const void* const* in, void* out) {{"]
    for k, (name, kind) in enumerate(line.parameters):
        c = C_TYPES[kind]
        rows.append(f"    const {c}* const from_{name} = static_cast<const {c}*>(in[{k}]);")
    rows += [
        f"    {y}* const to = static_cast<{y}*>(out);",
        "    INDEPENDENT",
        "    for (int64_t i = 0; i < n; ++i) {",
    ]
    rows += [
        f"        const {C_TYPES[kind]} {name} = from_{name}[i];" for name, kind in line.parameters
    ]
    rows += [f"        to[i] = static_cast<{y}>({line.expression or cast});", "    }", "}", ""]
    return "\n".join(rows)


def main(rules: str, table: str, output: str) -> None:
    lines = read(rules, table)
    mark = zlib.crc32("\n".join(f"{line.operation} {line.expression}" for line in lines).encode())
    text = ["// Written by generate_elementwise.py from ops/elementwise.py.", ""]
    text += [function(line) for line in lines]
    text += ["static const Operation operations[] = {"]
    text += [
        f"    {{{line.operation}, {len(line.parameters)}, sizeof({C_TYPES[line.result]})}},"
        for line in lines
    ]
    text += ["};", f"static const int64_t fingerprint = {mark};", ""]
    pathlib.Path(output).write_text("\n".join(text))


if __name__ == "__main__":
    main(*sys.argv[1:])
