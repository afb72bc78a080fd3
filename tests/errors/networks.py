"""Messages of layers, losses, optimisers, data, files and the command line; and of the ops behind
the layers."""

import pathlib
import tempfile

import numpy as np

import shoestring as ss
from shoestring.cli import ops as cli_ops
from shoestring.cli import train as cli_train
from shoestring.data import mnist as _mnist  # noqa: F401
from shoestring.errors import fail  # noqa: F401
from shoestring.ir import F, leaf
from shoestring.nn import init
from shoestring.nn.linear import linear


def x(*shape, dtype="float32"):
    return leaf(np.zeros(shape, dtype))


def t(*shape):
    return ss.zeros(*shape)


def parameter():
    return ss.Parameter(np.ones(3, np.float32))


def module(name):
    import importlib

    return importlib.import_module(name)


def labelled(label, **options):
    return ss.cross_entropy(t(2, 3), ss.tensor([0, label]), **options)


def damaged(text=b"not a file"):
    path = pathlib.Path(tempfile.mkdtemp()) / "mnist.npz"
    path.write_bytes(text)
    return path


def no_mnist():
    import builtins

    real = builtins.__import__

    def without(name, *rest, **named):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *rest, **named)

    builtins.__import__ = without
    try:
        module("shoestring.data.mnist").small_digits("there is no network")
    finally:
        builtins.__import__ = real


class Options:
    def __init__(self, **values):
        self.network, self.epochs, self.batch, self.lr, self.seed = "mnist", 1, 32, 0.01, 0
        self.device = self.threads = self.limit = self.json = None
        self.out = tempfile.mkdtemp()
        self.names, self.json = [], None
        vars(self).update(values)


def bad_state():
    ss.Linear(2, 3).load_state_dict({"weight": np.zeros((3, 3)), "extra": np.zeros(1)})


def ce(logits, labels, weight, smoothing=()):
    return F.cross_entropy(x(*logits), x(*labels, dtype="int64"), x(*weight), x(*smoothing))


def conv_grad(which):
    if which == "input":
        return F.conv2d_input_grad(x(1, 1, 2, 2), x(1, 1, 3, 3), x_shape=(1, 1, 9, 9))
    return F.conv2d_weight_grad(x(1, 1, 2, 2), x(1, 1, 9, 9), w_shape=(1, 1, 3, 3))


