"""A batch in parts gives what the whole gives, in less memory; what cannot be cut is refused."""

import gc
import re
from collections import Counter

import numpy as np
import pytest
from common import training_step
from hypothesis import given, settings
from hypothesis import strategies as st

import shoestring as ss
from shoestring.backends.device import device
from shoestring.compile import part_sizes
from shoestring.errors import CompileError, DataError, MemoryBudgetError

CPU = device("cpu")
few = settings(max_examples=15, deadline=None, derandomize=True)


def mlp():
    return ss.Sequential(ss.Linear(6, 8), ss.ReLU(), ss.Dropout(0.4), ss.Linear(8, 5))


def convolutional():
    return ss.Sequential(
        ss.Conv2D(2, 4, 3, padding=1),
        ss.ReLU(),
        ss.MaxPool2D(2),
        ss.Conv2D(4, 4, 3, padding=1),
        ss.GELU(),
        ss.AvgPool2D(2),
        ss.Flatten(),
        ss.Dropout(0.3),
        ss.Linear(16, 5),
    )


def sgd(parameters):
    return ss.SGD(parameters, lr=0.1, momentum=0.9)


def train(make, shape, batch, parts, steps=3, labels=None, optimizer=sgd, **options):
    """(states, what each step returned): the loss, logits and number of hits."""
    ss.seed(0)
    rng = np.random.default_rng(0)
    model = make()
    opt = optimizer(model.parameters())
    x = rng.normal(size=(batch, *shape)).astype(np.float32)
    y = rng.integers(0, 5, batch) if labels is None else np.asarray(labels)

    def step(x, y):
        logits = model(x)
        loss = ss.cross_entropy(logits, y, **options)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss, logits, (logits.argmax(1) == y).sum()

    run = ss.compile(step, micro_batches=parts)
    found = []
    for _ in range(steps):
        loss, logits, hits = run(x, y)
        found.append((loss.item(), logits.numpy().copy(), hits.item()))
    assert run.parts(x, y) == (parts if parts == "auto" else min(parts, batch))
    return model.state_dict(), found


def alike(one, other, tolerance=2e-5):
    states, found = one
    for name, value in states.items():
        np.testing.assert_allclose(other[0][name], value, rtol=tolerance, atol=tolerance)
    for mine, theirs in zip(found, other[1], strict=True):
        np.testing.assert_allclose(theirs[0], mine[0], rtol=tolerance)
        np.testing.assert_allclose(theirs[1], mine[1], rtol=tolerance, atol=tolerance)
        assert mine[2] == theirs[2]


def test_part_sizes_differ_by_one_at_most():
    assert part_sizes(10, 4) == (3, 3, 2, 2)
    assert part_sizes(3, 8) == (1, 1, 1)
    assert part_sizes(0, 4) == (0,)


@few
@given(st.integers(1, 9), st.integers(2, 9), st.sampled_from(["mean", "sum"]))
def test_an_mlp_learns_the_same_on_any_parts(batch, parts, reduction):
    whole = train(mlp, (6,), batch, 1, reduction=reduction)
    alike(whole, train(mlp, (6,), batch, parts, reduction=reduction))


@few
@given(st.integers(2, 7), st.integers(2, 7))
def test_a_convolutional_network_does_too(batch, parts):
    whole = train(convolutional, (2, 8, 8), batch, 1)
    alike(whole, train(convolutional, (2, 8, 8), batch, parts))


@few
@given(st.data())
def test_ignored_labels_class_weights_and_smoothing(data):
    batch = data.draw(st.integers(2, 8))
    labels = data.draw(
        st.lists(st.sampled_from([0, 1, 2, 3, 4, -1]), min_size=batch, max_size=batch)
    )
    labels[data.draw(st.integers(0, batch - 1))] = 3  # not all are ignored
    weight = ss.tensor([0.5, 1.0, 2.0, 0.25, 3.0]) if data.draw(st.booleans()) else None
    options = dict(
        labels=labels,
        ignore_index=-1,
        weight=weight,
        label_smoothing=data.draw(st.sampled_from([0.0, 0.1])),
    )
    whole = train(mlp, (6,), batch, 1, **options)
    alike(whole, train(mlp, (6,), batch, data.draw(st.integers(2, 8)), **options))


