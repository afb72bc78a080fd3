"""What sizes, axes, indices and types functions accept: as NumPy and PyTorch, and else an error."""

import numpy as np
import pytest

import shoestring as ss

X = np.arange(6, dtype="f4").reshape(2, 3)


class Whole:
    """What Python takes for an integer."""

    def __index__(self):
        return 1


def x():
    return ss.tensor(X)


# ---- sizes ---------------------------------------------------------------------------------------
SIZED = {
    "reshape": lambda n: ss.zeros(2).reshape(n, 2),
    "view": lambda n: ss.zeros(2).view(n, 2),
    "expand": lambda n: ss.zeros(1).expand(n),
    "zeros": lambda n: ss.zeros(n),
    "ones": lambda n: ss.ones((n, 2)),
    "full": lambda n: ss.full(n, 0),
    "full of a tuple": lambda n: ss.full((2, n), 0),
    "eye": lambda n: ss.eye(n),
    "normal": lambda n: ss.normal(2, n),
    "uniform": lambda n: ss.uniform(n),
    "bernoulli": lambda n: ss.bernoulli([n]),
    "pad": lambda n: ss.pad(ss.zeros(2), [(n, 0)]),
}


@pytest.mark.parametrize("name", SIZED)
def test_sizes_are_whole_numbers(name):
    for good in (1, np.int64(1), np.uint8(1), Whole(), ss.tensor(1)):
        SIZED[name](good)
    for bad in (1.0, 2.9, np.float32(1), "1", None, [1.0], np.array([1, 2])):
        with pytest.raises(TypeError) as caught:
            SIZED[name](bad)
        assert isinstance(caught.value, ss.ShoestringError)
    with pytest.raises((ValueError, TypeError)) as caught:
        SIZED[name](-2)
    assert isinstance(caught.value, ss.ShoestringError)


def test_a_refused_draw_draws_nothing():
    ss.seed(0)
    with pytest.raises(TypeError):
        ss.normal(0.0, 1.0)
    first = ss.normal(3).tolist()
    ss.seed(0)
    assert ss.normal(3).tolist() == first


@pytest.mark.parametrize("shape", [(0, 3), (2, 3), (6,), (0,), ()])
@pytest.mark.parametrize(
    "to", [(-1,), (-1, 3), (3, -1), (-1, 0), (0, -1), (2, -1, 3), (-1, -1), (4, -1), ()]
)
def test_reshape_accepts_what_numpy_accepts(shape, to):
    a = np.zeros(shape, "f4")
    try:
        want = a.reshape(to).shape
    except ValueError:
        with pytest.raises(ValueError) as caught:
            ss.tensor(a).reshape(to)
        assert isinstance(caught.value, ss.ShoestringError)
    else:
        assert ss.tensor(a).reshape(to).shape == ss.tensor(a).reshape(*to).shape == want


def test_only_minus_one_stands_for_what_is_left():
    for bad in ((-2, 3), (-3,), (2, -6)):
        with pytest.raises(ValueError, match="below -1"):
            ss.zeros(6).reshape(bad)


def test_expand_keeps_sizes_with_minus_one():
    a = ss.zeros(2, 1)
    assert a.expand(-1, 4).shape == (2, 4) and a.expand(3, -1, 4).shape == (3, 2, 4)
    for bad in ((-1, -1, 4), (2, -2), (4,)):
        with pytest.raises(ValueError):
            a.expand(bad)


# ---- axes ----------------------------------------------------------------------------------------
ONE = {
    "argmax": lambda x, a: x.argmax(a),
    "argmin": lambda x, a: x.argmin(dim=a),
    "softmax": ss.softmax,
    "log_softmax": ss.log_softmax,
    "concat": lambda x, a: ss.concat([x, x], a),
    "flatten": lambda x, a: x.flatten(a),
    "unsqueeze": lambda x, a: x.unsqueeze(a),
    "stack": lambda x, a: ss.stack([x, x], a),
}
SEVERAL = {
    "sum": lambda x, a: x.sum(a),
    "mean": lambda x, a: x.mean(dim=a),
    "max": lambda x, a: x.max(a),
    "min": lambda x, a: x.min(a),
    "var": lambda x, a: x.var(a),
    "std": lambda x, a: x.std(a),
    "any": lambda x, a: x.any(a),
    "all": lambda x, a: x.all(a),
    "squeeze": lambda x, a: x.squeeze(a),
    "flip": lambda x, a: x.flip(a),
}
NEW = ("unsqueeze", "stack")  # which have one axis more to choose from


