"""Saving: arguments, what a dead or a living process leaves, and disks that refuse."""

import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import zipfile

import numpy as np
import pytest

import shoestring as ss
from shoestring.errors import DataError, DTypeError
from shoestring.io.whole import SUFFIX, written_whole

HANGS = """
import sys, time
from shoestring.io.whole import written_whole
with written_whole(sys.argv[1]) as file:
    file.write(b"half of it")
    file.flush()
    print("writing", flush=True)
    time.sleep(100)
"""


def writer(path):
    """A process in the middle of writing to `path`."""
    process = subprocess.Popen([sys.executable, "-c", HANGS, path], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"writing\n"
    return process


def end(process, how):
    process.send_signal(how)
    process.wait()
    process.stdout.close()


def names(folder):
    return sorted(p.name for p in folder.iterdir())


# ---- what is left of a process -------------------------------------------------------------------
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("same", [True, False])
def test_a_later_save_removes_what_a_killed_process_left(tmp_path, how, same):
    path = tmp_path / "w.npz"
    end(writer(path if same else tmp_path / "other.npz"), how)
    assert len(names(tmp_path)) == 1 and names(tmp_path)[0].endswith(SUFFIX)
    ss.save({"a": np.ones(2)}, path)
    assert names(tmp_path) == ["w.npz"] and ss.load(path)["a"].tolist() == [1, 1]


def test_what_a_living_process_writes_is_left_alone(tmp_path):
    path = tmp_path / "w.npz"
    process = writer(path)
    try:
        for k in range(3):
            ss.save({"a": np.full(2, k)}, path)
            found = names(tmp_path)
            assert len(found) == 2 and found[1].endswith(SUFFIX)
        assert (tmp_path / found[1]).read_bytes() == b"half of it"
    finally:
        end(process, signal.SIGKILL)
    ss.save({"a": np.ones(2)}, path)
    assert names(tmp_path) == ["w.npz"]


def test_an_interrupted_save_removes_its_own(tmp_path):
    path = tmp_path / "w.npz"
    end(writer(path), signal.SIGINT)
    assert names(tmp_path) == []


def test_files_of_others_are_left_alone(tmp_path):
    for name in ("w.npz.part", "w.npz.123.part", "download.part"):
        (tmp_path / name).write_bytes(b"mine")
    ss.save({"a": np.ones(2)}, tmp_path / "w.npz")
    assert names(tmp_path) == ["download.part", "w.npz", "w.npz.123.part", "w.npz.part"]


def test_threads_and_processes_that_save_to_one_path_leave_one_whole_file(tmp_path):
    path = tmp_path / "w.npz"
    many = """
import sys, numpy as np, shoestring as ss
for k in range(40): ss.save({"a": np.full(500, k)}, sys.argv[1])
"""
    processes = [subprocess.Popen([sys.executable, "-c", many, path]) for _ in range(2)]
    problems = []

    def save():
        try:
            for k in range(40):
                ss.save({"a": np.full(500, k)}, path)
                assert len(set(ss.load(path)["a"].tolist())) == 1
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=save) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [p.wait() for p in processes] == [0, 0] and not problems
    assert names(tmp_path) == ["w.npz"]


def test_a_link_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    ss.save({"a": np.zeros(1)}, tmp_path / "real" / "w.npz")
    link = tmp_path / "latest.npz"
    link.symlink_to(tmp_path / "real" / "w.npz")
    ss.save({"a": np.ones(1)}, link)
    assert link.is_symlink() and ss.load(tmp_path / "real" / "w.npz")["a"].tolist() == [1]


def test_a_file_takes_the_longest_name_that_there_is(tmp_path):
    path = tmp_path / ("w" * 251 + ".npz")
    ss.save({"a": np.ones(1)}, path)
    assert names(tmp_path) == [path.name]


# ---- disks that refuse ---------------------------------------------------------------------------
FULL = """
import resource, sys, numpy as np, shoestring as ss
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    ss.save({"a": np.zeros(100_000)}, sys.argv[1])
except ss.errors.DataError as problem:
    print(problem)
"""


def test_a_disk_without_room_keeps_the_old_file(tmp_path):
    path = tmp_path / "w.npz"
    ss.save({"a": np.ones(1)}, path)
    run = [sys.executable, "-c", FULL, path]
    found = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert f"{path} could not be written: File too large" in found and "untouched" in found
    assert ss.load(path)["a"].tolist() == [1] and names(tmp_path) == ["w.npz"]


def test_a_folder_without_the_right_to_write_keeps_the_old_file():
    """For the moment as another user where this one is root, who may write everywhere."""
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "w.npz"
        ss.save({"a": np.ones(1)}, path)
        path.parent.chmod(0o555)
        user = os.geteuid()
        os.seteuid(user or 65534)
        try:
            with pytest.raises(DataError) as caught:
                ss.save({"a": np.zeros(1)}, path)
        finally:
            os.seteuid(user)
            path.parent.chmod(0o755)
        assert f"{path} could not be written: Permission denied" in str(caught.value)
        assert ss.load(path)["a"].tolist() == [1] and names(path.parent) == ["w.npz"]


