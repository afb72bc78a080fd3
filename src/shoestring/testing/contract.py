"""What an op says of itself: formula, derivation, shape and type rules, batch axis, views."""

from __future__ import annotations

import inspect
import math
from typing import Any, NoReturn

import numpy as np

from ..errors import ShoestringError, fail
from ..ir import MEAN, MIXED, SUM, Case, Cost, F, Op, leaf
from .run import LAYOUTS, laid_out, operand, reference, same


class CheckFailed(ShoestringError, AssertionError):
    """An op breaks its own contract."""


def broken(cls: type[Op], case: Case | None, what: str, **details: Any) -> NoReturn:
    if case is not None:
        details["cause"] = f"case {list(case.shapes)} {dict(case.attributes)}"
    fail("value/check_op.broken", what, op=cls.name, tensors={}, error=CheckFailed, **details)


def check_facts(cls: type[Op]) -> None:
    """Formula, derivation, and what does not depend on a case."""
    if "=" not in (cls.__doc__ or ""):
        broken(cls, None, "its docstring gives no formula", hint='"""y = ..."""')
    if cls.gradient is not None and not derivation(cls.gradient):
        broken(
            cls,
            None,
            "its gradient carries no derivation",
            hint="a docstring in `gradient` that names every term",
        )
    if cls.tolerance is not Op.tolerance and not derivation(cls.tolerance):
        broken(
            cls,
            None,
            "its own tolerance gives no reason",
            hint="a docstring in `tolerance` that says why the bound from `terms` does not do",
        )
    if not isinstance(cls.cheap_to_recompute, bool):
        broken(
            cls,
            None,
            "cheap_to_recompute is neither True nor False",
            hint="cheap_to_recompute = False",
        )
    if not cls.cases:
        broken(
            cls, None, "it has no cases, so nothing can be tested", hint="cases = (Case([(2, 3)]),)"
        )


def derivation(rule: Any) -> bool:
    """Whether a rule explains itself: a docstring, or a comment in its source."""
    if len((rule.__doc__ or "").split()) >= 3:
        return True
    try:
        return "#" in inspect.getsource(rule)
    except OSError:
        return False


def check_shapes(cls: type[Op], case: Case) -> None:
    """Shape and type rules against the reference, for both floats; the cost; the tolerance."""
    for floats in ("float32", "float64"):
        arrays = case.inputs(floats=floats)
        op = cls(**case.attributes)
        specs = spec_of(getattr(F, cls.name)(*[leaf(a) for a in arrays], **case.attributes))
        found = reference(op, arrays)
        if len(found) != len(specs):
            broken(
                cls, case, f"the reference gives {len(found)} outputs, the op declares {op.outputs}"
            )
        for k, (spec, y) in enumerate(zip(specs, found, strict=True)):
            if spec.shape != y.shape:
                broken(
                    cls,
                    case,
                    f"output {k}: the shape rule says {list(spec.shape)}, "
                    f"the reference {list(y.shape)}",
                )
            if spec.dtype != y.dtype:
                broken(
                    cls,
                    case,
                    f"output {k}: the type rule says {spec.dtype}, "
                    f"the reference {y.dtype} ({floats} inputs)",
                )
    shapes = [a.shape for a in arrays]
    cost, tolerance = op.cost(*shapes), op.tolerance(*shapes)
    if not isinstance(cost, Cost) or not all(0 <= part < math.inf for part in cost):
        broken(cls, case, f"its cost is {cost!r}", hint="return Cost(flops, bytes)")
    if not 0 <= tolerance < 0.1:
        broken(cls, case, f"its tolerance is {tolerance}")


def spec_of(found: Any) -> tuple:
    return tuple(y.spec for y in found) if isinstance(found, tuple) else (found.spec,)


