"""Losses. Formulas, gradients and kernels: ops/loss.*"""

from __future__ import annotations

import numpy as np

from .. import runtime
from ..errors import DataError, fail
from ..ir import F, Node, leaf
from ..operands import whole
from ..ops.loss import label_weights
from ..tensor import Tensor, node_of, wrap
from .module import Module

_ones: dict[tuple[int, str], Node] = {}


def ones(C: int, device: str) -> Node:
    """Class weights of 1, the same input in every step."""
    found = _ones.get((C, device))
    if found is None:
        found = _ones[C, device] = leaf(np.ones(C, np.float32), device=device)
    return found


def cross_entropy(
    logits: Tensor,
    labels: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log(softmax(logits)[label]), as in PyTorch.

    logits           [N, C] or [N, C, d1, ...], not normalised
    labels           integers [N] or [N, d1, ...] in [0, C), or ignore_index
    weight           [C] or None: how much each class counts
    reduction        "mean" (weighted), "sum" or "none"
    label_smoothing  from 0 to 1: the share of the target spread evenly over all classes
    """
    if not isinstance(labels, Tensor):
        labels = wrap(node_of(labels, logits))
    if labels.dtype.kind not in "iu":
        fail(
            "type/cross_entropy.labels",
            f"labels must be integers, got {labels.dtype}",
            op="cross_entropy",
            tensors={"logits": logits.spec, "labels": labels.spec},
            hint="labels.long()",
        )
    if reduction not in ("mean", "sum", "none"):
        fail(
            "value/cross_entropy.reduction",
            f"there is no reduction {reduction!r}",
            op="cross_entropy",
            tensors={},
            expected='"mean", "sum" or "none"',
            hint='reduction="mean"',
        )
    if not 0 <= label_smoothing <= 1:
        fail(
            "value/cross_entropy.smoothing",
            f"label_smoothing lies in [0, 1], got {label_smoothing}",
            op="cross_entropy",
            tensors={},
            hint="label_smoothing=0.1",
        )
    weights = (
        ones(logits.shape[1], logits.device)
        if weight is None and logits.ndim > 1
        else node_of(1.0 if weight is None else weight, logits)
    )
    target = checked(labels, logits.shape[1] if logits.ndim > 1 else 1, ignore_index)
    losses = F.cross_entropy(
        logits.node,
        target,
        weights,
        node_of(float(label_smoothing), logits),
        ignore_index=whole(ignore_index, "cross_entropy"),
    )
    if reduction == "none":
        return wrap(losses)
    if reduction == "sum":
        return wrap(total(losses))
    counted = None if weight is None else F.alias(weights)  # settings: no gradient flows to them
    count = total(label_weights(F, target, counted, whole(ignore_index, "cross_entropy")))
    return wrap(F.div(total(losses), count))


def total(x: Node) -> Node:
    return F.sum(x, axes=tuple(range(len(x.shape))), keepdims=False)


def checked(labels: Tensor, C: int, ignore: int) -> Node:
    """Labels that are data are checked now, on the user's own line; others by the plan, before it
    stores anything."""
    node = labels.node
    if not isinstance(node.value, np.ndarray) or node.source:
        return runtime.guarded(
            F.check_index(node, limit=C, ignore=ignore, what="label", of="classes")
        )
    value = node.value
    if value.size and (value.min() < 0 or value.max() >= C):
        bad = np.argwhere(((value < 0) | (value >= C)) & (value != ignore))
        if len(bad):
            at, found = tuple(bad[0]), int(value[tuple(bad[0])])
            fail(
                "data/cross_entropy.range",
                f"label {found} at position {', '.join(str(int(i)) for i in at)} is outside "
                f"[0, {C})",
                op="cross_entropy",
                tensors={"labels": node.spec},
                error=DataError,
                expected=f"{C} classes, so 0 to {C - 1}, got {found}",
                hint=f"a last layer with {found + 1} outputs, if the data has so many classes"
                if found >= C
                else f"ignore_index={found}, if such labels mean nothing",
            )
    return node


def mse_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """(x - target)^2, elementwise, then its mean or sum ("none": neither)."""
    if tuple(x.shape) != tuple(target.shape):
        fail(
            "shape/mse_loss.shapes",
            "input and target have different shapes",
            op="mse_loss",
            tensors={"x": x.spec, "target": target.spec},
            hint=f"target.reshape({list(x.shape)})",
        )
    if reduction not in ("mean", "sum", "none"):
        fail(
            "value/mse_loss.reduction",
            f"there is no reduction {reduction!r}",
            op="mse_loss",
            tensors={},
            expected='"mean", "sum" or "none"',
            hint='reduction="mean"',
        )
    difference = x - target
    squares = difference * difference
    return (
        squares if reduction == "none" else squares.mean() if reduction == "mean" else squares.sum()
    )


class CrossEntropyLoss(Module):
    """cross_entropy as a layer of (logits, labels)."""

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        self.options = dict(
            ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
        )
        self.class_weight = [] if weight is None else [weight]

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        weight = self.class_weight[0] if self.class_weight else None
        return cross_entropy(logits, labels, weight, **self.options)
