"""All Python code in the README and in docs/ runs, and the table of switches is the real one. A
page that says so is one program: its blocks go on from each other."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ONE_PROGRAM = "<!-- one program -->"


def blocks(text):
    found = re.findall(r"```python\n(.*?)```", text, re.S)
    return ["\n".join(found)] if ONE_PROGRAM in text else found


BLOCKS = [(page, k, block) for page in PAGES for k, block in enumerate(blocks(page.read_text()))]


@pytest.mark.parametrize("page,k,block", BLOCKS, ids=[f"{p.name}-{k}" for p, k, _ in BLOCKS])
def test_code_runs(page, k, block, tmp_path):
    script = tmp_path / "block.py"
    script.write_text(block)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, f"{page.name}, block {k}:\n{done.stderr}"


def test_there_is_code_to_run():
    assert len(BLOCKS) >= 3


def test_links_lead_somewhere():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not link.startswith("http"):
                assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_the_table_of_switches_is_the_real_one():
    from shoestring import config

    assert config.table() in (ROOT / "docs" / "switches.md").read_text()


def test_the_readme_s_error_is_what_the_program_says():
    import numpy as np

    from shoestring.errors import ShapeError
    from shoestring.ir import F, leaf

    shown = re.search(r"```\n(conv2d: .*?)```", (ROOT / "README.md").read_text(), re.S).group(1)
    with pytest.raises(ShapeError) as caught:
        F.conv2d(
            leaf(np.zeros((32, 3, 28, 28), np.float32)), leaf(np.zeros((16, 4, 3, 3), np.float32))
        )
    expected = [line for line in shown.splitlines() if not line.strip().startswith("at ")]
    assert [
        line for line in str(caught.value).splitlines() if not line.strip().startswith("at ")
    ] == expected


def test_every_public_function_and_layer_has_an_example_that_runs():
    import shoestring as ss

    code = "\n".join(block for _, _, block in BLOCKS)
    missing = [n for n in ss.__all__ if f"ss.{n}" not in code and callable(getattr(ss, n))]
    assert not missing


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_examples_run(example, tmp_path):
    done = subprocess.run(
        [sys.executable, str(example), "--steps", "40"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "test accuracy" in done.stdout
