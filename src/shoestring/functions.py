"""Functions on tensors: making, elementwise, joining, random numbers, gradients, compile.

Arguments are tensors, or whatever `ss.tensor` accepts. What belongs to layers (conv2d, max_pool2d,
cross_entropy ...) stands beside its layer in nn/.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import runtime
from .arguments import StandIns, collect, lower
from .autodiff import gradients
from .backends.device import TURN
from .creation import arange, eye, full, ones, ones_like, zeros, zeros_like
from .errors import TraceError, fail
from .ir import F, Node
from .operands import sizes, whole
from .runtime import default_device
from .tensor import Tensor, node_of, nodes_of, wrap
from .variable import Variable, tensor


# ---- random --------------------------------------------------------------------------------------
def seed(value: int, draws: int = 0) -> None:
    """Start all random numbers of this thread over: draws on the device, initial weights,
    shuffling. value: from 0 to 2**63 - 1. draws: go on after so many, as random_state() says of a
    run to be resumed."""
    if not all(isinstance(n, (int, np.integer)) and 0 <= n < 2**63 for n in (value, draws)):
        fail(
            "value/seed.range",
            f"a seed is a whole number from 0 to 2**63 - 1, got {value!r}"
            + (f" and {draws!r} draws" if draws != 0 else ""),
            op="seed",
            tensors={},
            hint="ss.seed(0)",
        )
    if runtime.session.trace is not None:
        fail(
            "compile/trace.seed",
            "seed() inside a compiled step would happen once, not at every call",
            op="seed",
            tensors={},
            error=TraceError,
            hint="call ss.seed() before the step",
        )
    runtime.random.start(int(value), int(draws))


def random_state() -> tuple[int, int]:
    """(seed, draws since it was set) of this thread: `ss.seed(*state)` goes on from there, bit by
    bit."""
    return runtime.random.seed, runtime.random.draws


def drawn(name: str, shape: tuple, device: str | None, *more: Node) -> Tensor:
    to = sizes(shape, name)  # a wrong one draws nothing
    return wrap(getattr(F, name)(runtime.random.key(device or default_device()), *more, to=to))


def uniform(*shape: Any, low: float = 0.0, high: float = 1.0, device: str | None = None) -> Tensor:
    """Numbers spread evenly over [low, high), by a counter-based generator (Philox)."""
    found = drawn("uniform", shape, device)
    return found if (low, high) == (0.0, 1.0) else found * (high - low) + low


def normal(*shape: Any, mean: float = 0.0, std: float = 1.0, device: str | None = None) -> Tensor:
    """Normally distributed numbers."""
    found = drawn("normal", shape, device)
    return found if (mean, std) == (0.0, 1.0) else found * std + mean


def bernoulli(*shape: Any, p: float = 0.5, device: str | None = None) -> Tensor:
    """1 with probability p, else 0, as float32: p = 0 never gives 1, p = 1 always does."""
    if not 0 <= p <= 1:
        fail(
            "value/bernoulli.p",
            f"a probability lies in [0, 1], got {p}",
            op="bernoulli",
            tensors={},
            hint="p=0.5",
        )
    device = device or default_device()
    return drawn("bernoulli", shape, device, runtime.scalar(p, device=device))


def of(x: Any) -> Tensor:
    """An argument as a tensor."""
    return x if isinstance(x, Tensor) else tensor(x)


# ---- elementwise ---------------------------------------------------------------------------------
def elementwise(name: str, doc: str) -> Callable[..., Tensor]:
    def apply(x: Any, *others: Any) -> Tensor:
        return wrap(getattr(F, name)(*nodes_of(x, *others)))

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = doc
    return apply


exp = elementwise("exp", "e to the power x, elementwise.")
log = elementwise("log", "Natural logarithm of x, elementwise; NaN below 0, -inf at 0.")
sqrt = elementwise("sqrt", "Square root of x, elementwise.")
rsqrt = elementwise("rsqrt", "1 / sqrt(x), elementwise.")
abs = elementwise("abs", "|x|, elementwise.")
sin = elementwise("sin", "Sine of x in radians, elementwise.")
cos = elementwise("cos", "Cosine of x in radians, elementwise.")
erf = elementwise("erf", "Error function of x, elementwise.")
sign = elementwise("sign", "-1, 0 or 1, elementwise.")
maximum = elementwise("maximum", "The larger of a and b, elementwise, with broadcasting; NaN wins.")
minimum = elementwise(
    "minimum", "The smaller of a and b, elementwise, with broadcasting; NaN wins."
)


def where(condition: Any, a: Any, b: Any) -> Tensor:
    """a where `condition` holds, b elsewhere, with broadcasting. The side not taken gets gradient
    0, never NaN."""
    near = next((t for t in (condition, a, b) if isinstance(t, Tensor)), None)
    return wrap(F.where(node_of(condition, near), *nodes_of(a, b, near=near)))


def clip(x: Tensor, minimum: Any = None, maximum: Any = None) -> Tensor:
    """Values below `minimum` become it, values above `maximum` become that; None: no bound."""
    return of(x).clip(minimum, maximum)


# ---- shape, reductions, products -----------------------------------------------------------------
def reshape(x: Tensor, *shape: Any) -> Tensor:
    """The same elements in another shape; see Tensor.reshape."""
    return of(x).reshape(*shape)


def flatten(x: Tensor, start: int = 1) -> Tensor:
    """Axes from `start` on become one; axis 0 (the batch) stays unless start=0.  [N, C, H, W] ->
    [N, C*H*W]"""
    return of(x).flatten(start)


def transpose(x: Tensor, *axes: int) -> Tensor:
    """Axes in another order; see Tensor.transpose."""
    return of(x).transpose(*axes)


def concat(tensors: Sequence[Tensor], axis: int = 0, *, dim: int | None = None) -> Tensor:
    """Tensors one after the other along `axis`; their other sizes are equal."""
    tensors = [of(t) for t in tensors]
    if not tensors:
        fail(
            "value/concat.empty",
            "there is nothing to concatenate",
            op="concat",
            tensors={},
            hint="ss.concat([a, b])",
        )
    axis = tensors[0]._axis(axis if dim is None else dim, "concat")
    return wrap(F.concat(*[t.node for t in tensors], axis=axis))


def stack(tensors: Sequence[Tensor], axis: int = 0, *, dim: int | None = None) -> Tensor:
    """Tensors of one shape side by side along a new axis."""
    axis = axis if dim is None else dim
    tensors = [of(t) for t in tensors]
    return concat([t.unsqueeze(axis) for t in tensors], axis)


def pad(x: Tensor, widths: Sequence[tuple[int, int]]) -> Tensor:
    """Zeros around x: per axis (how many before, how many after)."""
    x = of(x)
    pairs = list(widths) if isinstance(widths, (tuple, list)) else [widths]
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        fail(
            "type/pad.pairs",
            f"widths are pairs, one per axis, got {widths!r}",
            op="pad",
            tensors={"x": x.spec},
            hint="ss.pad(x, [(0, 0), (1, 1)])",
        )
    return wrap(F.pad(x.node, widths=tuple(tuple(whole(n, "pad") for n in p) for p in pairs)))


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product a @ b: [..., M, K] @ [..., K, N] -> [..., M, N]; leading axes broadcast."""
    return of(a) @ b


