"""Batch normalisation (Ioffe and Szegedy, 2015): y = (x - mean) / sqrt(variance + eps) * weight +
bias, per channel.

In training mean and variance are the batch's (a reduction, ops/norm.*), and the running ones move
towards them by `momentum`, the variance unbiased (n / (n - 1)); in evaluation the running ones are
used. The rest is elementwise, so that the compiler can join it to its neighbours. The running
variance starts at 1.

In a step that is cut into micro-batches with allow_batchnorm_split=True each part has its own mean
and variance, and the running ones move once per part, as in a loop that accumulates gradients:

    running after k parts = (1 - momentum)^k running + sum over parts p of
                            momentum (1 - momentum)^(k - 1 - p) (statistic of part p)
"""

from __future__ import annotations

import math

import numpy as np

from .. import runtime
from ..errors import fail
from ..ir import F, Node, leaf
from ..tensor import Tensor, node_of, wrap
from ..variable import Parameter, Variable
from .module import Module


class BatchNorm(Module):
    rank = (0,)

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        if not isinstance(num_features, int) or num_features < 1:
            fail(
                "value/batchnorm.features",
                f"num_features must be a whole number of at least 1, got {num_features!r}",
                op=type(self).__name__,
                tensors={},
                hint="BatchNorm2D(16)",
            )
        self.weight = Parameter([1.0] * num_features)
        self.bias = Parameter([0.0] * num_features)
        self.running_mean = Variable([0.0] * num_features)
        self.running_var = Variable([1.0] * num_features)
        self.eps, self.momentum = eps, momentum

    def forward(self, x: Tensor) -> Tensor:
        self.check(x)
        C = x.shape[1]
        along = (1, C) + (1,) * (x.ndim - 2)
        axes = (0, *range(2, x.ndim))
        sizes = part_sizes(x) if self.training else ()
        count = math.prod(x.shape) // max(C, 1)
        if self.training:
            if count == 0:
                fail(
                    "shape/batchnorm.empty",
                    "an empty batch has no mean and no variance",
                    op=type(self).__name__,
                    tensors={"x": x.spec},
                    expected=f"at least 2 values per channel, got {list(x.shape)}",
                    cause="a filter that left nothing, or an image smaller than its windows",
                    hint="if len(x): model(x), or model.eval()",
                )
            if count == 1 or (sizes and min(sizes) * count == x.shape[0]):
                fail(
                    "shape/batchnorm.single",
                    "one value per channel has no variance",
                    op=type(self).__name__,
                    tensors={"x": x.spec},
                    cause="a batch of 1, often the last of an epoch",
                    hint="DataLoader(..., drop_last=True), or model.eval()",
                )
            if sizes:
                return by_part(self, x, sizes)
            mean, variance = F.moments(x.node, axes=axes)
            rate = node_of(self.momentum, x)
            unbiased = F.mul(variance, node_of(count / (count - 1), x)) if count > 1 else variance
            runtime.assign(
                [
                    (self.running_mean.state, self.towards(self.running_mean, mean, rate)),
                    (self.running_var.state, self.towards(self.running_var, unbiased, rate)),
                ]
            )
        else:
            mean = F.reshape(self.running_mean.node, to=along)
            variance = F.reshape(self.running_var.node, to=along)
        scale = F.mul(
            F.rsqrt(F.add(variance, node_of(self.eps, x))), F.reshape(self.weight.node, to=along)
        )
        return wrap(F.scale_shift(x.node, mean, scale, F.reshape(self.bias.node, to=along)))

    @staticmethod
    def towards(running: Variable, new, rate):
        """running + rate * (new - running)"""
        old = running.state.node
        return F.add(old, F.mul(F.sub(F.reshape(new, to=old.shape), old), rate))

    def check(self, x: Tensor) -> None:
        name, C = type(self).__name__, self.weight.shape[0]
        if x.ndim not in self.rank:
            shapes = " or ".join(
                {2: f"[N, {C}]", 3: f"[N, {C}, L]", 4: f"[N, {C}, H, W]"}[r] for r in self.rank
            )
            fail(
                "shape/batchnorm.rank",
                f"needs {shapes}, got {list(x.shape)}",
                op=name,
                tensors={"x": x.spec},
                hint="BatchNorm1D for [N, C], BatchNorm2D for [N, C, H, W]",
            )
        if x.shape[1] != C:
            fail(
                "shape/batchnorm.channels",
                f"input has {x.shape[1]} channels, this layer {C}",
                op=name,
                tensors={"x": x.spec},
                expected=f"{C} channels on axis 1, got {x.shape[1]}",
                hint=f"{name}({x.shape[1]})",
            )

    def describe(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}, momentum={self.momentum}"


def part_sizes(x: Tensor) -> tuple[int, ...]:
    """Sizes along axis 0 of x of the parts that have statistics of their own; none: the whole
    batch has."""
    sizes = runtime.session.split_batchnorm
    samples = sum(sizes)
    each = x.shape[0] // samples if samples else 0
    return tuple(n * each for n in sizes) if each * samples == x.shape[0] else ()


def by_part(layer: BatchNorm, x: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """y with the statistics of each part (see the header)."""
    N, C, *inner = x.shape
    column, axes = (N,) + (1,) * (x.ndim - 1), tuple(range(2, x.ndim))
    counts = np.repeat(sizes, sizes) * math.prod(inner)

    def constant(values: np.ndarray) -> Node:
        return leaf(values.astype(np.float32).reshape(column), device=x.device)

    def mean_of(node: Node) -> Node:
        """[N, C, 1, ...]: each sample's row holds the mean of its part."""
        sums = F.sum(node, axes=axes, keepdims=True) if axes else node
        return F.mul(F.sum_by_part(sums, within=sizes), constant(1 / counts))

    mean = mean_of(x.node)
    distance = F.sub(x.node, mean)
    variance = mean_of(F.mul(distance, distance))
    later = len(sizes) - 1 - np.repeat(np.arange(len(sizes)), sizes)
    share = layer.momentum * (1 - layer.momentum) ** later / np.repeat(sizes, sizes)
    left = node_of((1 - layer.momentum) ** len(sizes), x)
    updates = []
    for running, found, weights in (
        (layer.running_mean, mean, share),
        (layer.running_var, variance, share * counts / (counts - 1)),
    ):
        old = running.state.node
        moved = F.sum(F.mul(found, constant(weights)), axes=(0,), keepdims=True)
        new = F.add(F.mul(old, left), F.reshape(moved, to=old.shape))
        updates.append((running.state, new))
    runtime.assign(updates)
    along = (1, C) + (1,) * len(inner)
    scale = F.mul(
        F.rsqrt(F.add(variance, node_of(layer.eps, x))), F.reshape(layer.weight.node, to=along)
    )
    return wrap(F.scale_shift(x.node, mean, scale, F.reshape(layer.bias.node, to=along)))


class BatchNorm1D(BatchNorm):
    """Batch normalisation of [N, C] or [N, C, L] over everything but axis 1."""

    rank = (2, 3)


class BatchNorm2D(BatchNorm):
    """Batch normalisation of [N, C, H, W] over N, H and W."""

    rank = (4,)
