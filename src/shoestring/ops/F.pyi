"""Signatures of all ops, as `F` builds them.

Written by `python -m shoestring.ops.stubs`: do not edit.
"""

from typing import Any

from ..ir import Node


# ---- conv ----
def conv2d(
    x: Node,
    w: Node,
    *,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0)),
) -> Node:
    """y[n,k,p,q] = sum_{c,r,s} x[n, c, p*stride_0 + r - top, q*stride_1 + s - left] * w[k,c,r,s], x
    being 0 outside."""
def conv2d_input_grad(
    dy: Node,
    w: Node,
    *,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0)),
    x_shape: tuple[int, ...] = (),
) -> Node:
    """dx[n,c,h,w] = sum_{k,r,s} dy[n,k,p,q] * w[k,c,r,s] over all p, q with p*stride + r - top = h
    (and so for w)."""
def conv2d_weight_grad(
    dy: Node,
    x: Node,
    *,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0)),
    w_shape: tuple[int, ...] = (),
) -> Node:
    """dw[k,c,r,s] = sum_{n,p,q} dy[n,k,p,q] * x[n, c, p*stride_0 + r - top, q*stride_1 + s -
    left]"""


# ---- copy ----
def concat(*xs: Node, axis: int = 0) -> Node:
    """y[..., start_k + i, ...] = x_k[..., i, ...] along `axis`."""
def copy(x: Node) -> Node:
    """y = x, laid out row by row without gaps."""
def pad(x: Node, *, widths: tuple[tuple[int, int], ...] = ()) -> Node:
    """y[before + i] = x[i], 0 elsewhere; widths = (before, after) per axis."""
def unslice(
    x: Node,
    *,
    index: tuple[tuple[int, int, int], ...] = (),
    to: tuple[int, ...] = (),
) -> Node:
    """y[index] = x, 0 elsewhere; y has the sizes `to`. The mirror of slice."""
def update_slice(x: Node, v: Node, *, index: tuple[tuple[int, int, int], ...] = ()) -> Node:
    """y[index] = v, elsewhere y = x: the value of x after x[index] = v."""


# ---- elementwise ----
def abs(x: Node) -> Node:
    """y = |x|"""
def absorb(dy: Node, factor: Node) -> Node:
    """y = 0 where dy = 0, else dy factor"""
def accumulate(a: Node, b: Node) -> Node:
    """y = a + b, in a kernel of its own: joined to the sums before and after it, it would keep all
    that they add up in memory until the last one is there."""
def add(a: Node, b: Node) -> Node:
    """y = a + b"""
def affine(x: Node, *, scale: float = 1.0, shift: float = 0.0) -> Node:
    """y = scale x + shift, with numbers that belong to a formula, such as those of 1 - x^2/2."""
def bitwise_and(a: Node, b: Node) -> Node:
    """y = a & b, bit by bit"""
def bitwise_or(a: Node, b: Node) -> Node:
    """y = a | b, bit by bit"""
def bitwise_xor(a: Node, b: Node) -> Node:
    """y = a ^ b, bit by bit"""
def cast(x: Node, *, to: str = 'float32') -> Node:
    """y = x as the type `to`: floats are cut towards 0 to integers; all but 0 is true."""
def clip(x: Node, low: Node, high: Node) -> Node:
    """y = min(max(x, low), high)"""
def cos(x: Node) -> Node:
    """y = cos x"""
def div(a: Node, b: Node) -> Node:
    """y = a / b"""
def equal(a: Node, b: Node) -> Node:
    """y = a == b"""
def erf(x: Node) -> Node:
    """y = 2/sqrt(pi) integral of e^(-t^2) from 0 to x"""
def exp(x: Node) -> Node:
    """y = e^x"""
def floor(x: Node) -> Node:
    """y = the largest whole number <= x"""
def gate(dy: Node, x: Node) -> Node:
    """y = 0 where x <= 0, else dy"""
def gelu(x: Node) -> Node:
    """y = x P(x), P(x) = (1 + erf(x / sqrt 2)) / 2: the normal distribution"""
