"""Triggers of the errors of testing."""

from shoestring import testing
from shoestring.ir import OPS

TRIGGERS = {
    "value/check_op.broken": (
        lambda: testing.broken(
            OPS["sum"], OPS["sum"].cases[0], "its cost is None", hint="return Cost(flops, bytes)"
        ),
        ["sum: its cost is None", "case [(3, 5)]", "return Cost(flops, bytes)"],
    ),
}
