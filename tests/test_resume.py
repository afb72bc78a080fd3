"""Stopping and going on: the loader's place, random draws, and whole training runs, bit by bit."""

import copy
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest

import shoestring as ss

X = np.arange(11, dtype=np.float32)


def loader(**options):
    return ss.DataLoader(X, **{"batch_size": 3, "shuffle": True, "seed": 5, **options})


def epochs(batches, count):
    return [[b.tolist() for b in batches] for _ in range(count)]


# ---- the loader ----------------------------------------------------------------------------------
@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"drop_last": True}, {"seed": None}])
@pytest.mark.parametrize("stop", range(10))
def test_the_remaining_batches_are_those_of_the_same_epoch(options, stop):
    ss.seed(3)
    whole = epochs(loader(**options), 4)
    batches, seen, state = loader(**options), 0, None
    for _ in range(4):
        for _ in batches:
            if seen == stop:
                state = pickle.dumps(batches.state_dict())
            seen += 1
    ss.seed(4)  # the order comes from the saved seed
    other = loader(**options)
    other.load_state_dict(pickle.loads(state))
    epoch, batch = divmod(stop + 1, len(batches))
    rest = epochs(other, 4 - epoch + (batch == 0))
    if batch == 0:  # taken in the last turn of a loop: nothing of that epoch remains
        assert rest.pop(0) == []
    assert rest == [whole[epoch][batch:], *whole[epoch + 1 :]]


def test_between_loops_the_next_epoch_is_whole():
    batches = loader()
    whole = epochs(loader(), 3)
    for done in range(3):
        other = loader()
        other.load_state_dict(batches.state_dict())
        assert epochs(other, 3 - done) == whole[done:]
        list(batches)


def test_a_state_that_was_loaded_can_be_saved_again_at_once():
    batches = loader()
    next(iter(batches))
    saved = batches.state_dict()
    other = loader(seed=6)
    other.load_state_dict(saved)
    assert other.state_dict() == saved
    assert epochs(other, 1)[0] == epochs(loader(), 1)[0][1:]
    assert other.state_dict()["epoch"] == 1 and other.state_dict()["batch"] == 0


def test_the_newest_loop_is_the_one_that_is_saved():
    batches = loader()
    old, new = iter(batches), iter(batches)
    next(old)
    next(new)
    next(old)
    next(old)
    assert batches.state_dict()["epoch"] == 1 and batches.state_dict()["batch"] == 1
    other = loader()
    other.load_state_dict(batches.state_dict())
    assert [b.tolist() for b in other] == [b.tolist() for b in new]
    list(old)
    assert batches.state_dict()["epoch"] == 2 and batches.state_dict()["batch"] == 0


def test_a_loop_that_goes_on_after_loading_does_not_move_the_place():
    batches = loader()
    running = iter(batches)
    next(running)
    saved = batches.state_dict()
    next(running)
    batches.load_state_dict(saved)
    list(running)
    assert batches.state_dict() == saved
    assert epochs(batches, 1)[0] == epochs(loader(), 1)[0][1:]


def test_a_new_loop_after_one_that_was_left_is_a_new_epoch():
    batches = loader()
    for _ in batches:
        break
    assert epochs(batches, 1)[0] == epochs(loader(), 2)[1]


def test_a_copy_of_a_loader_in_the_middle_has_its_place():
    batches = loader()
    next(iter(batches))
    for twin in (copy.deepcopy(batches), pickle.loads(pickle.dumps(batches))):
        assert twin.state_dict() == batches.state_dict()
        twin.load_state_dict(twin.state_dict())
        assert epochs(twin, 1)[0] == epochs(loader(), 1)[0][1:]


def test_an_empty_loader_has_a_place_too():
    batches = ss.DataLoader(np.zeros((0, 2)), batch_size=3)
    assert list(batches) == []
    other = ss.DataLoader(np.zeros((0, 2)), batch_size=3)
    other.load_state_dict(batches.state_dict())
    assert other.epoch == 1 and list(other) == []


MISFITS = [
    (lambda s: None, "no state of a loader"),
    (lambda s: {"epoch": 1}, "no state of a loader"),
    (lambda s: dict(s, more=1), "no state of a loader"),
    (lambda s: dict(s, batch_size=4), "saved with batch_size 4, not 3"),
    (lambda s: dict(s, samples=12), "saved with samples 12, not 11"),
    (lambda s: dict(s, shuffle=False), "saved with shuffle False, not True"),
    (lambda s: dict(s, drop_last=True), "saved with drop_last True, not False"),
    (lambda s: dict(s, epoch=-1), "epoch is -1"),
    (lambda s: dict(s, epoch=1.0), "epoch is 1.0"),
    (lambda s: dict(s, batch=5), "batch is 5, not a whole number from 0 to 4"),
    (lambda s: dict(s, batch="2"), "batch is '2'"),
    (lambda s: dict(s, seed=-1), "seed is -1"),
    (lambda s: dict(s, seed=True), "seed is True"),
]


