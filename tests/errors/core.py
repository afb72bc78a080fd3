"""Messages of the core: nodes, autodiff, compiler, runtime, tensors."""

import copy

import numpy as np

import shoestring as ss
from shoestring import runtime
from shoestring.backends.device import device
from shoestring.compile.verify import require
from shoestring.compile.verify_plan import require as require_plan
from shoestring.ir import F, Op, leaf
from shoestring.runtime.compiled import Record
from shoestring.tensor import wrap


def x(*shape, dtype="float32", on="cpu"):
    return leaf(np.zeros(shape, dtype), device=on)


def t(*shape):
    return ss.zeros(*shape)


def parameter():
    return ss.Parameter(np.ones(3, np.float32))


def overwritten():
    p = parameter()
    node = F.mul(p.node, p.node)  # as long as no handle holds it nothing keeps what it needs
    p.assign(p * 2)
    p.numpy()
    wrap(node).numpy()


def stale():
    p = parameter()
    loss = (p * p).sum()
    p.assign(p * 2)
    p.numpy()
    loss.backward()


def leak():
    kept = []

    def step(a):
        kept.append(a * 2)
        return a

    ss.compile(step)(t(3))


def two_devices():
    Record.one_device([x(2), x(2, on="reference")])


def bad_reference():
    class Boom(Op):
        """y fails"""

        name, kind, cases, cheap_to_recompute, gradient, launch = (
            "boom",
            "kernel",
            (),
            False,
            None,
            None,
        )
        batch_axis = cost = None

        def shape(self, a):
            return a

        def reference(self, a):
            raise ZeroDivisionError("of the op")

    from shoestring.ir import OPS

    try:
        from shoestring.tensor import wrap

        y = wrap(F.boom(x(2)))
        y.numpy()
    finally:
        OPS.pop("boom", None)
        vars(F).pop("boom", None)


def bad_launch():
    class Boom(Op):
        """y = a"""

        name, kind, cases, cheap_to_recompute = "boom", "kernel", (), False
        reference = gradient = batch_axis = cost = None

        def shape(self, a):
            return a

        def launch(self, device, inputs, outputs):
            raise ZeroDivisionError("of the op")

    from shoestring.ir import OPS
    from shoestring.tensor import wrap

    try:
        wrap(F.boom(x(2))).numpy()
    finally:
        OPS.pop("boom", None)
        vars(F).pop("boom", None)


def torn():
    p = ss.Variable(np.ones(2, np.float32))
    p.assign(p * 2)
    node = p.state.node
    graph = runtime.flush.__globals__["compiler"].Graph([node], [node], _order(node))
    executable = runtime.flush.__globals__["plan_for"](graph, [], "cpu", None)
    for segment in executable.after:
        segment.run = lambda memory: 1 / 0
    try:
        runtime.flush()
    finally:
        runtime.DIRTY.clear()
        runtime.PLANS.clear()


def _order(node):
    from shoestring.ir import ancestry

    return ancestry([node])


def missing_kernel():
    from types import SimpleNamespace

    from shoestring.backends import Operand, row_major
    from shoestring.compile.pipeline import choose
    from shoestring.ir import OPS

    a = Operand((2, 2), np.dtype("float32"), row_major((2, 2)))
    without = SimpleNamespace(name="cpu", kind="cpu", has=lambda entry: False)
    choose(OPS["matmul"](), without, [a, a], [a])


def declare(**facts):
    body = dict(
        kind="kernel",
        cases=(),
        cheap_to_recompute=False,
        gradient=None,
        launch=None,
        cost=None,
        batch_axis=None,
        shape=lambda self, a: a,
        reference=lambda self, a: a,
    )
    body.update(facts)
    type("Declared", (Op,), {k: v for k, v in body.items() if v != "omitted"})


def closed():
    p = parameter()

    def step():
        loss = (p * p).sum()
        loss.backward()
        return loss

    ss.compile(step)().backward()


