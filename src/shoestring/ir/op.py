"""The op contract: one class per op, and the registry that subclassing fills. Names no op.

    @dataclass(frozen=True, eq=False)
    class Conv2D(Op):
        \"\"\"y[n,k,p,q] = sum_{c,r,s} x[n,c,p*stride+r-padding,...] w[k,c,r,s]\"\"\"   the formula
        name, kind = "conv2d", "kernel"                                               the facts
        stride: tuple[int, int] = (1, 1)                                              attributes
        cases = (Case(...), ...)
        def shape(self, x, w): ...                        the only place that complains about shapes
        def reference(self, x, w): ...                    NumPy, float64-capable, short, slow,
        obvious
        def gradient(self, F, dy, y, x, w): ...           builds nodes: one per input, None where
        there is none
        def launch_cpu(self, device, inputs, outputs): ...  which kernels to run on the CPU
        def launch_card(self, device, inputs, outputs): ... on a card; without either the reference
                                                            runs, as where they give None
        def cost(self, *shapes): ...                      flops and bytes

Attributes are structure (strides, axes, shapes): hashable, part of a plan's key. A number that may
change from step to step (a learning rate, an epsilon, a slope) is an *input*, never an attribute.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np

from .. import errors
from .cases import Case

KINDS = ("expr", "view", "copy", "reduce", "kernel", "random", "effect", "check")
SUM, MEAN, MIXED = "sum", "mean", "mixed"
OPS: dict[str, type[Op]] = {}

Shape = tuple[int, ...]


class Cost(NamedTuple):
    """Work of one call: floating-point operations, and bytes read and written if nothing is
    cached."""

    flops: float
    bytes: float


class Port(NamedTuple):
    """A place in a kernel where a small program may run; compile/region.py says what runs there.

    where   "load": before input `index` is read (ALL: before any is); "store": on result `index`, a
            stretch at a time; "also": input `index` is added up besides; "end": on all results of a
            reduction; "inline": nowhere in this kernel, but its result can be computed block by
            block in another's program
    layout  of "also": (outer, kept, inner), the input as it is added up over outer and inner
    """

    where: str
    index: int = 0
    layout: tuple[int, int, int] | None = None


ALL = -1


class Op:
    """One operation: what it means, what it accepts, how it differentiates, how it runs.

    name               the registry's name; `F.<name>(...)` builds a node
    kind               expr    elementwise, fuses freely     view    moves no data
                       reduce  fewer elements come out       kernel  anchors a kernel of its own
                       random  depends on a key              effect  changes a state
                       copy    the same elements, made contiguous (one op of the registry)
                       check   its first input passes through; a bad value ends the plan before
                               anything is stored
    outputs            how many outputs; above 1, `shape` and `dtype` return tuples, and so are dy
                       and y in `gradient`
    cheap_to_recompute recomputing costs about as much as reading the result back
    inplace            the output may take the memory of an input with the same shape and type
    strided            its kernels promise to read inputs at any strides; without the promise the
                       compiler hands them contiguous ones (for some inputs alone: takes_strides)
    loads_all          its kernel reads nothing but a program
    batch_axis         method, see below
    serves             what passes use it for: "part", "join", "add_up" or "scale"
    within             sizes of the parts of axis 0, the batch, within which alone samples mix
    mixes              (why its samples mix, what to do about it), for messages
    tolerance          method: allowed error of float32 against the float64 reference, relative to
                       the largest value
    """

    name: ClassVar[str] = ""
    kind: ClassVar[str] = "kernel"
    outputs: ClassVar[int] = 1
    cases: ClassVar[tuple[Case, ...]]
    cheap_to_recompute: ClassVar[bool]
    inplace: ClassVar[bool] = False
    strided: ClassVar[bool] = False
    loads_all: ClassVar[bool] = False
    serves: ClassVar[str] = ""
    mixes: ClassVar[tuple[str, str]] = (
        "each of its results depends on several samples, and is no sum or mean over them",
        "micro_batches=1, or a step whose samples meet in sums and means alone",
    )
    within: tuple[int, ...] = ()
    arity: ClassVar[int | None] = None  # number of inputs; None: any number
    parameters: ClassVar[tuple[str, ...]] = ()  # their names, for messages

    shape: Any
    reference: Any
    gradient: Any
    cost: Any
    batch_axis: Any

    REQUIRED: ClassVar = (
        "kind",
        "cases",
        "shape",
        "reference",
        "gradient",
        "cost",
        "cheap_to_recompute",
        "batch_axis",
    )

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if not vars(cls).get("name"):
            return  # a family's common base
        for fact in cls.REQUIRED:
            if not any(fact in vars(base) for base in cls.__mro__ if base not in (Op, object)):
                errors.fail(
                    "value/op.fact",
                    f"op {cls.name!r} declares no `{fact}`",
                    hint=f"write `{fact} = None` in {cls.__name__} if it truly has none",
                )
        if cls.kind not in KINDS:
            errors.fail(
                "value/op.kind",
                f"op {cls.name!r} has the unknown kind {cls.kind!r}",
                hint=f"one of {', '.join(KINDS)}",
            )
        if cls.name in OPS and OPS[cls.name].__qualname__ != cls.__qualname__:
            errors.fail(
                "value/op.twice",
                f"op {cls.name!r} is declared twice",
                cause=f"{OPS[cls.name].__module__} declares it too",
                hint="choose another name",
            )
        names = inspect.signature(cls.shape).parameters.values()
        cls.parameters = tuple(p.name for p in list(names)[1:])
        cls.arity = None if any(p.kind is p.VAR_POSITIONAL for p in names) else len(cls.parameters)
        OPS[cls.name] = cls

    def dtype(self, *dtypes: np.dtype) -> Any:
        """Types of the outputs from those of the inputs; the only place that complains about
        types."""
        return dtypes[0] if self.outputs == 1 else (dtypes[0],) * self.outputs

    def takes_strides(self, k: int) -> bool:
        """Whether its kernels promise to read input number k at any strides."""
        return self.strided

    def launch(self, device: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """The kernels for these operands, from the method of the kind of device (launch_cpu,
        launch_card); None: there are none, and the reference runs."""
        method = getattr(self, f"launch_{device.kind}", None)
        return method(device, inputs, outputs) if method else None

    def ports(self, device: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Port, ...]:
        """Where its kernel on a device can run programs, for inputs and outputs of these specs:
        ports_cpu, ports_card."""
        method = getattr(self, f"ports_{device.kind}", None)
        return method(device, inputs, outputs) if method else ()

    def program(self, dtypes: Sequence[np.dtype]) -> Any:
        """How an elementwise op is computed by instructions; None: it has no program."""
        return None

    def sums(self, device: Any, x: Any) -> tuple[int, int, int] | None:
        """(outer, kept, inner) if it adds up x, seen as an array of these sizes, over outer and
        inner, and a kernel of the device can do several such sums at once."""
        return None

    def merge(self, others: Sequence[Op]) -> Op | None:
        """The op that computes its results, then those of others, which read the same."""
        return None

    def terms(self, *shapes: Shape) -> int:
        """How many products are summed into one output element."""
        return 1

    def tolerance(self, *shapes: Shape) -> float:
        """A sum of n terms in float32 is off by at most about n roundings of the largest partial
        sum."""
        return float(np.finfo(np.float32).eps) * (8 + self.terms(*shapes))

    def for_part(self, axis: int | None, first: int, count: int) -> dict[str, Any]:
        """Attributes that differ where the op computes only rows `first` to `first + count` along
        `axis` of its result, from the same rows of its inputs. axis None: no result has rows."""
        return {}

    def makes_rows(self, axis: int, *shapes: Shape) -> bool:
        """Whether `for_part` makes it compute any rows along `axis` from whole inputs."""
        return False

    def blocks(self, axis: int, shape: Shape) -> int | None:
        """The axis of the result along which what belongs to each row of `axis` of the input lies
        together, in order, where its size changes: [N, T] -> [N*T] and back."""
        return None

    def attributes(self) -> dict[str, Any]:
        return {
            name: getattr(self, name) for name in getattr(type(self), "__dataclass_fields__", ())
        }

    def fail(self, place: str, what: str, **details: Any) -> NoReturn:
        """Raise at `place`; the inputs' shapes and types are added by the builder."""
        errors.fail(place, what, op=details.pop("op", self.name), **details)

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.attributes().items())
        return f"{self.name}({shown})"


# batch_axis(self, axes, *shapes) -> axis of the batch in the output, or
#   None    the output does not depend on the batch
# SUM     the output is a sum over samples: parts computed from parts of the batch add up to the
# whole
#   MEAN    the output is a mean over samples: so do parts, each times its share of the samples
#   MIXED   samples influence each other: the batch cannot be split here
# `axes[i]` is the batch axis of input i (None: free of it). Several outputs: a tuple.
def batch_leads(op: Op, axes: tuple, *shapes: Shape) -> Any:
    """The common rule: axis 0 of the first input is the batch and stays axis 0; the other inputs
    are free of it."""
    if all(a is None for a in axes):
        found = None
    else:
        found = 0 if axes[0] == 0 and all(a is None for a in axes[1:]) else MIXED
    return found if op.outputs == 1 else (found,) * op.outputs


def batch_mixed(op: Op, axes: tuple, *shapes: Shape) -> Any:
    """Samples influence each other as soon as any input depends on the batch."""
    found = None if all(a is None for a in axes) else MIXED
    return found if op.outputs == 1 else (found,) * op.outputs