def sum(x: Tensor, axis: Any = None, keepdims: bool = False, **named: Any) -> Tensor:
    """Sum over `axis`; see Tensor.sum."""
    return of(x).sum(axis, keepdims, **named)


def mean(x: Tensor, axis: Any = None, keepdims: bool = False, **named: Any) -> Tensor:
    """Mean over `axis`; see Tensor.mean."""
    return of(x).mean(axis, keepdims, **named)


def var(
    x: Tensor, axis: Any = None, keepdims: bool = False, correction: int = 1, **named: Any
) -> Tensor:
    """Variance over `axis`; see Tensor.var."""
    return of(x).var(axis, keepdims, correction, **named)


def argmax(x: Tensor, axis: Any = None, keepdims: bool = False, **named: Any) -> Tensor:
    """Position of the largest value; see Tensor.argmax."""
    return of(x).argmax(axis, keepdims, **named)


# ---- gradients and compiled steps ----------------------------------------------------------------
def grad(y: Tensor, xs: Tensor | Sequence[Tensor], allow_unused: bool = False) -> Any:
    """dy/dx for each x, as tensors that can be differentiated again. Leaves every `grad` alone.

    y             scalar tensor
    xs            one tensor or a list (Parameters, Variables, or values on the way to y)
    allow_unused  None for an x that y does not depend on, instead of an error
    """
    several = not isinstance(xs, Tensor)
    items = list(xs) if several else [xs]
    if y.shape != ():
        fail(
            "shape/grad.scalar",
            f"needs a scalar, got {list(y.shape)}",
            op="grad",
            tensors={"y": y.spec},
            hint="ss.grad(y.sum(), x)",
        )
    nodes = [x.state.node if isinstance(x, Variable) else x.node for x in items]
    with TURN:
        found = gradients(y.node, runtime.scalar(1.0, y.dtype, device=y.device), nodes)
    result = []
    for x, node in zip(items, nodes, strict=True):
        if not node.needs_grad:
            fail(
                "value/grad.constant",
                "x takes no gradient",
                op="grad",
                tensors={"x": x.spec},
                hint="ss.tensor(data, requires_grad=True)",
            )
        if node not in found and not allow_unused:
            fail(
                "value/grad.unused",
                "y does not depend on x, or on this version of it",
                op="grad",
                tensors={"y": y.spec, "x": x.spec},
                cause="x took no part, or under no_grad(), or has been given a new value since",
                hint="ss.grad(y, xs, allow_unused=True) gives None for it",
            )
        result.append(wrap(found[node]) if node in found else None)
    return result if several else result[0]


