"""Writes the tables of docs/types.md, by asking the code: how types combine, what numbers become.

python tests/types_table.py --write
"""

import operator
import pathlib
import sys

import numpy as np

PATH = pathlib.Path(__file__).parent.parent / "docs" / "types.md"
BEGIN, END = "<!-- tables: tests/types_table.py -->\n", "<!-- end of tables -->\n"
TYPES = ["bool", "uint8", "int32", "int64", "float32", "float64"]
COMMON = ["bool", "uint8", "int32", "int64", "float32"]  # which all devices have
BINARY = {
    "a + b": operator.add,
    "a - b": operator.sub,
    "a * b": operator.mul,
    "a / b": operator.truediv,
    "a ** b": operator.pow,
    "a @ b": operator.matmul,
    "a & b": operator.and_,
    "a | b": operator.or_,
    "a ^ b": operator.xor,
    "a == b": operator.eq,
    "a < b": operator.lt,
    "maximum(a, b)": "maximum",
    "where(c, a, b)": "where",
}
UNARY = {
    "-x": operator.neg,
    "~x": operator.invert,
    "abs(x)": abs,
    "sign(x)": "sign",
    "exp(x)": "exp",
    "sqrt(x)": "sqrt",
    "sum(x)": "sum",
    "mean(x)": "mean",
    "var(x)": "var",
    "x.max()": lambda x: x.max(),
    "x.clip(0, 1)": lambda x: x.clip(0, 1),
    "argmax(x)": "argmax",
}
MIXES = [
    ("bool", "bool"),
    ("bool", "int64"),
    ("uint8", "int32"),
    ("int32", "int64"),
    ("int64", "float32"),
    ("float32", "float32"),
]


def result(f, library, *xs):
    """The type of f, or "error"."""
    try:
        with np.errstate(all="ignore"):
            if isinstance(f, str):
                xs = (xs[0] == xs[0], *xs) if f == "where" else xs
                f = getattr(library, f)
            return str(f(*xs).dtype)
    except (TypeError, ValueError, OverflowError):
        return "error"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


def code(words):
    return "`" + words.replace("|", "\\|") + "`"


def text():
    import shoestring as ss
    from shoestring.backends.device import device
    from shoestring.ir import LIMITS, promote, weak

    def sample(dtype, library=ss):
        a = np.ones(2, dtype)
        return a if library is np else ss.tensor(a, dtype=dtype, device="reference")

    def limits(dtype):
        low, high = LIMITS.get(np.dtype(dtype), (0, 1))
        return f"{low} to {high}" if np.dtype(dtype).kind != "f" else f"+-{float(high):.4g}"

    floats = {name: device(name).floats for name in ("cpu", "reference")}
    parts = ["## The types\n\n"]
    where = {d: [n for n in floats if np.dtype(d).kind != "f" or d in floats[n]] for d in TYPES}
    parts += table(
        ["type", "bytes", "numbers", "devices"],
        [
            [
                d,
                np.dtype(d).itemsize,
                limits(d),
                "all devices" if len(where[d]) > 1 else where[d][0],
            ]
            for d in TYPES
        ],
    )
    parts += ["\n## Two tensors: their common type\n\n"]
    parts += table(
        ["", *TYPES],
        [[a, *[promote(np.dtype(a), np.dtype(b)) for b in TYPES]] for a in TYPES],
    )
    parts += ["\n## A tensor and a Python number: the number's type\n\n"]
    parts += table(
        ["", "True", "3", "2.5"],
        [[a, *[weak(n, np.dtype(a)) for n in (bool, int, float)]] for a in TYPES],
    )
    parts += ["\n## Results of two operands\n\n"]
    parts += table(
        ["", *[" and ".join(mix) for mix in MIXES]],
        [
            [code(n), *[result(f, ss, *map(sample, mix)) for mix in MIXES]]
            for n, f in BINARY.items()
        ],
    )
    parts += ["\n## Results of one\n\n"]
    parts += table(
        ["", *COMMON],
        [[code(n), *[result(f, ss, sample(d)) for d in COMMON]] for n, f in UNARY.items()],
    )
    parts += ["\n## Where NumPy 2 gives another type\n\n"]
    differences = {}
    for n, f in [*BINARY.items(), *UNARY.items()]:
        mixes = [(d,) for d in COMMON] if n in UNARY else [(a, b) for a in COMMON for b in COMMON]
        for mix in mixes:
            here = result(f, ss, *map(sample, mix))
            there = result(f, np, *[sample(d, np) for d in mix])
            if here != there:
                differences.setdefault((n, there, here), []).append(" and ".join(mix))
    parts += table(
        ["", "of", "NumPy", "here"],
        [
            [code(n), ", ".join(dict.fromkeys(unordered(mixes))), there, here]
            for (n, there, here), mixes in differences.items()
        ],
    )
    return "".join(parts)


def unordered(mixes):
    """Both orders of a pair are one."""
    return [" and ".join(sorted(mix.split(" and "), key=COMMON.index)) for mix in mixes]


def page():
    """The page with fresh tables."""
    before, _, rest = PATH.read_text().partition(BEGIN)
    return before + BEGIN + text() + END + rest.partition(END)[2]


if __name__ == "__main__":
    if "--write" in sys.argv:
        PATH.write_text(page())
    else:
        print(text(), end="")
