"""Softmax, its logarithm, and cross entropy.

    softmax        y = exp(x - max) / sum exp(x - max)
    log_softmax    y = x - max - log sum exp(x - max)
    cross_entropy  one loss per sample; the mean or sum over samples is taken outside (nn/loss.py),
                   where the mean divides by the sum of `label_weights`

Where a plan needs the losses and their gradient, one kernel computes both (CrossEntropyBoth); for
that the divisor of the mean may depend on nothing but labels and weights.

Subtracting the largest value changes nothing but keeps exp() from overflowing. Kernels: loss.cpp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..backends import Kernel, Launch
from ..ir import MIXED, Case, Cost, Node, Op, leaf, promote_float
from .layout import MAX_AXES, merged


def shifted(x: np.ndarray, axis: int) -> np.ndarray:
    return x - x.max(axis, keepdims=True) if x.size else x


def rows(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """(outer, size of the axis, inner): the sizes that kernels take."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


class AlongAxis(Op):
    """One distribution along `axis` for each of the other places."""

    kind, cheap_to_recompute = "kernel", False
    axis: int

    def shape(self, x):
        if not 0 <= self.axis < len(x):
            self.fail(
                "shape/softmax.axis",
                f"there is no axis {self.axis} among {len(x)}",
                hint="axis=-1 is the last",
            )
        return x

    def dtype(self, x):
        return promote_float(x)

    def batch_axis(self, axes, x):
        return MIXED if axes[0] == self.axis else axes[0]

    def terms(self, x):
        return x[self.axis]

    def launch_cpu(self, device, inputs, outputs):
        (x,) = inputs
        if x.dtype != np.float32:
            return None
        return Launch((Kernel(self.name, (0, 1), rows(x.shape, self.axis)),))

    def cost(self, x):
        return Cost(5.0 * math.prod(x), 8.0 * math.prod(x))


@dataclass(frozen=True, eq=False)
class Softmax(AlongAxis):
    """y_i = exp(x_i) / sum_j exp(x_j) along `axis`"""

    name = "softmax"
    axis: int = 0
    cases = (
        Case([(3, 5)], dict(axis=1)),
        Case([(2, 4, 3)], dict(axis=1)),
        Case([(4,)], dict(axis=0)),
    )

    def reference(self, x):
        e = np.exp(shifted(x, self.axis))
        return e / e.sum(self.axis, keepdims=True)

    def gradient(self, F, dy, y, x):
        """dy_j/dx_i = y_j (1[i=j] - y_i), so dx_i = y_i (dy_i - sum_j dy_j y_j): the second term is
        what the common denominator gives back."""
        weighted = F.mul(dy, y)
        total = F.sum(weighted, axes=(self.axis,), keepdims=True)
        return (F.sub(weighted, F.mul(y, total)),)


@dataclass(frozen=True, eq=False)
class LogSoftmax(AlongAxis):
    """y_i = x_i - log sum_j exp(x_j) along `axis`"""

    name = "log_softmax"
    axis: int = 0
    cases = (
        Case([(3, 5)], dict(axis=1)),
        Case([(2, 4, 3)], dict(axis=1)),
        Case([(4,)], dict(axis=0)),
    )

    def reference(self, x):
        x = shifted(x, self.axis)
        with np.errstate(divide="ignore"):  # of nothing: log 0, which nobody reads
            return x - np.log(np.exp(x).sum(self.axis, keepdims=True))

    def gradient(self, F, dy, y, x):
        """dy_j/dx_i = 1[i=j] - exp(y_i), so dx_i = dy_i - exp(y_i) sum_j dy_j."""
        return (F.sub(dy, F.mul(F.exp(y), F.sum(dy, axes=(self.axis,), keepdims=True))),)


