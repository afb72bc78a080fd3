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


TRIGGERS = {
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
    "value/sgd.nesterov": (
        lambda: ss.SGD([parameter()], lr=0.1, nesterov=True),
        ["Nesterov needs a momentum"],
    ),
}