@pytest.mark.parametrize(
    "place, message",
    [("no/w.npz", "No such file"), ("file/w.npz", "Not a directory"), ("folder", "directory")],
)
def test_places_where_nothing_can_be_written(tmp_path, place, message):
    (tmp_path / "file").write_bytes(b"mine")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match=message):
        ss.save({"a": np.ones(1)}, tmp_path / place)
    assert names(tmp_path) == ["file", "folder"] and names(tmp_path / "folder") == []
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_any_error_while_writing_keeps_the_old_file(tmp_path):
    path = tmp_path / "w.npz"
    path.write_bytes(b"old")
    with pytest.raises(KeyError), written_whole(path) as file:
        file.write(b"new")
        raise KeyError
    assert path.read_bytes() == b"old" and names(tmp_path) == ["w.npz"]


# ---- arguments -----------------------------------------------------------------------------------
@pytest.mark.parametrize("path", ["w.npz", pathlib.Path("w.npz")])
@pytest.mark.parametrize("make", [lambda: ss.Linear(2, 2), lambda: {"a": np.ones(1)}])
def test_swapped_arguments_say_the_right_call(tmp_path, monkeypatch, path, make):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DTypeError, match=r"comes first.*\n.*\n  try:  ss.save\(model, 'w.npz'\)"):
        ss.save(path, make())
    assert names(tmp_path) == []


@pytest.mark.parametrize("thing", [None, 3, ss.ones(2), np.ones(2), [np.ones(2)], "w"])
def test_what_has_no_names_is_not_saved(tmp_path, thing):
    with pytest.raises(DTypeError, match="a Module or a dict of arrays to a path"):
        ss.save(thing, tmp_path / "w.npz")
    with pytest.raises(DTypeError, match=r"to a path|comes first"):
        ss.save({"a": np.ones(1)}, thing if not isinstance(thing, str) else None)
    assert names(tmp_path) == []


@pytest.mark.parametrize("key", [0, None, ("a", 1), "a\0b", b"a"])
def test_a_name_that_would_come_back_changed_is_refused(tmp_path, key):
    with pytest.raises(DTypeError, match="names of arrays are strings"):
        ss.save({key: np.ones(1)}, tmp_path / "w.npz")
    assert names(tmp_path) == []


def test_loading_takes_a_path_and_a_module():
    for arguments in ((ss.Linear(2, 2), "w.npz"), ("w.npz", {"a": 1}), (None,), (3,)):
        with pytest.raises(DTypeError, match="loads from a path, into a Module"):
            ss.load(*arguments)


# ---- what is loaded ------------------------------------------------------------------------------
def test_a_file_of_another_network_lists_all_that_does_not_fit(tmp_path):
    path = tmp_path / "w.npz"
    ss.save({"weight": np.ones((3, 3)), "more": np.ones(1)}, path)
    layer = ss.Linear(3, 2)
    before = layer.state_dict()
    with pytest.raises(ss.ShoestringError) as caught:
        ss.load(path, into=layer)
    for part in ("missing bias", "unexpected more", "weight: expected", "got [3, 3]"):
        assert part in str(caught.value)
    assert all(np.array_equal(v, before[k]) for k, v in layer.state_dict().items())


def test_weights_are_saved_with_the_step_that_is_still_pending(tmp_path):
    layer = ss.Linear(3, 2)
    optimizer = ss.SGD(layer.parameters(), lr=0.1)
    before = layer.bias.numpy()
    layer(ss.ones(4, 3)).sum().backward()
    optimizer.step()
    ss.save(layer, tmp_path / "w.npz")
    found = ss.load(tmp_path / "w.npz")["bias"]
    np.testing.assert_array_equal(found, layer.bias.numpy())
    np.testing.assert_allclose(found, before - 0.4, rtol=1e-6)


def test_an_archive_of_something_else_is_no_file_of_arrays(tmp_path):
    path = tmp_path / "w.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(DataError, match=r"readme.txt in it is no array"):
        ss.load(path)
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(DataError, match="not a whole"):
        ss.load(path)
    np.savez(path, a=np.array([{"an": "object"}]))
    with pytest.raises(DataError, match="not a whole"):
        ss.load(path)


def test_a_changed_or_missing_byte_is_never_a_changed_number(tmp_path):
    path = tmp_path / "w.npz"
    state = {"a": np.arange(50, dtype=np.float32), "b": np.arange(6).reshape(2, 3)}
    ss.save(state, path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    damaged = [whole[:n] for n in range(0, len(whole), 37)]
    for place in rng.permutation(len(whole))[:150]:
        changed = bytearray(whole)
        changed[place] ^= 1 << rng.integers(8)
        damaged.append(bytes(changed))
    for content in damaged:
        path.write_bytes(content)
        try:
            found = ss.load(path)
        except DataError:
            continue
        for name in found:  # a flipped bit in a name gives another name, and none to a Module
            match = [v for v in state.values() if np.array_equal(v, found[name])]
            assert match and match[0].dtype == found[name].dtype


PROBES = """
import pathlib, sys, tempfile, time
from shoestring.cli import train
write = tempfile.TemporaryFile

class Slow:
    def __init__(self, **options):
        self.file = write(**options)
    def __enter__(self):
        return self
    def __exit__(self, *problem):
        self.file.close()
    def write(self, content):
        self.file.write(content)
        self.file.flush()
        print("writing", flush=True)
        time.sleep(100)

train.tempfile.TemporaryFile = Slow
train.writable_folder(pathlib.Path(sys.argv[1]))
"""


def test_a_command_that_is_killed_while_it_tries_a_folder_leaves_nothing(tmp_path):
    run = [sys.executable, "-c", PROBES, tmp_path]
    process = subprocess.Popen(run, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"writing\n"
    end(process, signal.SIGKILL)
    assert names(tmp_path) == []