class OverClasses(Op):
    """What cross entropy and its gradient share: logits [N, C, ...], labels [N, ...], weight [C],
    smoothing []."""

    kind, cheap_to_recompute = "kernel", False
    constant_inputs = ("weight", "smoothing")  # settings: no gradient flows to them, as in PyTorch
    ignore_index: int

    def agree(self, logits, labels, weight, smoothing):
        if len(logits) < 2:
            self.fail(
                "shape/cross_entropy.rank",
                f"needs logits [N, C] or [N, C, ...], got {list(logits)}",
                hint="logits.unsqueeze(0)",
            )
        if logits[1] == 0:
            self.fail(
                "shape/cross_entropy.classes",
                "there are no classes",
                expected=f"at least 1 class on axis 1, got logits {list(logits)}",
                hint="a last layer with as many outputs as there are classes",
            )
        expected = (logits[0], *logits[2:])
        if labels != expected:
            self.fail(
                "shape/cross_entropy.labels",
                f"logits {list(logits)} need labels {list(expected)}, got {list(labels)}",
                expected=f"one label per row of logits, {list(expected)}",
                hint="labels.reshape(-1)"
                if math.prod(labels) == math.prod(expected)
                else "as many labels as there are rows of logits",
            )
        if weight != (logits[1],) or smoothing != ():
            self.fail(
                "shape/cross_entropy.weight",
                f"there are {logits[1]} classes, the weight is {list(weight)}",
                expected=f"weight [{logits[1]}]",
                hint=f"ss.ones({logits[1]})",
            )

    def parts(self, logits, labels, weight, smoothing):
        """What both references need: log-probabilities, one-hot targets with smoothing and weights,
        kept samples, [N, 1, ...]."""
        C = logits.shape[1]
        kept = (labels != self.ignore_index) & (labels >= 0) & (labels < C)
        at = np.where(kept, labels, 0)
        hot = np.moveaxis(np.eye(C, dtype=logits.dtype)[at], -1, 1)
        broad = weight.reshape(1, C, *[1] * (logits.ndim - 2))
        target = ((1 - smoothing) * hot + smoothing / C) * broad * np.expand_dims(kept, 1)
        x = shifted(logits, 1)
        log_probability = x - np.log(np.exp(x).sum(1, keepdims=True))
        return log_probability, target, np.expand_dims(kept, 1)

    def losses(self, logits, labels, weight, smoothing):
        log_probability, target, _ = self.parts(logits, labels, weight, smoothing)
        with np.errstate(invalid="ignore"):
            terms = np.where(target == 0, 0, target * log_probability)
        return -terms.sum(1)

    def slopes(self, dloss, logits, labels, weight, smoothing):
        log_probability, target, kept = self.parts(logits, labels, weight, smoothing)
        slope = np.exp(log_probability) * target.sum(1, keepdims=True) - target
        with np.errstate(invalid="ignore"):
            return np.where(kept, np.expand_dims(dloss, 1) * slope, 0)

    def numbers(self, logits, labels) -> tuple[int, ...]:
        return (*rows(logits.shape, 1), labels.dtype.itemsize, self.ignore_index)

    def native(self, device, operands) -> bool:
        return operands[-3].dtype.name in ("int64", "int32", "uint8") and all(
            o.dtype == np.float32 for o in (*operands[:-3], *operands[-2:])
        )


