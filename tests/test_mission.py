"""The user's program as they would write it, on real MNIST: the plans it compiles, and what its
numbers mean."""

import numpy as np
import pytest

import shoestring as ss


class SimpleCNN(ss.Module):
    def __init__(self):
        self.conv1 = ss.Conv2D(1, 16, 3)
        self.bn1 = ss.BatchNorm2D(16)
        self.conv2 = ss.Conv2D(16, 32, 3)
        self.bn2 = ss.BatchNorm2D(32)
        self.fc = ss.Linear(32 * 5 * 5, 10)

    def forward(self, x):
        x = ss.max_pool2d(ss.relu(self.bn1(self.conv1(x))), 2)
        x = ss.max_pool2d(ss.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(ss.flatten(x))


@pytest.fixture(scope="module")
def digits():
    found = ss.data.mnist()
    return found.x_train[:1000, None].astype(np.float32) / 255.0, found.y_train[:1000].astype(
        np.int64
    )


def epoch(digits, look, clip=True, batch=32):
    ss.seed(0)
    model = SimpleCNN()
    optimizer = ss.SGD(model.parameters(), lr=0.01)
    x, y = ss.tensor(digits[0]), ss.tensor(digits[1])
    looked = []
    for i in range(0, len(x), batch):
        x_batch, y_batch = x[i : i + batch], y[i : i + batch]
        logits = model.forward(x_batch)
        loss = ss.cross_entropy(logits, y_batch)
        loss.backward()
        if clip:
            ss.check_nan_gradients(model.parameters())
            ss.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        if look(i):
            accuracy = (logits.argmax(dim=1) == y_batch).float().mean().item()
            looked.append((loss.item(), accuracy))
    model.conv1.weight.numpy()
    return model, looked


def test_an_epoch_compiles_one_training_plan_and_one_for_the_last_batch(digits):
    _, looked = epoch(digits, look=lambda i: True)
    # 31 batches of 32, one of 8
    assert ss.stats()["plans"] == 2 and ss.stats()["runs"] == 32
    assert looked[0][0] > looked[-1][0]


def test_looking_now_and_then_adds_a_plan_for_the_steps_that_are_looked_at(digits):
    epoch(digits, look=lambda i: i % 320 == 0)
    # not looked at, looked at, the last batch
    assert ss.stats()["plans"] == 3


def test_accuracy_read_after_the_step_is_that_of_the_old_parameters(digits):
    ss.seed(0)
    model = SimpleCNN()
    optimizer = ss.SGD(model.parameters(), lr=0.5)
    x, y = ss.tensor(digits[0][:32]), ss.tensor(digits[1][:32])
    before = model.forward(x).numpy()
    logits = model.forward(x)
    ss.cross_entropy(logits, y).backward()
    optimizer.step()
    optimizer.zero_grad()
    model.fc.weight.numpy()
    np.testing.assert_array_equal(logits.numpy(), before)
    assert np.abs(model.forward(x).numpy() - before).max() > 1e-2


def test_threads_processes_and_compiling_do_not_change_bits(digits):
    def bits(threads):
        ss.set_threads(threads)
        model, looked = epoch((digits[0][:128], digits[1][:128]), look=lambda i: True)
        return [p.numpy().tobytes() for p in model.parameters()], looked

    try:
        assert bits(1) == bits(2)
    finally:
        ss.set_threads(2)