def escape():
    step = ss.compile(lambda h: (h * h).sum().backward(), micro_batches=2)
    step(ss.Parameter(np.ones((2, 2), np.float32)) * 2)


def outside():
    a = t(3)

    def step():
        a[0] = 1

    ss.compile(step)()


def item_in_trace():
    ss.compile(lambda a: (a * 2).sum().item())(t(3))


def wrong_index(what):
    return t(3, 4)[what]


def finite():
    from shoestring.tensor import wrap

    wrap(F.check_finite((ss.tensor([1.0, np.nan]) * 2).node, what="the ratio")).numpy()


def index():
    from shoestring.tensor import wrap

    wrap(F.check_index((ss.tensor([0, 7]) + 0).node, limit=3, what="label", of="classes")).numpy()


def cycle():
    graph = ss.compile(lambda a: (a * 2).relu()).plan(t(2)).options.draft.copy()
    graph.ins = [[i] if op is not None else [] for i, op in enumerate(graph.ops)]
    list(graph.topological())


TRIGGERS = {
    "compile/graph.overwritten": (
        overwritten,
        ["another thread overwrote parameter", "with lock:"],
    ),
    "compile/backward.stale": (stale, ["before step()", "has been replaced"]),
    "compile/draft.cycle": (cycle, ["depends on itself", "bug in a pass"]),
    "compile/kernel.missing": (missing_kernel, ["no kernel 'matmul'", "pip install"]),
    "compile/backward.closed": (
        closed,
        ["no gradient passes", "the step has called backward() on it itself", "result.detach()"],
    ),
    "compile/trace.argument": (
        lambda: ss.compile(lambda out: out.append(1))([]),
        ["changes a list that it got", "return what is new"],
    ),
    "compile/trace.devices": (two_devices, ["cpu, reference"]),
    "compile/trace.escape": (
        escape,
        ["reaches what an argument was computed from", "x.detach()"],
    ),
    "compile/trace.leak": (leak, ["outlives", "return it from the step"]),
    "compile/trace.outside": (outside, ["assigns to a tensor from outside", "ss.Variable"]),
    "compile/trace.read": (item_in_trace, ["read inside a traced step", "return the tensor"]),
    "compile/trace.seed": (
        lambda: ss.compile(lambda: ss.seed(1))(),
        ["would happen once", "before the step"],
    ),
    "compile/verify.draft": (
        lambda: require(False, "place", "a step is missing"),
        ["after `place`", "bug in a pass"],
    ),
    "compile/verify.plan": (
        lambda: require_plan(False, "step 3, add", "it reads value 7, overwritten by 2"),
        ["wrong at step 3, add: it reads value 7", "bug in a pass"],
    ),
    "data/check_finite.value": (finite, ["the ratio is NaN at position 1", "clip_grad_norm_"]),
    "data/check_index.range": (
        index,
        ["label 7 at position 1 is outside [0, 3)", "3 classes, so 0 to 2"],
    ),
    "launch/memory.out": (
        lambda: device("cpu").out_of_memory(5),
        ["could not provide 5 bytes", "smaller batch"],
    ),
    "compile/launch.failed": (
        bad_launch,
        ["boom: its launch failed: ZeroDivisionError: of the op", "[2] float32", "check_op(Boom)"],
    ),
    "launch/reference.failed": (bad_reference, ["its reference failed: of the op", "[2] float32"]),
    "launch/store.failed": (torn, ["had begun to change", "last checkpoint"]),
    "shape/assign.spec": (
        lambda: ss.Variable(np.ones(3)).assign(t(2)),
        ["the new value is [2] float32"],
    ),
    "shape/axis.range": (lambda: t(2).sum(axis=3), ["no axis 3", "from -1 to 0"]),
    "shape/axis.twice": (lambda: t(2, 2).sum(axis=(0, -2)), ["stands twice"]),
    "shape/backward.gradient": (lambda: parameter().backward(t(2)), ["another shape"]),
    "shape/backward.scalar": (
        lambda: (parameter() * 2).backward(),
        ["needs a scalar, got [3]", "loss.mean()"],
    ),
    "shape/bool.size": (lambda: bool(t(2)), ["ambiguous", "any()"]),
    "shape/grad.scalar": (
        lambda: ss.grad(parameter() * 2, parameter()),
        ["needs a scalar, got [3]"],
    ),
    "shape/grad.spec": (lambda: setattr(parameter(), "grad", t(2)), ["must be like it"]),
    "shape/index.count": (lambda: wrong_index((0, 0, 0)), ["3 indices for 2 axes"]),
    "shape/item.size": (lambda: t(2).item(), ["exactly one element"]),
    "shape/len.scalar": (lambda: len(t()), ["no length"]),
    "shape/matmul.scalar": (lambda: t(2) @ t(), ["a scalar has no matrix product"]),
    "shape/op.inputs": (lambda: F.conv2d(x(1)), ["takes 2 inputs (x, w), got 1"]),
    "shape/setitem.value": (lambda: t(3).__setitem__(slice(0, 2), t(3)), ["[2], got [3]"]),
    "type/compile.argument": (lambda: ss.compile(lambda a: a)(object()), ["got object"]),
    "type/compile.result": (
        lambda: ss.compile(lambda a: "text")(t(2)),
        ["returns tensors, got str"],
    ),
    "type/check_index.dtype": (
        lambda: F.check_index(x(2), what="label"),
        ["labels must be integers"],
    ),
    "type/index.dtype": (
        lambda: wrong_index(np.array([0.5])),
        ["indices must be integers, got float64"],
    ),
    "type/index.mask": (
        lambda: wrong_index(np.array([True, False, True])),
        ["depends on values", "ss.where"],
    ),
    "type/copy.graph": (
        lambda: copy.deepcopy(parameter() * 2),
        ["gradients would stop there", "copy.deepcopy(x.detach())"],
    ),
    "shape/inplace.shape": (
        lambda: t(3).__iadd__(t(2, 3)),
        ["the result is [2, 3]", "x = x + y"],
    ),
    "type/inplace.dtype": (
        lambda: ss.tensor([1]).__imul__(2.5),
        ["the result is float32 and cannot take the place of int64", "x = x + y"],
    ),
    "type/size.whole": (
        lambda: ss.normal(0.0, 1.0),
        ["normal: sizes and axes are whole numbers, got 0.0", "mean=0.0, std=1.0"],
    ),
    "shape/size.negative": (lambda: ss.zeros(2, -1), ["zeros: [2, -1] has a size below 0"]),
    "shape/reshape.ambiguous": (
        lambda: t(0, 3).reshape(-1, 0),
        ["any size would do for the -1 in [-1, 0]", "name every size"],
    ),
    "shape/full.value": (
        lambda: ss.full((2, 2), [1, 2, 3]),
        ["a value of shape [3] does not fill [2, 2]"],
    ),
    "type/axis.one": (
        lambda: t(2, 3).argmax((0, 1)),
        ["argmax: works along one axis, got (0, 1)", "x.flatten(start)"],
    ),
    "value/axis.both": (
        lambda: t(2, 3).sum(axis=0, dim=1),
        ["axis=0 and dim=1 say different things"],
    ),
    "type/pad.pairs": (lambda: ss.pad(t(2), 1), ["widths are pairs", "ss.pad(x, [(0, 0)"]),
    "value/arange.limits": (
        lambda: ss.arange(0, 5, 0),
        ["arange(0, 5, 0) is no range", "ss.arange(start, stop, step)"],
    ),
    "value/grad.unused": (
        lambda: ss.grad((parameter() * 2).sum(), parameter()),
        ["y does not depend on x", "allow_unused=True"],
    ),
    "type/dtype.unknown": (
        lambda: ss.tensor([1], dtype="flaot32"),
        ["no tensor of type flaot32", "one of float32", 'dtype="float32"'],
    ),
    "type/dtype.device": (
        lambda: ss.tensor([1.0], dtype="float64", device="cpu"),
        ["cpu has no float64", "reference computes in float64", 'device="reference"'],
    ),
    "value/number.range": (
        lambda: ss.tensor([1], dtype="uint8") + 300,
        ["300 does not fit uint8", "from 0 to 255", 'x.astype("int64")'],
    ),
    "value/pow.negative": (
        lambda: ss.tensor([2]) ** -1,
        ["no power -1 among the integers", 'x.astype("float32") ** -1'],
    ),
    "type/op.devices": (
        lambda: F.matmul(x(2, 2), x(2, 2, on="reference")),
        ["cpu, reference", "x.to('cpu')"],
    ),
    "type/tensor.data": (lambda: ss.tensor([[1, 2], [3]]), ["not an array of numbers"]),
    "type/tensor.dtype": (lambda: ss.tensor("text"), ["no tensor of type"]),
    "type/tensor.grad": (
        lambda: ss.tensor([1, 2], requires_grad=True),
        ["only floats have gradients"],
    ),
    "value/backward.constant": (
        lambda: t().backward(),
        ["nothing here depends on a parameter", "requires_grad=True"],
    ),
    "value/bernoulli.p": (lambda: ss.bernoulli(2, p=2.0), ["lies in [0, 1], got 2.0"]),
    "value/concat.empty": (lambda: ss.concat([]), ["nothing to concatenate"]),
    "value/config.reserved": (
        lambda: ss.config.load({"SHOESTRING_TUNE": "1"}),
        ["SHOESTRING_TUNE is reserved", "unset SHOESTRING_TUNE"],
    ),
    "value/config.unknown": (
        lambda: ss.config.load({"SHOESTRING_DEVISE": "cpu"}),
        ["SHOESTRING_DEVISE", "SHOESTRING_DEVICE=..."],
    ),
    "value/config.value": (
        lambda: ss.config.load({"SHOESTRING_CHECK": "maybe"}),
        ["0 or 1, got 'maybe'"],
    ),
    "value/device.unknown": (
        lambda: ss.tensor(1.0, device="cpuu"),
        ["no device 'cpuu'", 'device="cpu"'],
    ),
    "value/grad.constant": (lambda: ss.grad((parameter() * 2).sum(), t(2)), ["takes no gradient"]),
    "value/index.array": (
        lambda: wrong_index(np.array([5])),
        ["index 5 is out of range", "from -3 to 2"],
    ),
    "value/index.arrays": (lambda: wrong_index(([0], [0])), ["one array of integers"]),
    "value/index.ellipsis": (lambda: wrong_index((..., ...)), ["one `...`"]),
    "value/index.mixed": (lambda: wrong_index(([0], slice(0, 2))), ["alone or with `:`"]),
    "value/index.range": (
        lambda: wrong_index(7),
        ["index 7 is out of range for axis 0", "from -3 to 2"],
    ),
    "value/index.slice": (lambda: wrong_index(slice(0, 2, 0)), ["zero"]),
    "value/name.unknown": (lambda: ss.conv2, ["no name 'conv2'", "ss.conv2d"]),
    "value/op.fact": (lambda: declare(name="a_fact", cost="omitted"), ["declares no `cost`"]),
    "value/op.kind": (lambda: declare(name="a_kind", kind="magic"), ["unknown kind 'magic'"]),
    "value/op.twice": (lambda: declare(name="conv2d"), ["declared twice"]),
    "value/op.unknown": (lambda: F.conv3d, ["no op is named 'conv3d'", "F.conv2d"]),
    "value/seed.range": (lambda: ss.seed(-1), ["got -1"]),
    "value/setitem.array": (
        lambda: t(3).__setitem__(np.array([0]), 1.0),
        ["cannot be assigned to"],
    ),
    "value/threads.count": (lambda: ss.set_threads(0), ["at least 1, got 0"]),
}
