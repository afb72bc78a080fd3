"""Matrix products and convolutions on cards: tiles, edges, strides, splits, programs inside."""

import math

import numpy as np
import pytest
from common import names, run
from hypothesis import given, settings
from hypothesis import strategies as st
from test_card import PaperCard

import shoestring as ss
from shoestring.backends import Operand, row_major
from shoestring.backends.card import LARGEST_GRID
from shoestring.backends.device import device
from shoestring.backends.opencl import devices
from shoestring.backends.source import render
from shoestring.ir import OPS
from shoestring.ops import product_card
from shoestring.testing import distance, laid_out, run_launch
from shoestring.testing.run import LAYOUTS, operand, reference, same

needs_opencl = pytest.mark.skipif(not devices(), reason="no OpenCL device: pyopencl and PoCL")
CORES = (1, 132)  # few: large tiles, whole sums; many: small tiles, sums in parts


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(op, *arrays):
    """Near the reference, and the same bits twice."""
    card = device("opencl:0")
    (y,), (twice,) = run_launch(op, arrays, card), run_launch(op, arrays, card)
    assert same(y, twice)
    (want,) = reference(op, [a.astype(np.float64) for a in arrays])
    assert distance(y, want) <= op.tolerance(*[a.shape for a in arrays]), op
    return y


@pytest.fixture(params=CORES)
def cores(request, monkeypatch):
    monkeypatch.setattr(device("opencl:0"), "cores", request.param)
    return request.param


# ---- matrix products -----------------------------------------------------------------------------
@needs_opencl
@pytest.mark.parametrize("number", range(len(product_card.TILES)))
def test_every_tile_at_its_edges(number, monkeypatch):
    tile, transposed = product_card.TILES[number], number % 2 == 1
    monkeypatch.setattr(product_card, "TILES", (tile,))
    M, N, K = tile.rows + 3, tile.columns + 1, 2 * tile.depth + 5
    op = OPS["matmul"](transpose_a=transposed, transpose_b=transposed)
    a, b = ((K, M), (N, K)) if transposed else ((M, K), (K, N))
    check(op, draw(1, *a), draw(2, *b))


@needs_opencl
@settings(max_examples=8, deadline=None)
@given(st.data())
def test_products_of_any_size_layout_and_batch(data):
    M, N, K = (data.draw(st.integers(1, 40)) for _ in range(3))
    ta, tb = data.draw(st.booleans()), data.draw(st.booleans())
    lead = data.draw(st.lists(st.integers(1, 3), max_size=2))
    repeated = [data.draw(st.sampled_from((n, 1))) for n in lead]
    cut = data.draw(st.integers(0, len(lead)))
    a, b = ((K, M) if ta else (M, K)), ((N, K) if tb else (K, N))
    arrays = [draw(1, *lead, *a), draw(2, *repeated[cut:], *b)]
    layouts = [data.draw(st.sampled_from((None, *LAYOUTS))) for _ in arrays]
    given = [laid_out(x, how) if how else x for x, how in zip(arrays, layouts, strict=True)]
    op = OPS["matmul"](transpose_a=ta, transpose_b=tb)
    check(op, *(given if data.draw(st.booleans()) else given[:1] + [arrays[1]]))


@needs_opencl
def test_long_sums_are_split_and_added_in_order(monkeypatch):
    card, op = device("opencl:0"), OPS["matmul"]()
    a, b = draw(1, 5, 4099), draw(2, 4099, 6)
    monkeypatch.setattr(card, "cores", 132)
    launch = op.launch(card, [operand(a), operand(b)], [operand(draw(0, 5, 6))])
    assert [k.entry for k in launch.kernels] == ["matmul", "add_parts"]
    parts = dict(launch.kernels[0].defines)["SPLITS"]
    assert parts > 1 and launch.workspaces == (4 * parts * 5 * 6,)
    check(op, a, b)
    batched = draw(3, 2, 3, 4099), draw(4, 2, 4099, 2)
    check(op, *batched)


# ---- convolutions --------------------------------------------------------------------------------
def three(x, w, seed=7, **attributes):
    """A convolution and its two gradients."""
    y = check(OPS["conv2d"](**attributes), x, w)
    dy = draw(seed, *y.shape)
    check(OPS["conv2d_input_grad"](x_shape=x.shape, **attributes), dy, w)
    check(OPS["conv2d_weight_grad"](w_shape=w.shape, **attributes), dy, x)


