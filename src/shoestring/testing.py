"""Checks that read an op's own contract. `check_op(MyOp)` runs the same ones on a user's op as on ours.

    facts       a formula in the docstring, a derivation in the gradient, a cost, a tolerance, a batch axis that is true
    shapes      the shape and type rules say what the reference gives
    gradients   first and second order equal central differences in float64, (f(x + h) - f(x - h)) / 2h
    kernel      the CPU kernel equals the reference within the op's tolerance, with any number of threads
    strides     the same for inputs that are transposed, reversed, spread out or repeated, where the op accepts them
    special     NaN, infinities and signed zeros come out as in the reference; a gradient of 0 stays 0
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from .autodiff import gradients
from .backends import Operand
from .errors import ShoestringError, fail
from .ir import SUM, Case, Cost, F, Node, Op, Output, ancestry, leaf

STEP, GRADIENT_ERROR = 1e-6, 2e-5                                # h above; allowed error relative to the largest value
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5)
FINITE = (0.0, -0.0, 1.0, -1.0, 100.0, -100.0)


class CheckFailed(ShoestringError, AssertionError):
    """An op breaks its own contract."""


# ---- running -------------------------------------------------------------------------------------------------------
def evaluate(nodes: Iterable[Node], values: Mapping[Node, Any]) -> list[Any]:
    """Values of `nodes` by each op's NumPy reference, in the types of `values` ({leaf: array}); a leaf that is not
    in `values` uses its own value. Slow and obvious: the oracle of the tests."""
    wanted = list(nodes)
    known: dict[Node, Any] = dict(values)
    for node in ancestry(wanted):
        if node in known:
            continue
        if node.op is None:
            known[node] = node.value
        elif isinstance(node.op, Output):
            known[node] = known[node.inputs[0]][node.op.index]
        else:
            found = node.op.reference(*[known[i] for i in node.inputs])
            known[node] = found if node.op.outputs > 1 else np.asarray(found)
    return [known[node] for node in wanted]


def reference(op: Op, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """All outputs of the op's reference."""
    with np.errstate(all="ignore"):
        found = op.reference(*arrays)
    return tuple(found) if op.outputs > 1 else (np.asarray(found),)


