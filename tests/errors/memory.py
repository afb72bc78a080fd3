"""Messages about memory limits."""

import gc

import numpy as np

import shoestring as ss
from shoestring.backends.device import device
from shoestring.cli.plan import TrainingPlans, refuse


def limited(more):
    ss.runtime.release_arena("cpu")
    gc.collect()
    return ss.memory_limit(device("cpu").allocated_bytes() + more)


def no_plan_fits():
    x = ss.ones(64, 64)
    with limited(20_000):
        ((x @ x) + (x @ x @ x)).numpy()


def no_room_for_a_tensor():
    with limited(10_000):
        ss.tensor(np.ones((100, 100), np.float32))


def run_an_outline():
    with ss.runtime.outlined():
        (ss.ones(2) + 1).numpy()


class Asked:
    network, batch, image, width, depth, classes = "mlp", 4, None, 0.5, None, 3


def plan_too_large():
    with ss.runtime.outlined():
        smallest = TrainingPlans("mlp", width=0.5, classes=3).plan(4).options.smallest()
    refuse(Asked, 10**6, smallest, 2)


TRIGGERS = {
    "launch/outline.run": (
        run_an_outline,
        ["a value was asked of an outline of cpu", "outside `with outlined()`"],
    ),
    "launch/plan.memory": (
        plan_too_large,
        [
            "mlp with a batch of 4 does not fit into 1.0 MiB (1,000,000 bytes)",
            "the largest batch that fits is 2",
            "shoestring plan mlp --batch 2 --width 0.5 --classes 3 --memory 1000000",
        ],
    ),
    "launch/memory.budget": (
        no_plan_fits,
        ["no plan fits the memory limit of", "there before the plan:", 'ss.memory_limit("'],
    ),
    "launch/memory.limit": (
        no_room_for_a_tensor,
        ["40,000 bytes more would exceed the memory limit", 'ss.memory_limit("'],
    ),
    "type/memory_report.step": (
        lambda: ss.memory_report(lambda x: x),
        ["a compiled step or its plan has a report, got function", "ss.memory_report(step)"],
    ),
    "value/memory_report.plan": (
        lambda: ss.memory_report(ss.compile(lambda x: x)),
        ["memory_report: the step has no plan yet", "call the step first, or step.plan(x)"],
    ),
    "value/memory_limit.size": (
        lambda: ss.memory_limit("2 apples"),
        ["'2 apples' is no amount of memory", 'ss.memory_limit("1.8GB")'],
    ),
}
