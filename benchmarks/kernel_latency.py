"""Each kernel alone, forward and backward, over the shapes of the example networks, ours and
PyTorch's in turn.

    python benchmarks/kernel_latency.py --compare torch [--threads 2] [--rounds 9]

An operation with a kernel of its own is timed as that kernel, without the compiler. Batch
normalisation, ReLU and softmax are compositions: they are timed as a compiled function, Python's
part of a replay included, and "both" is forward and backward together. Medians over rounds; each
round is long enough for the clock.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from record import record

import shoestring as ss
from shoestring.backends import placed
from shoestring.backends.device import device
from shoestring.ir import OPS
from shoestring.testing.run import operand

CONVOLUTIONS = [  # x, w
    ("conv1", (32, 1, 28, 28), (16, 1, 3, 3)),
    ("conv2", (32, 16, 13, 13), (32, 16, 3, 3)),
    ("conv 64 of 32x32", (32, 64, 32, 32), (64, 64, 3, 3)),
]
PRODUCTS = [("fc", 32, 800, 10), ("mlp1", 128, 784, 512), ("mlp2", 128, 512, 512)]
POOLS = [("pool1", (32, 16, 26, 26)), ("pool2", (32, 32, 11, 11))]
MAPS = [("after conv1", (32, 16, 26, 26)), ("after conv2", (32, 32, 11, 11))]
ROWS = [("logits", (32, 10)), ("wide", (128, 1000))]

Pair = tuple[str, Callable[[], Any], Callable[[], Any]]


def kernel(name: str, *arrays: np.ndarray, **attributes: Any) -> Callable[[], None]:
    """A function that runs the op's kernels on these arrays; it holds all the memory it needs."""
    op = OPS[name](**attributes)
    shapes, dtypes = op.shape(*[a.shape for a in arrays]), op.dtype(*[a.dtype for a in arrays])
    if op.outputs == 1:
        shapes, dtypes = (shapes,), (dtypes,)
    outputs = [np.zeros(s, d) for s, d in zip(shapes, dtypes, strict=True)]
    inputs = [np.ascontiguousarray(a) for a in arrays]
    launch = op.launch(device("cpu"), [operand(a) for a in inputs], [operand(a) for a in outputs])
    kept = [*inputs, *outputs, *[np.zeros(n, np.uint8) for n in launch.workspaces]]
    addresses = [a.ctypes.data for a in kept]
    places = [(base, 0) for base in range(len(kept))]
    program = device("cpu").program([placed(k, places) for k in launch.kernels])
    return lambda: (program.run(addresses), kept)[0]


def compiled(fn: Callable, *arrays: np.ndarray) -> Callable[[], Any]:
    step, tensors = ss.compile(fn), [ss.tensor(a) for a in arrays]
    return lambda: step(*tensors)


def both(fn: Callable, x: np.ndarray) -> Callable:
    """dy -> dx of fn at x, as one step. x is a parameter: inputs of a compiled step are data."""
    p = ss.Parameter(x)
    return lambda dy: ss.grad((fn(p) * dy).sum(), p)


def pairs() -> Iterator[Pair]:
    """(work, ours, PyTorch's), one at a time so that memory stays small."""
    import torch
    from torch.nn import functional

    aten = torch.ops.aten
    draw = np.random.default_rng(0)

    def normal(*shape: int) -> tuple[np.ndarray, torch.Tensor]:
        a = draw.standard_normal(shape, np.float32)
        return a, torch.from_numpy(a.copy())

    for name, x_shape, w_shape in CONVOLUTIONS:
        (x, tx), (w, tw) = normal(*x_shape), normal(*w_shape)
        dy, tdy = normal(*functional.conv2d(tx, tw).shape)
        rest = (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)

        def back(dx, dw, tdy=tdy, tx=tx, tw=tw, rest=rest):
            return lambda: aten.convolution_backward(tdy, tx, tw, *rest, [dx, dw, False])

        yield f"conv2d {name}", kernel("conv2d", x, w), lambda: functional.conv2d(tx, tw)
        mine = kernel("conv2d_input_grad", dy, w, x_shape=x_shape)
        yield f"conv2d {name} dx", mine, back(True, False)
        mine = kernel("conv2d_weight_grad", dy, x, w_shape=w_shape)
        yield f"conv2d {name} dw", mine, back(False, True)

    for name, m, k, n in PRODUCTS:
        (a, ta), (b, tb), (dy, tdy) = normal(m, k), normal(k, n), normal(m, n)
        yield f"matmul {name}", kernel("matmul", a, b), lambda: ta @ tb
        mine = kernel("matmul", dy, b, transpose_b=True)
        yield f"matmul {name} da", mine, lambda: tdy @ tb.T
        mine = kernel("matmul", a, dy, transpose_a=True)
        yield f"matmul {name} db", mine, lambda: ta.T @ tdy

    for name, shape in POOLS:
        x, tx = normal(*shape)
        ty, place = functional.max_pool2d(tx, 2, return_indices=True)
        dy, tdy = normal(*ty.shape)
        sizes = ([2, 2], [2, 2], [0, 0], [1, 1], False)
        mine = kernel("max_pool2d", x, kernel=(2, 2), stride=(2, 2))
        yield f"max_pool2d {name}", mine, lambda: aten.max_pool2d_with_indices(tx, *sizes)
        h, w = np.divmod(place.numpy(), shape[3])
        mine = kernel("max_pool2d_grad", dy, (h % 2 * 2 + w % 2).astype(np.uint8), x_shape=shape)
        theirs = aten.max_pool2d_with_indices_backward
        yield f"max_pool2d {name} dx", mine, lambda: theirs(tdy, tx, *sizes, place)

    for name, shape in MAPS:
        layer, other = ss.BatchNorm2D(shape[1]), torch.nn.BatchNorm2d(shape[1])
        yield from composed(f"batch norm {name}", layer, other, normal, shape)
        yield from composed(f"relu {name}", ss.relu, torch.relu, normal, shape)
    for name, shape in ROWS:
        mine = lambda x: ss.softmax(x, axis=1)  # noqa: E731
        yield from composed(f"softmax {name}", mine, lambda x: x.softmax(1), normal, shape)


def composed(work: str, ours: Any, theirs: Any, normal: Any, shape: Any) -> Iterator[Pair]:
    import torch

    (x, tx), (dy, tdy) = normal(*shape), normal(*shape)

    def forward() -> Any:
        with torch.no_grad():
            return theirs(tx)

    free = tx.clone().requires_grad_()
    yield f"{work}, forward", compiled(ours, x), forward
    back = lambda: torch.autograd.grad(theirs(free), free, tdy)  # noqa: E731
    yield f"{work}, both", compiled(both(ours, x), dy), back


def timed(run: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compare", choices=["torch"], default="torch")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    ss.set_threads(options.threads)
    for work, mine, other in pairs():
        timed(mine, 5), timed(other, 5)
        counts = [max(3, int(5e3 / timed(f, 5))) for f in (mine, other)]
        times = [(timed(mine, counts[0]), timed(other, counts[1])) for _ in range(options.rounds)]
        here, there = (statistics.median(t[k] for t in times) for k in (0, 1))
        label = f"{work}, {options.threads} threads"
        record("kernel_latency", [(label, here, "us", "torch 2.13.0", there)])


if __name__ == "__main__":
    main()
