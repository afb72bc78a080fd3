"""VGG: 3x3 convolutions in five stages with pooling between, three linear layers; with the names
and parameters of torchvision's (configuration A is VGG-11), without batch normalisation.

It has no adaptive pooling: the first linear layer has as many inputs as the image leaves, which for
224 x 224 are the 7 x 7 that torchvision's pooling would give.

    Source: Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
    Recognition", 2015
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..nn import Conv2D, Dropout, Linear, MaxPool2D, Module, ReLU, Sequential
from ..tensor import Tensor


class VGG(Module):
    """Five stages that halve the image, then three linear layers with dropout.

    x         [N, 3, image, image], image at least 32
    returns   [N, classes]
    channels  of the first stage, doubled up to 8 times as many;  blocks: convolutions per stage
    hidden    width of the linear layers;  dropout: probability between them
    """

    def __init__(
        self,
        channels: int = 64,
        blocks: Sequence[int] = (1, 1, 2, 2, 2),
        classes: int = 1000,
        image: int = 224,
        hidden: int = 4096,
        dropout: float = 0.5,
    ) -> None:
        layers: list[Callable] = []
        before = 3
        for count, times in zip(blocks, (1, 2, 4, 8, 8), strict=True):
            for _ in range(count):
                layers += [Conv2D(before, channels * times, 3, padding=1), ReLU()]
                before = channels * times
            layers.append(MaxPool2D(2))
        self.features = Sequential(*layers)
        side = image // 32
        self.classifier = Sequential(
            *[Linear(before * side * side, hidden), ReLU(), Dropout(dropout)],
            *[Linear(hidden, hidden), ReLU(), Dropout(dropout)],
            Linear(hidden, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).flatten(1))
