"""Windows of accumulated gradients: what an error, an interrupt or another window does to them."""

import signal

import numpy as np
import pytest

import shoestring as ss
from shoestring.errors import DataError, TraceError

PLACES = pytest.mark.parametrize("grads_on", ["device", "cpu"])


def made(lr=0.5):
    a, b = ss.Parameter([1.0, 2.0], "a"), ss.Parameter([3.0], "b")
    return a, b, ss.SGD([a, b], lr=lr)


def loss(a, b, scale):
    return (a * scale).sum() + (b * b).sum()


def values(*parameters):
    return [p.numpy().tobytes() for p in parameters]


def gradients(*parameters):
    return [None if p.grad is None else p.grad.tolist() for p in parameters]


def window_of(parameters, optimizer, grads_on, run=None):
    """One window of three micro-batches."""
    with ss.accumulate(optimizer, grads_on=grads_on) as window:
        for k in range(3):
            window.backward(loss(*parameters, k + 1.0), count=k + 1)
            window.step()


ENDS = [KeyError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError]


@PLACES
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_after_an_error_the_next_window_is_right(end, told, compiled, grads_on):
    a, b, optimizer = made()
    window = ss.accumulate(optimizer, grads_on=grads_on)

    def micro_step(scale):
        window.backward(loss(a, b, scale), count=2)

    run = ss.compile(micro_step) if compiled else micro_step
    with pytest.raises(end), window:
        for k in range(2):
            run(ss.tensor(7.0))
            if told or k == 0:
                window.step()
        raise end
    assert gradients(a, b) == [None, None] and a.tolist() == [1, 2]
    with window:
        for scale in (1.0, 3.0):
            run(ss.tensor(scale))
            window.step()
    np.testing.assert_allclose(a.numpy(), [1 - 0.5 * 2, 2 - 0.5 * 2])
    np.testing.assert_allclose(b.numpy(), [3 - 0.5 * 6])


@PLACES
def test_an_error_in_a_later_window_leaves_what_the_earlier_ones_did(grads_on):
    a, b, optimizer = made()
    with pytest.raises(KeyError), ss.accumulate(optimizer, 2, grads_on) as window:
        for _ in range(3):
            window.backward(loss(a, b, 1.0), count=1)
            window.step()
        raise KeyError
    assert a.tolist() == [0.5, 1.5] and gradients(a, b) == [None, None]


@PLACES
def test_gradients_from_before_come_back_after_an_error(grads_on):
    a, b, optimizer = made()
    (a * 5).sum().backward()
    with pytest.raises(KeyError), ss.accumulate(optimizer, grads_on=grads_on) as window:
        window.backward(loss(a, b, 7.0), count=3)
        window.step()
        raise KeyError
    assert gradients(a, b) == [[5, 5], None]
    a.grad = None
    window_of((a, b), optimizer, grads_on)
    twins = made()
    window_of(twins[:2], twins[2], grads_on)
    assert values(a, b) == values(*twins[:2])


@PLACES
def test_gradients_from_before_are_added_to_the_first_window_alone(grads_on):
    a, _b, optimizer = made()
    (a * 4).sum().backward()
    with ss.accumulate(optimizer, 2, grads_on) as window:
        for scale in (1.0, 3.0, 1.0, 1.0):
            window.backward((a * scale).sum(), count=5)
            window.step()
    np.testing.assert_allclose(a.numpy(), [1 - 0.5 * (4 + 2) - 0.5, 2 - 0.5 * (4 + 2) - 0.5])


def test_an_empty_block_leaves_gradients_as_they_were():
    a, b, optimizer = made()
    (a * 4).sum().backward()
    with ss.accumulate(optimizer):
        assert a.grad is None
    assert gradients(a, b) == [[4, 4], None] and a.tolist() == [1, 2]


@PLACES
def test_a_real_interrupt_in_the_middle(grads_on):
    a, b, optimizer = made()
    with pytest.raises(KeyboardInterrupt):
        with ss.accumulate(optimizer, grads_on=grads_on) as window:
            window.backward(loss(a, b, 7.0), count=3)
            window.step()
            window.backward(loss(a, b, 7.0), count=3)
            signal.raise_signal(signal.SIGINT)
    assert gradients(a, b) == [None, None]
    twins = made()
    window_of((a, b), optimizer, grads_on)
    window_of(twins[:2], twins[2], grads_on)
    assert values(a, b) == values(*twins[:2])


@PLACES
def test_a_refused_gradient_rolls_back_too(grads_on):
    """The check is part of the plan: it ends the flush, inside the block or after it."""
    a, b, optimizer = made()
    with pytest.raises(DataError, match="outside"), ss.accumulate(optimizer, None, grads_on) as w:
        logits = a.reshape(1, 2) * 1
        w.backward(ss.cross_entropy(logits, ss.tensor([5])), count=1)
        w.step()
        a.grad.numpy()
    assert gradients(a, b) == [None, None] and a.tolist() == [1, 2]
    twins = made()
    window_of((a, b), optimizer, grads_on)
    window_of(twins[:2], twins[2], grads_on)
    assert values(a, b) == values(*twins[:2])