def check_batch_axis(cls: type[Op], case: Case) -> None:
    """What `batch_axis` claims: samples stay apart, parts of a SUM add up, those of a MEAN too once
    they are weighted, None does not care."""
    arrays, op = case.inputs(floats="float64"), cls(**case.attributes)
    shapes = [a.shape for a in arrays]
    nothing = as_tuple(op.batch_axis((None,) * len(arrays), *shapes), op)
    if any(axis is not None for axis in nothing):
        broken(cls, case, f"no input has a batch, yet batch_axis says {nothing}")
    ways: set[tuple] = {
        tuple(axis if k == i else None for k in range(len(arrays)))
        for i, shape in enumerate(shapes)
        for axis in range(len(shape))
    }
    ways |= {
        tuple(0 if s and s[0] == n else None for s in shapes) for n in {s[0] for s in shapes if s}
    }
    for axes in sorted(ways, key=repr):
        sizes = {a.shape[axis] for a, axis in zip(arrays, axes, strict=True) if axis is not None}
        if len(sizes) != 1 or 0 in sizes or 1 in sizes:
            continue
        claimed = as_tuple(op.batch_axis(axes, *shapes), op)
        n, whole = sizes.pop(), reference(op, arrays)
        changed = [
            a if axis is None else with_sample(a, axis, 0, n - 1)
            for a, axis in zip(arrays, axes, strict=True)
        ]
        other = reference(op, changed)
        for y, z, axis in zip(whole, other, claimed, strict=True):
            if isinstance(axis, int) and (
                y.shape[axis] != n or not same(rest(y, axis), rest(z, axis))
            ):
                broken(
                    cls,
                    case,
                    f"batch axes {axes} do not become axis {axis}: other samples change too",
                )
            if axis is None and not same(y, z):
                broken(
                    cls,
                    case,
                    f"batch axes {axes}: the output depends on the batch, "
                    "batch_axis says it does not",
                )
        if MIXED not in claimed:
            check_parts(cls, case, arrays, axes, claimed)


def check_parts(
    cls: type[Op], case: Case, arrays: list[np.ndarray], axes: tuple, claimed: tuple
) -> None:
    """Parts of the batch, each computed by the op that `for_part` describes, make the whole."""
    op = cls(**case.attributes)
    n = max(a.shape[x] for a, x in zip(arrays, axes, strict=True) if x is not None)
    place = next((axis for axis in claimed if isinstance(axis, int)), None)
    found, cuts = [], (range(1), range(1, n))
    for cut in cuts:
        part = [
            a if axis is None else np.take(a, cut, axis)
            for a, axis in zip(arrays, axes, strict=True)
        ]
        try:
            its = cls(**op.attributes() | op.for_part(place, cut.start, len(cut)))
            its.shape(*[a.shape for a in part])
        except ShoestringError:
            return  # a constant with one value per sample: the compiler cuts it too
        found.append(reference(its, part))
    for y, a, b, axis in zip(reference(op, arrays), *found, claimed, strict=True):
        first, second = (1 / n, (n - 1) / n) if axis is MEAN else (1, 1)
        if axis in (SUM, MEAN) and not (
            y.shape == a.shape == b.shape and np.allclose(y, first * a + second * b)
        ):
            broken(
                cls,
                case,
                f"batch axes {axes}: parts do not add up to the whole, batch_axis says they do",
            )
        if isinstance(axis, int) and not same_parts(y, a, b, axis):
            broken(cls, case, f"batch axes {axes}: parts along axis {axis} are not the whole")


def same_parts(y: np.ndarray, a: np.ndarray, b: np.ndarray, axis: int) -> bool:
    joined = np.concatenate([a, b], axis) if a.ndim == y.ndim else np.empty(0)
    return joined.shape == y.shape and np.allclose(joined, y, equal_nan=y.dtype.kind == "f")


def with_sample(a: np.ndarray, axis: int, to: int, source: int) -> np.ndarray:
    """a with sample `to` along `axis` replaced by sample `source`."""
    changed = a.copy()
    changed[(slice(None),) * axis + (to,)] = np.take(a, source, axis)
    return changed


def rest(y: np.ndarray, axis: int) -> np.ndarray:
    return np.take(y, range(1, y.shape[axis]), axis)


def as_tuple(found: Any, op: Any) -> tuple:
    return tuple(found) if op.outputs > 1 else (found,)


def check_view(cls: type[Op], case: Case) -> None:
    """`view` places the very elements that the reference gives, for any layout of the operand."""
    if cls.kind != "view":
        return
    op = cls(**case.attributes)
    for layout in (None, *LAYOUTS):
        x = case.inputs()[0] if layout is None else laid_out(case.inputs()[0], layout)
        want = reference(op, [x])[0]
        place = op.view(x.shape, operand(x).strides)  # type: ignore[attr-defined]
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
        got = np.lib.stride_tricks.as_strided(
            base[start + offset :], shape, [s * x.itemsize for s in strides]
        )
        if not same(got, want):
            broken(cls, case, f"view() places other elements than the reference ({layout} operand)")


def flat_base(x: np.ndarray) -> tuple[np.ndarray, int]:
    """(the memory that holds x as one row, where x[0, 0, ...] is in it)."""
    base = x
    while isinstance(base.base, np.ndarray):
        base = base.base
    row = base.reshape(-1) if base.flags.c_contiguous else base.T.reshape(-1)
    start = x.__array_interface__["data"][0] - row.__array_interface__["data"][0]
    return row, start // x.itemsize
