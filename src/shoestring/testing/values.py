"""What an op computes: gradients by central differences, kernels by the reference."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from ..autodiff import gradients
from ..ir import Case, F, Node, Op, ancestry, leaf
from .contract import as_tuple, broken
from .run import LAYOUTS, distance, evaluate, laid_out, reference, run_launch, same

STEP, GRADIENT_ERROR = (
    1e-6,
    2e-5,
)  # h of the central difference; allowed error, of the largest value
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5)
FINITE = (0.0, -0.0, 1.0, -1.0, 100.0, -100.0)


def check_gradient(cls: type[Op], case: Case) -> None:
    """First and second order against central differences.

    A float input for which `gradient` returns None must not matter, unless the op has a tuple
    `constant_inputs` that names it.
    """
    if cls.gradient is None:
        return
    rng = np.random.default_rng(1)
    arrays = case.inputs(floats="float64")
    xs = [leaf(a, needs_grad=a.dtype.kind == "f") for a in arrays]
    floats = [x for x in xs if x.needs_grad and x.spec.size]
    values = dict(zip(xs, arrays, strict=True))
    found = getattr(F, cls.name)(*xs, **case.attributes)
    ys = [y for y in as_tuple(found, cls) if y.needs_grad]
    constants = {
        x
        for x, name in zip(xs, cls.parameters, strict=False)
        if name in getattr(cls, "constant_inputs", ())
    }
    firsts: list[Node] = []
    for y in ys:
        seed = leaf(rng.normal(size=y.shape), needs_grad=True)
        values[seed] = seed.value
        grads = gradients(y, seed, floats)
        compare_gradients(
            cls, case, "first", y, seed, grads, [x for x in floats if x not in constants], values
        )
        firsts += grads.values()
    for dx in firsts:
        if not dx.needs_grad:
            continue
        seed = leaf(rng.normal(size=dx.shape))
        leaves = [x for x in ancestry([dx]) if x.op is None and x.needs_grad and x.spec.size]
        wrt = [x for x in leaves if x not in constants]
        values.update({x: x.value for x in wrt if x not in values})
        compare_gradients(cls, case, "second", dx, seed, gradients(dx, seed, wrt), wrt, values)


def compare_gradients(
    cls: type[Op],
    case: Case,
    order: str,
    y: Node,
    seed: Node,
    grads: Mapping[Node, Node],
    wrt: Sequence[Node],
    values: dict[Node, np.ndarray],
) -> None:
    rng = np.random.default_rng(2)
    for k, x in enumerate(wrt):
        dx = evaluate([grads[x]], values)[0] if x in grads else np.zeros(x.shape)
        if dx.shape != x.shape:
            broken(
                cls,
                case,
                f"the {order} gradient of input {k} has shape {list(dx.shape)}, "
                f"the input {list(x.shape)}",
            )
        direction = np.asarray(rng.normal(size=x.shape))
        up, down = [
            evaluate([y], {**values, x: np.asarray(values[x] + h * direction)})[0]
            for h in (STEP, -STEP)
        ]
        want = float(((up - down) * seed.value).sum() / (2 * STEP))
        got, scale = float((dx * direction).sum()), float(np.abs(dx * direction).sum())
        if not abs(got - want) <= GRADIENT_ERROR * max(scale, abs(want), 1e-2):
            broken(
                cls,
                case,
                f"the {order} gradient of input {k} {list(x.shape)} is wrong",
                expected=f"{want:.8g} along a random direction (central difference), got {got:.8g}",
            )


def check_kernel(cls: type[Op], case: Case) -> None:
    """The CPU kernel on the case's inputs, contiguous and, where the op takes them, in odd layouts.

    Compiled for each instruction set that this machine has; the same bits with 1 and 3 threads.
    """
    from ..backends.cpu import _native

    op, arrays = cls(**case.attributes), case.inputs()
    isa, threads = _native.isa(), _native.threads()
    try:
        for name in _native.isas():
            _native.set_isa(name)
            compare_kernel(cls, case, op, arrays, f"contiguous inputs, {name}")
            for layout in LAYOUTS if cls.strided and cls.kind != "view" else ():
                compare_kernel(
                    cls, case, op, [laid_out(a, layout) for a in arrays], f"{layout} inputs, {name}"
                )
        _native.set_threads(1)
        alone = run_launch(op, arrays)
        _native.set_threads(3)
        if alone is not None and not all(map(same, alone, run_launch(op, arrays) or ())):
            broken(
                cls,
                case,
                "its kernel gives other bits with three threads than with one",
                hint="cut the work by shapes alone",
            )
    finally:
        _native.set_isa(isa)
        _native.set_threads(threads)


def compare_kernel(cls: type[Op], case: Case, op: Op, arrays: list[np.ndarray], how: str) -> None:
    found = run_launch(op, arrays)
    if found is None:
        return
    if op.kind == "check":
        wanted: tuple = (np.array(op.record(arrays[0])),)  # type: ignore[attr-defined]
    else:
        wanted = reference(
            op, [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]
        )
    allowed = op.tolerance(*[a.shape for a in arrays])
    for k, (y, want) in enumerate(zip(found, wanted, strict=True)):
        error = distance(y, want)
        if not error <= allowed:
            broken(
                cls,
                case,
                f"output {k} of its kernel differs from the reference ({how})",
                expected=f"an error of at most {allowed:.2g} of the largest value, got {error:.2g}",
            )


def check_special(cls: type[Op], case: Case) -> None:
    """Elementwise ops on NaN, infinities and signed zeros; and dx = 0 wherever dy = 0 and x is
    finite."""
    if cls.kind != "expr":
        return
    op = cls(**case.attributes)
    arrays = special_inputs(case, SPECIAL)
    found = run_launch(op, arrays)
    with np.errstate(all="ignore"):
        want = reference(op, arrays)[0]
    if found is not None and want.dtype.kind == "f":
        y = found[0]
        wrong = (
            (np.isnan(y) != np.isnan(want))
            | (np.isinf(y) != np.isinf(want))
            | ((np.signbit(y) != np.signbit(want)) & ~np.isnan(want))
        )
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            values = [float(np.broadcast_to(a, want.shape)[at]) for a in arrays]
            broken(
                cls,
                case,
                f"its kernel treats {values} unlike the reference",
                expected=f"{want[at]}, got {y[at]}",
            )
    if cls.gradient is None:
        return
    arrays = special_inputs(case, FINITE)
    xs = [leaf(a, needs_grad=a.dtype.kind == "f") for a in arrays]
    y = getattr(F, cls.name)(*xs, **case.attributes)
    if not y.needs_grad:
        return
    seed = leaf(np.zeros(y.shape, y.dtype))
    grads = gradients(y, seed, [x for x in xs if x.needs_grad])
    with np.errstate(all="ignore"):
        for k, dx in enumerate(evaluate(grads.values(), {})):
            if np.isnan(dx).any() or dx.any():
                broken(
                    cls,
                    case,
                    f"dy = 0 gives gradient {k} another value than 0",
                    hint="F.absorb(dy, factor)",
                )


def special_inputs(case: Case, values: Sequence[float]) -> list[np.ndarray]:
    """Float inputs that meet in every combination of `values`; the others as in the case, one value
    each."""
    arrays = case.inputs()
    floats = [k for k, a in enumerate(arrays) if a.dtype == np.float32]
    grid = np.array(list(itertools.product(values, repeat=len(floats))), np.float32).T
    found = [np.resize(a.reshape(-1), grid.shape[1]) if a.size else a for a in arrays]
    for row, k in zip(grid, floats, strict=True):
        found[k] = row.copy()
    return found
