"""What changes or guards state: store, and checks of data that are part of the plan.

    store(x)         a new version of a state; the plan writes it into the state's home, the only
                     write there is
    check_index(x)   x passes through; a value outside [0, limit) ends the plan before anything is
                     stored
    check_finite(x)  x passes through; a NaN or an infinity does

A check writes {position, found} of its first offender, or {-1, 0}, into a record. Records are read
before the first store of the plan, and `complain` turns one into the error, with the line on which
the check was built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backends import Kernel, Launch
from ..errors import DataError, fail
from ..ir import Case, Cost, Op

RECORD = np.dtype("int64")


@dataclass(frozen=True, eq=False)
class Store(Op):
    """y = x, as the new version of a state."""

    name, kind, cheap_to_recompute, strided = "store", "effect", False, True
    cases = (Case([(2, 3)]),)

    def shape(self, x):
        return x

    def batch_axis(self, axes, x):
        return axes[0]

    def reference(self, x):
        return x

    gradient = None

    def cost(self, x):
        return Cost(0, 8 * float(np.prod(x)))


class Check(Op):
    """y = x, where a bad element of x ends the plan with an error before anything is stored."""

    kind, cheap_to_recompute = "check", True
    entry = ""
    first: int  # rows of the whole that come before x

    def shape(self, x):
        return x

    def batch_axis(self, axes, x):
        return axes[0]

    def reference(self, x):
        return x

    def for_part(self, axis, first, count):
        return dict(first=first)

    def where(self, shape, position: int) -> tuple[int, ...]:
        """The place in the whole of an offender at a flat position of x."""
        if not shape:
            return ()
        row, rest = divmod(position, int(np.prod(shape[1:])))
        return (self.first + row, *[int(i) for i in np.unravel_index(rest, shape[1:])])

    def gradient(self, F, dy, y, x) -> Any:
        """y = x, so dx = dy: the check looks and changes nothing."""
        return (dy,)

    def bad(self, x: np.ndarray) -> np.ndarray:
        """Where x is not allowed: bool, of x's shape."""
        raise NotImplementedError

    def record(self, x: np.ndarray) -> tuple[int, int]:
        """(flat position of the first offender, what it is) or (-1, 0): the kernel's formula in
        NumPy."""
        places = np.flatnonzero(self.bad(x))
        if not places.size:
            return -1, 0
        found = np.asarray(x).reshape(-1)[places[0]]
        return int(places[0]), int(found) if x.dtype.kind in "iub" else int(np.isinf(found))

    def cost(self, x):
        return Cost(0, 4 * float(np.prod(x)))


@dataclass(frozen=True, eq=False)
class CheckIndex(Check):
    """y = x; error unless every x is in [0, limit), or equal to `ignore` where that is given.

    what: how the message calls one value, such as "label"; of: what it indexes, such as
    "classes"."""

    name, entry = "check_index", "check_index"
    limit: int = 1
    ignore: int | None = None
    what: str = "index"
    of: str = "entries"
    first: int = 0
    cases = (
        Case([(5,)], dict(limit=4), "labels 4", "int64"),
        Case([(2, 3)], dict(limit=4), "labels 4", "int32"),
        Case([(7,)], dict(limit=2, ignore=1), "labels 2", "uint8"),
    )

    gradient: Any = None

    def dtype(self, x):
        if x.kind not in "iu":
            self.fail(
                "type/check_index.dtype",
                f"{self.what}s must be integers, got {x}",
                hint=f'{self.what}s.astype("int64")',
            )
        return x

    def bad(self, x):
        wrong = (x < 0) | (x >= self.limit)
        return wrong if self.ignore is None else wrong & (x != self.ignore)

    def launch_cpu(self, device, inputs, outputs):
        (x,) = inputs
        if x.dtype.name not in ("int64", "int32", "uint8"):
            return None
        ignore = (1, self.ignore) if self.ignore is not None else (0, 0)
        return Launch(
            (Kernel("check_index", (0, 1), (x.size, x.dtype.itemsize, self.limit, *ignore)),)
        )

    def complain(self, shape, position: int, found: int, node: Any) -> None:
        where = self.where(shape, position)
        at = f"at position {', '.join(map(str, where))}" if where else "given"
        fail(
            "data/check_index.range",
            f"{self.what} {found} {at} is outside [0, {self.limit})",
            error=DataError,
            op=self.what,
            tensors={self.what + "s": node.spec} if node is not None else {},
            layer=node.layer if node is not None else None,
            line=(node.line or "") if node is not None else "",
            expected=f"{self.limit} {self.of}, so 0 to {self.limit - 1}, got {found}",
            hint=f"check the data, or make room for {found + 1} {self.of}"
            if found >= 0
            else "check the data",
        )


@dataclass(frozen=True, eq=False)
class CheckFinite(Check):
    """y = x; error if x holds a NaN or an infinity. what: how the message calls x, such as
    "gradient of conv1.weight"."""

    name, entry = "check_finite", "check_finite"
    what: str = "value"
    hint: str = "a smaller learning rate, or clip_grad_norm_ with a smaller max_norm"
    first: int = 0
    cases = (Case([(3, 4)], dict(what="x")), Case([()], dict(what="x")))

    def bad(self, x):
        return ~np.isfinite(x)

    def launch_cpu(self, device, inputs, outputs):
        (x,) = inputs
        if x.dtype != np.float32:
            return None
        return Launch((Kernel("check_finite", (0, 1), (x.size,)),))

    def complain(self, shape, position: int, found: int, node: Any) -> None:
        where = self.where(shape, position)
        at = f" at position {', '.join(map(str, where))}" if where else ""
        fail(
            "data/check_finite.value",
            f"{self.what} is {'infinite' if found else 'NaN'}{at}",
            error=DataError,
            tensors={"value": node.spec} if node is not None else {},
            layer=node.layer if node is not None else None,
            line=(node.line or "") if node is not None else "",
            hint=self.hint,
        )