@dataclass(frozen=True, eq=False)
class CrossEntropy(OverClasses):
    """loss_n = -sum_c t[n,c] log softmax(x)[n,c],  t[n,c] = w[c] ((1-s) 1[c = label_n] + s/C);
    0 where label_n = ignore_index.

    A label outside [0, C) counts as ignored: `check_index` reports it."""

    name = "cross_entropy"
    ignore_index: int = -100
    cases = (
        Case(
            [(4, 3), (4,), (3,), ()],
            {},
            ("any", "labels 3", "positive", "=0.1"),
            ("float32", "int64", "float32", "float32"),
        ),
        Case(
            [(2, 3, 2), (2, 2), (3,), ()],
            dict(ignore_index=1),
            ("any", "labels 3", "positive", "=0"),
            ("float32", "int32", "float32", "float32"),
        ),
        Case(
            [(3, 4), (3,), (4,), ()],
            {},
            ("any", "labels 4", "=1", "=0"),
            ("float32", "uint8", "float32", "float32"),
        ),
    )

    def shape(self, logits, labels, weight, smoothing):
        self.agree(logits, labels, weight, smoothing)
        return labels

    def dtype(self, logits, labels, weight, smoothing):
        if labels.kind not in "iu":
            self.fail(
                "type/cross_entropy.op",
                f"labels must be integers, got {labels}",
                hint="labels.long()",
            )
        return promote_float(logits)

    def batch_axis(self, axes, logits, labels, weight, smoothing):
        return 0 if axes == (0, 0, None, None) else None if axes == (None,) * 4 else MIXED

    def terms(self, logits, *others):
        return logits[1]

    def reference(self, logits, labels, weight, smoothing):
        return self.losses(logits, labels, weight, smoothing)

    def gradient(self, F, dy, y, logits, labels, weight, smoothing):
        """loss_n = -sum_c t_c (x_c - log sum exp x), so dx_c = dloss_n (softmax_c sum_j t_j - t_c):
        the first term is what every logit adds to the normaliser, the second what the target
        takes."""
        dx = F.cross_entropy_grad(
            dy, logits, labels, weight, smoothing, ignore_index=self.ignore_index
        )
        return dx, None, None, None

    def merge(self, others):
        (other,) = others
        same = isinstance(other, CrossEntropyGrad) and other.ignore_index == self.ignore_index
        return CrossEntropyBoth(self.ignore_index) if same else None

    def launch_cpu(self, device, inputs, outputs):
        if not self.native(device, inputs):
            return None
        return Launch((Kernel("cross_entropy", (0, 1, 2, 3, 4), self.numbers(*inputs[:2])),))

    def cost(self, logits, *others):
        return Cost(6.0 * math.prod(logits), 4.0 * math.prod(logits))


def ones(F, like):
    """1 everywhere, in the shape and type of a node."""
    return F.expand(leaf(np.ones((), like.dtype), device=like.device), to=like.shape)


def label_weights(F, labels: Node, weight: Node | None, ignore_index: int) -> Node:
    """weight[label_n], or 1 if weight is None; 0 where label_n = ignore_index: what each sample
    counts in the mean. Of labels and weights alone."""
    ignored = leaf(np.asarray(ignore_index, np.int64), device=labels.device)
    if weight is None:
        return F.cast(F.not_equal(labels, ignored), to="float32")
    nothing = leaf(np.zeros((), weight.dtype), device=labels.device)
    return F.where(F.equal(labels, ignored), nothing, F.take(weight, labels, axis=0))


class WithGradient(OverClasses):
    """What reads dloss [N, ...] too, at any strides: of a mean or sum it is one number."""

    def takes_strides(self, k):
        return k == 0

    def agree_with(self, dloss, logits, labels, weight, smoothing):
        self.agree(logits, labels, weight, smoothing)
        if dloss != labels:
            self.fail(
                "shape/cross_entropy_grad.dloss",
                f"dloss {list(dloss)} and labels {list(labels)} differ",
                hint="one gradient per label",
            )

    def apart(self, axes):
        return 0 if axes == (0, 0, 0, None, None) else None if axes == (None,) * 5 else MIXED

    def terms(self, dloss, logits, *others):
        return logits[1]

    def launched(self, device, inputs, entry: str, buffers: int) -> Launch | None:
        dloss, logits, labels, *_ = inputs
        axes = merged(list(zip(dloss.shape, dloss.strides, strict=True))) or [(1, 0)]
        if not self.native(device, inputs) or len(axes) > MAX_AXES:
            return None
        sizes, strides = zip(*axes, strict=True)
        numbers = (*self.numbers(logits, labels), len(axes), *sizes, *strides)
        return Launch((Kernel(entry, tuple(range(buffers)), numbers),))


