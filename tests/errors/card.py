"""Messages about graphics cards: kernel files, launches that a card cannot run, drivers."""

from types import SimpleNamespace

import numpy as np
from test_card import PaperCard

from shoestring.backends import Kernel
from shoestring.backends.card import bind
from shoestring.backends.opencl import OpenCL, devices, refuse, too_large
from shoestring.backends.source import Source, define, render

COPY = define(TYPE="float", SIZE=8, THREADS=8, POSITIONS="", FROM="i", TO="i")


def zeros(**changes):
    facts = dict(source="copy.cl", defines=COPY, grid=(1,), block=(8,))
    return Kernel("zero", (0,), **facts | changes)


def no_file():
    render(zeros(source="no_such.cl"))


def no_entry():
    render(zeros()._replace(entry="nothing"))


def too_many_buffers():
    render(zeros()._replace(buffers=(0, 1)))


def large_block():
    bind(PaperCard(), zeros(block=(512,)), [(0, 0)])


def large_grid():
    bind(PaperCard(), zeros(grid=(1, 70_000), block=(8, 1)), [(0, 0)])


def large_allocation():
    PaperCard().buffer(2**31)


def not_compiled():
    card = SimpleNamespace(model="Some GPU")
    refuse(card, Source("", "zero", ()), "copy.cl:12:5: error: unknown word\nbuild failed")


def driver_block():
    too_large(SimpleNamespace(model="Some GPU"), Source("", "zero", ()), 576, 256)


def no_device():
    OpenCL(len(devices()))


def full_card():
    card = PaperCard()
    card.memory = 1000
    card.empty((1000,), np.dtype("float32"))


TRIGGERS = {
    "launch/source.missing": (no_file, ["the kernel file no_such.cl cannot be read"]),
    "launch/source.entry": (no_entry, ["copy.cl has no kernel 'nothing'", "KERNEL(THREADS, 1)"]),
    "launch/source.parameters": (
        too_many_buffers,
        ["zero takes 1 buffers, its launch gives 2", "expected  WRITE(float, y)"],
    ),
    "launch/card.block": (
        large_block,
        ["zero asks for blocks of 512 threads", "paper:0 allows 256"],
    ),
    "launch/card.grid": (large_grid, ["70,000 blocks along axis 1, the most is 65,535"]),
    "launch/card.allocation": (
        large_allocation,
        ["paper:0 gives at most 1,073,741,824 bytes at once, not 2,147,483,648", "1024MiB"],
    ),
    "launch/opencl.compile": (
        not_compiled,
        ["the driver of Some GPU does not compile zero", "copy.cl:12:5: error: unknown word"],
    ),
    "launch/opencl.block": (driver_block, ["blocks of 576 threads, Some GPU can run 256"]),
    "value/opencl.device": (no_device, ["there is no OpenCL device number", "shoestring[opencl]"]),
}
