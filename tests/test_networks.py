"""Layers, optimisers, data and files do what their documentation says."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from common import training_step

import shoestring as ss
from shoestring.errors import DataError


def array(*values):
    return np.array(values, np.float32)


class Net(ss.Module):
    def __init__(self):
        self.conv = ss.Conv2D(1, 2, 3)
        self.bn = ss.BatchNorm2D(2)
        self.head = [ss.Linear(2 * 4 * 4, 3), ss.Dropout(0.5)]

    def forward(self, x):
        x = ss.relu(self.bn(self.conv(x)))
        return self.head[1](self.head[0](x.flatten(1)))


# ---- modules -------------------------------------------------------------------------------------
def test_a_module_knows_its_parts_by_path():
    net = Net()
    names = [n for n, _ in net.named_parameters()]
    assert names == [
        "conv.weight",
        "conv.bias",
        "bn.weight",
        "bn.bias",
        "head.0.weight",
        "head.0.bias",
    ]
    assert [n for n, _ in net.named_buffers()] == ["bn.running_mean", "bn.running_var"]
    assert net.head[0].weight.name == "head.0.weight"
    assert "head.0" in str(net.head[0].location)
    assert "Conv2D(1, 2, (3, 3)" in repr(net) and "parameters" in repr(net)


def test_shared_parameters_count_once_and_plain_objects_have_parameters_too():
    net = Net()
    net.again = net.conv
    assert len(net.parameters()) == 6

    class Plain:
        def __init__(self):
            self.w, self.more = ss.Parameter(array(1.0, 2.0)), {"a": ss.Linear(2, 2)}

    assert len(ss.parameters(Plain())) == 3


def test_state_dict_is_a_snapshot_and_loading_is_all_or_nothing():
    net, other = Net(), Net()
    state = net.state_dict()
    other.load_state_dict(state)
    for name, value in other.state_dict().items():
        np.testing.assert_array_equal(value, state[name])
    broken = dict(state, **{"conv.bias": np.zeros(9)})
    before = other.state_dict()
    with pytest.raises(ss.ShoestringError):
        other.load_state_dict(broken)
    assert all(np.array_equal(before[n], v) for n, v in other.state_dict().items())


def test_batchnorm_statistics_update_once_per_forward_and_evaluation_uses_them():
    bn = ss.BatchNorm1D(1)
    x = ss.tensor(array([1.0], [3.0]))
    y = bn(x)
    (y * y).sum().backward()
    np.testing.assert_allclose(y.numpy(), [[-1], [1]], rtol=1e-4)
    np.testing.assert_allclose(
        [bn.running_mean.item(), bn.running_var.item()], [0.2, 1.1], rtol=1e-6
    )
    bn.eval()
    np.testing.assert_allclose(bn(x).numpy(), (x.numpy() - 0.2) / math.sqrt(1.1 + 1e-5), rtol=1e-5)
    np.testing.assert_allclose(bn.running_mean.item(), 0.2, rtol=1e-6)
    # one value per channel is fine here
    bn(ss.tensor(array([5.0])))


def test_dropout_keeps_the_mean_and_its_edges_are_exact():
    x = ss.ones(100, 100)
    y = ss.dropout(x, 0.25).numpy()
    assert set(np.unique(y)) == {0.0, np.float32(1 / 0.75)} and abs(y.mean() - 1) < 0.03
    assert ss.dropout(x, 0.0) is x and ss.dropout(x, 0.5, training=False) is x
    np.testing.assert_array_equal(ss.dropout(x, 1.0).numpy(), 0 * y)
    p = ss.Parameter(np.ones((8, 8), np.float32))
    out = ss.dropout(p, 0.5)
    out.sum().backward()
    np.testing.assert_array_equal(p.grad.numpy() != 0, out.numpy() != 0)


@pytest.mark.parametrize("size,kernel,stride", [(5, 3, 1), (6, 3, 2), (7, 2, 2), (5, 4, 3)])
def test_same_padding_gives_ceil_of_size_over_stride(size, kernel, stride):
    y = ss.conv2d(
        ss.ones(1, 1, size, size), ss.ones(1, 1, kernel, kernel), stride=stride, padding="same"
    )
    assert y.shape == (1, 1, -(-size // stride), -(-size // stride))


def test_reshape_shares_memory_where_it_can():
    x = ss.tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    assert x.reshape(2, 6).data_ptr() == x.data_ptr() and x.reshape(2, 6).is_contiguous()
    part = x[:, 1:3]
    assert part.data_ptr() == x.data_ptr() + 4 and part.strides == (4, 1) and part.offset == 1
    flat = part.reshape(6)
    assert flat.data_ptr() != part.data_ptr() and flat.tolist() == [1, 2, 5, 6, 9, 10]
    assert x.T.data_ptr() == x.data_ptr() and not x.T.is_contiguous()
    assert ss.flatten(ss.zeros(2, 3, 4)).shape == (2, 12)


def test_indexing_is_numpys():
    a = np.arange(24).reshape(2, 3, 4)
    x = ss.tensor(a)
    for index in (
        0,
        -1,
        slice(1, None),
        (0, 2),
        (slice(None), -1),
        (..., 1),
        (None, 0),
        (0, slice(None, None, -1)),
        (slice(None), np.array([2, 0])),
        (1, 2, 3),
        slice(5, 9),
    ):
        np.testing.assert_array_equal(x[index].numpy(), a[index])
    np.testing.assert_array_equal(x[:, ss.tensor([1, -1])].numpy(), a[:, [1, -1]])
    assert [row.tolist() for row in ss.tensor(a[0])] == a[0].tolist()


# ---- losses --------------------------------------------------------------------------------------
def test_cross_entropy_has_pytorchs_values():
    logits = ss.tensor(array([1, 2], [3, 0.4]), requires_grad=True)
    labels = ss.tensor([-100, 1])
    loss = ss.cross_entropy(logits, labels, weight=ss.tensor(array(0.2, 0.3)), label_smoothing=0.1)
    np.testing.assert_allclose(loss.item(), 2.5404506, rtol=1e-6)
    ignored = ss.tensor([-100, -100])
    total = ss.cross_entropy(logits, ignored, reduction="sum")
    assert total.item() == 0 and math.isnan(ss.cross_entropy(logits, ignored).item())
    total.backward()
    np.testing.assert_array_equal(logits.grad.numpy(), np.zeros((2, 2)))
    for dtype in ("uint8", "int32", "int64"):
        got = ss.cross_entropy(logits, ss.tensor(np.array([0, 1], dtype), dtype)).item()
        np.testing.assert_allclose(got, (1.3132617 + 2.6716106) / 2, rtol=1e-4)


def test_a_bad_label_is_reported_in_a_compiled_step_too_and_nothing_is_stored():
    layer = ss.Linear(4, 3)
    optimizer = ss.SGD(layer.parameters(), lr=1.0)

    step = ss.compile(training_step(layer, optimizer))
    step(ss.ones(2, 4), ss.tensor([0, 1]))
    before = layer.weight.numpy()
    with pytest.raises(DataError, match=r"label 3 at position 1 is outside \[0, 3\)"):
        step(ss.ones(2, 4), ss.tensor([0, 3]))
    np.testing.assert_array_equal(layer.weight.numpy(), before)


# ---- optimisers ----------------------------------------------------------------------------------
def steps(make, gradients, p=1.0):
    x = ss.Parameter(array(p))
    optimizer = make([x])
    for g in gradients:
        optimizer.zero_grad()
        (x * ss.tensor(array(g))).sum().backward()
        optimizer.step()
    return x.numpy()[0]


def test_optimisers_follow_their_formulas():
    assert steps(lambda p: ss.SGD(p, lr=0.1), [1, 1]) == pytest.approx(0.8)
    assert steps(lambda p: ss.SGD(p, lr=0.1, momentum=0.5), [1, 1]) == pytest.approx(1 - 0.1 - 0.15)
    nesterov = steps(lambda p: ss.SGD(p, lr=0.1, momentum=0.5, nesterov=True), [1, 1])
    assert nesterov == pytest.approx(1 - 0.15 - 0.175)
    assert steps(lambda p: ss.SGD(p, lr=0.1, weight_decay=0.5), [1]) == pytest.approx(0.85)
    for g, want in ((1, -0.1), (1e-8, -0.05), (1e-4, -0.09999)):
        assert steps(lambda p: ss.Adam(p, lr=0.1, eps=1e-8), [g], p=0.0) == pytest.approx(
            want, rel=1e-4
        )
    assert steps(lambda p: ss.Adam(p, lr=0.1, weight_decay=0.1), [0]) == pytest.approx(
        0.9, rel=1e-5
    )
    assert steps(lambda p: ss.AdamW(p, lr=0.1, weight_decay=0.1), [0]) == pytest.approx(
        0.99, rel=1e-6
    )


def test_adam_over_many_steps_equals_a_loop_in_float64():
    rng = np.random.default_rng(0)
    gs = rng.normal(size=12)
    p = m = v = 0.0
    for t, g in enumerate(gs, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        p -= 0.1 * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8)
    assert steps(lambda ps: ss.Adam(ps, lr=0.1), gs, p=0.0) == pytest.approx(p, rel=1e-4)


def test_a_saved_optimiser_goes_on_with_the_same_bits():
    def run(restart):
        x = ss.Parameter(array(1.0, -2.0))
        optimizer = ss.Adam([x], lr=0.1)
        for k in range(6):
            if k == 3 and restart:
                saved, value = optimizer.state_dict(), x.numpy()
                x = ss.Parameter(value)
                optimizer = ss.Adam([x], lr=0.5)
                optimizer.load_state_dict(saved)
            optimizer.zero_grad()
            ((x - 3) * (x - 3)).sum().backward()
            optimizer.step()
        return x.numpy().tobytes()

    assert run(False) == run(True)


def test_schedules():
    def rates(make, n):
        optimizer = ss.SGD([ss.Parameter(array(1.0))], lr=0.5)
        schedule, found = make(optimizer), []
        for _ in range(n):
            found.append(optimizer.lr)
            schedule.step()
        return found

    restarts = rates(lambda o: ss.optim.CosineWarmRestarts(o, first=1, growth=2), 8)
    np.testing.assert_allclose(
        restarts, [0.5, 0.5, 0.25, 0.5, 0.426777, 0.25, 0.073223, 0.5], atol=1e-6
    )
    np.testing.assert_allclose(
        rates(lambda o: ss.optim.LinearDecay(o, 4), 6), [0.5, 0.375, 0.25, 0.125, 0, 0]
    )
    np.testing.assert_allclose(
        rates(lambda o: ss.optim.CosineDecay(o, 2), 4), [0.5, 0.25, 0, 0], atol=1e-12
    )
    np.testing.assert_allclose(rates(lambda o: ss.optim.StepDecay(o, 2), 4), [0.5, 0.5, 0.05, 0.05])


def test_clipping_scales_all_gradients_by_their_common_norm():
    a, b = ss.Parameter(array(1.0)), ss.Parameter(array(1.0, 1.0))
    loss = (a * 3).sum() + (b * ss.tensor(array(0.0, 4.0))).sum()
    loss.backward()
    assert ss.clip_grad_norm_([a, b], 1.0).item() == pytest.approx(5)
    np.testing.assert_allclose(a.grad.numpy(), [0.6], rtol=1e-5)
    np.testing.assert_allclose(b.grad.numpy(), [0, 0.8], rtol=1e-5)
    assert ss.clip_grad_norm_([a, b], 10.0, math.inf).item() == pytest.approx(0.8)
    assert all(ss.clip_grad_norm_([], 1.0, p).item() == 0.0 for p in (1.0, 2.0, math.inf))


@pytest.mark.parametrize("compiled", [False, True])
def test_an_infinite_gradient_is_refused_by_name_and_left_untouched(compiled):
    net = ss.Sequential(ss.Linear(2, 1, bias=False))
    optimizer = ss.SGD(net.parameters(), lr=1.0)

    def step(x):
        net(x).sum().backward()
        ss.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

    before = net.parameters()[0].numpy()
    with pytest.raises(DataError, match=r"norm of the gradient of 0.weight is infinite"):
        (ss.compile(step) if compiled else step)(ss.tensor(array([math.inf, 1.0])))
        net.parameters()[0].numpy()
    np.testing.assert_array_equal(net.parameters()[0].numpy(), before)
    if not compiled:
        np.testing.assert_array_equal(net.parameters()[0].grad.numpy(), [[math.inf, 1.0]])


def test_a_nan_gradient_is_named():
    p = ss.Parameter(array(0.0, 1.0), name="scale")
    (p * ss.tensor(array(math.nan, 1.0))).sum().backward()
    ss.check_nan_gradients([p])
    with pytest.raises(DataError, match="the gradient of scale is NaN at position 0"):
        p.grad.numpy()


def test_print_tensor_stats(capsys):
    ss.print_tensor_stats(ss.tensor(array(1, 3, math.nan, math.inf)), "x")
    out = capsys.readouterr().out
    assert "x [4] float32" in out and "mean 2" in out and "NaN 1" in out and "infinite 1" in out


# ---- data and files ------------------------------------------------------------------------------
def test_a_loader_covers_everything_once_and_shuffles_by_seed_and_epoch():
    x, y = np.arange(10, dtype=np.float32), np.arange(10)
    loader = ss.DataLoader((x, y), batch_size=4)
    assert [b.tolist() for _, b in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] and len(
        loader
    ) == 3
    assert len(ss.DataLoader((x, y), 4, drop_last=True)) == 2

    def epochs(seed):
        shuffled = ss.DataLoader(y, 4, shuffle=True, seed=seed)
        return [[v for b in shuffled for v in b.tolist()] for _ in range(2)]

    first = epochs(1)
    assert first == epochs(1) and first != epochs(2) and first[0] != first[1]
    assert sorted(first[0]) == sorted(first[1]) == y.tolist()

    class Squares:
        def __len__(self):
            return 5

        def __getitem__(self, k):
            return np.float32(k * k), k

    assert [b[0].tolist() for b in ss.DataLoader(Squares(), 2)] == [[0, 1], [4, 9], [16]]


def test_without_shuffling_batches_are_views():
    loader = ss.DataLoader(np.arange(8, dtype=np.float32), 4)
    first, second = list(loader)
    assert second.data_ptr() == first.data_ptr() + 16


def test_mnist_falls_back_to_small_digits_and_says_so(tmp_path):
    code = "import shoestring as ss; d = ss.data.mnist(); print(d.x_train.shape, d.y_test.shape)"
    environment = dict(
        os.environ,
        SHOESTRING_DATA=str(tmp_path),
        SHOESTRING_CACHE=str(tmp_path),
        http_proxy="http://127.0.0.1:9",
        https_proxy="http://127.0.0.1:9",
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    if "(60000, 28, 28)" in done.stdout:  # a network that needs no proxy
        return
    assert "(1500, 28, 28) (297,)" in done.stdout, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and "small digits" in done.stderr


def test_saving_is_atomic_and_loading_restores(tmp_path):
    net, other = Net(), Net()
    path = tmp_path / "w.npz"
    ss.save(net, path)
    ss.load(path, into=other)
    assert all(np.array_equal(a, other.state_dict()[n]) for n, a in net.state_dict().items())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="not a whole"):
        ss.load(path)
    assert [p.name for p in tmp_path.iterdir()] == ["w.npz"]
