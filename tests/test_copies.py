"""copy.copy, copy.deepcopy and pickle: of tensors, variables, modules, optimisers, loaders, steps,
errors."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import shoestring as ss
from shoestring.ir import Spec


def pickled(thing):
    return pickle.loads(pickle.dumps(thing))


WAYS = [copy.deepcopy, pickled]
both = pytest.mark.parametrize("copied", WAYS, ids=["deepcopy", "pickle"])
DATA = np.random.default_rng(0).normal(size=(8, 4)).astype("f4")


def network():
    return ss.Sequential(
        ss.Linear(4, 6), ss.BatchNorm1D(6), ss.Tanh(), ss.Dropout(0.2), ss.Linear(6, 2)
    )


def optimizers():
    return {
        "sgd": lambda p: ss.SGD(p, lr=0.1),
        "momentum": lambda p: ss.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
        "adam": lambda p: ss.Adam(p, lr=0.01),
        "adamw": lambda p: ss.AdamW(p, lr=0.01),
    }


def train(model, optimizer, steps, draws=0):
    """`steps` steps that draw the random numbers from `draws` on."""
    ss.runtime.random.draws = draws
    for _ in range(steps):
        loss = (model(ss.tensor(DATA)) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return values(model)


def values(model):
    return {name: value.tobytes() for name, value in model.state_dict().items()}


# ---- tensors -------------------------------------------------------------------------------------
@both
@pytest.mark.parametrize("dtype", ["float32", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_a_tensor(copied, dtype, shape):
    x = ss.tensor(np.ones(shape, dtype))
    y = copied(x)
    assert (y.dtype, y.shape, y.device, type(y)) == (x.dtype, x.shape, x.device, ss.Tensor)
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    assert not x.size or x.data_ptr() != y.data_ptr()
    y *= False
    assert x.tolist() == np.ones(shape, dtype).tolist()


@both
@pytest.mark.parametrize(
    "view", [lambda x: x.T, lambda x: x[::-1], lambda x: x[0].expand(3, 4), lambda x: x[:, 1:3]]
)
def test_a_view_and_a_value_not_yet_computed(copied, view):
    x = view(ss.tensor(DATA) * 2)
    np.testing.assert_array_equal(copied(x).numpy(), view(ss.tensor(DATA * 2)).numpy())


@both
def test_another_device_and_a_type_that_only_it_has(copied):
    x = ss.tensor([1.0, 2.0], dtype="float64", device="reference")
    y = copied(x)
    assert y.device == "reference" and y.dtype == np.float64 and y.tolist() == [1, 2]


def test_deepcopy_keeps_one_tensor_in_two_places_one():
    x = ss.ones(3)
    a, b = copy.deepcopy([x, x])
    assert a is b and a is not x


@both
def test_a_deep_copy_without_its_graph_is_refused(copied):
    p = ss.Parameter(DATA)
    with pytest.raises(ss.ShoestringError, match="detach"):
        copied(p * 2)
    np.testing.assert_array_equal(copied((p * 2).detach()).numpy(), DATA * 2)


def test_copy_of_a_tensor_is_another_handle_in_the_same_graph():
    p = ss.Parameter([2.0])
    for x in (p * 3, ss.tensor([6.0])):
        y = copy.copy(x)
        y += 1
        assert x.tolist() == [6] and y.tolist() == [7]
    copy.copy(p * 3).sum().backward()
    assert p.grad.tolist() == [3]


def test_no_copy_of_a_value_inside_a_trace():
    with pytest.raises(ss.ShoestringError, match="inside a traced step"):
        ss.compile(lambda x: copy.deepcopy(x))(ss.ones(2))
    p = ss.Parameter([1.0])
    with pytest.raises(ss.ShoestringError, match="inside a traced step"):
        ss.compile(lambda x: x * copy.deepcopy(p))(ss.ones(1))


# ---- variables -----------------------------------------------------------------------------------
@both
def test_a_variable_keeps_name_type_and_need_of_a_gradient_and_owns_its_memory(copied):
    for v in (
        ss.Parameter(DATA, "weight"),
        ss.Variable(DATA, "mean"),
        ss.Variable([1, 2], dtype="int32"),
        ss.tensor(DATA, requires_grad=True),
        ss.Variable([1.0], device="reference", dtype="float64"),
    ):
        w = copied(v)
        facts = [(type(x), x.name, x.requires_grad, x.dtype, x.device) for x in (v, w)]
        assert facts[0] == facts[1] and v.state is not w.state and v.data_ptr() != w.data_ptr()
        before = v.numpy()
        w.assign(w * 0)
        np.testing.assert_array_equal(v.numpy(), before)
        v.assign(v * 0 + 5)
        assert not w.numpy().any()


@both
def test_a_frozen_parameter_stays_frozen_and_can_be_thawed(copied):
    p = ss.Parameter([1.0])
    p.requires_grad = False
    q = copied(p)
    assert not q.requires_grad
    q.requires_grad = True
    (q * 3).sum().backward()
    assert q.grad.tolist() == [3] and p.grad is None
    assert str(q.state.grad.name) == "parameter.grad"


@both
def test_a_version_not_yet_computed_is_what_is_copied(copied):
    p = ss.Parameter([1.0])
    p.assign(p + 1)
    assert copied(p).tolist() == [2]


def test_gradients_are_copied_as_in_pytorch():
    p, x = ss.Parameter([2.0]), ss.tensor([2.0], requires_grad=True)
    (p * x).sum().backward()
    assert copy.deepcopy(p).grad is None and pickled(p).grad is None
    y = copy.deepcopy(x)
    assert y.grad.tolist() == [2] and pickled(x).grad is None
    (y * 5).sum().backward()
    assert y.grad.tolist() == [7] and x.grad.tolist() == [2]


def test_copy_of_a_variable_is_another_handle_on_its_state():
    p = ss.Parameter([1.0])
    q = copy.copy(p)
    q.assign([3.0])
    assert type(q) is ss.Parameter and q is not p and p.tolist() == [3]
    a, b = copy.deepcopy([p, q])
    assert a is not b and a.state is b.state and a.state is not p.state


class Named(ss.Parameter):
    """A subclass with attributes of its own."""

    note = None


@pytest.mark.parametrize("copied", [copy.copy, *WAYS])
def test_attributes_of_a_subclass_are_kept(copied):
    p = Named([1.0])
    p.note = ["x"]
    assert copied(p).note == ["x"] and isinstance(copied(p), Named)


# ---- modules, optimisers -------------------------------------------------------------------------
@both
@pytest.mark.parametrize("name", optimizers())
def test_a_model_and_its_optimiser_go_on_alike_and_apart(copied, name):
    model = network()
    optimizer = optimizers()[name](model.parameters())
    train(model, optimizer, 3)
    model2, optimizer2 = copied((model, optimizer))
    assert all(p is q for p, q in zip(optimizer2.parameters, model2.parameters(), strict=True))
    assert not {id(p.state) for p in model.parameters()} & {
        id(p.state) for p in model2.parameters()
    }
    before = values(model)
    assert before == values(model2)
    after = train(model2, optimizer2, 3, draws=50)
    assert values(model) == before != after
    assert train(model, optimizer, 3, draws=50) == after and values(model2) == after


@both
def test_a_model_alone_and_names_and_modes(copied):
    model = ss.Module()
    model.block, model.list = network().eval(), [ss.Linear(2, 2)]
    other = copied(model)
    assert repr(other) == repr(model)
    assert [n for n, _ in other.named_variables()] == [n for n, _ in model.named_variables()]
    assert other.block.training is False
    assert str(other.block[0].location) == "block.0"
    assert other.block[0].weight.name == "block.0.weight"
    part = copied(model.block)  # of a network: keeps its path until it belongs to another
    assert str(part[0].location) == "block.0"
    root = ss.Module()
    root.x = part
    assert str(part[0].location) == "x.0" and str(model.block[0].location) == "block.0"


@both
def test_shared_parameters_stay_shared(copied):
    model = ss.Module()
    model.a, model.b = ss.Linear(3, 3), ss.Linear(3, 3)
    model.b.weight = model.a.weight
    other = copied(model)
    assert other.a.weight is other.b.weight and other.a.weight.state is not model.a.weight.state
    assert len(other.parameters()) == len(model.parameters()) == 3


def test_copy_of_a_module_has_attributes_and_a_place_of_its_own():
    model = network()
    other = copy.copy(model)
    assert other[0] is model[0] and other.location is not model.location
    setattr(other, "0", ss.Linear(4, 6))
    assert other[0] is not model[0]
    root = ss.Module()
    root.one, root.two = model, other
    assert str(model.location) == "one" and str(other.location) == "two"


def test_a_module_that_holds_a_value_with_a_graph_says_so():
    model = ss.Linear(2, 2)
    model.last = model(ss.ones(1, 2))
    with pytest.raises(ss.ShoestringError, match="detach"):
        copy.deepcopy(model)


@both
@pytest.mark.parametrize("name", ss.models.MODELS)
def test_every_model(copied, name):
    model = ss.models.build(name, width=1 / 16).eval()
    assert values(copied(model)) == values(model)


LAYERS = [
    ss.ReLU(), ss.LeakyReLU(0.1), ss.GELU(), ss.Sigmoid(), ss.Softmax(), ss.Flatten(),
    ss.Identity(), ss.Dropout(0.5), ss.MaxPool2D(2), ss.AvgPool2D(2),
    ss.CrossEntropyLoss(),
]  # fmt: skip


@both
@pytest.mark.parametrize("layer", LAYERS, ids=repr)
def test_every_layer_of_plain_attributes(copied, layer):
    assert repr(copied(layer)) == repr(layer)


@both
def test_schedules_windows_and_loaders(copied):
    model = network()
    optimizer = ss.SGD(model.parameters(), lr=1.0)
    schedule = ss.optim.CosineDecay(optimizer, steps=10)
    schedule.step()
    twin = copied(schedule)
    twin.step()
    schedule.step()
    assert twin.optimizer is not optimizer and twin.optimizer.lr == optimizer.lr

    loader = ss.DataLoader((DATA, np.arange(8)), batch_size=4, shuffle=True, seed=1)
    next(iter(loader))
    other = copied(loader)
    for (a, b), (c, d) in zip(loader, other, strict=True):
        assert a.tolist() == c.tolist() and b.tolist() == d.tolist()
    plain = ss.DataLoader(DATA, batch_size=4)
    list(plain)
    assert [b.tolist() for b in copied(plain)] == [b.tolist() for b in plain]

    optimizer.model = model
    window = ss.accumulate(optimizer, steps=2)
    x = ss.tensor(DATA)
    with window:
        window.backward((model(x) ** 2).mean(), count=8)
        window.step()
        with pytest.raises(ss.ShoestringError, match="between windows"):
            copied(window)
    twin = copied(window)
    for w in (window, twin):
        with w:
            for _ in range(2):
                ss.runtime.random.draws = 9
                model = w.optimizer.model
                w.backward((model(x) ** 2).mean(), count=8)
                w.step()
    assert values(optimizer.model) == values(twin.optimizer.model)


# ---- compiled steps ------------------------------------------------------------------------------
class Trainer:
    """A step that is a method."""

    def __init__(self):
        self.model = network().eval()
        self.optimizer = ss.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.step = ss.compile(self.one)

    def one(self, x):
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


@both
def test_a_compiled_method_is_copied_with_what_it_belongs_to(copied):
    trainer, x = Trainer(), ss.tensor(DATA)
    trainer.step(x)
    twin, before = copied(trainer), values(trainer.model)
    loss = twin.step(x).item()
    assert values(trainer.model) == before != values(twin.model)
    assert trainer.step(x).item() == loss and values(trainer.model) == values(twin.model)


def test_the_original_goes_on_compiled_after_it_was_copied():
    model, x = network(), ss.tensor(DATA)
    optimizer = ss.SGD(model.parameters(), lr=0.1)

    @ss.compile
    def step(x):
        (model(x) ** 2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step(x)
    kept = copy.deepcopy(model)
    before = values(kept)
    step(x)
    assert values(kept) == before != values(model) and step.traces == 1


# ---- between processes ---------------------------------------------------------------------------
def test_written_in_one_process_and_read_in_another(tmp_path):
    model = network()
    optimizer = ss.Adam(model.parameters(), lr=0.01)
    train(model, optimizer, 2)
    path = tmp_path / "all.pickle"
    path.write_bytes(pickle.dumps((model, optimizer, ss.tensor([1, 2]))))
    program = f"""