@pytest.mark.parametrize("name", [*ONE, *SEVERAL])
def test_axes_are_whole_numbers_within_the_rank(name):
    f, rank = ({**ONE, **SEVERAL})[name], 2 + (name in NEW)
    for good in (*range(-rank, rank), np.int32(1), Whole(), ss.tensor(-1)):
        f(x(), good)
    for bad in (rank, -rank - 1, 5):
        with pytest.raises(ValueError) as caught:
            f(x(), bad)
        assert isinstance(caught.value, ss.ShoestringError)
    for bad in (0.0, 1.5, "0", (0.5,), (1.0, 0)):
        with pytest.raises(TypeError) as caught:
            f(x(), bad)
        assert isinstance(caught.value, ss.ShoestringError)


@pytest.mark.parametrize("name", ONE)
def test_one_axis_is_one(name):
    for bad in ((0, 1), [0], (0,)):
        with pytest.raises(TypeError) as caught:
            ONE[name](x(), bad)
        assert isinstance(caught.value, ss.ShoestringError)


@pytest.mark.parametrize("name", SEVERAL)
def test_several_axes_are_each_named_once(name):
    SEVERAL[name](x(), (0, -1))
    for bad in ((0, 0), (1, -1)):
        with pytest.raises(ValueError):
            SEVERAL[name](x(), bad)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "concat", "stack", "unsqueeze"])
def test_no_axis_is_not_the_first(name):
    with pytest.raises(TypeError):
        ONE[name](x(), None)


def test_transpose_takes_whole_numbers():
    assert x().transpose(np.int64(1), Whole().__index__() - 1).shape == (3, 2)
    for bad in ((0.0, 1), (1.5, 0), ("0", 1)):
        with pytest.raises(TypeError):
            x().transpose(*bad)
    for bad in ((0, 0), (0, 2), (0,), (0, 1, 2)):
        with pytest.raises(ValueError):
            x().transpose(*bad)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("shape", [(2, 3), (4,), (), (1, 2, 3)])
def test_places_in_the_whole_tensor_keep_all_axes(name, shape):
    a = np.random.default_rng(0).normal(size=shape).astype("f4")
    for keep in (False, True):
        found = getattr(ss.tensor(a), name)(keepdims=keep).numpy()
        want = getattr(np, name)(a, keepdims=keep)
        assert found.shape == want.shape and found.tolist() == want.tolist()


def test_both_spellings_must_agree():
    assert x().sum(axis=0, dim=0).shape == (3,)
    for f in (lambda: x().sum(0, dim=1), lambda: x().argmax(0, dim=1), lambda: x().flip(0, dim=1)):
        with pytest.raises(ValueError):
            f()


# ---- indices -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "index",
    [
        [],
        [[]],
        (slice(None), []),
        (None, [0, 1]),
        (slice(None), None, [2, 0]),
        ([1, 0], None),
        (..., [1], None),
        ([[0, 1], [1, 1]], slice(None), None),
        np.array([1, 0], ">i4"),
        np.array([1, 0], "u8"),
        np.array([], "i8"),
        (None, 1),
    ],
    ids=repr,
)
def test_indices_as_in_numpy(index):
    want = X[index]
    found = x()[index].numpy()
    assert found.shape == want.shape
    np.testing.assert_array_equal(found, want)


def test_empty_float_arrays_are_no_indices():
    for bad in (np.array([]), [0.0], np.zeros((0, 2), "f4"), 1.0):
        with pytest.raises(TypeError):
            x()[bad]


def test_numbers_written_into_a_tensor_fit_it():
    y = ss.tensor([1, 2], dtype="uint8")
    y[0] = 255
    with pytest.raises(OverflowError):
        y[1] = 256
    for bad in (-1, 1e30, float("nan"), [300], np.array([-1])):
        with pytest.raises(OverflowError):
            y[1] = bad
        with pytest.raises(OverflowError):
            y[0:1] = bad
    y[1] = 2.7
    assert y.tolist() == [255, 2]
    y[:] = ss.tensor([256 + 7, 8])  # a tensor's values are cast, as by astype
    assert y.tolist() == [7, 8]
    flags = ss.tensor([True, False])
    flags[1] = 5
    assert flags.dtype == np.bool_ and flags.tolist() == [True, True]


