"""Every kernel of every op's cases compiles for cards from Kepler to Hopper, and what it takes of
them is within what all of them have. Needs NVRTC, no card."""

import pathlib
import re

import numpy as np
import pytest

from shoestring.backends.cuda import nvrtc
from shoestring.backends.cuda.cubin import resources
from shoestring.backends.cuda.target import Target
from shoestring.backends.source import DIALECT, Parameter, Source, render
from shoestring.ir import OPS
from shoestring.testing.run import LAYOUTS, laid_out, operand

ARCHITECTURES = (35, 50, 61, 90)
PARTS = 6  # the compiler takes longer to start than for a kernel
REGISTERS = 65536  # of a block
KERNEL = re.compile(r"\bKERNEL\([^;{]*?\)\s*void\s+(\w+)\s*\(")
OLD = next((n for n in nvrtc.installed() if n.architectures[0] <= 35), None)
pytestmark = pytest.mark.skipif(OLD is None, reason=f"no NVRTC for Kepler: {nvrtc.WHEEL}")


def sources(cls, card):
    """The texts of all launches of an op's cases."""
    found = {}
    for case in cls.cases:
        op, arrays = cls(**case.attributes), case.inputs()
        layouts = (None, *LAYOUTS) if op.strided and case is cls.cases[0] else (None,)
        for layout in layouts:
            given = [laid_out(a, layout) if layout else a for a in arrays]
            given = [
                a if op.takes_strides(k) else np.ascontiguousarray(a).reshape(a.shape)
                for k, a in enumerate(given)
            ]
            shapes, dtypes = (
                op.shape(*[a.shape for a in given]),
                op.dtype(*[a.dtype for a in given]),
            )
            if op.outputs == 1:
                shapes, dtypes = (shapes,), (dtypes,)
            results = [np.empty(s, d) for s, d in zip(shapes, dtypes, strict=True)]
            if any(a.size == 0 for a in [*given, *results]):
                continue
            launch = op.launch(card, [operand(a) for a in given], [operand(a) for a in results])
            for kernel in launch.kernels if launch else ():
                found[render(kernel)] = kernel
    return found


def together(texts):
    """One text of many kernels, each in a namespace and under a name of its own."""
    parts = []
    for k, text in enumerate(texts):
        macros = dict.fromkeys(re.findall(r"#\s*define (\w+)", text))
        kernels = dict.fromkeys(KERNEL.findall(text))
        names = "".join(f"#define {name} {name}_{k}\n" for name in kernels)
        over = "".join(f"#undef {name}\n" for name in [*kernels, *macros])
        parts.append(f"namespace n{k} {{\n{names}{text}\n{over}}}\n")
    return "".join(parts)


def complaints(found, architectures=ARCHITECTURES):
    """What is wrong with kernels {source: kernel}, in words."""
    wrong, text = [], together([source.text for source in found])
    for architecture in architectures:
        image, log = OLD.compile(text, f"sm_{architecture}")
        if not image:  # more than 48 KiB shared is an error of the compiler
            return [line for line in log.splitlines() if "error" in line]
        taken = resources(image)
        for k, (source, kernel) in enumerate(found.items()):
            own, threads = taken[f"{source.entry}_{k}"], int(np.prod(kernel.block))
            limits = {
                "bytes of stack": (own.stack, 0),
                "threads": (own.threads, 1024),
                "threads, of those it was compiled for": (threads, own.threads),
                "registers in a block": (-(-own.registers // 8) * 8 * threads, REGISTERS),
                "bytes of arguments": (own.parameters, 4096),
            }
            for what, (n, most) in limits.items():
                if n > most:
                    wrong.append(
                        f"sm_{architecture} {source.entry}: {n} {what}, the most is {most}"
                    )
    return wrong + ptx_complaints(found, OLD.compile(text, "compute_35")[0].decode())


def ptx_complaints(found, ptx):
    """Double arithmetic, and inputs that are not read through the read-only cache."""
    wrong = []
    bodies = dict(re.findall(r"\.entry (\w+)\((.*?)^}", ptx, re.DOTALL | re.MULTILINE))
    for k, source in enumerate(found):
        body = bodies[f"{source.entry}_{k}"]
        if ".f64" in body:
            wrong.append(f"{source.entry} computes in double")
        plain = re.findall(r"\bld\.global\.(?!nc)\S+", body)
        if plain and not any(p.access == "UPDATE" for p in source.parameters):
            wrong.append(f"{source.entry} reads past the read-only cache: {plain[0]}")
    return wrong


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    found = Target("sm_61", tmp_path_factory.mktemp("kernels"))
    found.compiler = OLD
    return found


NAMES = sorted(name for name, cls in OPS.items() if cls.launch and cls.cases)


@pytest.mark.parametrize("first", range(PARTS))
def test_kernels_compile_and_fit(card, first):
    names = NAMES[first::PARTS]
    found = {name: sources(OPS[name], card) for name in names}
    if wrong := complaints({s: k for kernels in found.values() for s, k in kernels.items()}):
        alone = {name: complaints(kernels) for name, kernels in found.items() if kernels}
        assert wrong == {name: w for name, w in alone.items() if w}


def test_each_kernel_alone_is_what_it_is_among_others(card):
    """Joining texts changes nothing of what they take."""
    found = sources(OPS["exp"], card) | sources(OPS["copy"], card)
    assert len(found) > 3
    joined = resources(OLD.compile(together([s.text for s in found]), "sm_61")[0])
    for k, source in enumerate(found):
        alone = resources(OLD.compile(source.text, "sm_61")[0])
        assert joined[f"{source.entry}_{k}"] == alone[source.entry]


DIALECT_TEXT = pathlib.Path(DIALECT).read_text()
WRONG = {
    "bytes of stack": "float a[900]; for (int i = 0; i < n[0]; ++i) a[i] = x[i]; y[0] = a[n[1]];",
    "too much shared data": "LOCAL float a[13000]; a[n[0]] = x[0]; BARRIER(); y[0] = a[n[1]];",
    "computes in double": "y[0] = x[0] * 0.1;",
    "reads past the read-only cache": "y[0] = x[0]; y[1] = y[0] + y[n[0]];",
    'identifier "z" is undefined': "z = 1;",
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_found(what):
    head = "KERNEL(64, 1) void f(READ(float, x), READ(int, n), WRITE(float, y))"
    parameters = (
        Parameter("READ", "float", "x"),
        Parameter("READ", "int", "n"),
        Parameter("WRITE", "float", "y"),
    )
    source = Source(f"{DIALECT_TEXT}\n{head} {{ {WRONG[what]} }}", "f", parameters)
    kernel = type("Launch", (), {"block": (64,)})
    found = complaints({source: kernel}, architectures=(61,))
    assert any(what in line for line in found), found
    right = Source(f"{DIALECT_TEXT}\n{head} {{ y[0] = x[n[0]]; }}", "f", parameters)
    assert complaints({right: kernel}, architectures=(61,)) == []
