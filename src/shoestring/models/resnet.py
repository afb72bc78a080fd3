"""Residual networks of two-convolution blocks, with the names and parameters of torchvision's.

    block(x) = relu( bn2(conv2( relu(bn1(conv1(x))) )) + shortcut(x) )

The shortcut is x itself, or a 1x1 convolution with batch normalisation where the block changes the
size. Four stages; the image halves and the channels double from each to the next.

    Source: He et al., "Deep Residual Learning for Image Recognition", 2016
"""

from __future__ import annotations

from collections.abc import Sequence

from ..nn import BatchNorm2D, Conv2D, Linear, MaxPool2D, Module, Sequential, relu
from ..tensor import Tensor


class BasicBlock(Module):
    """Two 3x3 convolutions and a shortcut.  x: [N, channels, H, W] -> [N, outputs, ceil(H/stride),
    ceil(W/stride)]"""

    def __init__(self, channels: int, outputs: int, stride: int) -> None:
        self.conv1 = Conv2D(channels, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = BatchNorm2D(outputs)
        self.conv2 = Conv2D(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = BatchNorm2D(outputs)
        self.downsample = None
        if stride != 1 or channels != outputs:
            shortcut = Conv2D(channels, outputs, 1, stride, bias=False)
            self.downsample = Sequential(shortcut, BatchNorm2D(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(Module):
    """A stem, four stages of BasicBlocks, the mean over the image, one linear layer.

    x         [N, 3, H, W], any H and W that leave at least one pixel
    returns   [N, classes]
    channels  of the first stage;  blocks: how many in each of the four stages
    small     for small images: a 3x3 stem without pooling, instead of 7x7 with stride 2 and pooling
    """

    def __init__(
        self,
        channels: int = 64,
        blocks: Sequence[int] = (2, 2, 2, 2),
        classes: int = 1000,
        small: bool = False,
    ) -> None:
        kernel, stride = (3, 1) if small else (7, 2)
        self.conv1 = Conv2D(3, channels, kernel, stride, padding=kernel // 2, bias=False)
        self.bn1 = BatchNorm2D(channels)
        self.maxpool = None if small else MaxPool2D(3, stride=2, padding=1)
        widths = [channels * 2**k for k in range(4)]
        self.layer1 = self.stage(channels, widths[0], blocks[0], 1)
        self.layer2 = self.stage(widths[0], widths[1], blocks[1], 2)
        self.layer3 = self.stage(widths[1], widths[2], blocks[2], 2)
        self.layer4 = self.stage(widths[2], widths[3], blocks[3], 2)
        self.fc = Linear(widths[3], classes)

    @staticmethod
    def stage(channels: int, outputs: int, count: int, stride: int) -> Sequential:
        first = BasicBlock(channels, outputs, stride)
        return Sequential(first, *[BasicBlock(outputs, outputs, 1) for _ in range(count - 1)])

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.bn1(self.conv1(x)))
        x = x if self.maxpool is None else self.maxpool(x)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(x.mean((2, 3)))