import pickle, sys
import numpy as np
import shoestring as ss
model, optimizer, t = pickle.load(open({str(path)!r}, "rb"))
assert t.tolist() == [1, 2]
ss.seed(7)
for _ in range(2):
    (model(ss.tensor(np.ones((8, 4), "f4"))) ** 2).mean().backward()
    optimizer.step(); optimizer.zero_grad()
sys.stdout.write(b"".join(v.tobytes() for v in model.state_dict().values()).hex())
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    ss.seed(7)
    for _ in range(2):
        (model(ss.tensor(np.ones((8, 4), "f4"))) ** 2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert found == b"".join(v.tobytes() for v in model.state_dict().values()).hex()


def test_errors_go_from_process_to_process():
    def shapes():
        ss.ones(2, 3) @ ss.ones(4, 5)

    def labels():
        ss.cross_entropy(ss.ones(2, 3), ss.tensor([0, 9])).item()

    def budget():
        with ss.memory_limit("1KiB"):
            (ss.ones(2, 3) @ ss.ones(3, 2)).item()

    for wrong in (shapes, labels, budget):
        with pytest.raises(ss.ShoestringError) as caught:
            wrong()
        for copied in WAYS:
            again = copied(caught.value)
            assert type(again) is type(caught.value) and str(again) == str(caught.value)
            assert again.place == caught.value.place and again.stage == caught.value.stage


@both
def test_a_spec_stays_the_one_of_its_kind(copied):
    x = ss.ones(2, 3)
    assert copied(x.spec) is x.spec is Spec((2, 3), np.dtype("f4"))
