"""An elementwise op or chain computed inside the kernel that reads its result.

    y = g(f(a, b, ...), ...)      f: elementwise;  g: an op whose kernel takes programs

The kernel computes f on the rows that a task needs, in scratch, and f's result is never written.
Bits do not change: f runs by the same instructions. The program is attached to the kernel at
"load". The compiler makes these (compile/prologue.py); like chains they have no gradient and no
place in the registry.
"""

from __future__ import annotations

import math

from ..backends import Launch, Operand, row_major
from ..ir import Cost, Op, Spec


class Prologue(Op):
    """`reader` with its first input computed by `maker`, from the first `count` inputs.

    made   the spec of the maker's result
    """

    kind, cheap_to_recompute, cases, gradient = "kernel", False, (), None

    def __init__(self, maker: Op, reader: Op, count: int, made: Spec) -> None:
        self.maker, self.reader, self.count, self.made = maker, reader, count, made
        self.name = f"{maker.name}+{reader.name}"  # type: ignore[misc]
        self.outputs = reader.outputs  # type: ignore[misc]

    def takes_strides(self, k):
        return k < self.count or self.reader.takes_strides(k - self.count + 1)

    def program_shape(self, y):
        return self.made.shape

    def shape(self, *shapes):
        return self.reader.shape(self.made.shape, *shapes[self.count :])

    def dtype(self, *dtypes):
        return self.reader.dtype(self.made.dtype, *dtypes[self.count :])

    def reference(self, *xs):
        return self.reader.reference(self.maker.reference(*xs[: self.count]), *xs[self.count :])

    def launch(self, device, inputs, outputs):
        sizes = self.made.shape
        made = Operand(sizes, self.made.dtype, row_major(sizes))
        first = self.maker.launch(device, inputs[: self.count], [made])
        found = self.reader.launch(device, [made, *inputs[self.count :]], outputs)
        if first is None or found is None:
            return None
        (program,), (kernel,) = first.kernels, found.kernels
        total = len(inputs) + len(outputs) + len(found.workspaces)
        kernel = kernel.renumbered([-1, *range(self.count, total)])
        program = program.renumbered([*range(self.count), -1])
        attached = (*kernel.attached, *program.as_attached("load"))
        return Launch((kernel._replace(attached=attached),), found.workspaces)

    def cost(self, *shapes):
        maker = self.maker.cost(*shapes[: self.count])
        reader = self.reader.cost(self.made.shape, *shapes[self.count :])
        saved = 8.0 * math.prod(self.made.shape)
        return Cost(maker.flops + reader.flops, maker.bytes + reader.bytes - saved)
