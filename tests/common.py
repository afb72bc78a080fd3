"""What several test files do alike: one training step, and the same work fused and not."""

import shoestring as ss
from shoestring.runtime import PLANS, session


def training_step(net, optimizer):
    """One step of cross entropy, as a function of (x, y) that gives the loss."""

    def step(x, y):
        loss = ss.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def run(fused, fn):
    """fn() with fusing on or off, in plans of its own."""
    PLANS.clear()
    session.fuse = fused
    try:
        return fn()
    finally:
        session.fuse = True


def names():
    """The ops of all plans, step by step."""
    return [step.op.name for executable in PLANS.values() for step in executable.plan.steps]


def program_of(*kernels):
    """The native program of kernels whose buffer k is all of base k."""
    from shoestring.backends import placed
    from shoestring.backends.cpu import _native, native

    places = [(base, 0) for base in range(200)]
    return _native.Program([native(placed(kernel, places)) for kernel in kernels])


def changed(numbers, position, value):
    """The numbers with another one at a position."""
    return (*numbers[:position], value, *list(numbers[position:])[1:])


def region(inputs, links, results):
    """A region as the compiler would make it. inputs: arrays or specs; links: (op, numbers of what
    it reads, port); results: numbers of values."""
    from shoestring.compile.region import Link, Region
    from shoestring.ir import Spec

    values = [Spec(a.shape, a.dtype, "cpu") for a in inputs]
    for op, sources, _ in links:
        shapes = op.shape(*[values[s].shape for s in sources])
        dtypes = op.dtype(*[values[s].dtype for s in sources])
        several = op.outputs > 1
        for shape, dtype in zip(
            shapes if several else [shapes], dtypes if several else [dtypes], strict=True
        ):
            values.append(Spec(tuple(shape), dtype, "cpu"))
    return Region(len(inputs), [Link(*link) for link in links], values, results)