def test_all_labels_ignored_change_nothing():
    def plain(parameters):
        return ss.SGD(parameters, lr=0.1)

    options = dict(labels=[-1] * 5, ignore_index=-1, optimizer=plain)
    for parts in (1, 2):
        ss.seed(0)
        start = mlp().state_dict()
        states, found = train(mlp, (6,), 5, parts, **options)
        assert np.isnan(found[0][0])
        for name, value in start.items():
            np.testing.assert_array_equal(states[name], value)


def test_a_part_of_one_sample_weighs_one_sample():
    """1 sample with loss 10, 3 with loss 2: their mean is 4, the mean of the parts' means is 6."""
    w = ss.Parameter([1.0])
    x = np.array([[10.0], [2.0], [2.0], [2.0]], np.float32)

    def step(x):
        loss = (w * x).mean()
        loss.backward()
        return loss

    for parts, sizes in ((2, (2, 2)), (3, (2, 1, 1)), (4, (1, 1, 1, 1))):
        assert part_sizes(4, parts) == sizes
        loss = ss.compile(step, micro_batches=parts)(x)
        assert loss.item() == 4.0 and w.grad.numpy().tolist() == [4.0]
        w.grad = None


def test_masks_are_those_of_the_whole_batch():
    x = np.ones((7, 33), np.float32)

    def step(x):
        return ss.dropout(x, 0.5), ss.bernoulli(7, 3, p=0.5) * x[:, :3], ss.normal(7, 5) * x[:, :5]

    found = {}
    for parts in (1, 2, 3, 7):
        ss.seed(3)
        run = ss.compile(step, micro_batches=parts)
        found[parts] = [[y.numpy().copy() for y in run(x)] for _ in range(3)]
    assert 0 < (found[1][0][0] == 0).mean() < 1
    for parts in (2, 3, 7):
        for mine, theirs in zip(found[1], found[parts], strict=True):
            for a, b in zip(mine, theirs, strict=True):
                np.testing.assert_array_equal(a, b)


def test_a_mask_is_made_part_by_part():
    run = ss.compile(lambda x: (ss.dropout(x, 0.5) ** 2).sum(), micro_batches=4)
    shapes = [s.outputs[0].shape for s in run.plan(np.ones((8, 64))).steps]
    assert (2, 64) in shapes and (8, 64) not in shapes