def greater(a: Node, b: Node) -> Node:
    """y = a > b"""
def greater_equal(a: Node, b: Node) -> Node:
    """y = a >= b"""
def inside(x: Node, low: Node, high: Node) -> Node:
    """y = 1 where low <= x <= high, else 0"""
def leaky_gate(dy: Node, x: Node, slope: Node) -> Node:
    """y = dy where x > 0, else dy slope"""
def leaky_relu(x: Node, slope: Node) -> Node:
    """y = x where x > 0, else slope x"""
def less(a: Node, b: Node) -> Node:
    """y = a < b"""
def less_equal(a: Node, b: Node) -> Node:
    """y = a <= b"""
def log(x: Node) -> Node:
    """y = ln x"""
def logical_and(a: Node, b: Node) -> Node:
    """y = a and b"""
def logical_not(x: Node) -> Node:
    """y = not x"""
def logical_or(a: Node, b: Node) -> Node:
    """y = a or b"""
def maximum(a: Node, b: Node) -> Node:
    """y = max(a, b), NaN if either is"""
def minimum(a: Node, b: Node) -> Node:
    """y = min(a, b), NaN if either is"""
def mul(a: Node, b: Node) -> Node:
    """y = a b"""
def neg(x: Node) -> Node:
    """y = -x"""
def not_equal(a: Node, b: Node) -> Node:
    """y = a != b"""
def positive(x: Node) -> Node:
    """y = 1 where x > 0, else 0"""
def pow(a: Node, b: Node) -> Node:
    """y = a^b"""
def reciprocal(x: Node) -> Node:
    """y = 1 / x"""
def relu(x: Node) -> Node:
    """y = max(x, 0)"""
def rsqrt(x: Node) -> Node:
    """y = x^(-1/2)"""
def scale_shift(x: Node, mean: Node, scale: Node, shift: Node) -> Node:
    """y = (x - mean) scale + shift"""
def share(a: Node, b: Node) -> Node:
    """y = 0 where a < b, 1/2 where a = b, else 1: the part of max(a, b) that is a"""
def sigmoid(x: Node) -> Node:
    """y = 1 / (1 + e^-x)"""
def sign(x: Node) -> Node:
    """y = -1, 0 or 1"""
def silu(x: Node) -> Node:
    """y = x s(x), s(x) = 1 / (1 + e^-x)"""
def sin(x: Node) -> Node:
    """y = sin x"""
def softplus(x: Node) -> Node:
    """y = ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|)"""
def sqrt(x: Node) -> Node:
    """y = x^(1/2)"""
def sub(a: Node, b: Node) -> Node:
    """y = a - b"""
def tanh(x: Node) -> Node:
    """y = (e^x - e^-x) / (e^x + e^-x)"""
def where(condition: Node, a: Node, b: Node) -> Node:
    """y = a where the condition holds, else b"""


# ---- loss ----
def cross_entropy(
    logits: Node,
    labels: Node,
    weight: Node,
    smoothing: Node,
    *,
    ignore_index: int = -100,
) -> Node:
    """loss_n = -sum_c t[n,c] log softmax(x)[n,c],  t[n,c] = w[c] ((1-s) 1[c = label_n] + s/C);
    0 where label_n = ignore_index."""
def cross_entropy_both(
    dloss: Node,
    logits: Node,
    labels: Node,
    weight: Node,
    smoothing: Node,
    *,
    ignore_index: int = -100,
) -> tuple[Node, Node]:
    """loss = cross_entropy(x, ...), dx = cross_entropy_grad(dloss, x, ...) in one pass over x. The
    compiler puts it in place of the two (compile/pair.py)."""
def cross_entropy_grad(
    dloss: Node,
    logits: Node,
    labels: Node,
    weight: Node,
    smoothing: Node,
    *,
    ignore_index: int = -100,
) -> Node:
    """dx[n,c] = dloss_n (softmax(x)[n,c] sum_j t[n,j] - t[n,c]), t as in cross_entropy"""
def log_softmax(x: Node, *, axis: int = 0) -> Node:
    """y_i = x_i - log sum_j exp(x_j) along `axis`"""