GEOMETRIES = {
    "plain": ((2, 3, 9, 8), (5, 3, 3, 3), (1, 1), ((1, 1), (1, 1))),
    "one by one": ((2, 17, 5, 4), (9, 17, 1, 1), (1, 1), ((0, 0), (0, 0))),
    "one by one, every third": ((1, 4, 7, 8), (6, 4, 1, 1), (3, 2), ((0, 0), (0, 0))),
    "stem": ((1, 3, 15, 16), (8, 3, 7, 7), (2, 2), ((3, 3), (3, 3))),
    "taps of one tile": ((2, 16, 6, 7), (20, 16, 3, 3), (1, 1), ((1, 1), (1, 1))),
    "taps of one tile, halved": ((1, 33, 8, 9), (17, 33, 3, 3), (2, 2), ((1, 0), (0, 1))),
    "stride beyond the kernel": ((2, 2, 11, 10), (3, 2, 2, 3), (4, 5), ((1, 0), (0, 2))),
    "rows left over": ((1, 2, 10, 11), (2, 2, 3, 2), (3, 4), ((0, 0), (0, 0))),
    "image smaller than its stride": ((3, 2, 2, 1), (2, 2, 3, 3), (3, 3), ((1, 1), (2, 1))),
    "wide padding": ((1, 1, 2, 3), (2, 1, 2, 2), (1, 2), ((3, 2), (4, 1))),
    "many pixels": ((2, 1, 23, 29), (2, 1, 3, 5), (1, 1), ((1, 1), (2, 2))),
}


@needs_opencl
@pytest.mark.parametrize("number", range(len(GEOMETRIES)), ids=list(GEOMETRIES))
def test_convolutions_of_every_geometry(number, monkeypatch):
    monkeypatch.setattr(device("opencl:0"), "cores", CORES[number % 2])
    x, w, stride, padding = list(GEOMETRIES.values())[number]
    three(draw(1, *x), draw(2, *w), stride=stride, padding=padding)


@needs_opencl
@settings(max_examples=2, deadline=None)
@given(st.data())
def test_convolutions_of_any_size(data):
    def some(low, high):
        return data.draw(st.integers(low, high))

    C, H, W = some(1, 20), some(1, 9), some(1, 9)
    padding = tuple((some(0, 3), some(0, 3)) for _ in range(2))
    R, S = some(1, min(4, H + sum(padding[0]))), some(1, min(4, W + sum(padding[1])))
    stride = (some(1, 3), some(1, 3))
    x, w = draw(1, some(1, 3), C, H, W), draw(2, some(1, 20), C, R, S)
    three(x, w, stride=stride, padding=padding)


@needs_opencl
def test_a_weight_gradient_in_parts(monkeypatch):
    monkeypatch.setattr(device("opencl:0"), "cores", 132)
    x, dy = draw(1, 3, 2, 20, 21), draw(2, 3, 4, 20, 21)
    op = OPS["conv2d_weight_grad"](w_shape=(4, 2, 3, 3), padding=((1, 1), (1, 1)))
    launch = op.launch(
        device("opencl:0"), [operand(dy), operand(x)], [operand(draw(0, 4, 2, 3, 3))]
    )
    assert [k.entry for k in launch.kernels] == ["conv_weights", "add_parts"]
    check(op, dy, x)


# ---- what joins them -----------------------------------------------------------------------------
@needs_opencl
def test_what_follows_a_convolution_runs_inside_it(cores):
    """Convolution, bias, affine, ReLU, shortcut: one step per convolution, the bits of many."""

    def on_card(seed, *shape):
        return ss.tensor(draw(seed, *shape), device="opencl:0")

    x, w, v = on_card(1, 2, 3, 9, 8), on_card(2, 5, 3, 3, 3), on_card(3, 5, 5, 1, 1)
    bias, scale, shift = on_card(4, 5), on_card(5, 1, 5, 1, 1), on_card(6, 1, 5, 1, 1)

    def block(x):
        h = (ss.conv2d(x, w, bias, padding=1) * scale + shift).relu()
        return (ss.conv2d(h, v) * scale + shift + h).relu()

    def result():
        with ss.no_grad():
            return ss.compile(block)(x).numpy(), names()

    together, steps = run(True, result)
    apart, more = run(False, result)
    convolutions = [name for name in steps if "conv2d" in name]
    assert len(convolutions) == 2 == len(steps) < len(more)
    assert all(name.endswith("+relu") for name in convolutions)
    assert same(together, apart)
    pixels = (1, -1, 1, 1)
    arrays = [t.numpy().astype(np.float64) for t in (x, w, v, bias, scale, shift)]
    x, w, v, bias, scale, shift = arrays
    h = OPS["conv2d"](padding=((1, 1), (1, 1))).reference(x, w) + bias.reshape(pixels)
    h = np.maximum(h * scale + shift, 0)
    want = np.maximum(OPS["conv2d"]().reference(h, v) * scale + shift + h, 0)
    assert distance(together, want) < 1e-5


