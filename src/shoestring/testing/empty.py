"""Size-0 variants of an op's cases: every shape without elements that its contract allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..autodiff import gradients
from ..errors import ShoestringError, unreported
from ..ir import Case, F, Node, Op, Shape, leaf
from .contract import as_tuple, broken, check_shapes
from .run import evaluate
from .values import check_gradient


def empty_cases(cls: type[Op], case: Case) -> list[Case]:
    """The case with axes of size 0: each axis of each input alone, and all axes of one size
    together, wherever the op's shape and type rules accept it. Where they do not, a size in an
    attribute that is the shape of an operand (`to`, `x_shape`) becomes 0 as well: the first that
    makes them accept it."""
    found: list[Case] = []
    for shapes in dict.fromkeys(emptied(tuple(map(tuple, case.shapes)))):
        tried = (replace(case, shapes=shapes, attributes=a) for a in fitting(cls, case))
        fits = next((variant for variant in tried if accepted(cls, variant)), None)
        found += [fits] if fits is not None else []
    return found


def emptied(shapes: tuple[Shape, ...]) -> Iterator[tuple[Shape, ...]]:
    for k, shape in enumerate(shapes):
        for axis in range(len(shape)):
            yield (*shapes[:k], zeroed(shape, axis), *shapes[k + 1 :])
    for size in {n for shape in shapes for n in shape}:
        yield tuple(tuple(0 if n == size else n for n in shape) for shape in shapes)


def fitting(cls: type[Op], case: Case) -> Iterator[dict[str, Any]]:
    attributes = dict(case.attributes)
    yield attributes
    found = as_tuple(getattr(F, cls.name)(*map(leaf, case.inputs()), **attributes), cls)
    shapes = [*map(tuple, case.shapes), *[y.shape for y in found]]
    for name, value in attributes.items():
        if value in shapes:
            for axis in range(len(value)):
                yield attributes | {name: zeroed(value, axis)}


def zeroed(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], 0, *shape[axis + 1 :])


def accepted(cls: type[Op], case: Case) -> bool:
    try:
        with unreported():
            getattr(F, cls.name)(*map(leaf, case.inputs()), **case.attributes)
    except ShoestringError:
        return False
    return True


def derivatives(found: tuple[Node, ...], xs: list[Node]) -> list[tuple[Node, Node]]:
    """(x, gradient for x) of first and second order, of everything that has one."""
    first: list[tuple[Node, Node]] = []
    for y in found:
        if y.needs_grad:
            seed = leaf(np.ones(y.shape, y.dtype), needs_grad=True, device=y.device)
            wanted = [x for x in xs if x.needs_grad]
            first += gradients(y, seed, wanted).items()
    second: list[tuple[Node, Node]] = []
    for _, dx in first:
        if dx.needs_grad:
            seed = leaf(np.ones(dx.shape, dx.dtype), device=dx.device)
            second += gradients(dx, seed, [x for x in xs if x.needs_grad]).items()
    return [*first, *second]


def check_empty(cls: type[Op], case: Case) -> None:
    """On each of `empty_cases`: shapes and types are as declared, gradients of both orders have the
    shapes of their inputs, and those of inputs that have elements equal central differences."""
    for variant in empty_cases(cls, case):
        try:
            check_shapes(cls, variant)
            if cls.gradient is None:
                continue
            check_gradient(cls, variant)
            xs = [leaf(a, needs_grad=a.dtype.kind == "f") for a in variant.inputs()]
            found = as_tuple(getattr(F, cls.name)(*xs, **variant.attributes), cls)
            pairs = derivatives(found, xs)
            with np.errstate(all="ignore"):
                values = evaluate([dx for _, dx in pairs], {})
        except ShoestringError:
            raise
        except Exception as problem:
            broken(
                cls,
                variant,
                f"it fails without elements: {type(problem).__name__}: {problem}",
                hint="let its shape rule refuse such shapes, or name every size: -1 is ambiguous",
                source=problem,
            )
        for (x, _), dx in zip(pairs, values, strict=True):
            if dx.shape != x.shape:
                broken(
                    cls,
                    variant,
                    f"the gradient of an input {list(x.shape)} has shape {list(dx.shape)}",
                )
