"""Messages of optimisers and of what looks after gradients."""

import numpy as np

import shoestring as ss


def parameter(size=3):
    return ss.Parameter(np.ones(size, np.float32))


def used_up(act):
    items = iter([parameter()])
    list(items)
    act(items)


def other_optimizer(size):
    saved = ss.SGD([parameter()], lr=0.1, momentum=0.9)
    saved.slot(0, "momentum")
    state = saved.state_dict()
    ps = [parameter(size)] + ([parameter()] if size == 3 else [])
    ss.SGD(ps, lr=0.1, momentum=0.9).load_state_dict(state)


def cosine(**options):
    return ss.optim.CosineDecay(ss.SGD([parameter()], lr=0.1), **dict(dict(steps=10), **options))


def traced_schedule():
    schedule = cosine()
    ss.compile(lambda x: (schedule.step(), x)[1])(ss.ones(1))


TRIGGERS = {
    "compile/schedule.step": (
        traced_schedule,
        ["cannot step inside a compiled step", "after the call"],
    ),
    "shape/optimizer.load": (lambda: other_optimizer(2), ["slot momentum"]),
    "type/adam.betas": (
        lambda: ss.Adam([parameter()], betas=(0.9,)),
        ["betas are two numbers, got (0.9,)", "betas=(0.9, 0.999)"],
    ),
    "type/optimizer.number": (
        lambda: ss.SGD([parameter()], lr="0.1"),
        ["SGD: lr must be a number, got '0.1'", "expected  not below 0"],
    ),
    "type/optimizer.parameter": (
        lambda: ss.SGD([ss.ones(2)], lr=0.1),
        ["takes Parameters, got Tensor", "which nothing trains", "ss.parameters(thing)"],
    ),
    "type/optimizer.parameters": (
        lambda: ss.SGD(ss.Linear(2, 2), lr=0.1),
        ["needs a list of parameters, got Linear", "ss.SGD(model.parameters(), lr=0.1)"],
    ),
    "type/optimizer.trains": (
        lambda: ss.SGD([ss.Variable([1.0], "mean")], lr=0.1),
        ["mean has no gradient to be trained with", "with requires_grad"],
    ),
    "type/schedule.optimizer": (
        lambda: ss.optim.CosineDecay(ss.Linear(2, 2), steps=10),
        ["sets the rate of an optimiser, got Linear", "ss.optim.CosineDecay(ss.SGD("],
    ),
    "type/sgd.nesterov": (
        lambda: ss.SGD([parameter()], lr=0.1, momentum=0.9, nesterov=0.5),
        ["nesterov is True or False, got 0.5"],
    ),
    "value/optimizer.empty": (
        lambda: ss.SGD([], lr=0.1),
        ["no parameters to train", "ss.SGD(model.parameters()"],
    ),
    "value/optimizer.exhausted": (
        lambda: used_up(lambda items: ss.clip_grad_norm_(items, 1.0)),
        ["clip_grad_norm_: the iterator of parameters gives none", "a list, or", "anew"],
    ),
    "value/optimizer.load": (lambda: other_optimizer(3), ["1 parameters were saved"]),
    "value/optimizer.number": (
        lambda: ss.SGD([parameter()], lr=-1.0),
        ["lr must be not below 0, got -1.0"],
    ),
    "value/schedule.load": (
        lambda: cosine().load_state_dict({"t": 3}),
        ["no state of a schedule", "a state of ss.optim.CosineDecay"],
    ),
    "value/schedule.steps": (lambda: cosine(steps=0), ["steps must be", "at least 1, got 0"]),
    "value/schedule.warmup": (
        lambda: cosine(warmup=11),
        ["a warm-up of 11 steps does not fit into 10", "warmup=1"],
    ),
    "value/sgd.nesterov": (
        lambda: ss.SGD([parameter()], lr=0.1, nesterov=True),
        ["Nesterov needs a momentum"],
    ),
}