@dataclass(frozen=True, eq=False)
class CrossEntropyGrad(WithGradient):
    """dx[n,c] = dloss_n (softmax(x)[n,c] sum_j t[n,j] - t[n,c]), t as in cross_entropy"""

    name = "cross_entropy_grad"
    ignore_index: int = -100
    cases = (
        Case(
            [(4,), (4, 3), (4,), (3,), ()],
            {},
            ("any", "any", "labels 3", "positive", "=0.1"),
            ("float32", "float32", "int64", "float32", "float32"),
        ),
        Case(
            [(2, 2), (2, 3, 2), (2, 2), (3,), ()],
            dict(ignore_index=1),
            ("any", "any", "labels 3", "positive", "=0"),
            ("float32", "float32", "int32", "float32", "float32"),
        ),
    )

    def shape(self, dloss, logits, labels, weight, smoothing):
        self.agree_with(dloss, logits, labels, weight, smoothing)
        return logits

    def dtype(self, dloss, logits, labels, weight, smoothing):
        return promote_float(logits)

    def batch_axis(self, axes, *shapes):
        return self.apart(axes)

    def reference(self, dloss, logits, labels, weight, smoothing):
        return self.slopes(dloss, logits, labels, weight, smoothing)

    def gradient(self, F, g, dx, dloss, logits, labels, weight, smoothing):
        """dx = dloss * slope(x). In dloss it is linear: ddloss_n = sum_c g_c slope_c. In x only the
        softmax p moves: dx_c = dloss T p_c - ..., T = sum_j t_j, and p's own rule gives dloss T p_i
        (g_i - sum_c g_c p_c)."""
        one = F.cross_entropy_grad(
            ones(F, dloss), logits, labels, weight, smoothing, ignore_index=self.ignore_index
        )
        ddloss = F.reshape(F.sum(F.mul(g, one), axes=(1,), keepdims=True), to=dloss.shape)
        p = F.softmax(logits, axis=1)
        along = (dloss.shape[0], 1, *dloss.shape[1:])
        total = F.reshape(F.mul(dloss, self.mass(F, labels, weight, smoothing, logits)), to=along)
        inner = F.sub(g, F.sum(F.mul(g, p), axes=(1,), keepdims=True))
        return ddloss, F.mul(F.mul(p, inner), total), None, None, None

    def mass(self, F, labels, weight, smoothing, logits):
        """T_n = sum_c t[n,c] = (1-s) w[label_n] + s mean(w), 0 where ignored."""
        chosen = label_weights(F, labels, weight, self.ignore_index)
        kept = label_weights(F, labels, ones(F, weight), self.ignore_index)
        mean = F.mul(F.mean(weight, axes=(0,), keepdims=False), smoothing)
        return F.add(F.mul(chosen, F.sub(ones(F, smoothing), smoothing)), F.mul(kept, mean))

    def launch_cpu(self, device, inputs, outputs):
        return self.launched(device, inputs, "cross_entropy_grad", 6)

    def cost(self, dloss, logits, *others):
        return Cost(6.0 * math.prod(logits), 8.0 * math.prod(logits))


@dataclass(frozen=True, eq=False)
class CrossEntropyBoth(WithGradient):
    """loss = cross_entropy(x, ...), dx = cross_entropy_grad(dloss, x, ...) in one pass over x. The
    compiler puts it in place of the two (compile/pair.py)."""

    name, outputs, gradient = "cross_entropy_both", 2, None
    ignore_index: int = -100
    cases = CrossEntropyGrad.cases

    def shape(self, dloss, logits, labels, weight, smoothing):
        self.agree_with(dloss, logits, labels, weight, smoothing)
        return labels, logits

    def dtype(self, dloss, logits, labels, weight, smoothing):
        return (promote_float(logits),) * 2

    def batch_axis(self, axes, *shapes):
        return (self.apart(axes),) * 2

    def reference(self, dloss, logits, labels, weight, smoothing):
        losses = self.losses(logits, labels, weight, smoothing)
        return losses, self.slopes(dloss, logits, labels, weight, smoothing)

    def launch_cpu(self, device, inputs, outputs):
        return self.launched(device, inputs, "cross_entropy_both", 7)

    def cost(self, dloss, logits, *others):
        return Cost(9.0 * math.prod(logits), 8.0 * math.prod(logits))
