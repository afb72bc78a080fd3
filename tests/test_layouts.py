"""Values in any layout of memory: what a plan leaves behind, what it takes in, what kernels are
handed."""

import numpy as np
import pytest

import shoestring as ss
from shoestring.backends.device import DEVICES

DEVICES_HERE = ["cpu", "reference"]


def realised(x):
    """x, computed and kept: from now on a leaf of whatever reads it."""
    x.numpy()
    return x


VIEWS = {
    "transposed": (lambda x: x.T, lambda a: a.T),
    "columns": (lambda x: x[:, 1:3], lambda a: a[:, 1:3]),
    "steps": (lambda x: x[:, ::2], lambda a: a[:, ::2]),
    "flipped": (lambda x: x.flip(0), lambda a: a[::-1]),
    "backwards": (lambda x: x[::-1, ::-1], lambda a: a[::-1, ::-1]),
    "row": (lambda x: x[1], lambda a: a[1]),
    "column": (lambda x: x[:, 2], lambda a: a[:, 2]),
    "repeated": (lambda x: x[:1].expand(3, 4), lambda a: np.broadcast_to(a[:1], (3, 4))),
    "new axes": (lambda x: x.unsqueeze(1).expand(3, 2, 4), lambda a: a[:, None].repeat(2, 1)),
    "reshaped": (lambda x: x.T.reshape(2, 6), lambda a: a.T.reshape(2, 6)),
    "split": (lambda x: x[:, 1:3].reshape(3, 2, 1), lambda a: a[:, 1:3].reshape(3, 2, 1)),
}


@pytest.mark.parametrize("device", DEVICES_HERE)
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_a_computed_value_keeps_its_strides(name, device):
    view, wanted = VIEWS[name]
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = ss.tensor(a, device=device) * 2
    y, want = view(x), wanted(a * 2)
    assert y.tolist() == want.tolist()
    assert (y + 0).tolist() == want.tolist()  # read once it is realised
    assert y.sum(axis=0).tolist() == want.sum(axis=0).tolist()
    assert (y * y).mean().item() == pytest.approx((want * want).mean())
    assert (y.T @ y if y.ndim == 2 else y).tolist() == (
        (want.T @ want) if y.ndim == 2 else want
    ).tolist()


@pytest.mark.parametrize("device", DEVICES_HERE)
def test_a_permuted_result_of_the_same_shape(device):
    x = ss.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    assert (x * 1).T.tolist() == [[1, 3], [2, 4]]
    assert (x @ x).T.tolist() == [[7, 15], [10, 22]]
    assert (x * 1).flip(0).tolist() == [[3, 4], [1, 2]]


def test_a_kept_value_is_read_in_its_layout_by_backward():
    def gradient(look):
        w = ss.Parameter(np.arange(6, dtype=np.float32).reshape(2, 3) / 10)
        x = ss.tensor([[0.1, 0.2], [0.3, 0.4]])
        h = ss.tanh(x @ w).T
        loss = (h * h * h).sum()
        if look:
            loss.item()
        loss.backward()
        return w.grad.numpy()

    assert np.array_equal(gradient(False), gradient(True))


def test_a_gradient_that_is_a_view():
    p, w = ss.Parameter(np.zeros((2, 3))), ss.tensor(np.arange(6.0).reshape(3, 2))
    assert ss.grad((p.T * w).sum(), p).tolist() == [[0, 2, 4], [1, 3, 5]]
    (p.T * w).sum().backward()
    assert p.grad.tolist() == [[0, 2, 4], [1, 3, 5]]


def test_a_repeated_value_stays_in_its_buffer():
    x = realised(ss.ones(3).sum(axis=0, keepdims=True).expand(100_000))
    assert x.sum().item() == 300_000


def test_statistics_of_a_slice_of_channels():
    bn = ss.BatchNorm2D(2, momentum=1.0)
    images = np.arange(32, dtype=np.float32).reshape(2, 4, 2, 2)
    bn(ss.tensor(images)[:, 1:3])
    assert bn.running_mean.tolist() == images[:, 1:3].mean(axis=(0, 2, 3)).tolist()