def operand(array: np.ndarray) -> Operand:
    return Operand(array.shape, array.dtype, tuple(s // array.itemsize for s in array.strides))


def run_launch(op: Op, arrays: Sequence[np.ndarray], device: str = "cpu") -> tuple[np.ndarray, ...] | None:
    """All outputs by the op's own kernels; None where it has none for these inputs. A check's output is its record."""
    from .backends.cpu import _native

    inputs = [a if op.strided else np.ascontiguousarray(a).reshape(a.shape) for a in arrays]
    shapes, dtypes = op.shape(*[a.shape for a in inputs]), op.dtype(*[a.dtype for a in inputs])
    if op.outputs == 1:
        shapes, dtypes = (shapes,), (dtypes,)
    outputs = [np.empty(s, d) for s, d in zip(shapes, dtypes, strict=True)]
    if op.launch is None or any(a.size == 0 for a in [*inputs, *outputs]):
        return None
    launch = op.launch(device, [operand(a) for a in inputs], [operand(a) for a in outputs])
    if launch is None:
        return None
    if op.kind == "check":
        outputs = [np.empty(2, np.int64)]
    for a in outputs:
        a.reshape(-1).view(np.uint8)[:] = 0xA5                   # what a kernel does not write shows
    spaces = [np.empty(n, np.uint8) for n in launch.workspaces]
    program = _native.Program([(k.entry, [(b, 0) for b in k.buffers], list(k.integers), list(k.reals))
                               for k in launch.kernels])
    program.run([a.__array_interface__["data"][0] for a in [*inputs, *outputs, *spaces]])
    return tuple(outputs)


# ---- the checks ----------------------------------------------------------------------------------------------------
def check_op(cls: type[Op]) -> None:
    """Run every check on `cls` over all of its cases; raise CheckFailed at the first that does not hold."""
    check_facts(cls)
    for case in cls.cases:
        for check in CASE_CHECKS:
            check(cls, case)


def check_facts(cls: type[Op]) -> None:
    """Formula, derivation, and what does not depend on a case."""
    if "=" not in (cls.__doc__ or ""):
        broken(cls, None, "its docstring gives no formula", hint='"""y = ..."""')
    if cls.gradient is not None and not derivation(cls.gradient):
        broken(cls, None, "its gradient carries no derivation", hint="a docstring in `gradient` that names every term")
    if not isinstance(cls.cheap_to_recompute, bool):
        broken(cls, None, "cheap_to_recompute is neither True nor False", hint="cheap_to_recompute = False")
    if not cls.cases:
        broken(cls, None, "it has no cases, so nothing can be tested", hint="cases = (Case([(2, 3)]),)")


def check_shapes(cls: type[Op], case: Case) -> None:
    """Shape and type rules against the reference, in float32 and float64; the cost; the tolerance."""
    for floats in ("float32", "float64"):
        arrays = case.inputs(floats=floats)
        op = cls(**case.attributes)
        specs = spec_of(getattr(F, cls.name)(*[leaf(a) for a in arrays], **case.attributes))
        found = reference(op, arrays)
        if len(found) != len(specs):
            broken(cls, case, f"the reference gives {len(found)} outputs, the op declares {op.outputs}")
        for k, (spec, y) in enumerate(zip(specs, found, strict=True)):
            if spec.shape != y.shape:
                broken(cls, case, f"output {k}: the shape rule says {list(spec.shape)}, the reference {list(y.shape)}")
            if spec.dtype != y.dtype:
                broken(cls, case, f"output {k}: the type rule says {spec.dtype}, the reference {y.dtype} ({floats} inputs)")
    shapes = [a.shape for a in arrays]
    cost, tolerance = op.cost(*shapes), op.tolerance(*shapes)
    if not isinstance(cost, Cost) or not all(0 <= part < math.inf for part in cost):
        broken(cls, case, f"its cost is {cost!r}", hint="return Cost(flops, bytes)")
    if not 0 <= tolerance < 0.1:
        broken(cls, case, f"its tolerance is {tolerance}")


def check_batch_axis(cls: type[Op], case: Case) -> None:
    """What `batch_axis` claims: replacing one sample changes that sample of the output alone; parts of a SUM add up."""
    arrays, op = case.inputs(floats="float64"), cls(**case.attributes)
    shapes = [a.shape for a in arrays]
    nothing = as_tuple(op.batch_axis((None,) * len(arrays), *shapes), op)
    if any(axis is not None for axis in nothing):
        broken(cls, case, f"no input has a batch, yet batch_axis says {nothing}")
    ways: set[tuple] = {tuple(axis if k == i else None for k in range(len(arrays)))
                        for i, shape in enumerate(shapes) for axis in range(len(shape))}
    ways |= {tuple(0 if s and s[0] == n else None for s in shapes) for n in {s[0] for s in shapes if s}}
    for axes in sorted(ways, key=repr):
        sizes = {a.shape[axis] for a, axis in zip(arrays, axes, strict=True) if axis is not None}
        if len(sizes) != 1 or 0 in sizes or 1 in sizes:
            continue
        claimed = as_tuple(op.batch_axis(axes, *shapes), op)
        n, whole = sizes.pop(), reference(op, arrays)
        changed = [a if axis is None else with_sample(a, axis, 0, n - 1) for a, axis in zip(arrays, axes, strict=True)]
        other = reference(op, changed)
        for y, z, axis in zip(whole, other, claimed, strict=True):
            if isinstance(axis, int) and (y.shape[axis] != n or not same(rest(y, axis), rest(z, axis))):
                broken(cls, case, f"batch axes {axes} do not become axis {axis}: other samples change too")
            if axis is None and not same(y, z):
                broken(cls, case, f"batch axes {axes}: the output depends on the batch, batch_axis says it does not")
        if SUM in claimed:
            check_parts(cls, case, arrays, axes, claimed)


def check_parts(cls: type[Op], case: Case, arrays: list[np.ndarray], axes: tuple, claimed: tuple) -> None:
    op = cls(**case.attributes)
    parts = [[a if axis is None else np.take(a, half, axis) for a, axis in zip(arrays, axes, strict=True)]
             for half in ([0], range(1, max(a.shape[x] for a, x in zip(arrays, axes, strict=True) if x is not None)))]
    try:
        for part in parts:
            op.shape(*[a.shape for a in part])
    except ShoestringError:
        return                                                   # sizes are attributes: parts need another op
    for y, a, b, axis in zip(reference(op, arrays), *[reference(op, p) for p in parts], claimed, strict=True):
        if axis is SUM and not (y.shape == a.shape == b.shape and np.allclose(y, a + b)):
            broken(cls, case, f"batch axes {axes}: parts do not add up to the whole, batch_axis says they do")


def check_gradient(cls: type[Op], case: Case) -> None:
    """First and second order against central differences. An input for which `gradient` returns None must not matter,
    unless the op names it in `constant_inputs`."""
    if cls.gradient is None:
        return
    rng = np.random.default_rng(1)
    arrays = case.inputs(floats="float64")
    xs = [leaf(a, needs_grad=a.dtype.kind == "f") for a in arrays]
    floats = [x for x in xs if x.needs_grad and x.spec.size]
    values = dict(zip(xs, arrays, strict=True))
    found = getattr(F, cls.name)(*xs, **case.attributes)
    ys = [y for y in as_tuple(found, cls) if y.needs_grad]
    constants = {x for x, name in zip(xs, cls.parameters, strict=False) if name in getattr(cls, "constant_inputs", ())}
    firsts: list[Node] = []
    for y in ys:
        seed = leaf(rng.normal(size=y.shape), needs_grad=True)
        values[seed] = seed.value
        grads = gradients(y, seed, floats)
        compare_gradients(cls, case, "first", y, seed, grads, [x for x in floats if x not in constants], values)
        firsts += grads.values()
    for dx in firsts:
        if not dx.needs_grad:
            continue
        seed = leaf(rng.normal(size=dx.shape))
        wrt = [x for x in ancestry([dx]) if x.op is None and x.needs_grad and x.spec.size and x not in constants]
        values.update({x: x.value for x in wrt if x not in values})
        compare_gradients(cls, case, "second", dx, seed, gradients(dx, seed, wrt), wrt, values)


def compare_gradients(cls: type[Op], case: Case, order: str, y: Node, seed: Node, grads: Mapping[Node, Node],
                      wrt: Sequence[Node], values: dict[Node, np.ndarray]) -> None:
    rng = np.random.default_rng(2)
    for k, x in enumerate(wrt):
        dx = evaluate([grads[x]], values)[0] if x in grads else np.zeros(x.shape)
        if dx.shape != x.shape:
            broken(cls, case, f"the {order} gradient of input {k} has shape {list(dx.shape)}, the input {list(x.shape)}")
        direction = np.asarray(rng.normal(size=x.shape))
        up, down = [evaluate([y], {**values, x: np.asarray(values[x] + h * direction)})[0] for h in (STEP, -STEP)]
        want = float(((up - down) * seed.value).sum() / (2 * STEP))
        got, scale = float((dx * direction).sum()), float(np.abs(dx * direction).sum())
        if not abs(got - want) <= GRADIENT_ERROR * max(scale, abs(want), 1e-2):
            broken(cls, case, f"the {order} gradient of input {k} {list(x.shape)} is wrong",
                   expected=f"{want:.8g} along a random direction (central difference), got {got:.8g}")


def check_kernel(cls: type[Op], case: Case) -> None:
    """The CPU kernel on the case's inputs, contiguous and, where the op takes them, in odd layouts; compiled for each
    instruction set that this machine has; the same bits with one thread and with three."""
    from .backends.cpu import _native

    op, arrays = cls(**case.attributes), case.inputs()
    isa, threads = _native.isa(), _native.threads()
    try:
        for name in _native.isas():
            _native.set_isa(name)
            compare_kernel(cls, case, op, arrays, f"contiguous inputs, {name}")
            for layout in LAYOUTS if cls.strided and cls.kind != "view" else ():
                compare_kernel(cls, case, op, [laid_out(a, layout) for a in arrays], f"{layout} inputs, {name}")
        _native.set_threads(1)
        alone = run_launch(op, arrays)
        _native.set_threads(3)
        if alone is not None and not all(map(same, alone, run_launch(op, arrays) or ())):
            broken(cls, case, "its kernel gives other bits with three threads than with one",
                   hint="cut the work by shapes alone")
    finally:
        _native.set_isa(isa)
        _native.set_threads(threads)


def compare_kernel(cls: type[Op], case: Case, op: Op, arrays: list[np.ndarray], how: str) -> None:
    found = run_launch(op, arrays)
    if found is None:
        return
    if op.kind == "check":
        wanted: tuple = (np.array(op.record(arrays[0])),)        # type: ignore[attr-defined]
    else:
        wanted = reference(op, [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays])
    allowed = op.tolerance(*[a.shape for a in arrays])
    for k, (y, want) in enumerate(zip(found, wanted, strict=True)):
        error = distance(y, want)
        if not error <= allowed:
            broken(cls, case, f"output {k} of its kernel differs from the reference ({how})",
                   expected=f"an error of at most {allowed:.2g} of the largest value, got {error:.2g}")


def check_view(cls: type[Op], case: Case) -> None:
    """`view` places the very elements that the reference gives, for any layout of the operand."""
    if cls.kind != "view":
        return
    op = cls(**case.attributes)
    for layout in (None, *LAYOUTS):
        x = case.inputs()[0] if layout is None else laid_out(case.inputs()[0], layout)
        want = reference(op, [x])[0]
        place = op.view(x.shape, operand(x).strides)             # type: ignore[attr-defined]
        if place is None:
            if np.shares_memory(want, x):
                broken(cls, case, f"view() gives up where NumPy needs no copy ({layout})")
            continue
        shape, strides, offset = place
        if shape != want.shape:
            broken(cls, case, f"view() gives shape {list(shape)}, the reference {list(want.shape)}")
        if not x.size or not want.size:
            continue
        base, start = flat_base(x)
        got = np.lib.stride_tricks.as_strided(base[start + offset:], shape, [s * x.itemsize for s in strides])
        if not same(got, want):
            broken(cls, case, f"view() places other elements than the reference ({layout} operand)")


def check_special(cls: type[Op], case: Case) -> None:
    """Elementwise ops on NaN, infinities and signed zeros; and dx = 0 wherever dy = 0 and x is finite."""
    if cls.kind != "expr":
        return
    op = cls(**case.attributes)
    arrays = special_inputs(case, SPECIAL)
    found = run_launch(op, arrays)
    with np.errstate(all="ignore"):
        want = reference(op, arrays)[0]
    if found is not None and want.dtype.kind == "f":
        y = found[0]
        wrong = (np.isnan(y) != np.isnan(want)) | (np.isinf(y) != np.isinf(want)) \
            | ((np.signbit(y) != np.signbit(want)) & ~np.isnan(want))
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            values = [float(np.broadcast_to(a, want.shape)[at]) for a in arrays]
            broken(cls, case, f"its kernel treats {values} unlike the reference", expected=f"{want[at]}, got {y[at]}")
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
                broken(cls, case, f"dy = 0 gives gradient {k} another value than 0", hint="F.absorb(dy, factor)")


CASE_CHECKS = (check_shapes, check_batch_axis, check_gradient, check_kernel, check_view, check_special)
LAYOUTS = ("transposed", "reversed", "spread", "repeated")


# ---- helpers -------------------------------------------------------------------------------------------------------
def broken(cls: type[Op], case: Case | None, what: str, **details: Any) -> NoReturn:
    if case is not None:
        details["cause"] = f"case {list(case.shapes)} {dict(case.attributes)}"
    fail("value/check_op.broken", what, op=cls.name, tensors={}, error=CheckFailed, **details)


def derivation(gradient: Any) -> bool:
    """Whether a gradient rule explains itself: a docstring, or a comment in its source."""
    if len((gradient.__doc__ or "").split()) >= 3:
        return True
    try:
        return "#" in inspect.getsource(gradient)
    except OSError:
        return False


def as_tuple(found: Any, op: Any) -> tuple:
    return tuple(found) if op.outputs > 1 else (found,)


def spec_of(found: Any) -> tuple:
    return tuple(y.spec for y in found) if isinstance(found, tuple) else (found.spec,)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def distance(y: np.ndarray, want: np.ndarray) -> float:
    """Largest error relative to the largest finite value; infinite where NaN or infinities or types do not match."""
    if y.shape != want.shape or y.dtype.kind != want.dtype.kind:
        return math.inf
    if y.dtype.kind != "f":
        return 0.0 if np.array_equal(y, want) else math.inf
    finite = np.isfinite(want)
    if not same(np.where(finite, 0, y), np.where(finite, 0, want)):
        return math.inf
    y, want = y[finite].astype(np.float64), want[finite].astype(np.float64)
    return float(np.max(np.abs(y - want), initial=0) / max(float(np.max(np.abs(want), initial=0)), 1e-30))


def with_sample(a: np.ndarray, axis: int, to: int, source: int) -> np.ndarray:
    """a with sample `to` along `axis` replaced by sample `source`."""
    changed = a.copy()
    changed[(slice(None),) * axis + (to,)] = np.take(a, source, axis)
    return changed


def rest(y: np.ndarray, axis: int) -> np.ndarray:
    return np.take(y, range(1, y.shape[axis]), axis)


def laid_out(a: np.ndarray, layout: str) -> np.ndarray:
    """The values of a (for "repeated": of its first row) in another layout of memory."""
    if layout == "transposed":
        return a.copy(order="F")
    backwards = (..., *[slice(None, None, -1)] * a.ndim)
    if layout == "reversed":
        return a[backwards].copy()[backwards]
    if layout == "repeated":
        return np.broadcast_to(a[:1], a.shape) if a.ndim and len(a) else a
    wide = np.empty([2 * n + 1 for n in a.shape], a.dtype)
    wide.reshape(-1).view(np.uint8)[:] = 0xFF                    # between the elements: NaN, or what no index allows
    inner = wide[(..., *[slice(1, 2 * n + 1, 2) for n in a.shape])]
    inner[...] = a
    return inner


def flat_base(x: np.ndarray) -> tuple[np.ndarray, int]:
    """(the memory that holds x as one row, where x[0, 0, ...] is in it)."""
    base = x
    while isinstance(base.base, np.ndarray):
        base = base.base
    row = base.reshape(-1) if base.flags.c_contiguous else base.T.reshape(-1)
    start = x.__array_interface__["data"][0] - row.__array_interface__["data"][0]
    return row, start // x.itemsize


def special_inputs(case: Case, values: Sequence[float]) -> list[np.ndarray]:
    """Float inputs that meet in every combination of `values`; the others as in the case, one value each."""
    arrays = case.inputs()
    floats = [k for k, a in enumerate(arrays) if a.dtype == np.float32]
    grid = np.array(list(itertools.product(values, repeat=len(floats))), np.float32).T
    found = [np.resize(a.reshape(-1), grid.shape[1]) if a.size else a for a in arrays]
    for row, k in zip(grid, floats, strict=True):
        found[k] = row.copy()
    return found
