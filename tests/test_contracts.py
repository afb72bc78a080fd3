"""What holds for the source as a whole."""

import ast
import pathlib
import re
import subprocess
import sys

import pytest

import shoestring as ss
from shoestring.ir import OPS

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "shoestring"


def sources(*suffixes):
    return [p for p in PACKAGE.rglob("*") if p.suffix in suffixes]


def test_no_source_file_is_too_long_to_know():
    long = {
        str(p.relative_to(ROOT)): n
        for p in sources(".py", ".cpp", ".h", ".cl")
        if (n := len(p.read_text().splitlines())) > 400
    }
    assert not long


def test_no_pass_names_an_op():
    """Passes ask for facts on ops; a string that is an op's name would be a list that forgets the
    next op."""
    # words that are names of ops too
    common = {"copy", "shape", "sum", "where", "slice", "store"}
    for path in (PACKAGE / "compile").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in OPS and node.value not in common:
                pytest.fail(f"{path.name}:{node.lineno} names the op {node.value!r}")
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "F"
            ):
                pytest.fail(f"{path.name}:{node.lineno} builds an op")


def test_the_glue_has_no_loop_and_no_arithmetic():
    text = re.sub(
        r"//.*|\".*?\"|#include.*", "", (PACKAGE / "backends" / "cpu" / "native.cpp").read_text()
    )
    assert not re.search(r"\b(for|while|do|if|switch)\b", text)
    assert not re.search(r"[\w)\]]\s*[+*/%-]\s*[\w(]", text)


def test_op_families_do_not_import_each_other():
    families = {p.stem for p in (PACKAGE / "ops").glob("*.py")} - {"__init__", "layout", "stubs"}
    shared = {"elementwise_rules", "elementwise_program", "card", "part", "product_card"}
    for path in (PACKAGE / "ops").glob("*.py"):
        if path.stem in ("__init__", "stubs"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                names = {node.module} if node.module else {a.name for a in node.names}
                wrong = {
                    n
                    for n in names & families
                    if n not in shared and not path.stem.startswith(n.split("_")[0])
                }
                assert not wrong, f"{path.name} imports {wrong}"


def test_the_design_s_rooms_exist():
    for room in (
        "cli viz models nn optim data io runtime compile autodiff ops ir backends"
    ).split():
        assert (PACKAGE / room / "__init__.py").exists()


def test_importing_starts_nothing_and_needs_numpy_only():
    code = (
        "import sys, shoestring\n"
        "heavy = {'torch', 'matplotlib', 'tqdm', 'pooch', 'sklearn', 'PIL'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "import threading; assert threading.active_count() == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_training_step_runs_with_numpy_alone():
    code = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        top = name.partition('.')[0]\n"
        "        if top not in {'numpy', 'shoestring', *sys.stdlib_module_names}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "import numpy as np, shoestring as ss\n"
        "model = ss.models.build('mnist_cnn')\n"
        "optimizer = ss.Adam(model.parameters())\n"
        "loss = ss.cross_entropy(model(ss.normal(4, 1, 28, 28)), ss.tensor([0, 1, 2, 3]))\n"
        "loss.backward(); optimizer.step(); assert np.isfinite(loss.item())\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_examples_use_public_names_only():
    for path in (ROOT / "examples").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert not (node.value.id == "ss" and node.attr.startswith("_")), path.name
                assert node.value.id != "ss" or node.attr in ss.__all__, f"{path.name}: {node.attr}"
            deep = [n for n in names if n.startswith("shoestring.")]
            assert not deep, f"{path.name} imports {deep}: use `import shoestring as ss`"


def test_the_package_speaks_of_itself_alone():
    words = ["/" + "work/", "sub" + "agent", "farm" + "-"]
    for path in [*sources(".py", ".cpp", ".h"), *ROOT.glob("docs/*.md"), ROOT / "README.md"]:
        text = path.read_text()
        assert not [w for w in words if w in text], path


def test_every_public_name_is_documented():
    missing = [
        n
        for n in ss.__all__
        if callable(getattr(ss, n)) and not (getattr(ss, n).__doc__ or "").strip()
    ]
    assert not missing