TRIGGERS = {
    "data/cross_entropy.range": (
        lambda: labelled(5),
        ["label 5 at position 1 is outside [0, 3)", "networks.py"],
    ),
    "data/load.damaged": (
        lambda: ss.load(damaged()),
        ["mnist.npz is not a whole .npz file", "copy it again"],
    ),
    "data/load.missing": (lambda: ss.load("/nowhere/w.npz"), ["no file /nowhere/w.npz"]),
    "data/mnist.damaged": (
        lambda: module("shoestring.data.mnist").read(damaged()),
        ["is not MNIST", "60000"],
    ),
    "data/mnist.nowhere": (no_mnist, ["no MNIST here", "SHOESTRING_DATA"]),
    "data/save.write": (
        lambda: ss.save({"a": np.zeros(1)}, "/proc/nowhere/w.npz"),
        ["could not be written", "untouched"],
    ),
    "data/train.folder": (
        lambda: cli_train.Training(Options(out="/proc/nowhere")),
        ["nothing can be written"],
    ),
    "data/train.json_folder": (
        lambda: cli_train.file_can_be_made(pathlib.Path("/")),
        ["/ is a folder", "--json /figures.json"],
    ),
    "data/train.json": (
        lambda: cli_train.write_json(pathlib.Path("/proc/nowhere/f.json"), {}),
        ["--json"],
    ),
    "shape/avg_pool2d_grad.sizes": (
        lambda: F.avg_pool2d_grad(x(1, 1, 9, 9), x_shape=(1, 1, 4, 4)),
        ["does not belong"],
    ),
    "shape/batchnorm.channels": (
        lambda: ss.BatchNorm2D(3)(t(2, 4, 2, 2)),
        ["4 channels, this layer 3", "BatchNorm2D(4)"],
    ),
    "shape/batchnorm.empty": (
        lambda: ss.BatchNorm2D(3)(t(0, 3, 2, 2)),
        ["an empty batch has no mean", "x: [0, 3, 2, 2]", "model.eval()"],
    ),
    "shape/batchnorm.rank": (
        lambda: ss.BatchNorm2D(3)(t(2, 3)),
        ["needs [N, 3, H, W], got [2, 3]"],
    ),
    "shape/batchnorm.single": (
        lambda: ss.BatchNorm2D(3)(t(1, 3, 1, 1)),
        ["one value per channel", "drop_last=True"],
    ),
    "shape/conv2d.channels": (
        lambda: F.conv2d(x(32, 3, 28, 28), x(16, 4, 3, 3)),
        [
            "conv2d: input has 3 channels, weight expects 4",
            "x: [32, 3, 28, 28] float32 on cpu",
            "expected  weight [16, 3, 3, 3], got [16, 4, 3, 3]",
            "try:  Conv2D(in_channels=3, out_channels=16, kernel_size=3)",
        ],
    ),
    "shape/conv2d.kernel": (
        lambda: F.conv2d(x(1, 1, 2, 2), x(1, 1, 3, 3)),
        ["3x3 kernel does not fit a 2x2 image", 'padding="same"'],
    ),
    "shape/conv2d.rank": (lambda: F.conv2d(x(1, 2, 2), x(1, 1, 3, 3)), ["x.unsqueeze(0)"]),
    "shape/conv2d_input_grad.sizes": (lambda: conv_grad("input"), ["do not belong to x"]),
    "shape/conv2d_weight_grad.sizes": (lambda: conv_grad("weight"), ["do not belong to w"]),
    "shape/cross_entropy.classes": (
        lambda: ce((2, 0), (2,), (0,)),
        ["there are no classes", "at least 1 class on axis 1, got logits [2, 0]"],
    ),
    "shape/cross_entropy.labels": (lambda: ce((2, 3), (3,), (3,)), ["need labels [2], got [3]"]),
    "shape/cross_entropy.rank": (lambda: ce((3,), (), (3,)), ["needs logits [N, C]"]),
    "shape/cross_entropy.weight": (
        lambda: ce((2, 3), (2,), (4,)),
        ["there are 3 classes, the weight is [4]"],
    ),
    "shape/cross_entropy_grad.dloss": (
        lambda: F.cross_entropy_grad(x(3), x(2, 3), x(2, dtype="int64"), x(3), x()),
        ["differ"],
    ),
    "shape/dataset.lengths": (
        lambda: ss.data.TensorDataset(np.zeros(2), np.zeros(3)),
        ["different lengths: [2, 3]"],
    ),
    "shape/init.rank": (lambda: init.kaiming_normal((3,)), ["two axes or more"]),
    "shape/linear.features": (
        lambda: ss.Linear(4, 2)(t(2, 3)),
        ["3 features, weight expects 4", "Linear(in_features=3, out_features=2)"],
    ),
    "shape/linear.rank": (lambda: linear(t(4), t(2, 4)), ["needs a batch", "x.unsqueeze(0)"]),
    "shape/matmul.batch": (lambda: F.matmul(x(2, 2, 3), x(3, 3, 2)), ["do not broadcast"]),
    "shape/matmul.inner": (
        lambda: F.matmul(x(2, 3), x(4, 3)),
        ["inner sizes differ: 3 and 4", "a @ b.T"],
    ),
    "shape/matmul.rank": (lambda: F.matmul(x(2), x(2, 2)), ["needs matrices"]),
    "shape/max_pool2d_gather.sizes": (
        lambda: F.max_pool2d_gather(x(1, 2, 4, 4), x(1, 1, 2, 2, dtype="uint8")),
        ["do not belong together"],
    ),
    "shape/max_pool2d_grad.sizes": (
        lambda: F.max_pool2d_grad(
            x(1, 1, 2, 2), x(1, 1, 3, 3, dtype="uint8"), x_shape=(1, 1, 4, 4)
        ),
        ["do not belong"],
    ),
    "shape/moments.axes": (lambda: F.moments(x(2, 3), axes=(5,)), ["axes [5] do not fit 2 axes"]),
    "shape/mse_loss.shapes": (
        lambda: ss.mse_loss(t(2), t(3)),
        ["different shapes", "target.reshape([2])"],
    ),
    "shape/pool.padding": (
        lambda: ss.max_pool2d(t(1, 1, 4, 4), 2, padding=2),
        ["more than half of the window", "padding=1"],
    ),
    "shape/pool.rank": (lambda: ss.max_pool2d(t(4, 4), 2), ["needs [N, C, H, W], got [4, 4]"]),
    "shape/pool.window": (
        lambda: ss.max_pool2d(t(1, 1, 2, 2), 3),
        ["3x3 window does not fit a 2x2 image"],
    ),
    "shape/softmax.axis": (lambda: F.softmax(x(2, 3), axis=4), ["no axis 4"]),
    "type/cross_entropy.labels": (
        lambda: ss.cross_entropy(t(2, 3), t(2)),
        ["labels must be integers, got float32", "labels.long()"],
    ),
    "type/cross_entropy.op": (
        lambda: F.cross_entropy(x(2, 3), x(2), x(3), x()),
        ["labels must be integers"],
    ),
    "type/loader.data": (lambda: ss.DataLoader(5), ["no dataset: int"]),
    "type/max_pool2d.position": (
        lambda: F.max_pool2d_grad(x(1, 1, 2, 2), x(1, 1, 2, 2), x_shape=(1, 1, 4, 4)),
        ["places in a 2x2 window are uint8, got float32"],
    ),
    "type/module.array": (
        lambda: ss.Linear(3, 2)(np.zeros((1, 3))),
        ["Linear takes tensors, got a NumPy array", "ss.tensor(x)"],
    ),
    "value/batchnorm.features": (lambda: ss.BatchNorm2D(0), ["at least 1, got 0"]),
    "value/cli.op": (lambda: cli_ops.run(Options(names=["conv3d"])), ["no op 'conv3d'"]),
    "value/conv2d.channels": (
        lambda: ss.Conv2D(0, 4, 3),
        ["in_channels must be a whole number of at least 1"],
    ),
    "value/conv2d.dilation": (
        lambda: ss.conv2d(t(1, 1, 9, 9), t(1, 1, 3, 3), dilation=2),
        ["dilation is 1 here"],
    ),
    "value/conv2d.padding": (
        lambda: ss.conv2d(t(1, 1, 9, 9), t(1, 1, 3, 3), padding="full"),
        ['"same" or "valid"'],
    ),
    "value/cross_entropy.reduction": (lambda: labelled(1, reduction="avg"), ["no reduction 'avg'"]),
    "value/cross_entropy.smoothing": (
        lambda: labelled(1, label_smoothing=2.0),
        ["lies in [0, 1], got 2.0"],
    ),
    "value/dropout.p": (lambda: ss.dropout(t(2), 1.5), ["lies in [0, 1], got 1.5"]),
    "value/layer.pair": (
        lambda: ss.Conv2D(1, 1, (3, 3, 3)),
        ["kernel_size must be a whole number"],
    ),
    "value/linear.features": (lambda: ss.Linear(4, 0), ["out_features must be"]),
    "value/loader.batch": (lambda: ss.DataLoader(np.zeros(4), 0), ["at least 1, got 0"]),
    "value/models.name": (
        lambda: ss.models.build("mnist_cn"),
        ["no network 'mnist_cn'", "mnist_cnn"],
    ),
    "value/models.option": (
        lambda: ss.models.build("mnist_cnn", depth=3),
        ["mnist_cnn cannot be built with depth=3", "expected  depth: None: it has one depth"],
    ),
    "value/module.forward": (lambda: ss.Module()(1), ["defines no forward()"]),
    "value/module.load": (
        bad_state,
        [
            "3 entries do not fit",
            "missing bias",
            "unexpected extra",
            "weight: expected [3, 2], got [3, 3]",
        ],
    ),
    "value/mse_loss.reduction": (lambda: ss.mse_loss(t(2), t(2), "avg"), ["no reduction 'avg'"]),
    "value/train.batch": (lambda: cli_train.Training(Options(batch=10**6)), ["more than the"]),
}
