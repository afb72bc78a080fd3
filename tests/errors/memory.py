"""Messages about memory limits."""

import numpy as np

import shoestring as ss
from shoestring.backends.device import device


def limited(more):
    ss.runtime.release_arena("cpu")
    return ss.memory_limit(device("cpu").allocated_bytes() + more)


def no_plan_fits():
    x = ss.ones(64, 64)
    with limited(20_000):
        ((x @ x) + (x @ x @ x)).numpy()


def no_room_for_a_tensor():
    with limited(10_000):
        ss.tensor(np.ones((100, 100), np.float32))


TRIGGERS = {
    "launch/memory.budget": (
        no_plan_fits,
        ["no plan fits the memory limit of", "there before the plan:", 'ss.memory_limit("'],
    ),
    "launch/memory.limit": (
        no_room_for_a_tensor,
        ["40,000 bytes more would exceed the memory limit", 'ss.memory_limit("'],
    ),
    "value/memory_limit.size": (
        lambda: ss.memory_limit("2 apples"),
        ["'2 apples' is no amount of memory", 'ss.memory_limit("1.8GB")'],
    ),
}