FUNCTIONS = [
    lambda a: ss.exp(a),
    lambda a: ss.maximum(a, a),
    lambda a: ss.where(a, a, a),
    lambda a: ss.clip(a, 0, 1),
    lambda a: ss.reshape(a, -1),
    lambda a: ss.flatten(a),
    lambda a: ss.transpose(a),
    lambda a: ss.concat([a, a]),
    lambda a: ss.stack([a, a]),
    lambda a: ss.pad(a, [(1, 0), (0, 1)]),
    lambda a: ss.matmul(a, ss.transpose(a)),
    lambda a: ss.sum(a, 0),
    lambda a: ss.mean(a),
    lambda a: ss.var(a),
    lambda a: ss.argmax(a, 1),
    lambda a: ss.softmax(a),
    lambda a: ss.log_softmax(a),
    lambda a: ss.relu(a),
    lambda a: ss.leaky_relu(a),
    lambda a: ss.gelu(a),
]


@pytest.mark.parametrize("f", FUNCTIONS)
def test_functions_take_arrays_and_lists_for_tensors(f):
    want = f(x())
    for given in (X, X.tolist(), X.astype("f8")):
        found = f(given)
        assert found.dtype == want.dtype and found.tolist() == want.tolist()


# ---- types of data -------------------------------------------------------------------------------
MADE = {
    "tensor": lambda d, on: ss.tensor([1, 2], dtype=d, device=on),
    "zeros": lambda d, on: ss.zeros(2, dtype=d, device=on),
    "ones": lambda d, on: ss.ones(2, dtype=d, device=on),
    "full": lambda d, on: ss.full((2,), 1, dtype=d, device=on),
    "eye": lambda d, on: ss.eye(2, dtype=d, device=on),
    "arange": lambda d, on: ss.arange(2, dtype=d, device=on),
    "Variable": lambda d, on: ss.Variable([1, 2], dtype=d, device=on),
    "astype": lambda d, on: ss.tensor([1, 2], device=on).astype(d),
    "to": lambda d, on: ss.tensor([1, 2], device=on).to(d),
}
TYPES = ["float32", "int64", "int32", "uint8", "bool"]


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_every_type_by_every_way(name, dtype, device):
    for spelt in (dtype, np.dtype(dtype), np.dtype(dtype).type, np.dtype(dtype).newbyteorder(">")):
        made = MADE[name](spelt, device)
        assert made.dtype == dtype and made.device == device
        assert made.numpy().dtype == dtype and made.numpy().dtype.isnative


@pytest.mark.parametrize("name", MADE)
def test_types_that_a_device_lacks(name):
    assert MADE[name]("float64", "reference").dtype == np.float64
    for wide in ("float64", np.float64, float):
        with pytest.raises(TypeError, match="reference"):
            MADE[name](wide, "cpu")
    for device in ("cpu", "reference"):
        for absent in ("float16", np.int16, "uint64", "complex64"):
            with pytest.raises(TypeError, match="one of float32"):
                MADE[name](absent, device)
    if name != "to":  # where a word may be a device, too
        with pytest.raises(TypeError, match='dtype="float32"'):
            MADE[name]("flot32", "cpu")


def test_float64_data_without_a_type_is_float32():
    assert ss.tensor(np.ones(2)).dtype == np.float32
    assert ss.tensor(np.ones(2), device="reference").dtype == np.float32
    wide = ss.tensor([1.0, 2.0], dtype="float64", device="reference")
    assert ss.tensor(wide).dtype == np.float64 and wide.to("cpu").dtype == np.float32
    assert ss.zeros_like(wide).dtype == np.float64
    assert (wide * 0.1).tolist() == [0.1, 0.2] == (wide * np.float64(0.1)).tolist()
    assert (wide + np.array([0.1, 0.1])).tolist() == [1.1, 2.1]


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])
@pytest.mark.parametrize("order", "<>")
def test_arrays_of_either_byte_order(kind, order):
    a = np.array([[1, 2], [3, 4]], order + kind)
    want = a.astype("f4").tolist()
    assert ss.tensor(a).tolist() == want and ss.tensor(a.T, dtype="float32").dtype == np.float32
    assert (ss.zeros(2, 2) + a).tolist() == want and (a + ss.zeros(2, 2)).tolist() == want
    assert ss.Variable(a).tolist() == want and ss.maximum(ss.zeros(2, 2), a).tolist() == want
    assert ss.compile(lambda t: t * 1)(a).tolist() == want
    v = ss.Variable(np.zeros((2, 2), "f4"))
    v.assign(a)
    assert v.tolist() == want
    y = ss.zeros(2, 2)
    y[0] = a[1]
    assert y[0].tolist() == want[1]
    if kind[0] != "f":
        assert ss.arange(9)[a].tolist() == want
    batch = next(iter(ss.DataLoader((a, a), batch_size=2)))
    assert batch[0].tolist() == want


