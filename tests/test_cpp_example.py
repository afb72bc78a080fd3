"""The kernels without Python: the C++ example builds on the static library alone and is right."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "cpp"


@pytest.mark.skipif(not shutil.which("cmake"), reason="needs cmake")
@pytest.mark.skipif(not EXAMPLE.exists(), reason="needs the source tree")
def test_example_builds_and_runs(tmp_path):
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    run(
        "cmake",
        "-S",
        EXAMPLE,
        "-B",
        tmp_path,
        *generator,
        "-DSHOESTRING_ISAS=baseline",
        f"-DPython_EXECUTABLE={sys.executable}",
    )
    run("cmake", "--build", tmp_path, "--parallel", "2")
    assert "largest error 0\n" in run(tmp_path / "conv2d")
    if shutil.which("ldd"):
        assert "python" not in run("ldd", tmp_path / "conv2d")


def run(*command) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
