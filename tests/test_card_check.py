"""benchmarks/card_check.py finds a card right, and a wrong one wrong."""

import importlib.util
import pathlib
import sys

import numpy as np
import pytest

from shoestring.backends.device import device
from shoestring.backends.opencl import devices

PATH = pathlib.Path(__file__).parents[1] / "benchmarks" / "card_check.py"
pytestmark = pytest.mark.skipif(not devices(), reason="no OpenCL device: pyopencl and PoCL")


def check(monkeypatch, *arguments):
    spec = importlib.util.spec_from_file_location("card_check", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(
        module, "PROGRAMS", {k: module.PROGRAMS[k] for k in list(module.PROGRAMS)[:3]}
    )
    monkeypatch.setattr(sys, "argv", ["card_check.py", "--device", "opencl:0", *arguments])
    return module.main()


def test_a_card_that_is_right(monkeypatch, capsys):
    assert check(monkeypatch, "--names", "relu,add,matmul") == 0
    printed = capsys.readouterr().out
    assert "all right" in printed and "BAD" not in printed
    assert all(part in printed for part in ("device ", "ops ", "programs ", "launches "))


@pytest.mark.parametrize("part", ["ops", "programs"])
def test_a_card_that_reads_back_something_else(monkeypatch, capsys, part):
    card = device("opencl:0")
    read = type(card).copy_out

    def wrong(self, handle, offset, data):
        read(self, handle, offset, data)
        flat = data.reshape(-1).view(np.uint8)
        flat[3::4] ^= 1  # a bit of the exponent

    monkeypatch.setattr(type(card), "copy_out", wrong)
    assert check(monkeypatch, "--only", part, "--names", "add") == 1
    assert "BAD" in capsys.readouterr().out


def test_a_card_that_fails(monkeypatch, capsys):
    monkeypatch.setattr(type(device("opencl:0")), "compile", None)
    assert check(monkeypatch, "--only", "ops", "--names", "add,relu") == 1
    assert capsys.readouterr().out.count("BAD") == 2
