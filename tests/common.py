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