@needs_opencl
def test_what_follows_a_product_runs_inside_it(cores):
    a, b = draw(1, 3, 700) / 30, draw(2, 700, 7)
    x, w, bias = (ss.tensor(v, device="opencl:0") for v in (a, b, draw(3, 7)))

    def result():
        return ss.compile(lambda x: (x @ w + bias).tanh())(x).numpy(), names()

    together, steps = run(True, result)
    apart, _ = run(False, result)
    assert len(steps) == 1 and same(together, apart)
    assert distance(together, np.tanh(a.astype(np.float64) @ b + bias.numpy())) < 1e-5


# ---- the choice of tiles -------------------------------------------------------------------------
def card_of(cores, block=1024, local=49152):
    card = PaperCard()
    card.cores, card.largest_block, card.local_bytes = cores, block, local
    return card


@pytest.mark.parametrize("tile", product_card.TILES, ids=lambda t: f"{t.rows}x{t.columns}")
def test_tiles_keep_what_their_kernels_rely_on(tile):
    lanes = tile.defines["LANES_X"], tile.defines["LANES_Y"]
    across, down = tile.columns // tile.thread_columns, tile.rows // tile.thread_rows
    assert tile.thread_rows % 4 == tile.thread_columns % 4 == 0
    assert tile.threads % tile.depth == 0 and tile.threads >= tile.columns
    assert (
        (tile.rows * tile.depth) % tile.threads == (tile.columns * tile.depth) % tile.threads == 0
    )
    assert across % lanes[0] == down % lanes[1] == 0 and tile.threads <= 256
    assert tile.local_bytes <= 48 << 10


def test_the_choice_fits_the_card():
    choose = product_card.choose
    large, small = choose(card_of(132), 4096, 4096, 4096), choose(card_of(132), 32, 10, 64)
    assert (large.tile.rows, large.tile.columns, large.parts) == (128, 128, 1)
    assert small.tile.rows * small.tile.columns < 64 * 64
    assert choose(card_of(132), 64, 576, 100352).parts > 1
    assert choose(card_of(1), 256, 256, 1024).parts == 1
    assert choose(card_of(132, block=64), 4096, 4096, 4096).tile.threads <= 64
    assert choose(card_of(132, local=8192), 4096, 4096, 4096).tile.local_bytes <= 8192


@pytest.mark.parametrize("cores", (2, 132))
@pytest.mark.parametrize("depth", (1, 7, 100, 4099, 65537))
def test_parts_cover_the_sum_and_fit_the_workspace(cores, depth):
    for rows, columns in ((1, 1), (32, 10), (64, 576), (512, 4608), (5000, 5000)):
        tile, parts, each = product_card.choose(card_of(cores), rows, columns, depth)
        steps = math.ceil(depth / tile.depth)
        assert (parts - 1) * each < steps <= parts * each
        assert parts == 1 or 4 * parts * rows * columns <= product_card.PARTS_BYTES


def described(name, *shapes, **attributes):
    """The launch, as for values that are never made."""
    op, dtype = OPS[name](**attributes), np.dtype("float32")
    specs = [Operand(s, dtype, row_major(s)) for s in (*shapes, op.shape(*shapes))]
    return op.launch_card(card_of(8), specs[:-1], specs[-1:])


def test_sizes_beyond_32_bits_count_in_64():
    large = ((64, 64, 1024, 1024), (3, 64, 3, 3))
    (conv,) = described("conv2d", *large).kernels
    assert dict(conv.defines)["INDEX"] == "int64" and conv.grid[0] <= LARGEST_GRID[0]
    (product, *_) = described("matmul", (70000, 40000), (40000, 8)).kernels
    assert dict(product.defines)["INDEX"] == "int64"
    (small, *_) = described("matmul", (70, 40), (40, 8)).kernels
    assert dict(small.defines)["INDEX"] == "int"
    assert "#define INDEX int64\n" in render(conv).text


@needs_opencl
def test_64_bit_arithmetic_finds_the_same_bits(monkeypatch):
    arrays = draw(1, 2, 3, 7, 6), draw(2, 4, 3, 3, 3)
    a = dict(stride=(2, 1), padding=((1, 0), (0, 1)))
    dy = draw(3, *OPS["conv2d"](**a).shape(*[v.shape for v in arrays]))
    cases = (
        (OPS["conv2d_input_grad"](x_shape=arrays[0].shape, **a), (dy, arrays[1])),
        (OPS["conv2d_weight_grad"](w_shape=arrays[1].shape, **a), (dy, arrays[0])),
        (OPS["matmul"](), (draw(4, 2, 5, 300), draw(5, 300, 3))),
    )
    narrow = [check(op, *given) for op, given in cases]
    for family in ("conv_card", "matmul_card"):
        monkeypatch.setattr(f"shoestring.ops.{family}.index_type", lambda *_: "int64")
    assert all(same(check(op, *given), y) for (op, given), y in zip(cases, narrow, strict=True))
