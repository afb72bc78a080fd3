"""Devices with memory of their own: what all cards share, on a card of paper, and on OpenCL."""

import gc
import os

import numpy as np
import pytest
from common import training_step

import shoestring as ss
from shoestring.backends import Kernel, placed
from shoestring.backends.card import Card, CardArray, CardProgram
from shoestring.backends.device import DEVICES, device
from shoestring.backends.opencl import devices
from shoestring.backends.source import define, render
from shoestring.ir import OPS
from shoestring.runtime import release_arena
from shoestring.testing import distance, run_launch
from shoestring.testing.run import LAYOUTS, laid_out, reference

noise = np.random.default_rng(0).standard_normal
needs_opencl = pytest.mark.skipif(not devices(), reason="no OpenCL device: pyopencl and PoCL")


class PaperCard(Card):
    """A card whose memory is the host's and whose kernels are never compiled."""

    name, largest_bytes, memory = "paper:0", 2**30, 2**40

    def __init__(self):
        super().__init__()
        self.started = []

    def take(self, nbytes):
        return None if self.now + nbytes > self.memory else np.full(nbytes, 0xA5, np.uint8)

    def give(self, handle):
        handle[:] = 0xFF

    def address_of(self, handle):
        return handle.__array_interface__["data"][0]

    def copy_in(self, handle, offset, data):
        flat = data.reshape(-1).view(np.uint8)
        handle[offset : offset + flat.size] = flat

    def copy_out(self, handle, offset, data):
        data[:] = handle[offset : offset + data.nbytes]

    def compile(self, source):
        return source

    def start(self, function, kernel, source, places):
        self.started.append((kernel.entry, places))

    def synchronize(self):
        """Nothing waits."""


@pytest.fixture
def paper():
    card = DEVICES["paper:0"] = PaperCard()
    card.kind = "reference"  # ops have no kernels for it
    yield card
    release_arena("paper:0")
    gc.collect()
    del DEVICES["paper:0"]


