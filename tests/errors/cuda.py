"""Messages about NVIDIA cards: driver, compiler, kernels, exported kernels."""

import pathlib
import tempfile

import fake_cuda
from fake_cuda import FakeDriver, FakeNVRTC
from test_cuda import ZERO, using

from shoestring.backends import cuda, placed
from shoestring.backends.cuda import driver, nvrtc
from shoestring.backends.cuda.target import Target
from shoestring.backends.device import device
from shoestring.backends.source import render


def no_driver():
    library, driver.LIBRARY = driver.LIBRARY, "libno-such-driver.so.1"
    try:
        driver.load_library()
    finally:
        driver.LIBRARY = library


def old_driver():
    driver.Driver(FakeDriver(version=10020))


def no_such_card():
    with using(FakeDriver()):
        cuda.CUDA(1)


def old_card():
    with using(FakeDriver([fake_cuda.card(name=b"GeForce GTX 680", capability=(3, 0))])):
        cuda.CUDA(0)


def after_fork():
    found = driver.Driver(FakeDriver())
    found.process += 1
    found.count()


def refused_call():
    library = FakeDriver()
    library.codes["cuDeviceGetCount"] = 999
    driver.Driver(library).count()


def fault(again=False):
    with using(FakeDriver()) as library:
        there = device("cuda:0")
        base = there.buffer(100)
        library.fault_at = "zero"
        there.program([placed(ZERO, [(0, 0)])]).run([(base, 0)])
        try:
            there.synchronize()
        except Exception:
            if not again:
                raise
        there.synchronize()


def no_compiler():
    with using(FakeDriver(), [FakeNVRTC((13, 0), (75, 90))]):
        cuda.CUDA(0).compile(render(ZERO))


def not_compiled():
    log = 'copy.cl(30): error: identifier "j" is undefined\n\n1 error detected'
    with using(FakeDriver(), [FakeNVRTC(problem=log)]):
        cuda.CUDA(0).compile(render(ZERO))


def stack():
    with using(FakeDriver()) as library:
        library.function[3] = 48
        cuda.CUDA(0).compile(render(ZERO))


def no_folder():
    cuda.exported_facts(pathlib.Path("/no/such/folder"))


def not_exported():
    with using(FakeDriver()), tempfile.TemporaryDirectory() as folder:
        cuda.Exported.folder = pathlib.Path(folder)
        (cuda.Exported.folder / "card.json").write_text('{"cores": 20, "network": "mlp"}')
        cuda.CUDA(0).compile(render(ZERO))


def no_architecture():
    Target("sm_30", pathlib.Path("kernels"))


def no_room():
    with using(FakeDriver()), tempfile.NamedTemporaryFile() as file:
        Target("sm_61", pathlib.Path(file.name)).compile(render(ZERO))


TRIGGERS = {
    "value/cuda.architecture": (
        no_architecture,
        ["there is no architecture 'sm_30'", "sm_35, sm_37, sm_50", "--arch sm_61"],
    ),
    "data/cuda.export": (no_room, ["nothing can be written to", "--export"]),
    "value/cuda.driver": (no_driver, ["there is no NVIDIA driver: libno-such-driver.so.1"]),
    "value/cuda.old": (
        old_driver,
        ["the NVIDIA driver is too old", "that of CUDA 10.2", "450.80.02 (Windows: 452.39)"],
    ),
    "value/cuda.device": (no_such_card, ["there is no card cuda:1", "offers 1", "cuda:0"]),
    "value/cuda.card": (
        old_card,
        ["GeForce GTX 680 (compute capability 3.0) is too old", "3.5 or more"],
    ),
    "launch/cuda.forked": (after_fork, ["was used before this process was forked", '"spawn"']),
    "launch/cuda.call": (
        refused_call,
        ["cuDeviceGetCount failed on the driver: CUDA_ERROR_UNKNOWN (999)", "nvidia-modprobe"],
    ),
    "launch/cuda.fault": (
        fault,
        [
            "a kernel failed on cuda:0 (Fake GPU): CUDA_ERROR_ILLEGAL_ADDRESS (700)",
            "it was zero",
            "SHOESTRING_CHECK=1",
        ],
    ),
    "launch/cuda.lost": (
        lambda: fault(again=True),
        ["cuda:0 cannot be used any more", "CUDA_ERROR_ILLEGAL_ADDRESS (700) in zero"],
    ),
    "launch/cuda.compiler": (
        no_compiler,
        [
            "there is no compiler for Fake GPU (sm_61)",
            "NVRTC 13.0 compiles for sm_75 and newer",
            nvrtc.WHEEL,
        ],
    ),
    "launch/cuda.compile": (
        not_compiled,
        ["zero does not compile for Fake GPU", 'copy.cl(30): error: identifier "j" is undefined'],
    ),
    "launch/cuda.kernel": (stack, ["zero needs a stack of 48 bytes per thread", "is none"]),
    "value/cuda.exported": (no_folder, ["/no/such/folder is not a folder of exported kernels"]),
    "launch/cuda.exported": (
        not_exported,
        ["has no zero like this for Fake GPU (sm_61)", "network mlp", "--arch sm_61 --export DIR"],
    ),
}
