"""Messages about micro-batches and accumulated gradients."""

import copy

import numpy as np

import shoestring as ss
from shoestring.ir import F, leaf


def window(**options):
    return ss.accumulate(ss.SGD([ss.Parameter([1.0])], lr=0.1), **options)


def half_a_window():
    with window(steps=2) as found:
        found.backward(found.optimizer.parameters[0].sum(), count=1)
        found.step()
        copy.deepcopy(found)


def mixed():
    ss.compile(lambda x: x.max(0), micro_batches=2)(np.ones((4, 3), np.float32))


def no_common_batch():
    step = ss.compile(lambda x, w: x @ w, micro_batches=2)
    step(np.ones((4, 3), np.float32), np.ones((3, 2), np.float32))


def nested():
    with window() as outer, outer:
        pass


def traced_step():
    with window() as outer:
        ss.compile(lambda x: (outer.step(), x)[1])(np.ones(3, np.float32))


def untold():
    w = ss.Parameter([1.0])
    with ss.accumulate(ss.SGD([w], lr=0.1)) as inner:
        inner.backward(w.sum(), count=1)


def stepped_inside():
    with window() as inner:
        inner.optimizer.step()


TRIGGERS = {
    "compile/accumulate.step": (
        traced_step,
        ["window.step() inside a compiled step", "window.step() after its call"],
    ),
    "compile/microbatch.mixed": (
        mixed,
        [
            "max: the batch cannot be cut into parts here: samples influence each other",
            "input 0: [4, 3] float32",
            "each of its results depends on several samples",
            "micro_batches=1, or a step whose samples meet in sums and means alone",
        ],
    ),
    "shape/sum_by_part.within": (
        lambda: F.sum_by_part(leaf(np.ones((4, 2), np.float32)), within=(3, 2)),
        ["parts of [3, 2] samples are not a batch of 4", "within=(x.shape[0],)"],
    ),
    "type/accumulate.optimizer": (
        lambda: ss.accumulate(3),
        ["accumulate: needs an optimiser, got int", "ss.accumulate(ss.SGD("],
    ),
    "value/accumulate.copy": (
        half_a_window,
        ["1 micro-batches of the window wait in gradients", "copy it between windows"],
    ),
    "value/accumulate.count": (
        lambda: window().backward(ss.tensor(1.0), count=-1),
        ["count is how many samples the loss is a mean over, got -1", "count=len(y)"],
    ),
    "value/accumulate.closed": (
        lambda: window().step(),
        ["window.step() belongs into the block of its window", "as window: ..."],
    ),
    "value/accumulate.nested": (
        nested,
        ["a window for these parameters is open already", "one `with ss.accumulate(...)`"],
    ),
    "value/accumulate.place": (
        lambda: window(grads_on="disk"),
        ["gradients can be kept on 'device' or 'cpu', not 'disk'", 'grads_on="cpu"'],
    ),
    "value/accumulate.step": (
        untold,
        ["gradients of which no window.step() has been told", "after every window.backward()"],
    ),
    "value/accumulate.steps": (
        lambda: window(steps=0),
        ["steps is a whole number above 0, or None, got 0"],
    ),
    "value/optimizer.window": (
        stepped_inside,
        ["SGD: step() inside a window of ss.accumulate", "window.step() in place of"],
    ),
    "value/compile.batch": (
        no_common_batch,
        [
            "the arguments have no common batch axis to cut into micro-batches",
            "argument 1: [3, 2] float32",
            "got [3, 4]",
            "as a closure instead of passing it",
        ],
    ),
    "value/compile.micro_batches": (
        lambda: ss.compile(lambda x: x, micro_batches=0),
        ['micro_batches is a whole number above 0 or "auto", got 0', "micro_batches=4"],
    ),
}
