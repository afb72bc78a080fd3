"""Writes the loops of the elementwise kernel from the table in ops/elementwise.py; run by the build.

    python generate_elementwise.py path/to/elementwise.py output.inc

Reads the table as text (`ast`), so it needs nothing but Python itself. One function per line and type, in the order of
the table, then the casts; then the list of them and the fingerprint by which a program proves that it was encoded with
the same table.
"""

from __future__ import annotations

import ast
import pathlib
import sys
import zlib

C_TYPES = {"f32": "float", "i64": "int64_t", "i32": "int32_t", "u8": "uint8_t"}


def read(path: str) -> list[tuple[str, list[tuple[str, str]], str, str]]:
    """[(operation, [(parameter, type)], C expression, type of the result)] of every line of the table, then the casts."""
    tree = ast.parse(pathlib.Path(path).read_text())
    native = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "NATIVE":
            native = {key.id: ast.literal_eval(value) for key, value in zip(node.value.keys, node.value.values, strict=True)}
    found = []
    for node in tree.body:
        if not (isinstance(node, ast.Expr) and getattr(getattr(node.value, "func", None), "id", "") == "row"):
            continue
        arguments = node.value.args
        named = {k.arg: k.value for k in node.value.keywords}
        name, parameters, c = (ast.literal_eval(arguments[i]) for i in (0, 1, 4))
        rule = named["types"].id if "types" in named else arguments[7].id if len(arguments) > 7 else "NUMBER"
        for kind in native[rule]:
            typed = [(p.rstrip("?"), "u8" if p.endswith("?") else kind) for p in parameters.split()]
            found.append((f"{name}_{kind}", typed, c, "u8" if rule in ("TEST", "LOGIC") else kind))
    for have in C_TYPES:
        for want in (*C_TYPES, "bool"):
            if have != want:
                found.append((f"cast_{have}_{want}", [("x", have)], "", "u8" if want == "bool" else want))
    return found


def function(operation: str, parameters: list[tuple[str, str]], c: str, result: str) -> str:
    expression = c or ("x != 0" if operation.endswith("_bool") else f"to_{result}(x)")
    pointers = "".join(f"    const {C_TYPES[t]}* const from_{p} = static_cast<const {C_TYPES[t]}*>(in[{k}]);\n"
                       for k, (p, t) in enumerate(parameters))
    values = " ".join(f"const {C_TYPES[t]} {p} = from_{p}[i];" for p, t in parameters)
    return (f"static void {operation}(int64_t n, const void* const* in, void* out) {{\n{pointers}"
            f"    {C_TYPES[result]}* const y = static_cast<{C_TYPES[result]}*>(out);\n    INDEPENDENT\n"
            f"    for (int64_t i = 0; i < n; ++i) {{ {values} y[i] = static_cast<{C_TYPES[result]}>({expression}); }}\n}}\n")


def main(table: str, output: str) -> None:
    lines = read(table)
    text = "\n".join(f"{name} {c}" for name, _, c, _ in lines)
    rows = "".join(f"    {{{name}, {len(p)}, sizeof({C_TYPES[t]})}},\n" for name, p, _, t in lines)
    pathlib.Path(output).write_text(
        "// Written by generate_elementwise.py from ops/elementwise.py.\n\n"
        + "\n".join(function(*line) for line in lines)
        + f"\nstatic const Operation operations[] = {{\n{rows}}};\n"
        + f"static const int64_t fingerprint = {zlib.crc32(text.encode())};\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