# ---- memory --------------------------------------------------------------------------------------
def test_values_go_to_the_card_and_come_back_in_any_layout():
    card = PaperCard()
    for dtype in ("float32", "int64", "uint8", "bool"):
        x = (noise((3, 4, 5)) * 9).astype(dtype)
        there = card.upload(x)
        assert np.array_equal(card.read(there), x) and there.flags.c_contiguous
        steps = [s // x.itemsize for s in x[::2, ::-1].strides]
        start = 3 * 5
        view = there.view((2, 4, 5), steps, start)
        assert np.array_equal(np.asarray(view), x[::2, ::-1]) and not view.flags.c_contiguous
    assert card.read(card.upload(np.zeros((0, 3), np.float32))).shape == (0, 3)
    assert card.read(card.upload(np.float32(3))) == 3


def test_memory_is_counted_where_it_is_taken():
    card = PaperCard()
    x = card.upload(np.zeros(100, np.float32))
    y = x.view((50,), (2,), 0)
    assert card.allocated_bytes() == card.peak_bytes() == 400
    del x
    assert card.allocated_bytes() == 400  # the view holds it
    del y
    assert card.allocated_bytes() == 0 and card.peak_bytes() == 400
    card.reset_peak()
    assert card.peak_bytes() == 0


def test_a_full_card_says_so_and_goes_on():
    card = PaperCard()
    card.memory = 1000
    kept = card.upload(np.ones(100, np.float32))
    with pytest.raises(ss.errors.DeviceError, match="could not provide 4,000 bytes"):
        card.empty((1000,), np.dtype("float32"))
    assert card.read(card.upload(np.ones(100, np.float32))).sum() == card.read(kept).sum() == 100


def test_a_whole_step_runs_where_no_kernel_exists(paper):
    """Every op's reference runs on the host, values stay on the card: predicted equals counted."""

    def losses(name):
        ss.seed(0)
        layers = [
            ss.Linear(6, 8, bias=False),
            ss.BatchNorm1D(8),
            ss.ReLU(),
            ss.Dropout(0.3),
            ss.Linear(8, 3),
        ]
        net = ss.Sequential(*layers)
        for p in [*net.parameters(), *net.buffers()]:
            p.move(name)
        optimizer = ss.SGD(net.parameters(), lr=0.1, momentum=0.9)
        step = ss.compile(training_step(net, optimizer))
        x = ss.tensor(noise((5, 6)).astype(np.float32) * 0 + X, device=name)
        y = ss.tensor(np.arange(5) % 3, device=name)
        found = [step(x, y).item() for _ in range(4)]
        stats = ss.memory_stats(name)
        spare = stats["arena_spare_bytes"] + stats["input_spare_bytes"]
        assert stats["counted_peak_bytes"] == stats["predicted_peak_bytes"] + spare
        return found, [p.numpy() for p in net.parameters()], optimizer.state_dict()

    X = np.linspace(-1, 1, 30, dtype=np.float32).reshape(5, 6)
    (one, first, saved), (other, second, _) = losses("paper:0"), losses("cpu")
    assert np.allclose(one, other, rtol=1e-5) and one[-1] < one[0]
    assert all(np.allclose(p, q, atol=1e-5) for p, q in zip(first, second, strict=True))
    assert all(isinstance(v, np.ndarray) for slots in saved["slots"] for v in slots.values())


def test_labels_on_a_card_are_checked_by_the_plan(paper):
    x = ss.tensor(np.ones((3, 4), np.float32), device="paper:0")
    y = ss.tensor(np.array([0, 9, 1]), device="paper:0")
    with pytest.raises(ss.errors.DataError, match="label 9 at position 1 is outside"):
        ss.cross_entropy(x, y).item()


# ---- kernels -------------------------------------------------------------------------------------
def test_the_text_of_a_kernel_names_its_files():
    kernel = Kernel(
        "elementwise",
        (0, 1),
        source="elementwise.cl",
        defines=define(PARAMETERS="READ(float, x0), WRITE(int64, y)", THREADS=8, FLAG=True),
    )
    source = render(kernel)
    assert [(p.access, p.type, p.bytes) for p in source.parameters] == [
        ("READ", "float", 4),
        ("WRITE", "int64", 8),
    ]
    marks = [line for line in source.text.splitlines() if line.startswith("#line")]
    assert marks == [f'#line 1 "{f}"' for f in ("dialect.h", "math.cl", "elementwise.cl")]
    assert "#define FLAG 1\n" in source.text and "#define ALIASED\n" not in source.text
    assert "#define ALIASED\n" in render(kernel, aliased=True).text


def test_results_over_inputs_lose_their_restriction():
    kernel = Kernel(
        "elementwise",
        (0, 1),
        source="elementwise.cl",
        defines=define(PARAMETERS="READ(float, x0), WRITE(float, y)"),
        grid=(1,),
        block=(8,),
    )
    for places, expected in (([(0, 0), (0, 64)], False), ([(0, 64), (0, 64)], True)):
        (bound,) = CardProgram(PaperCard(), [placed(kernel, places)]).kernels
        assert ("#define ALIASED\n" in bound.source.text) == expected


def test_a_program_starts_its_kernels_where_their_bases_are():
    card = PaperCard()
    kernel = Kernel(
        "zero", (0,), source="copy.cl", defines=define(TYPE="float"), grid=(1,), block=(8,)
    )
    base = card.buffer(100)
    program = CardProgram(card, [placed(kernel, [(1, 64)]), placed(kernel, [(0, 0)])])
    program.run([(base, 0), (base, 4)])
    program.run_range([(base, 8), (base, 0)], 1, 2)
    assert [places for _, places in card.started] == [[(base, 68)], [(base, 0)], [(base, 8)]]


@pytest.mark.skipif("REQUIRE_OPENCL" not in os.environ, reason="REQUIRE_OPENCL is not set")
def test_opencl_is_there_where_it_must_be():
    assert devices()


NATIVE = [name for name, cls in OPS.items() if cls.launch is not None and cls.cases]


@needs_opencl
@pytest.mark.parametrize("name", NATIVE)
def test_kernels_equal_the_reference(name):
    card, cls = device("opencl:0"), OPS[name]
    for case in cls.cases:
        op, arrays = cls(**case.attributes), case.inputs()
        shapes = [a.shape for a in arrays]
        layouts = (None, *LAYOUTS) if op.strided and case is cls.cases[0] else (None,)
        for layout in layouts:
            given = [laid_out(a, layout) if layout else a for a in arrays]
            found = run_launch(op, given, card)
            if found is None:
                continue
            again = run_launch(op, given, card)
            wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in given]
            expected = (
                [np.asarray(op.record(given[0]), np.int64)]
                if op.kind == "check"
                else reference(op, wide)
            )
            for y, twice, want in zip(found, again, expected, strict=True):
                assert np.array_equal(y, twice, equal_nan=y.dtype.kind == "f")
                assert distance(y, want) <= op.tolerance(*shapes), (case, layout)


@needs_opencl
def test_a_chain_on_a_card_has_the_bits_of_its_links():
    x = ss.tensor(noise((3, 5)).astype(np.float32), device="opencl:0")
    y = ss.tensor(noise((5,)).astype(np.float32), device="opencl:0")

    def chain():
        return (((x * y).sigmoid() + y) * 0.3 - (x.exp() + 1).log()).numpy()

    fused = chain()
    with_fusing_off = ss.runtime.session
    with_fusing_off.fuse = False
    try:
        assert np.array_equal(chain(), fused)
    finally:
        with_fusing_off.fuse = True


@needs_opencl
def test_values_move_between_devices():
    x = ss.tensor(noise((4, 3)).astype(np.float32))
    there = x.to("opencl")
    assert there.device == "opencl:0" and isinstance(there.realize(), CardArray)
    assert np.array_equal(there.numpy(), x.numpy())
    assert np.array_equal((there.T[1:] * 2).to("cpu").numpy(), x.numpy().T[1:] * 2)
    assert there.data_ptr() == there[1:].data_ptr() - 12