def test_a_compiled_step_takes_arguments_that_run_backwards():
    z = ss.arange(6.0).reshape(3, 2)[::-1]
    want = np.arange(6.0).reshape(3, 2)[::-1]
    assert ss.compile(lambda z: z[1:] * 1)(z).tolist() == want[1:].tolist()
    assert ss.compile(lambda z: z[:, ::-1])(z).tolist() == want[:, ::-1].tolist()


def test_a_compiled_step_sees_the_layout_of_what_it_has_captured():
    step = ss.compile(lambda x, y: (x + y).T)
    a, b = ss.arange(6.0).reshape(2, 3), ss.arange(6.0).reshape(3, 2)
    for _ in range(2):
        assert step(a, b.T).tolist() == (a.numpy() + b.numpy().T).T.tolist()
        assert step(a, b.reshape(2, 3)).tolist() == (2 * a.numpy()).T.tolist()


def test_states_are_stored_row_by_row():
    p = ss.Parameter(np.zeros((2, 2)))
    p.assign(ss.tensor([[1.0, 2.0], [3.0, 4.0]]).T)
    assert p.tolist() == [[1, 3], [2, 4]] and (p + 0).tolist() == [[1, 3], [2, 4]]
    p.assign((ss.tensor([[1.0, 2.0], [3.0, 4.0]]) * 1).T)
    assert p.tolist() == [[1, 3], [2, 4]]


def test_devices_say_where_values_lie():
    x = realised((ss.arange(6.0).reshape(2, 3) * 1).T)
    assert x.strides == (1, 3) and not x.is_contiguous()
    value = x.realize()
    found = DEVICES["cpu"].lying(
        DEVICES["cpu"].place(value), 0, ss.runtime.inspection.Operand((3, 2), x.dtype, (1, 3))
    )
    assert np.array_equal(found, value)


class TestInspection:
    """What SHOESTRING_CHECK=1 sees while a plan runs."""

    def test_a_layout_that_the_plan_does_not_know(self, monkeypatch):
        x = realised((ss.arange(6.0).reshape(2, 3) * 1).T)
        monkeypatch.setattr(ss.ir.Node, "strides", None)
        with pytest.raises(ss.errors.ShoestringError, match=r"planned for strides None.*\(1, 3\)"):
            (x + 0).numpy()

    def test_a_kernel_that_is_handed_another_layout(self, monkeypatch):
        """moments takes contiguous images alone."""
        monkeypatch.setattr(ss.ir.OPS["moments"], "takes_strides", lambda self, k: True)
        monkeypatch.setattr(ss.runtime.inspection.Sample, "share", 1.0)
        x = ss.tensor(np.arange(32, dtype=np.float32).reshape(2, 4, 2, 2))[:, 1:3]
        with pytest.raises(ss.errors.ShoestringError, match="other values than its reference"):
            ss.BatchNorm2D(2)(x).numpy()

    def test_every_launch_is_compared_in_turn(self, monkeypatch):
        seen = []
        finish = ss.runtime.inspection.Comparison.finish
        monkeypatch.setattr(
            ss.runtime.inspection.Comparison,
            "finish",
            lambda self: seen.append([s.op.name for s in self.steps]) or finish(self),
        )
        for _ in range(30):
            (ss.ones(4) * 2).exp().sum().numpy()
        assert 2 <= len(seen) <= 10

    def test_chained_updates_are_compared_with_what_the_step_before_made(self, monkeypatch):
        monkeypatch.setattr(ss.runtime.inspection.Sample, "share", 1.0)
        ss.seed(0)
        p = [ss.Parameter(np.random.default_rng(k).normal(size=(5, 4))) for k in range(3)]
        optimizer = ss.Adam(p, lr=0.1)
        for _ in range(3):
            sum((q * q).sum() for q in p).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert all(np.isfinite(q.numpy()).all() for q in p)