def compile(
    step: Callable,
    *,
    memory_limit: Any = None,
    micro_batches: int | str = 1,
    allow_batchnorm_split: bool = False,
) -> runtime.Compiled:
    """`step` as one plan: traced once per shapes and modes of its arguments, then replayed without
    its Python.

    step   a function that may call backward(), optimiser steps, layers. It takes tensors, arrays,
           numbers, strings, None, parameters, modules, functions, and containers of them; it
           returns None, a tensor, or a tuple, list or dict of tensors. Reading a value inside is an
           error: return the tensor. What it sees of Python, and how results are differentiated:
           docs/compiled-steps.md
    memory_limit  a limit for its plans, as in ss.memory_limit(); None: the one that is in force
    micro_batches  into how many parts the batch (axis 0 of all arguments with axes) is cut, which
           run one after the other; the result is that of the full batch. "auto": as few as the
           memory limit allows
    allow_batchnorm_split  let batch normalisations in training take the statistics of each part

        @ss.compile
        def step(x, y):
            loss = ss.cross_entropy(model(x), y)
            loss.backward(); optimizer.step(); optimizer.zero_grad()
            return loss
    """
    whole = isinstance(micro_batches, int) and not isinstance(micro_batches, bool)
    if micro_batches != "auto" and not (whole and int(micro_batches) > 0):
        fail(
            "value/compile.micro_batches",
            f'micro_batches is a whole number above 0 or "auto", got {micro_batches!r}',
            op="compile",
            tensors={},
            hint="ss.compile(step, micro_batches=4)",
        )
    return runtime.Compiled(
        step,
        lower,
        StandIns,
        collect,
        runtime.read_limit(memory_limit),
        micro_batches,
        allow_batchnorm_split,
    )


__all__ = [
    "abs",
    "arange",
    "argmax",
    "bernoulli",
    "clip",
    "compile",
    "concat",
    "cos",
    "erf",
    "exp",
    "eye",
    "flatten",
    "full",
    "grad",
    "log",
    "matmul",
    "maximum",
    "mean",
    "minimum",
    "normal",
    "ones",
    "ones_like",
    "pad",
    "reshape",
    "rsqrt",
    "random_state",
    "seed",
    "sign",
    "sin",
    "sqrt",
    "stack",
    "sum",
    "transpose",
    "uniform",
    "var",
    "where",
    "zeros",
    "zeros_like",
]
