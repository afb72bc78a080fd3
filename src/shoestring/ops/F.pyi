"""Signatures of all ops, as `F` builds them. Written by `python -m shoestring.ops.stubs`: do not edit."""

from ..ir import Node


# ---- copy ----
def concat(*xs: Node, axis: int = 0) -> Node:
    """y[..., start_k + i, ...] = x_k[..., i, ...] along `axis`, start_k the sum of the sizes before x_k."""
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


# ---- position ----
def argmax(x: Node, *, axis: int = -1, keepdims: bool = False) -> Node:
    """y[k] = the first r along `axis` at which x[k, r] is largest; NaN is largest."""
def argmin(x: Node, *, axis: int = -1, keepdims: bool = False) -> Node:
    """y[k] = the first r along `axis` at which x[k, r] is smallest; NaN is smallest."""


# ---- random ----
def bernoulli(key: Node, p: Node, *, to: tuple[int, ...] = ()) -> Node:
    """y[i] = 1 if uniform(i) < p else 0, float32. p: one number, or one per element."""
def normal(key: Node, *, to: tuple[int, ...] = ()) -> Node:
    """y[2j], y[2j+1] = sqrt(-2 log u) (cos, sin)(2 pi v), u = (word(2j) + 1) 2^-32, v = (word(2j+1) >> 8) 2^-24."""
def uniform(key: Node, *, to: tuple[int, ...] = ()) -> Node:
    """y[i] = (word(seed, draw, i) >> 8) 2^-24: 24 random bits, in [0, 1)."""


# ---- reduce ----
def max(x: Node, *, axes: tuple[int, ...] | None = None, keepdims: bool = False) -> Node:
    """y[k] = max_r x[k, r]; NaN wins."""
def mean(x: Node, *, axes: tuple[int, ...] | None = None, keepdims: bool = False) -> Node:
    """y[k] = 1/n sum_r x[k, r], n the number of r; a float always, NaN where n = 0."""
def min(x: Node, *, axes: tuple[int, ...] | None = None, keepdims: bool = False) -> Node:
    """y[k] = min_r x[k, r]; NaN wins."""
def norm(x: Node, *, axes: tuple[int, ...] | None = None, keepdims: bool = False) -> Node:
    """y[k] = sqrt(sum_r x[k, r]^2); its gradient at 0 is 0."""
def prod(x: Node, *, axes: tuple[int, ...] | None = None, keepdims: bool = False) -> Node:
    """y[k] = product over r of x[k, r]."""
def sum(x: Node, *, axes: tuple[int, ...] | None = None, keepdims: bool = False) -> Node:
    """y[k] = sum_r x[k, r]; integers and bool add up as int64."""
def sum_to(x: Node, *, to: tuple[int, ...] = ()) -> Node:
    """y = x summed over every axis along which an array of sizes `to` would be repeated to reach x. Undoes expand."""
def var(
    x: Node,
    *,
    axes: tuple[int, ...] | None = None,
    keepdims: bool = False,
    correction: float = 1,
) -> Node:
    """y[k] = 1/(n - correction) sum_r (x[k, r] - m[k])^2, m the mean; NaN where n <= correction and nothing varies."""


# ---- shape ----
def alias(x: Node) -> Node:
    """y = x, a constant as far as gradients are concerned."""
def expand(x: Node, *, to: tuple[int, ...] = ()) -> Node:
    """y[..., i, ...] = x[..., 0, ...] along axes of size 1 and along new leading axes, up to the sizes `to`."""
def flip(x: Node, *, axes: tuple[int, ...] = ()) -> Node:
    """y[..., i, ...] = x[..., n - 1 - i, ...] along each of `axes`."""
def reshape(x: Node, *, to: tuple[int, ...] = ()) -> Node:
    """y.reshape(-1)[i] = x.reshape(-1)[i], with the sizes `to`."""
def slice(x: Node, *, index: tuple[tuple[int, int, int], ...] = ()) -> Node:
    """y[i, j, ...] = x[start_0 + i*step_0, start_1 + j*step_1, ...], index[k] = (start, stop, step) as in range()."""
def transpose(x: Node, *, axes: tuple[int, ...] = ()) -> Node:
    """y[i_axes[0], i_axes[1], ...] = x[i_0, i_1, ...]: axis k of y is axis axes[k] of x."""


# ---- state ----
def check_finite(
    x: Node,
    *,
    what: str = 'value',
    hint: str = 'a smaller learning rate, or clip_grad_norm_ with a smaller max_norm',
) -> Node:
    """y = x; error if x holds a NaN or an infinity. what: how the message calls x, such as "gradient of conv1.weight"."""
def check_index(
    x: Node,
    *,
    limit: int = 1,
    ignore: int | None = None,
    what: str = 'index',
    of: str = 'entries',
) -> Node:
    """y = x; error unless every x is in [0, limit), or equal to `ignore` where that is given."""
def store(x: Node) -> Node:
    """y = x, as the new version of a state."""


# ---- take ----
def put_add(x: Node, indices: Node, *, axis: int = 0, to: tuple[int, ...] = ()) -> Node:
    """y[a, j, b] = sum over i with indices[i] = j of x[a, i, b]; y has the sizes `to`. The mirror of take."""
def take(x: Node, indices: Node, *, axis: int = 0) -> Node:
    """y[a, i, b] = x[a, indices[i], b] along `axis`; indices of any shape take the place of that axis."""