@pytest.mark.parametrize("misfit, message", MISFITS)
def test_nothing_of_a_place_that_does_not_fit_is_loaded(misfit, message):
    batches = loader()
    next(iter(batches))
    saved = batches.state_dict()
    other = loader(seed=9)
    before = other.state_dict()
    with pytest.raises(ss.ShoestringError, match=message):
        other.load_state_dict(misfit(saved))
    assert other.state_dict() == before
    other.load_state_dict(saved)


@pytest.mark.parametrize("size", [0, -1, 2.0, True, None, "3"])
def test_a_batch_has_a_whole_number_of_samples(size):
    with pytest.raises(ss.ShoestringError, match="batch_size must be a whole number"):
        ss.DataLoader(X, batch_size=size)


# ---- random draws --------------------------------------------------------------------------------
def test_random_draws_go_on_where_they_were():
    ss.seed(7)
    ss.normal(3).tolist()
    dropped = ss.compile(lambda x: ss.dropout(x, 0.5))
    dropped(ss.ones(9))
    state = ss.random_state()
    expected = [ss.normal(3).tolist(), dropped(ss.ones(9)).tolist(), ss.uniform(2).tolist()]
    ss.seed(0)
    ss.seed(*state)
    assert ss.random_state() == state
    found = [ss.normal(3).tolist(), dropped(ss.ones(9)).tolist(), ss.uniform(2).tolist()]
    assert found == expected


# ---- whole runs ----------------------------------------------------------------------------------
class Run:
    """A training run with everything that has a state: momentum or Adam, a schedule with warm-up,
    dropout, batch normalisation, a shuffled loader."""

    def __init__(self, kind, compiled):
        ss.seed(1)
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(23, 6)).astype(np.float32), rng.integers(0, 3, 23)
        self.loader = ss.DataLoader((x, y), batch_size=4, shuffle=True)
        self.model = ss.Sequential(
            ss.Linear(6, 8), ss.BatchNorm1D(8), ss.ReLU(), ss.Dropout(0.3), ss.Linear(8, 3)
        )
        make = {"sgd": lambda p: ss.SGD(p, np.float32(0.1), 0.9, True), "adam": ss.AdamW}[kind]
        self.optimizer = make(self.model.parameters())
        self.schedule = ss.optim.CosineDecay(self.optimizer, steps=30, warmup=5)
        self.step = ss.compile(self.plain) if compiled else self.plain

    def plain(self, x, y):
        loss = ss.cross_entropy(self.model(x), y)
        loss.backward()
        ss.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def state(self):
        things = (self.model, self.optimizer, self.schedule, self.loader)
        return [t.state_dict() for t in things] + [ss.random_state()]

    def load(self, state):
        things = (self.model, self.optimizer, self.schedule, self.loader)
        for thing, saved in zip(things, state, strict=False):
            thing.load_state_dict(saved)
        ss.seed(*state[-1])

    def train(self, steps, after=lambda done: None):
        """{step: loss, in full}"""
        losses = {}
        while self.schedule.t < steps:
            for x, y in self.loader:
                losses[self.schedule.t] = self.step(x, y).item().hex()
                self.schedule.step()
                after(self.schedule.t)
                if self.schedule.t == steps:
                    break
        return losses


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("stop", [1, 6, 8, 17])
def test_a_resumed_run_has_the_same_bits(kind, compiled, stop):
    states = {}
    run = Run(kind, compiled)
    whole = run.train(20, lambda t: states.update({t: pickle.dumps(run.state())}))
    other = Run(kind, compiled)
    ss.seed(99)
    other.load(pickle.loads(states[stop]))
    rest = other.train(20)
    assert rest == {t: loss for t, loss in whole.items() if t >= stop}
    for name, value in run.model.state_dict().items():
        assert value.tobytes() == other.model.state_dict()[name].tobytes()


KILLED = """
import json, os, pathlib, pickle, sys, time
from shoestring.io.whole import written_whole
from test_resume import Run
folder, stop = pathlib.Path(sys.argv[1]), int(sys.argv[2])
run = Run("adam", True)
if (folder / "checkpoint").exists():
    run.load(pickle.loads((folder / "checkpoint").read_bytes()))

def after(done):
    with written_whole(folder / "checkpoint") as file:
        pickle.dump(run.state(), file)
    if done == stop:
        print("now", flush=True)
        time.sleep(100)

print(json.dumps(run.train(20, after)), flush=True)
"""


def test_a_killed_run_goes_on_from_its_checkpoint(tmp_path):
    whole = Run("adam", True).train(20)
    paths = [str(pathlib.Path(__file__).parent), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    run = [sys.executable, "-c", KILLED, tmp_path]
    process = subprocess.Popen([*run, "9"], stdout=subprocess.PIPE, env=environment)
    assert process.stdout.readline() == b"now\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    found = subprocess.run([*run, "0"], capture_output=True, env=environment, check=True).stdout
    rest = {int(t): loss for t, loss in json.loads(found).items()}
    assert rest == {t: loss for t, loss in whole.items() if t >= 9}
