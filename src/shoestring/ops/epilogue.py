"""An elementwise step on a kernel's result, computed inside that kernel.

    y[i] = f(g(...)[i], a[i], b[i], ...)      g: a convolution or a matrix product;  f: elementwise

A task of the kernel writes g's raw values where y will be; as soon as it has completed a stretch of
them it runs the program of f there, in place, while they are in cache. So bias, affine step, ReLU
or the addition of a shortcut read and write no memory of their own. f runs by the same instructions
on the same values as alone: bits do not change. The program is attached to the kernel at "store".
The compiler makes these (compile/epilogue.py); like chains they have no gradient and no place in
the registry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..backends import Launch
from ..ir import Cost, Op, Spec

AXES = 8  # of an input: kernels walk over at most six besides those of a matrix


class Epilogue(Op):
    """The chain of the maker's result and further inputs.

    inputs  how many inputs the maker has; the chain's other ones follow them
    at      which input of the chain is the maker's result
    """

    kind, cheap_to_recompute, cases, gradient = "kernel", False, (), None

    def __init__(self, maker: Op, inputs: int, chain: Op, at: int) -> None:
        self.maker, self.inputs, self.chain, self.at = maker, inputs, chain, at
        self.name = f"{maker.name}+{chain.name}"  # type: ignore[misc]

    def takes_strides(self, k):
        return k >= self.inputs or self.maker.takes_strides(k)

    @classmethod
    def of(cls, maker: Op, inputs: Sequence[Spec], chain: Op, at: int) -> Epilogue | None:
        """None where the maker has no kernel for inputs of these types and so many axes."""
        native = all(spec.dtype == np.float32 and len(spec.shape) <= AXES for spec in inputs)
        return cls(maker, len(inputs), chain, at) if native else None

    def full(self, xs, made) -> list:
        """The chain's inputs."""
        others = list(xs[self.inputs :])
        return [*others[: self.at], made, *others[self.at :]]

    def shape(self, *shapes):
        return self.maker.shape(*shapes[: self.inputs])

    def dtype(self, *dtypes):
        return self.chain.dtype(*self.full(dtypes, self.maker.dtype(*dtypes[: self.inputs])))

    def reference(self, *xs):
        return self.chain.reference(*self.full(xs, self.maker.reference(*xs[: self.inputs])))

    def launch(self, device, inputs, outputs):
        """The maker's launch with the program at its result."""
        n, given = self.inputs, len(inputs)
        found = self.maker.launch(device, inputs[:n], outputs)
        last = self.chain.launch(device, self.full(inputs, outputs[0]), outputs)
        if found is None or last is None:
            return None
        (kernel,), (program,) = found.kernels, last.kernels
        kernel = kernel.renumbered([*range(n), *range(given, given + 1 + len(found.workspaces))])
        program = program.renumbered([*self.full(range(given), given), given])
        attached = (*kernel.attached, *program.as_attached("store"))
        return Launch((kernel._replace(attached=attached),), found.workspaces)

    def cost(self, *shapes):
        made = self.shape(*shapes)
        maker = self.maker.cost(*shapes[: self.inputs])
        chain = self.chain.cost(*self.full(shapes, made))
        saved = 8.0 * math.prod(made)
        return Cost(maker.flops + chain.flops, maker.bytes + chain.bytes - saved)
