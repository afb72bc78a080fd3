"""Checks that read an op's own contract; `check_op(MyOp)` runs them on a user's op as on ours.

    facts       a formula in the docstring, a derivation in the gradient, plain facts
    shapes      shape and type rules say what the reference gives; a cost, a tolerance
    batch axis  replacing one sample changes that sample of the output alone
    gradients   first and second order equal central differences, (f(x + h) - f(x - h)) / 2h
    kernel      the CPU kernel equals the reference within the op's tolerance; strides too, if it
                takes them: transposed, reversed, spread out, repeated
    views       view() places the very elements that the reference gives
    empty       the same on every shape of size 0 that the shape rule accepts
    special     NaN, infinities and signed zeros as in the reference; a gradient of 0 stays 0

`evaluate` runs a graph by references alone, `run_launch` one op by its own kernels.
"""

from ..ir import Op
from .contract import (
    CheckFailed,
    broken,
    check_batch_axis,
    check_facts,
    check_shapes,
    check_view,
)
from .empty import check_empty, derivatives, empty_cases
from .run import LAYOUTS, distance, evaluate, laid_out, operand, reference, run_launch, same
from .values import check_gradient, check_kernel, check_special

CASE_CHECKS = (
    check_shapes,
    check_batch_axis,
    check_gradient,
    check_kernel,
    check_view,
    check_special,
    check_empty,
)


def check_op(cls: type[Op]) -> None:
    """Run every check on `cls` over all of its cases; CheckFailed at the first that fails."""
    check_facts(cls)
    for case in cls.cases:
        for check in CASE_CHECKS:
            check(cls, case)


__all__ = [
    "CASE_CHECKS",
    "LAYOUTS",
    "CheckFailed",
    "broken",
    "check_batch_axis",
    "check_empty",
    "check_facts",
    "check_gradient",
    "check_kernel",
    "check_op",
    "check_shapes",
    "check_special",
    "check_view",
    "derivatives",
    "distance",
    "empty_cases",
    "evaluate",
    "laid_out",
    "operand",
    "reference",
    "run_launch",
    "same",
]
