"""Networks that examples, the command line and benchmarks use. `build(name)` makes one by name.

| name | what it is | image | classes |
|---|---|---|---|
| mnist_cnn | two convolutions, one linear layer | 28, grey | 10 |
| mlp | two hidden linear layers of 512 | 28, grey, as one row of pixels | 10 |
| resnet18 | ImageNet's, 11,689,512 parameters | 224 | 1000 |
| resnet18_cifar | a 3x3 stem without pooling, for small images | 32 | 10 |
| vgg11 | without batch normalisation, 132,863,336 parameters | 224 | 1000 |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

from ..errors import fail, nearest
from ..nn import Module
from .resnet import BasicBlock, ResNet
from .small import MnistCNN, mlp
from .vgg import VGG


class Recipe(NamedTuple):
    """How a network is made, and what it is made with unless somebody says otherwise.

    make      (width, depth, classes, image) -> the network
    depth     layers or blocks of each stage; (): there is no choice
    image     side of the images;  smallest: the least side that its layers accept
    shape     (image) -> the shape of one sample
    """

    make: Callable[[float, Sequence[int], int, int], Module]
    depth: tuple[int, ...]
    classes: int
    image: int
    smallest: int
    shape: Callable[[int], tuple[int, ...]]


def grey(image: int) -> tuple[int, ...]:
    return 1, image, image


def row(image: int) -> tuple[int, ...]:
    return (image * image,)


def colour(image: int) -> tuple[int, ...]:
    return 3, image, image


def scaled(channels: int, width: float) -> int:
    """`width` times as many channels, at least one."""
    return max(1, round(channels * width))


MODELS: dict[str, Recipe] = {
    "mnist_cnn": Recipe(
        make=lambda width, depth, classes, image: MnistCNN(scaled(16, width), classes, image),
        depth=(),
        classes=10,
        image=28,
        smallest=10,
        shape=grey,
    ),
    "mlp": Recipe(
        make=lambda width, depth, classes, image: mlp(
            image * image, *[scaled(512, width)] * depth[0], classes
        ),
        depth=(2,),
        classes=10,
        image=28,
        smallest=1,
        shape=row,
    ),
    "resnet18": Recipe(
        make=lambda width, depth, classes, image: ResNet(scaled(64, width), depth, classes),
        depth=(2, 2, 2, 2),
        classes=1000,
        image=224,
        smallest=1,
        shape=colour,
    ),
    "resnet18_cifar": Recipe(
        make=lambda width, depth, classes, image: ResNet(
            scaled(64, width), depth, classes, small=True
        ),
        depth=(2, 2, 2, 2),
        classes=10,
        image=32,
        smallest=1,
        shape=colour,
    ),
    "vgg11": Recipe(
        make=lambda width, depth, classes, image: VGG(
            scaled(64, width), depth, classes, image, scaled(4096, width)
        ),
        depth=(1, 1, 2, 2, 2),
        classes=1000,
        image=224,
        smallest=32,
        shape=colour,
    ),
}


def recipe(name: str) -> Recipe:
    """How the network `name` is made."""
    if name not in MODELS:
        close = nearest(name, MODELS)
        fail(
            "value/models.name",
            f"there is no network {name!r}",
            tensors={},
            cause=f"there are {', '.join(MODELS)}",
            hint=close or next(iter(MODELS)),
        )
    return MODELS[name]


def build(
    name: str,
    *,
    width: float = 1.0,
    depth: int | Sequence[int] | None = None,
    classes: int | None = None,
    image: int | None = None,
) -> Module:
    """A fresh network by its name in MODELS.

    width    times as many channels (and hidden features) in every layer
    depth    blocks (or layers) of each stage: a number for all, or one each. resnet18 has
             (2, 2, 2, 2), with (3, 4, 6, 3) it is ResNet-34; vgg11 (1, 1, 2, 2, 2); mlp (2,)
    classes  size of the result;  image: side of the images; default: the network's own
    errors   ArgumentError for an unknown name and for options that the network does not have

        ss.models.build("resnet18", width=0.5, classes=10)
    """
    found = recipe(name)
    depths = found.depth if depth is None else depth
    if not isinstance(depths, (tuple, list)):
        depths = (depths,) * max(len(found.depth), 1)
    classes = found.classes if classes is None else classes
    image = found.image if image is None else image
    options = (
        (
            isinstance(width, Real) and 0 < width < 1000,
            f"width={width!r}",
            "a number above 0",
            "0.5",
        ),
        (
            len(depths) == len(found.depth) and all(whole(n, 1) for n in depths),
            f"depth={depth!r}",
            f"{len(found.depth)} whole numbers" if found.depth else "None: it has one depth",
            str(found.depth or None),
        ),
        (whole(classes, 1), f"classes={classes!r}", "at least 1", str(found.classes)),
        (
            whole(image, found.smallest),
            f"image={image!r}",
            f"at least {found.smallest}",
            str(found.image),
        ),
    )
    for holds, given, expected, example in options:
        if not holds:
            option = given.partition("=")[0]
            fail(
                "value/models.option",
                f"{name} cannot be built with {given}",
                tensors={},
                expected=f"{option}: {expected}",
                hint=f"build({name!r}, {option}={example})",
            )
    return found.make(float(width), tuple(depths), int(classes), int(image))


def whole(value: Any, least: int) -> bool:
    return isinstance(value, Integral) and int(value) >= least


def input_shape(name: str, batch: int, image: int | None = None) -> tuple[int, ...]:
    """Shape of a batch of inputs of the network `name`.

    ss.models.input_shape("resnet18", 32)       # (32, 3, 224, 224)
    """
    found = recipe(name)
    return batch, *found.shape(found.image if image is None else image)


__all__ = [
    "MODELS",
    "VGG",
    "BasicBlock",
    "MnistCNN",
    "Recipe",
    "ResNet",
    "build",
    "input_shape",
    "mlp",
    "recipe",
]