def softmax(x: Node, *, axis: int = 0) -> Node:
    """y_i = exp(x_i) / sum_j exp(x_j) along `axis`"""


# ---- matmul ----
def matmul(a: Node, b: Node, *, transpose_a: bool = False, transpose_b: bool = False) -> Node:
    """y[..., m, n] = sum_k A[..., m, k] * B[..., k, n], A = a or its transpose, B = b or its
    transpose."""


# ---- norm ----
def moments(x: Node, *, axes: tuple[int, ...] = (0,)) -> tuple[Node, Node]:
    """mean = sum_axes x / M;  variance = sum_axes (x - mean)^2 / M"""
def sum_by_part(x: Node, *, within: tuple[int, ...] = ()) -> Node:
    """y[n, ...] = sum of x[m, ...] over all samples m in the part of the batch that n is in; the
    parts follow each other and have the sizes `within`."""


# ---- pool ----
def avg_pool2d(
    x: Node,
    *,
    kernel: tuple[int, int] = (2, 2),
    stride: tuple[int, int] = (2, 2),
    padding: tuple[int, int] = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Node:
    """y[n,c,p,q] = sum over the window of x / number of its elements (padding counted if
    count_include_pad)"""
def avg_pool2d_grad(
    dy: Node,
    *,
    kernel: tuple[int, int] = (2, 2),
    stride: tuple[int, int] = (2, 2),
    padding: tuple[int, int] = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    x_shape: tuple[int, ...] = (),
) -> Node:
    """dx[n,c,h,w] = sum of dy[n,c,p,q] / count(p, q) over all windows that hold h, w"""


# ---- pool_max ----
def max_pool2d(
    x: Node,
    *,
    kernel: tuple[int, int] = (2, 2),
    stride: tuple[int, int] = (2, 2),
    padding: tuple[int, int] = (0, 0),
    ceil_mode: bool = False,
) -> tuple[Node, Node]:
    """y[n,c,p,q] = max over the window of x;  position = r*S + s of the first place in the window
    with that value."""
def max_pool2d_gather(
    g: Node,
    position: Node,
    *,
    kernel: tuple[int, int] = (2, 2),
    stride: tuple[int, int] = (2, 2),
    padding: tuple[int, int] = (0, 0),
) -> Node:
    """y[n,c,p,q] = g[n,c,h,w] at the place h, w of window p, q (0 where it is padding)"""
def max_pool2d_grad(
    dy: Node,
    position: Node,
    *,
    x_shape: tuple[int, ...] = (),
    kernel: tuple[int, int] = (2, 2),
    stride: tuple[int, int] = (2, 2),
    padding: tuple[int, int] = (0, 0),
) -> Node:
    """dx[n,c,h,w] = sum of dy[n,c,p,q] over all windows p, q whose place position[n,c,p,q] is h, w;
    the order of the sum is that of p, then q"""
def max_pool2d_places(
    position: Node,
    *,
    kernel: tuple[int, int] = (2, 2),
    stride: tuple[int, int] = (2, 2),
    padding: tuple[int, int] = (0, 0),
    width: int = 1,
) -> Node:
    """y[n,c,p,q] = h*W + w of the place h, w of window p, q in an image W = width wide"""


# ---- position ----
def argmax(x: Node, *, axis: int = -1, keepdims: bool = False) -> Node:
    """y[k] = the first r along `axis` at which x[k, r] is largest; NaN is largest."""
def argmin(x: Node, *, axis: int = -1, keepdims: bool = False) -> Node:
    """y[k] = the first r along `axis` at which x[k, r] is smallest; NaN is smallest."""


# ---- random ----
def bernoulli(key: Node, p: Node, *, to: tuple[int, ...] = (), first: int = 0) -> Node:
    """y[i] = 1 if uniform(i) < p else 0, float32. p: one number, or one per element."""
def normal(key: Node, *, to: tuple[int, ...] = (), first: int = 0) -> Node:
    """y[2j], y[2j+1] = sqrt(-2 log u) (cos, sin)(2 pi v)."""
def uniform(key: Node, *, to: tuple[int, ...] = (), first: int = 0) -> Node:
    """y[i] = (word(seed, draw, i) >> 8) 2^-24: 24 random bits, in [0, 1)."""


# ---- reduce ----
def max(x: Node, *, axes: tuple[int, ...] | None = None, keepdims: bool = False) -> Node:
    """y[k] = max_r x[k, r]; NaN wins."""
def mean(x: Node, *, axes: tuple[int, ...] | None = None, keepdims: bool = False) -> Node:
    """y[k] = 1/n sum_r x[k, r], n the number of r; a float always, NaN where n = 0."""
def min(x: Node, *, axes: tuple[int, ...] | None = None, keepdims: bool = False) -> Node:
    """y[k] = min_r x[k, r]; NaN wins."""
def sum(x: Node, *, axes: tuple[int, ...] | None = None, keepdims: bool = False) -> Node:
    """y[k] = sum_r x[k, r]; integers and bool add up as int64."""
def sum_to(x: Node, *, to: tuple[int, ...] = ()) -> Node:
    """y = x summed over every axis along which y would be repeated to reach x. Undoes expand."""
def var(
    x: Node,
    *,
    axes: tuple[int, ...] | None = None,
    keepdims: bool = False,
    correction: float = 1,
) -> Node:
    """y[k] = 1/(n - correction) sum_r (x[k, r] - m[k])^2, m the mean; NaN where that is 0/0."""


# ---- reduce_products ----
def norm(x: Node, *, axes: tuple[int, ...] | None = None, keepdims: bool = False) -> Node:
    """y[k] = sqrt(sum_r x[k, r]^2); its gradient at 0 is 0."""
def prod(x: Node, *, axes: tuple[int, ...] | None = None, keepdims: bool = False) -> Node:
    """y[k] = product over r of x[k, r]."""


# ---- shape ----
def alias(x: Node) -> Node:
    """y = x, a constant as far as gradients are concerned."""
def expand(x: Node, *, to: tuple[int, ...] = ()) -> Node:
    """y[..., i, ...] = x[..., 0, ...] along axes of size 1 and new leading axes, up to `to`."""
def flip(x: Node, *, axes: tuple[int, ...] = ()) -> Node:
    """y[..., i, ...] = x[..., n - 1 - i, ...] along each of `axes`."""
def reshape(x: Node, *, to: tuple[int, ...] = ()) -> Node:
    """y.reshape(-1)[i] = x.reshape(-1)[i], with the sizes `to`."""
def slice(x: Node, *, index: tuple[tuple[int, int, int], ...] = ()) -> Node:
    """y[i, j, ...] = x[start_0 + i*step_0, start_1 + j*step_1, ...]."""
def transpose(x: Node, *, axes: tuple[int, ...] = ()) -> Node:
    """y[i_axes[0], i_axes[1], ...] = x[i_0, i_1, ...]: axis k of y is axis axes[k] of x."""


# ---- state ----
def check_finite(
    x: Node,
    *,
    what: str = 'value',
    hint: str = 'a smaller learning rate, or clip_grad_norm_ with a smaller max_norm',
    first: int = 0,
) -> Node:
    """y = x; error if x holds a NaN or an infinity. what: how the message calls x, such as
    "gradient of conv1.weight"."""
def check_index(
    x: Node,
    *,
    limit: int = 1,
    ignore: int | None = None,
    what: str = 'index',
    of: str = 'entries',
    first: int = 0,
    gradient: Any = None,
) -> Node:
    """y = x; error unless every x is in [0, limit), or equal to `ignore` where that is given."""
def store(x: Node) -> Node:
    """y = x, as the new version of a state."""


# ---- take ----
def put_add(x: Node, indices: Node, *, axis: int = 0, to: tuple[int, ...] = ()) -> Node:
    """y[a, j, b] = sum over i with indices[i] = j of x[a, i, b]; y has the sizes `to`."""
def take(x: Node, indices: Node, *, axis: int = 0) -> Node:
    """y[a, i, b] = x[a, indices[i], b]; the axes of `indices` take the place of `axis`."""