@few
@given(st.integers(2, 6), st.integers(2, 6), st.integers(1, 4))
def test_samples_that_are_rows_of_a_longer_axis(batch, parts, length):
    """Tokens: [N, T] labels and [N, T, C] logits are flattened to N*T rows, and back."""
    rng = np.random.default_rng(1)
    words = rng.integers(0, 11, (batch, length))
    labels = rng.integers(0, 4, (batch, length))
    found = []
    for k in (1, parts):
        ss.seed(2)
        table, fc = ss.Parameter(rng_table()), ss.Linear(3, 4)

        def step(words, labels, table=table, fc=fc):
            logits = fc(table[words].reshape(-1, 3)).reshape(*words.shape, 4)
            loss = ss.cross_entropy(logits.reshape(-1, 4), labels.reshape(-1))
            loss.backward()
            return loss, logits

        loss, logits = ss.compile(step, micro_batches=k)(words, labels)
        found.append([loss.numpy(), logits.numpy(), table.grad.numpy(), fc.weight.grad.numpy()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


def rng_table():
    return np.random.default_rng(5).normal(size=(11, 3)).astype(np.float32)


def test_sums_that_every_sample_reads_and_constants_with_a_row_per_sample():
    """Means over the batch may be used again by each sample: they are whole before it is."""
    bias = np.arange(5.0, dtype=np.float32).reshape(5, 1)

    def step(x):
        centred = (x - x.mean(0, keepdims=True)) * ss.tensor(bias)
        spread = (centred * centred).sum(0)
        return centred / ss.sqrt(spread + 1.0), spread, x.T.mean(1), x.sum()

    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    whole = [y.numpy() for y in ss.compile(step)(x)]
    for parts in (2, 3, 5):
        for a, b in zip(whole, ss.compile(step, micro_batches=parts)(x), strict=True):
            np.testing.assert_allclose(b.numpy(), a, rtol=1e-5, atol=1e-6)


def test_the_reference_device_agrees():
    before = ss.default_device()
    try:
        ss.default_device("reference")
        found = train(mlp, (6,), 5, 2)
        alike(found, train(mlp, (6,), 5, 1))
    finally:
        ss.default_device(before)
    alike(found, train(mlp, (6,), 5, 2))


def test_the_peak_falls_with_the_number_of_parts():
    ss.seed(0)
    model = ss.Sequential(
        *[m for _ in range(4) for m in (ss.Linear(32, 32), ss.GELU())], ss.Linear(32, 5)
    )
    optimizer = sgd(model.parameters())
    x, y = np.ones((256, 32), np.float32), np.zeros(256, np.int64)

    def step(x, y):
        loss = ss.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    arenas = []
    for parts in (1, 2, 4, 8):
        run = ss.compile(step, micro_batches=parts)
        plan = run.plan(x, y)
        arenas.append(plan.arena_bytes)
        ss.runtime.release_arena("cpu")
        gc.collect()
        x_, y_ = ss.tensor(x), ss.tensor(y)
        beside = CPU.allocated_bytes() - plan.resident_bytes
        CPU.reset_peak()
        run(x_, y_)
        assert CPU.peak_bytes() - beside == plan.predicted_peak_bytes
        del x_, y_
    assert arenas == sorted(arenas, reverse=True)
    assert arenas[3] < 0.35 * arenas[0]


def limited_step(limit, **options):
    ss.seed(0)
    model = mlp()
    optimizer = sgd(model.parameters())

    def step(x, y):
        loss = ss.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return ss.compile(step, memory_limit=limit, **options), model


def test_auto_takes_as_few_parts_as_fit():
    x, y = ss.tensor(np.ones((64, 6), np.float32)), ss.tensor(np.zeros(64, np.int64))
    run, model = limited_step(None, micro_batches="auto")
    assert run.parts(x, y) == 1
    floors = {}
    for parts in (1, 2, 3, 4, 64):
        run, model = limited_step(None, micro_batches=parts)
        floors[parts] = run.plan(x, y).floor_bytes
    assert floors[1] > floors[2] > floors[4]
    ss.runtime.release_arena("cpu")
    gc.collect()
    beside = CPU.allocated_bytes() - run.plan(x, y).resident_bytes
    del run, model
    for parts in (1, 2, 3, 4):
        limit = beside + floors[parts]
        found, model = limited_step(limit, micro_batches="auto")
        ss.runtime.release_arena("cpu")
        CPU.reset_peak()
        found(x, y)
        assert found.parts(x, y) <= parts and CPU.peak_bytes() <= limit
        if parts == 2:
            assert found.parts(x, y) == 2
        del found, model
        gc.collect()
    found, _ = limited_step(beside + floors[64] // 2, micro_batches="auto")
    with pytest.raises(MemoryBudgetError):
        found(x, y)


def rows(limit=None, **options):
    """A step whose activations are most of what it needs, and 6 samples for it."""
    ss.seed(0)
    layers = [m for _ in range(4) for m in (ss.Linear(8, 8), ss.GELU())]
    model = ss.Sequential(*layers)
    step = training_step(lambda x: model(x).mean(1), sgd(model.parameters()))
    step = ss.compile(step, memory_limit=limit, **options)
    return step, np.ones((6, 64, 8), np.float32), np.zeros(6, np.int64)


def test_auto_that_finds_nothing_names_the_largest_batch_in_parts():
    floors = []
    for parts in (1, 2, 4, 6):
        run, x, y = rows(micro_batches=parts)
        floors.append(run.plan(x, y).floor_bytes)
    ss.runtime.release_arena("cpu")
    gc.collect()
    beside = CPU.allocated_bytes() - run.plan(x, y).resident_bytes
    limit = beside + min(floors) - 1
    del run
    found, x, y = rows(limit, micro_batches="auto")
    with pytest.raises(MemoryBudgetError, match=r"in \d+ parts; the largest .* fits is \d+") as e:
        found.plan(x, y)
    parts, largest = re.search(r"in (\d+) parts; .* fits is (\d+)", str(e.value)).groups()
    assert 0 < int(largest) < 6
    run, x, y = rows(micro_batches=int(parts))
    small = run.plan(x[: int(largest)], y[: int(largest)])
    assert beside + small.floor_bytes <= limit


def test_parts_are_computed_again_alike():
    """All parts have the same peak: a value of one alone, dropped, would never lower it."""
    run, x, y = rows(micro_batches=3)
    plan = run.plan(x, y)
    lowest = plan.options.smallest()
    again = Counter(step.layer for step in lowest.steps if step.recomputed)
    assert again and all(n % 3 == 0 for n in again.values())
    assert lowest.arena_bytes < plan.arena_bytes


def test_labels_are_named_by_their_place_in_the_whole_batch():
    run, _ = limited_step(None, micro_batches=3)
    x, y = np.ones((7, 6), np.float32), np.zeros(7, np.int64)
    run(x, y)
    y[5] = 9
    with pytest.raises(DataError, match="label 9 at position 5 is outside"):
        run(x, y)

    def doubled(x, y):
        return ss.tensor(rng_table())[y * 2]

    for parts in (1, 3):
        with pytest.raises(DataError, match="index 18 at position 5 is outside"):
            ss.compile(doubled, micro_batches=parts)(x, y)


REFUSED = {
    "softmax over the batch": lambda x: ss.softmax(x, axis=0),
    "the largest over the batch": lambda x: x.max(0),
    "variance over the batch": lambda x: x.var(0),
    "samples in another order": lambda x: x[::-1].sum(1),
    "the first sample": lambda x: x[:1],
    "samples times samples": lambda x: x @ x.T,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_mixes_samples_is_refused(name):
    x = np.ones((4, 4), np.float32)
    step = REFUSED[name]
    ss.compile(step)(x)
    with pytest.raises(CompileError, match="samples influence each other"):
        ss.compile(step, micro_batches=2)(x)


def normalised():
    return ss.Sequential(
        ss.Conv2D(2, 4, 3, padding=1), ss.BatchNorm2D(4), ss.ReLU(), ss.Flatten(), ss.Linear(256, 5)
    )


def batchnorm_step(parts, **options):
    ss.seed(0)
    model = normalised()
    optimizer = sgd(model.parameters())

    def step(x, y):
        loss = ss.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return ss.compile(step, micro_batches=parts, **options), model, optimizer


IMAGES = np.random.default_rng(0).normal(size=(7, 2, 8, 8)).astype(np.float32)
LABELS = np.arange(7) % 5


def test_batch_normalisation_in_training_is_refused_and_says_why():
    run, model, _ = batchnorm_step(2)
    before = model.state_dict()
    with pytest.raises(CompileError) as caught:
        run(IMAGES, LABELS)
    text = str(caught.value)
    assert "those of a part are others" in text and "layer 1" in text
    assert "ss.compile(step, micro_batches=2, allow_batchnorm_split=True)" in text
    for name, value in before.items():
        np.testing.assert_array_equal(model.state_dict()[name], value)
    model.eval()
    run(IMAGES, LABELS).item()


@pytest.mark.parametrize("parts", [2, 3])
def test_allowed_it_is_a_loop_that_accumulates_gradients(parts):
    """Statistics of each part, running ones moved once per part, in order."""
    run, model, _ = batchnorm_step(parts, allow_batchnorm_split=True)
    losses = [run(IMAGES, LABELS).item() for _ in range(3)]
    _, other, optimizer = batchnorm_step(1)
    sizes, expected = part_sizes(7, parts), []
    for _ in range(3):
        total, start = 0.0, 0
        for n in sizes:
            x, y = ss.tensor(IMAGES[start : start + n]), ss.tensor(LABELS[start : start + n])
            loss = ss.cross_entropy(other(x), y) * (n / 7)
            loss.backward()
            total, start = total + loss.item(), start + n
        optimizer.step()
        optimizer.zero_grad()
        expected.append(total)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    for name, value in other.state_dict().items():
        np.testing.assert_allclose(model.state_dict()[name], value, rtol=1e-4, atol=1e-5)


def test_one_value_per_channel_has_no_variance_in_a_part_either():
    norm = ss.BatchNorm1D(3)
    run = ss.compile(lambda x: norm(x).sum(), micro_batches=4, allow_batchnorm_split=True)
    with pytest.raises(ss.errors.ShapeError, match="one value per channel has no variance"):
        run(np.ones((6, 3), np.float32))


# ---- ss.accumulate -------------------------------------------------------------------------------
def accumulated(cuts, grads_on="device", steps=None, compiled=False, labels=LABELS, lr=0.1):
    """States after one pass over the batch, cut into micro-batches of these sizes."""
    ss.seed(0)
    model = ss.Sequential(ss.Flatten(), ss.Linear(128, 5))
    optimizer = ss.SGD(model.parameters(), lr=lr, momentum=0.9)
    window = ss.accumulate(optimizer, steps, grads_on)
    applied = []

    def micro_step(x, y):
        kept = (y != -1).sum()
        window.backward(ss.cross_entropy(model(x), y, ignore_index=-1), count=kept)

    run = ss.compile(micro_step) if compiled else micro_step
    for _ in range(2):
        with window:
            start = 0
            for n in cuts:
                run(ss.tensor(IMAGES[start : start + n]), ss.tensor(labels[start : start + n]))
                applied.append(window.step())
                start += n
    return model.state_dict(), applied


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("grads_on", ["device", "cpu"])
@pytest.mark.parametrize("compiled", [False, True])
def test_any_cut_is_a_step_on_the_full_batch(grads_on, compiled, device):
    before = ss.default_device()
    labels = np.array([1, -1, 2, -1, -1, 0, 4])
    try:
        ss.default_device(device)
        whole, _ = accumulated([7], labels=labels)
        for cuts in ([1, 6], [3, 3, 1], [1, 1, 1, 2, 2]):  # [1, 1, 1, 2, 2]: one is all ignored
            found, _ = accumulated(cuts, grads_on, None, compiled, labels)
            for name, value in whole.items():
                np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)
    finally:
        ss.default_device(before)


def test_the_mean_is_over_samples_not_over_micro_batches():
    """1 sample with loss 10 and 3 with loss 2: 4, not 6."""
    w = ss.Parameter([1.0])
    seen = []
    optimizer = ss.SGD([w], lr=1.0)
    with ss.accumulate(optimizer) as window:
        for samples in ([10.0], [2.0, 2.0, 2.0]):
            window.backward((w * ss.tensor(samples)).mean(), count=len(samples))
            window.step()
            seen.append(w.numpy().copy())
    assert np.allclose(seen, 1.0) and w.numpy().tolist() == [1.0 - 4.0]


def test_windows_of_some_steps_and_a_last_partial_one():
    found, applied = accumulated([2, 2, 2, 1], steps=3)
    assert applied == [False, False, True, False] * 2
    ss.seed(0)
    model = ss.Sequential(ss.Flatten(), ss.Linear(128, 5))
    optimizer = ss.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        for part in (slice(0, 6), slice(6, 7)):
            ss.cross_entropy(model(ss.tensor(IMAGES[part])), ss.tensor(LABELS[part])).backward()
            optimizer.step()
            optimizer.zero_grad()
    for name, value in model.state_dict().items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("grads_on", ["device", "cpu"])
def test_a_window_without_labels_has_gradient_zero(grads_on):
    ss.seed(0)
    start = ss.Sequential(ss.Flatten(), ss.Linear(128, 5)).state_dict()
    found, _ = accumulated([3, 4], grads_on, labels=np.full(7, -1))
    for name, value in start.items():
        np.testing.assert_array_equal(found[name], value)


def test_after_an_error_nothing_is_applied():
    w = ss.Parameter([1.0])
    with pytest.raises(KeyError), ss.accumulate(ss.SGD([w], lr=1.0)) as window:
        window.backward((w * 2.0).sum(), count=1)
        window.step()
        raise KeyError
    assert w.numpy().tolist() == [1.0]
