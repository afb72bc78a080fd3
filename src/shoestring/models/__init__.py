"""Networks that examples, the command line and benchmarks use. `build(name)` makes one by name."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from ..errors import fail, nearest
from ..nn import BatchNorm2D, Conv2D, Linear, Module, ReLU, Sequential, max_pool2d, relu
from ..tensor import Tensor


class MnistCNN(Module):
    """Two convolutions with batch normalisation and pooling, one linear layer.  x: [N, 1, 28, 28]
    -> [N, 10]"""

    def __init__(self) -> None:
        self.conv1 = Conv2D(1, 16, 3)
        self.bn1 = BatchNorm2D(16)
        self.conv2 = Conv2D(16, 32, 3)
        self.bn2 = BatchNorm2D(32)
        self.fc = Linear(32 * 5 * 5, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = max_pool2d(relu(self.bn1(self.conv1(x))), 2)
        x = max_pool2d(relu(self.bn2(self.conv2(x))), 2)
        return self.fc(x.flatten(1))


def mlp(*sizes: int) -> Sequential:
    """Linear layers with ReLU between them: mlp(784, 512, 512, 10)."""
    layers: list[Callable] = []
    for k, (a, b) in enumerate(itertools.pairwise(sizes)):
        layers += [Linear(a, b)] + ([ReLU()] if k < len(sizes) - 2 else [])
    return Sequential(*layers)


MODELS: dict[str, Callable[[], Module]] = {
    "mnist_cnn": MnistCNN,
    "mlp": lambda: mlp(784, 512, 512, 10),
}


def build(name: str) -> Module:
    """A fresh network by its name in MODELS."""
    if name not in MODELS:
        close = nearest(name, MODELS)
        fail(
            "value/models.name",
            f"there is no network {name!r}",
            tensors={},
            hint=close or ", ".join(MODELS),
        )
    return MODELS[name]()
