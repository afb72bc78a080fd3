"""Modules, loaders and files in the corners: bare roots, cycles, compiled steps, damage."""

import math
import stat

import numpy as np
import pytest

import shoestring as ss
from shoestring.data.mnist import read
from shoestring.errors import DataError


def array(*values):
    return np.array(values, np.float32)


# ---- modules -------------------------------------------------------------------------------------
@pytest.mark.parametrize("layer", [ss.Dropout(0.5), ss.LeakyReLU(0.1), ss.Softmax(), ss.Flatten()])
def test_a_layer_of_plain_attributes_is_a_whole_network(layer):
    assert layer.eval().training is False and layer.parameters() == [] and layer.state_dict() == {}


def test_a_part_that_points_back_at_its_owner_has_a_path():
    root, part = ss.Module(), ss.Module()
    root.part = part
    part.owner = root
    part.fc = ss.Linear(2, 1)
    assert str(part.fc.location) == "part.fc"
    assert [n for n, _ in root.named_parameters()] == ["part.fc.weight", "part.fc.bias"]
    assert repr(root)


def test_an_error_at_the_root_names_no_layer():
    with pytest.raises(ss.ShoestringError) as caught:
        ss.Linear(3, 2)(ss.zeros(1, 4))
    assert "layer" not in str(caught.value).splitlines()[1]


def test_loading_what_is_no_number_changes_nothing_and_lists_all():
    layer = ss.Linear(2, 2)
    before = layer.weight.numpy()
    with pytest.raises(ss.ShoestringError, match="bias: expected numbers, got <U1"):
        layer.load_state_dict({"weight": np.ones((2, 2)), "bias": np.array(["a", "b"])})
    np.testing.assert_array_equal(layer.weight.numpy(), before)
    layer.load_state_dict({"weight": ss.ones(2, 2), "bias": [3, 4]})
    assert layer.weight.tolist() == [[1, 1], [1, 1]] and layer.bias.tolist() == [3, 4]


def test_a_compiled_step_sees_modes_frozen_parameters_and_new_layers():
    net = ss.Sequential(ss.Linear(4, 4, bias=False), ss.Dropout(0.5))
    forward, x = ss.compile(lambda x: net(x)), ss.ones(8, 4)
    forward(x)
    net[1].training = False
    np.testing.assert_array_equal(forward(x).numpy(), net(x).numpy())
    setattr(net, "0", ss.Linear(4, 4, bias=False))
    np.testing.assert_array_equal(forward(x).numpy(), net(x).numpy())

    optimizer = ss.SGD(net.parameters(), lr=0.1)
    extra = ss.Parameter(array(1.0))

    @ss.compile
    def step(x):
        (net(x).sum() * extra.sum()).backward()
        if net[0].weight.requires_grad:
            optimizer.step()
            optimizer.zero_grad()

    step(x)
    before = net[0].weight.numpy()
    net.requires_grad_(False)
    step(x)
    np.testing.assert_array_equal(net[0].weight.numpy(), before)


def test_dropout_of_everything_is_zero_even_where_x_is_not_finite():
    x = ss.tensor(array(math.inf, math.nan, -1.0), requires_grad=True)
    y = ss.dropout(x, 1.0)
    y.sum().backward()
    assert y.tolist() == [0, 0, 0] and x.grad.tolist() == [0, 0, 0]


# ---- data and files ------------------------------------------------------------------------------
def test_a_list_holds_samples_and_a_tuple_columns():
    samples = [(np.full(3, k, np.float32), k) for k in range(3)]
    batches = list(ss.DataLoader(samples, 2))
    assert [b[0].shape for b in batches] == [(2, 3), (1, 3)]
    assert [b[1].tolist() for b in batches] == [[0, 1], [2]]
    assert [b.tolist() for b in ss.DataLoader([5, 6, 7], 2)] == [[5, 6], [7]]
    assert [b[1].tolist() for b in ss.DataLoader(([1, 2, 3], [4, 5, 6]), 2)] == [[4, 5], [6]]


@pytest.mark.parametrize("arrays", [(), (np.array(3.0),)])
def test_data_without_samples_to_count_is_refused(arrays):
    with pytest.raises(ss.ShoestringError, match="nothing to count"):
        ss.DataLoader(arrays)


def test_saved_files_keep_any_name_readable_by_numpy_with_ordinary_rights(tmp_path):
    path, plain = tmp_path / "w.npz", tmp_path / "plain"
    state = {"file": array(1.0), "allow_pickle": array(2.0), "a.b": np.arange(3)}
    ss.save(state, path)
    first = path.read_bytes()
    ss.save(state, path)
    assert path.read_bytes() == first
    for found in (ss.load(path), np.load(path)):
        assert {k: found[k].tolist() for k in found} == {k: v.tolist() for k, v in state.items()}
    plain.write_text("")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "w.npz"
    ss.save({"a": array(1.0)}, path)

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DataError, match="No space left"):
        ss.save({"a": array(2.0)}, path)
    assert ss.load(path)["a"].tolist() == [1] and [p.name for p in tmp_path.iterdir()] == ["w.npz"]


@pytest.mark.parametrize("open_file", [ss.load, read])
def test_every_kind_of_damage_is_an_error_that_names_the_file(tmp_path, open_file):
    good, path = tmp_path / "good.npz", tmp_path / "bad.npz"
    np.savez_compressed(good, x_train=np.arange(4000) % 251, y_train=np.arange(50))
    whole = good.read_bytes()
    damaged = [b"", b"text", whole[:-30], whole[: len(whole) // 2]]
    rng = np.random.default_rng(0)
    for _ in range(60):
        changed = np.frombuffer(whole, np.uint8).copy()
        changed[rng.integers(len(whole), size=8)] ^= rng.integers(1, 256, 8).astype(np.uint8)
        damaged.append(changed.tobytes())
    np.save(tmp_path / "one.npy", np.ones(3))
    damaged.append((tmp_path / "one.npy").read_bytes())
    refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            open_file(path)
        except DataError as error:
            refused += 1
            assert str(path) in str(error)
    assert refused >= 40
