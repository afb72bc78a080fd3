"""The engine under the kernels: memory, programs, threads, instruction sets, and its glue."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import shoestring

native = pytest.importorskip("shoestring.backends.cpu._native")
CPU = pathlib.Path(shoestring.__file__).parent / "backends" / "cpu"
SOURCES = pathlib.Path(__file__).parent.parent / "src" / "shoestring" / "backends" / "cpu"


def address(array):
    return array.__array_interface__["data"][0]


def add_launch(size, bases=(0, 1, 2), offsets=(0, 0, 0)):
    """One addition of float32[size], as the op describes it."""
    from shoestring.backends.device import device
    from shoestring.ir import OPS
    from shoestring.testing import operand

    x = operand(np.empty(size, np.float32))
    kernel = OPS["add"]().launch(device("cpu"), [x, x], [x]).kernels[0]
    return (
        kernel.entry,
        list(zip(bases, offsets, strict=True)),
        list(kernel.integers),
        list(kernel.reals),
        [],
    )


# ---- memory --------------------------------------------------------------------------------------
def test_bytes_are_counted_now_and_at_the_peak():
    before = native.allocated_bytes()
    native.reset_peak()
    a, b = native.Buffer(1000), native.Buffer(24)
    assert native.allocated_bytes() - before == 1024
    del a
    assert native.allocated_bytes() - before == 24
    assert native.peak_bytes() - before == 1024
    native.reset_peak()
    assert native.peak_bytes() == native.allocated_bytes()
    del b
    assert native.allocated_bytes() == before


def test_memory_is_aligned_and_outlives_its_buffer():
    before = native.allocated_bytes()
    buffer = native.Buffer(100)
    assert buffer.address % 64 == 0 and buffer.nbytes == 100
    memory = buffer.bytes()
    assert memory.shape == (100,) and memory.dtype == np.uint8 and address(memory) == buffer.address
    view = memory[10:20].view(np.int8)
    del buffer, memory
    view[:] = 7
    assert native.allocated_bytes() - before == 100
    del view
    assert native.allocated_bytes() == before


def test_failed_allocation_is_a_memory_error_and_counts_nothing():
    before = native.allocated_bytes()
    with pytest.raises(MemoryError):
        native.Buffer(1 << 60)
    assert native.allocated_bytes() == before
    assert native.Buffer(0).bytes().size == 0


# ---- programs ------------------------------------------------------------------------------------
def test_program_resolves_bases_and_offsets():
    arena = np.zeros(30, np.float32)
    arena[:10], arena[10:20] = np.arange(10), 5
    program = native.Program(
        [add_launch(10, (0, 0, 0), (0, 40, 80)), add_launch(10, (0, 0, 1), (80, 0, 0))]
    )
    y = np.zeros(10, np.float32)
    assert len(program) == 2
    program.run([address(arena), address(y)])
    assert arena[20:].tolist() == [k + 5 for k in range(10)]
    assert y.tolist() == [2 * k + 5 for k in range(10)]


def test_part_of_a_program():
    x, y, z = np.ones(4, np.float32), np.zeros(4, np.float32), np.zeros(4, np.float32)
    program = native.Program([add_launch(4, (0, 0, 1)), add_launch(4, (1, 1, 2))])
    where = [address(x), address(y), address(z)]
    program.run_range(where, 0, 1)
    assert y.tolist() == [2] * 4 and z.tolist() == [0] * 4
    program.run_range(where, 1, 2)
    assert z.tolist() == [4] * 4
    program.run_range(where, 2, 2)


def test_wrong_programs_raise():
    with pytest.raises(IndexError, match="no kernel is named nothing"):
        native.Program([("nothing", [], [], [], [])])
    with pytest.raises(TypeError):
        native.Program([("elementwise", [(-1, 0)], [], [], [])])
    program = native.Program([add_launch(4)])
    with pytest.raises(IndexError, match="needs 3 base addresses, got 2"):
        program.run([0, 0])
    with pytest.raises(IndexError, match="not within"):
        program.run_range([0, 0, 0], 1, 2)


def attached(launch, *extras):
    return (*launch[:4], list(extras))


def test_what_is_attached_where_a_kernel_takes_nothing_is_refused():
    add = add_launch(4)
    program = [add[1], add[2], add[3]]
    moments = ("moments", [(0, 0), (1, 0), (2, 0)], [1, 4, 4], [])
    pool = ("avg_pool2d", [(0, 0), (1, 0)], [1, 4, 4, 2, 2, 2, 2, 2, 2, 0, 0, 1], [])
    sizes = [1, 4, 4, 2, 2, 2, 2, 2, 2, 0, 0, 1]
    inline = ("inline", 0, [(0, 0), (1, 0)], sizes, [], "max_pool2d_grad")
    for launch, extras, message in [
        (add, [("behind", 0, *program, "")], "no port is named behind"),
        (add, [("store", 0, *program, "")], "elementwise: takes nothing at this port"),
        (moments, [("end", 1, *program, "")], "moments: takes nothing at this port"),
        (moments, [("end", -1, *program, "")], "moments: takes nothing at this port"),
        (moments, [("end", 99, *program, "")], "moments: takes nothing at this port"),
        (moments, [("end", 0, *program, "")] * 2, "moments: takes one thing at a port"),
        (moments, [("end", 0, add[1][:2], add[2], [], "")], "sizes that its header"),
        (pool, [inline], "avg_pool2d: no program reads its input"),
        (add, [(*inline[:5], "avg_pool2d")], "does not compute block by block"),
        (add, [(*inline[:3], sizes[1:], [], inline[5])], "needs its sizes and buffers"),
        (add, [inline], "no slot"),
        (add, [("inline", 7, *inline[2:])], "no slot"),
    ]:
        with pytest.raises(ValueError, match=message):
            native.Program([attached(launch, *extras)])
    with pytest.raises(IndexError, match="no kernel is named nothing"):
        native.Program([attached(add, (*inline[:5], "nothing"))])
    native.Program([attached(moments, ("end", 0, *program, ""))])


def test_bases_of_what_is_attached_are_needed():
    add = add_launch(4, (3, 4, 5))
    moments = ("moments", [(0, 0), (1, 0), (2, 0)], [1, 4, 4], [])
    program = native.Program([attached(moments, ("end", 0, add[1], add[2], add[3], ""))])
    with pytest.raises(IndexError, match="needs 6 base addresses, got 3"):
        program.run([0, 0, 0])


def test_entries():
    assert "elementwise" in native.entries() and native.entries() == sorted(native.entries())
    assert native.has_entry("elementwise") and not native.has_entry("nothing")


def test_a_launch_costs_little():
    """The bound is 0.2 us; the test allows ten times that, for a busy machine."""
    x = np.zeros(1, np.float32)
    program = native.Program([add_launch(1)] * 1000)
    where = [address(x)] * 3
    best = min(timed(lambda: program.run(where)) for _ in range(5))
    assert best / 1000 < 2e-6


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


# ---- instruction sets ----------------------------------------------------------------------------
def test_instruction_sets_agree():
    sets = native.isas()
    assert native.isa() == sets[-1]
    a, b = np.random.default_rng(0).standard_normal((2, 1000)).astype(np.float32)
    program, results = native.Program([add_launch(1000)]), []
    try:
        for name in sets:
            native.set_isa(name)
            y = np.zeros(1000, np.float32)
            program.run([address(a), address(b), address(y)])
            results.append(y)
    finally:
        native.set_isa(sets[-1])
    assert all(np.array_equal(y, a + b) for y in results)
    with pytest.raises(ValueError, match="no instruction set mmx"):
        native.set_isa("mmx")


# ---- threads -------------------------------------------------------------------------------------
@pytest.fixture
def thread_count():
    before = native.threads()
    yield
    native.set_threads(before)


def test_results_do_not_depend_on_threads(thread_count):
    a, b = np.random.default_rng(0).standard_normal((2, 300_000)).astype(np.float32)
    program = native.Program([add_launch(300_000)])
    for count in (1, 2, 3, 8, 2, 1):
        native.set_threads(count)
        assert native.threads() == count
        for _ in range(20):
            y = np.zeros(300_000, np.float32)
            program.run([address(a), address(b), address(y)])
            assert np.array_equal(y, a + b)
    with pytest.raises(ValueError, match="at least one thread"):
        native.set_threads(0)


def test_several_python_threads_may_run_programs_at_once(thread_count):
    native.set_threads(3)
    program = native.Program([add_launch(200_000)])
    wrong = []

    def work(seed):
        a, b = np.random.default_rng(seed).standard_normal((2, 200_000)).astype(np.float32)
        for _ in range(50):
            y = np.zeros(200_000, np.float32)
            program.run([address(a), address(b), address(y)])
            if not np.array_equal(y, a + b):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_workers_wake_after_they_slept(thread_count):
    native.set_threads(2)
    a = np.ones(300_000, np.float32)
    y = np.zeros(300_000, np.float32)
    program = native.Program([add_launch(300_000, (0, 0, 1))])
    for _ in range(5):
        y[:] = 0
        program.run([address(a), address(y)])
        assert (y == 2).all()
        time.sleep(0.01)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_a_pool_of_its_own():
    code = """
