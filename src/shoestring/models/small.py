"""Small networks: two convolutions for MNIST, and linear layers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from ..nn import BatchNorm2D, Conv2D, Linear, Module, ReLU, Sequential, max_pool2d, relu
from ..tensor import Tensor


class MnistCNN(Module):
    """Two convolutions with batch normalisation and pooling, one linear layer.

    x            [N, 1, image, image], image at least 10
    returns      [N, classes]
    channels     of the first convolution; the second has twice as many
    """

    def __init__(self, channels: int = 16, classes: int = 10, image: int = 28) -> None:
        self.conv1 = Conv2D(1, channels, 3)
        self.bn1 = BatchNorm2D(channels)
        self.conv2 = Conv2D(channels, 2 * channels, 3)
        self.bn2 = BatchNorm2D(2 * channels)
        side = ((image - 2) // 2 - 2) // 2
        self.fc = Linear(2 * channels * side * side, classes)

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
