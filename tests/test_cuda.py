"""The CUDA driver layer, on a driver that stands in for the real one (fake_cuda.py)."""

import contextlib
import gc
import os
import pathlib
import pickle
import tempfile
import threading

import numpy as np
import pytest
from fake_cuda import FakeDriver, FakeNVRTC, card

import shoestring as ss
from shoestring.backends import Kernel, cuda, placed
from shoestring.backends.cuda import cache, nvrtc
from shoestring.backends.cuda import driver as driver_module
from shoestring.backends.cuda.driver import NEWER, PROTOTYPES, START_WORKERS
from shoestring.backends.cuda.staging import HALF
from shoestring.backends.device import DEVICES, device
from shoestring.backends.source import define, render
from shoestring.runtime import release_arena

ZERO = Kernel(
    "zero",
    (0,),
    source="copy.cl",
    defines=define(TYPE="float", SIZE=8, THREADS=8, POSITIONS="", FROM="i", TO="i"),
    grid=(2,),
    block=(8,),
)
DeviceError = ss.errors.DeviceError


@contextlib.contextmanager
def using(library, compilers=None):
    """A driver and compilers for a while, with an empty cache."""
    compilers = [FakeNVRTC()] if compilers is None else compilers
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        if "SHOESTRING_CACHE" not in os.environ:
            patch.setenv("SHOESTRING_CACHE", folder)
        patch.setattr(driver_module, "load_library", lambda: library)
        patch.setattr(nvrtc, "installed", lambda: tuple(compilers))
        real = {name: DEVICES.pop(name) for name in list(DEVICES) if name.startswith("cuda")}
        driver_module.open_driver.cache_clear()
        try:
            yield library
        finally:
            cuda.Exported.folder = None
            for name in [name for name in DEVICES if name.startswith("cuda")]:
                release_arena(name)
                gc.collect()
                del DEVICES[name]
            DEVICES.update(real)
            driver_module.open_driver.cache_clear()


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """use(FakeDriver, [compilers]): the driver and the compilers of this test from now on."""
    monkeypatch.setenv("SHOESTRING_CACHE", str(tmp_path))
    with contextlib.ExitStack() as stack:
        yield lambda library=None, compilers=None: stack.enter_context(
            using(library or FakeDriver(), compilers)
        )


# ---- the driver ----------------------------------------------------------------------------------
def test_nothing_is_loaded_before_a_card_is_named(fake):
    library = fake()
    ss.tensor([1.0, 2.0], device="cpu").numpy()
    assert library.calls == []
    assert device("cuda").name == "cuda:0" and library.calls[0] == "cuInit"
    assert library.calls.count("cuInit") == 1


def test_every_function_of_the_table_is_used():
    folder = pathlib.Path(cuda.__file__).parent
    text = "".join(path.read_text() for path in folder.glob("*.py"))
    assert [name for name in PROTOTYPES if text.count(f'"{name}"') < 2] == []


@pytest.mark.parametrize("name", sorted(NEWER))
def test_an_older_driver_does_without_newer_functions(fake, name):
    library = fake(FakeDriver(version=11000, without=[name]))
    program, base = replayed(cuda.CUDA(0), 3)
    library.launches.clear()
    program.run([(base, 0)])
    assert len(library.launches) == 2 and "cuGraphLaunch" in library.calls


def test_several_cards_by_number(fake):
    fake(FakeDriver([card(), card(name=b"Other GPU", capability=(9, 0), cores=132)]))
    first, second = device("cuda:0"), device("cuda:1")
    assert (first.model, second.model) == ("Fake GPU", "Other GPU")
    assert second.capability == (9, 0) and second.cores == 132
    assert first.context.value != second.context.value


def test_another_thread_makes_the_context_current(fake):
    library = fake()
    there = device("cuda:0")
    library.calls.clear()
    found = []
    work = threading.Thread(target=lambda: found.append(there.upload(np.ones(3, np.float32))))
    work.start()
    work.join()
    assert library.calls[0] == "cuCtxSetCurrent" and there.read(found[0]).sum() == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork() on this system")