import os, numpy as np, warnings
from shoestring.backends.device import device
warnings.simplefilter("ignore")
from test_native import add_launch, address, native
native.set_threads(4)
a, y = np.ones(300_000, np.float32), np.zeros(300_000, np.float32)
program = native.Program([add_launch(300_000, (0, 0, 1))])
program.run([address(a), address(y)])
child = os.fork()
y[:] = 0
for _ in range(10):
    program.run([address(a), address(y)])
assert (y == 2).all() and native.threads() == 4
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("both fine")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=pathlib.Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(CPU.parent.parent.parent)},
    )
    assert done.stdout.strip() == "both fine", done.stderr


# ---- the glue ------------------------------------------------------------------------------------
def glue() -> str:
    """native.cpp without comments, strings and preprocessor lines."""
    path = SOURCES / "native.cpp"
    text = re.sub(r"//[^\n]*|^\s*#[^\n]*", "", path.read_text(), flags=re.MULTILINE)
    return re.sub(r'"(\\.|[^"\\])*"', '""', text)


def test_the_glue_has_no_loop_and_no_branch():
    assert not re.findall(r"\b(for|while|do|if|else|switch|goto)\b|\?", glue())


def test_the_glue_has_no_arithmetic():
    assert not re.findall(r"[-+*/%^|~]|<<|&&", glue().replace("->", ""))


def test_only_the_glue_knows_python():
    for path in SOURCES.glob("*"):
        if path.suffix in (".h", ".cpp") and path.name != "native.cpp":
            assert not re.search(r"Python\.h|nanobind/|numpy/", path.read_text()), path.name