def test_a_failing_step_at_the_end_of_the_block_rolls_back(monkeypatch):
    a, b, optimizer = made()

    def fails():
        raise OSError

    with pytest.raises(OSError), ss.accumulate(optimizer) as window:
        window.backward(loss(a, b, 7.0), count=3)
        window.step()
        monkeypatch.setattr(optimizer, "step", fails)
    monkeypatch.undo()
    assert gradients(a, b) == [None, None] and a.tolist() == [1, 2]
    with ss.accumulate(optimizer) as window:
        window.backward((a * 1.0).sum(), count=3)
        window.step()
    assert a.tolist() == [0.5, 1.5]


def test_nested_windows_are_refused_and_the_outer_one_goes_on():
    a, b, optimizer = made()
    other = ss.Adam([b])
    with ss.accumulate(optimizer) as window:
        window.backward((a * 2).sum(), count=1)
        for inner in (window, ss.accumulate(optimizer), ss.accumulate(other)):
            with pytest.raises(ss.ShoestringError, match="open already"), inner:
                pass
        window.step()
    assert a.tolist() == [0, 1]


def test_windows_of_different_parameters_may_be_nested():
    a, b = ss.Parameter([1.0]), ss.Parameter([1.0])
    with ss.accumulate(ss.SGD([a], lr=1.0)) as one, ss.accumulate(ss.SGD([b], lr=1.0)) as two:
        one.backward((a * 3).sum(), count=2)
        two.backward((b * 5).sum(), count=7)
        one.step()
        two.step()
    assert (a.item(), b.item()) == (-2, -4)


@pytest.mark.parametrize("what", ["step", "zero_grad"])
def test_the_optimizer_is_left_to_the_window(what):
    a, _b, optimizer = made()
    with ss.accumulate(optimizer) as window:
        window.backward((a * 2).sum(), count=4)
        with pytest.raises(ss.ShoestringError, match="inside a window"):
            getattr(optimizer, what)()
        window.step()
    assert a.tolist() == [0, 1]
    getattr(optimizer, what)()


def test_a_gradient_that_no_step_was_told_of_is_not_left_behind():
    a, b, optimizer = made()
    with pytest.raises(ss.ShoestringError, match=r"no window\.step"):
        with ss.accumulate(optimizer) as window:
            window.backward((a * 2).sum(), count=4)
    assert gradients(a, b) == [None, None]


@pytest.mark.parametrize("act", ["step", "apply", "backward"])
def test_outside_of_its_block_a_window_is_closed(act):
    a, _b, optimizer = made()
    window = ss.accumulate(optimizer)
    arguments = (a.sum(), 1) if act == "backward" else ()
    for _ in range(2):
        with pytest.raises(ss.ShoestringError, match="belongs into the block"):
            getattr(window, act)(*arguments)
        with window:
            pass


def test_counting_inside_a_compiled_step_is_refused():
    a, _b, optimizer = made()
    with ss.accumulate(optimizer) as window:

        def step(x):
            window.backward((a * x).sum(), count=1)
            window.step()

        with pytest.raises(TraceError, match="only while that is traced"):
            ss.compile(step)(ss.ones(2))
    assert a.tolist() == [1, 2]


def test_a_whole_window_inside_a_compiled_step():
    a, _b, optimizer = made()

    @ss.compile
    def step(x):
        with ss.accumulate(optimizer) as window:
            for k in range(2):
                window.backward((a * x[k]).sum(), count=k + 1)
                window.step()

    for k in range(3):
        step(ss.tensor([3.0, 6.0]))
        np.testing.assert_allclose(a.numpy(), [1 - 2.5 * (k + 1), 2 - 2.5 * (k + 1)])


@pytest.mark.parametrize("count", [-1, float("nan"), float("inf"), "3", None, np.ones(2)])
def test_counts_are_numbers_of_samples(count):
    a, b, optimizer = made()
    with pytest.raises(ss.ShoestringError, match="count is"), ss.accumulate(optimizer) as window:
        window.backward(a.sum(), count=count)
    assert gradients(a, b) == [None, None]


@PLACES
@pytest.mark.parametrize("look", [False, True])
def test_a_micro_batch_whose_error_is_caught_in_the_block_does_not_count(look, grads_on):
    a = ss.Parameter(np.zeros((1, 2), np.float32))
    with ss.accumulate(ss.SGD([a], lr=1.0), grads_on=grads_on) as window:
        for label in (0, 5, 1, 1):
            try:
                found = ss.cross_entropy(a * 1, ss.tensor([label]))
                if look:
                    found.item()
                window.backward(found, count=1)
                window.step()
                if grads_on == "device":
                    a.grad.numpy()
            except DataError:
                assert label == 5
    np.testing.assert_allclose(a.numpy(), [[-1 / 6, 1 / 6]], rtol=1e-5)