def test_a_forked_process_is_told_how_to_start_workers(fake):
    library = fake()
    there = device("cuda:0")
    held = there.upload(np.ones(3, np.float32))
    before = len(library.calls)
    inward, outward = os.pipe()
    if os.fork() == 0:
        said = []
        for use in (lambda: there.read(held), lambda: there.empty((3,), np.dtype("float32"))):
            try:
                use()
                said.append("no error")
            except BaseException as problem:
                said.append(str(problem))
        del held, use
        gc.collect()
        os.write(outward, pickle.dumps((said, library.calls[before:])))
        os._exit(0)
    os.wait()
    said, calls = pickle.loads(os.read(inward, 1 << 16))
    assert len(said) == 2 and all(START_WORKERS in text for text in said)
    assert calls == []  # nor does the collector give back what is the parent's
    assert there.read(held).sum() == 3


# ---- memory --------------------------------------------------------------------------------------
def test_values_go_to_the_card_and_come_back(fake):
    library = fake()
    there = device("cuda:0")
    rng = np.random.default_rng(0)
    for size in (1, 100, HALF // 4, HALF // 4 + 1, 3 * HALF // 4 + 5, HALF):
        x = rng.standard_normal(size).astype(np.float32)
        y = there.upload(x)
        x_before = x.copy()
        x[:] = 0  # the caller may change it at once
        assert np.array_equal(there.read(y), x_before), size
    del y
    assert there.allocated_bytes() == 0 and not library.memory


def test_many_copies_wait_only_when_pinned_memory_is_full(fake):
    library = fake()
    there = device("cuda:0")
    target = [there.empty((HALF // 16,), np.dtype("float32")) for _ in range(12)]
    library.calls.clear()
    for k, t in enumerate(target[:8]):
        there.write(t, np.full(t.shape, k, np.float32))
    assert "cuEventSynchronize" not in library.calls and len(library.queue) >= 8
    for k, t in enumerate(target[8:], 8):
        there.write(t, np.full(t.shape, k, np.float32))
    assert library.calls.count("cuEventSynchronize") == 1
    assert [there.read(t)[-1] for t in target] == list(range(12))


def test_a_full_card_gives_no_memory_and_goes_on(fake):
    fake(FakeDriver([card(memory=10_000)]))
    there = device("cuda:0")
    kept = there.upload(np.ones(100, np.float32))
    with pytest.raises(DeviceError, match="cuda:0 could not provide 40,000 bytes"):
        there.empty((10_000,), np.dtype("float32"))
    assert there.read(kept).sum() == 100 and there.free_bytes() == 9_600


# ---- kernels -------------------------------------------------------------------------------------
def test_a_kernel_is_compiled_once_and_kept_on_disk(fake, tmp_path):
    compiler = FakeNVRTC()
    library = fake(compilers=[compiler])
    first = cuda.CUDA(0)
    assert first.compile(render(ZERO)) is first.compile(render(ZERO))
    assert compiler.compiled == [("zero.cl", "sm_61")] and cache.size(tmp_path / "kernels")[0] == 1
    fake(library, compilers=[])  # no compiler any more
    cuda.CUDA(0).compile(render(ZERO))
    with pytest.raises(DeviceError, match="NVRTC is not installed"):
        cuda.CUDA(0).compile(render(ZERO._replace(defines=(*ZERO.defines, ("MORE", 1)))))


def damage(entry, how):
    data = entry.read_bytes()
    entry.write_bytes({"cut": data[:-3], "empty": b"", "changed": data[:-1] + b"?"}[how])


@pytest.mark.parametrize("how", ["cut", "empty", "changed"])
def test_a_damaged_entry_is_made_again(fake, tmp_path, how):
    compiler = FakeNVRTC()
    library = fake(compilers=[compiler])
    cuda.CUDA(0).compile(render(ZERO))
    (entry,) = (tmp_path / "kernels").iterdir()
    whole = entry.read_bytes()
    damage(entry, how)
    cuda.CUDA(0).compile(render(ZERO))
    assert len(compiler.compiled) == 2 and entry.read_bytes() == whole
    assert b"NVRTC 11.8" in whole.partition(b"\n")[0]
    images = [h[1] for h in library.handles.values() if h and h[0] == "module"]
    assert images == [b"image of zero.cl for sm_61"] * 2


def test_a_cache_that_cannot_be_written_is_none(fake, tmp_path):
    (tmp_path / "kernels").write_text("a file where the folder should be")
    compiler = FakeNVRTC()
    fake(compilers=[compiler])
    cuda.CUDA(0).compile(render(ZERO))
    assert len(compiler.compiled) == 1


@pytest.mark.parametrize(
    "capability, driver, offered, expected",
    [
        ((6, 1), 12000, [(11, 8, 35, 61, 90)], ((11, 8), "sm_61")),
        ((6, 2), 12000, [(11, 8, 35, 61, 90)], ((11, 8), "sm_61")),
        ((9, 0), 13000, [(11, 8, 35, 90), (13, 0, 75, 90, 100)], ((13, 0), "sm_90")),
        ((9, 0), 12020, [(11, 8, 35, 90), (13, 0, 75, 90, 100)], ((11, 8), "sm_90")),
        ((3, 5), 11040, [(12, 4, 50, 90)], None),
        ((3, 5), 11040, [(12, 4, 50, 90), (11, 8, 35, 90)], ((11, 8), "sm_35")),
        ((10, 0), 13000, [(11, 8, 35, 90)], ((11, 8), "compute_90")),
        ((10, 0), 13000, [(11, 8, 35, 90), (13, 0, 75, 100)], ((13, 0), "sm_100")),
        ((6, 1), 13000, [(13, 0, 75, 100)], None),
        ((6, 1), 13000, [], None),
    ],
)
def test_the_compiler_is_chosen_for_card_and_driver(capability, driver, offered, expected):
    offered = [FakeNVRTC(o[:2], o[2:]) for o in offered]
    found = nvrtc.choose(capability, driver, offered)
    assert found == expected or (found[0].version, found[1]) == expected
    if expected:
        assert found[1] in nvrtc.targets(capability)


def test_the_best_kernel_on_disk_is_taken(tmp_path):
    source = render(ZERO)
    for target in ("compute_50", "sm_60", "sm_61", "sm_70"):
        cache.write(tmp_path, source, target, target.encode(), "NVRTC 11.8")
    found = {c: cache.read(tmp_path, source, nvrtc.targets(c)) for c in [(6, 1), (6, 0), (5, 2)]}
    assert found == {(6, 1): b"sm_61", (6, 0): b"sm_60", (5, 2): b"compute_50"}
    assert cache.read(tmp_path, source, nvrtc.targets((3, 5))) is None


# ---- programs ------------------------------------------------------------------------------------
def replayed(there, times):
    """A program of two kernels on one base, run several times."""
    base = there.buffer(1000)
    program = there.program([placed(ZERO, [(0, 0)]), placed(ZERO, [(0, 256)])])
    for _ in range(times):
        program.run([(base, 0)])
    return program, base


def test_launches_get_their_addresses(fake):
    library = fake()
    there = device("cuda:0")
    _, base = replayed(there, 1)
    assert library.launches == [
        ("zero", (2, 1, 1), (8, 1, 1), (base.handle + offset,)) for offset in (0, 256)
    ]


def test_a_replayed_program_is_one_graph(fake):
    library = fake()
    there = device("cuda:0")
    program, base = replayed(there, 6)
    assert library.calls.count("cuLaunchKernel") == 4 and library.calls.count("cuGraphLaunch") == 4
    assert library.calls.count("cuGraphCreate") == 1 and len(library.launches) == 12
    assert len(set(library.launches)) == 2
    del program, base
    gc.collect()
    assert {"cuGraphExecDestroy", "cuGraphDestroy"} <= set(library.calls)


def test_only_the_launches_that_read_a_moved_base_are_told(fake):
    library = fake()
    there = device("cuda:0")
    base, other = there.buffer(1000), there.buffer(1000)
    program = there.program(
        [placed(ZERO, [(0, 0)]), placed(ZERO, [(1, 0)]), placed(ZERO, [(0, 64)])]
    )
    for _ in range(3):
        program.run([(base, 0), (base, 256)])
    library.launches.clear()
    library.calls.clear()
    program.run([(base, 0), (other, 512)])
    assert library.calls.count("cuGraphExecKernelNodeSetParams") == 1
    want = [base.handle, other.handle + 512, base.handle + 64]
    assert [places for *_, places in library.launches] == [(a,) for a in want]
    program.run_range([(other, 0), (other, 4)], 1, 3)  # launched, but the graph knows it too
    program.run([(other, 0), (other, 4)])
    assert [places for *_, places in library.launches[-3:]] == [
        (other.handle + n,) for n in (0, 4, 64)
    ]


def test_a_watched_program_waits_for_each_kernel(fake):
    library = fake()
    there = device("cuda:0")
    program, base = replayed(there, 1)
    library.calls.clear()
    program.run_range([(base, 0)], 1, 2)
    assert library.calls.count("cuLaunchKernel") == 1
    assert library.calls[-1] == "cuStreamSynchronize"


def test_a_fault_names_the_kernels_and_the_context_is_lost(fake):
    library = fake()
    there = device("cuda:0")
    program, base = replayed(there, 1)
    there.synchronize()
    library.fault_at = "zero"
    program.run([(base, 0)])
    with pytest.raises(DeviceError, match="CUDA_ERROR_ILLEGAL_ADDRESS") as caught:
        there.read(there.array(base, (3,), np.dtype("float32")))
    assert caught.value.place == "launch/cuda.fault" and "2 launches of zero" in str(caught.value)
    for use, *given in ((there.synchronize,), (there.buffer, 10), (program.run, [(base, 0)])):
        with pytest.raises(DeviceError, match="2 launches of zero") as caught:
            use(*given)
        assert caught.value.place == "launch/cuda.lost"
    del program, base, use, given
    gc.collect()  # nothing is given back to a context that is lost
    assert "cuMemFree_v2" not in library.calls


def test_a_fault_under_check_names_the_one(fake):
    library = fake()
    there = device("cuda:0")
    base = there.buffer(1000)
    other = ZERO._replace(entry="copy", buffers=(0, 1))
    library.fault_at = "zero"
    program = there.program([placed(other, [(0, 0), (0, 64)]), placed(ZERO, [(0, 0)])])
    library.count = 1
    program.run_range([(base, 0)], 0, 1)
    with pytest.raises(DeviceError) as caught:
        program.run_range([(base, 0)], 1, 2)
    assert "it was zero; what is on the card is lost" in str(caught.value)


def test_what_a_kernel_takes_is_checked_before_it_runs(fake):
    for attributes, said in (
        ({1: 50_000}, "zero shares 50,000 bytes"),
        ({3: 16}, "zero needs a stack of 16 bytes"),
        ({0: 4}, "zero has blocks of 8 threads of 32 registers"),
    ):
        library = fake()
        library.function.update(attributes)
        there = cuda.CUDA(0)
        with pytest.raises(DeviceError, match=said):
            there.program([placed(ZERO, [(0, 0)])])
        assert library.launches == []


def test_a_compiled_step_becomes_a_graph(fake, monkeypatch):
    """Nothing is computed, so nothing is compared with a reference."""
    monkeypatch.setattr(ss.runtime.session, "check", False)
    library = fake()
    library.count = 2
    x = ss.tensor(np.ones((4, 4), np.float32), device="cuda:0")
    step = ss.compile(lambda x: (x * 2, x.T + 1))
    for _ in range(4):
        step(x)[0].numpy()
    assert library.calls.count("cuLaunchKernel") == 4 and library.calls.count("cuGraphLaunch") == 2
    assert {entry for entry, *_ in library.launches} == {"elementwise"}