OUT = [
    (2**63, None),
    ([0, 2**63], None),
    (2**64, None),
    (-(2**63) - 1, None),
    (np.array([2**63], "u8"), None),
    (300, "uint8"),
    (-1, "uint8"),
    ([1, 256], "uint8"),
    (np.array([2**31]), "int32"),
    (np.float32(256), "uint8"),
    (-1.0, "uint8"),
    (float("nan"), "int64"),
    (float("inf"), "int32"),
    (2.0**63, "int64"),
    ([2**70], "int64"),
]


@pytest.mark.parametrize("data,dtype", OUT, ids=repr)
def test_data_that_does_not_fit(data, dtype):
    ways = [lambda: ss.tensor(data, dtype=dtype), lambda: ss.Variable(data, dtype=dtype)]
    if np.ndim(data) == 0:
        ways.append(lambda: ss.full((2,), data, dtype=dtype))
    for way in ways:
        with pytest.raises(OverflowError) as caught:
            way()
        assert isinstance(caught.value, ss.ShoestringError)


def test_data_at_the_edge_fits():
    assert ss.tensor([2**63 - 1, -(2**63)]).tolist() == [2**63 - 1, -(2**63)]
    assert ss.tensor(2**63 - 1, dtype="int64").item() == 2**63 - 1
    assert ss.tensor(-(2.0**63), dtype="int64").item() == -(2**63)
    assert ss.tensor([255.9, -0.9], dtype="uint8").tolist() == [255, 0]
    assert ss.tensor(np.array([2**32 - 1], "u4")).tolist() == [2**32 - 1]
    assert ss.arange(2**53 + 1, 2**53 + 3).tolist() == [2**53 + 1, 2**53 + 2]
    with pytest.raises(OverflowError):
        ss.arange(250, 260, dtype="uint8")


# ---- gradients of what takes no part -------------------------------------------------------------
def test_grad_of_what_y_does_not_depend_on():
    p, q = ss.Parameter([1.0, 2.0]), ss.Parameter([3.0])
    y = (p * p).sum()
    with pytest.raises(ValueError, match="does not depend"):
        ss.grad(y, q)
    with pytest.raises(ValueError):
        ss.grad(y, [p, q])
    found = ss.grad(y, [p, q], allow_unused=True)
    assert found[0].tolist() == [2, 4] and found[1] is None
    assert ss.grad(y, q, allow_unused=True) is None
    with ss.no_grad():
        constant = (p * p).sum()
    with pytest.raises(ValueError):
        ss.grad(constant, p)
    assert ss.grad((p * 0).sum(), p).tolist() == [0, 0]  # it takes part: its gradient is 0
    assert ss.grad((p.detach() * q).sum(), p, allow_unused=True) is None


def test_only_floats_require_gradients():
    def later():
        v = ss.Variable([1, 2])
        v.requires_grad = True

    for make in (
        lambda: ss.Parameter([1, 2]),
        lambda: ss.Variable([1, 2], requires_grad=True),
        lambda: ss.tensor([True], requires_grad=True),
        later,
    ):
        with pytest.raises(TypeError, match="only floats have gradients"):
            make()
    v = ss.Variable([1, 2])
    v.requires_grad = False
    assert ss.Parameter(np.array([1, 2], ">f8")).dtype == np.float32


def test_weights_of_a_gradient_may_be_integers_and_lists():
    p = ss.Parameter([1.0, 2.0])
    for weights in (ss.tensor([1, 3]), [1, 3], np.array([1.0, 3.0])):
        p.grad = None
        p.backward(weights)
        (p * 1).backward(weights)
        assert p.grad.dtype == np.float32 and p.grad.tolist() == [2, 6]
