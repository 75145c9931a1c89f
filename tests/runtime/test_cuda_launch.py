"""The launch code of StitchOp, without TensorFlow, over a driver that notes what it is asked for."""

from __future__ import annotations

import ctypes
import subprocess
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.gpu_abi import StitchGpuKernel, StitchLaunch
from tf_stitch.runtime import paths

HERE = Path(__file__).parent
ABI = paths.include_root()

# A kernel of two inputs, of which it reads the second. Its images are their own names.
KERNEL = """
#include "abi.h"
static const StitchParameter parameters[] = {
    {STITCH_INPUT, 1}, {STITCH_OUTPUT, 0}, {STITCH_SCRATCH, 0}, {STITCH_BARRIER, 0}, {STITCH_SYMBOL, 0}};
static void launch(const long long* symbols, long long multiprocessors, StitchLaunch* launch) {
  const long long n = symbols[0];
  const long long waves = 4 * multiprocessors;
  if (n < 1000) {
    StitchLaunch small = {"small", 0, n, 128, 0, 0};
    *launch = small;
  } else {
    StitchLaunch large = {"large", 1, n < waves ? n : waves, 256, n < 2000 ? 1024 : 100000, 512};
    *launch = large;
  }
}
static const StitchModule modules[] = {
    {70, 0, "cubin 70", 9, 5, parameters, launch},
    {80, 0, "cubin 80", 9, 5, parameters, launch},
    {86, 0, "cubin 86", 9, 5, parameters, launch},
    {75, 1, "ptx 75", 7, 5, parameters, launch},
    {90, 1, "ptx 90", 7, 5, parameters, launch}};
extern "C" const StitchGpuKernel kernel;
const StitchGpuKernel kernel = {TF_STITCH_GPU_ABI_VERSION, 16, 5, modules};
"""


class Launcher:
    """The launch code, over the driver that records."""

    def __init__(self, library: ctypes.CDLL, driver: ctypes.CDLL) -> None:
        self._library = library
        self._driver = driver
        driver.recording_log.restype = ctypes.c_char_p
        self.contexts = 0

    def fresh(self, **answers: int) -> None:
        """A new context of a GPU, with these answers."""
        self._driver.recording_reset()
        self.contexts += 1
        self.answer(context=self.contexts, **answers)

    def answer(self, **answers: int) -> None:
        for name, value in answers.items():
            self._driver.recording_answer(name.encode(), value)

    def log(self) -> list[str]:
        return self._driver.recording_log().decode().splitlines()

    def plan(self, kernel: StitchGpuKernel, n: int) -> StitchLaunch | str:
        """What is decided, or why nothing can be."""
        launch, error = StitchLaunch(), ctypes.create_string_buffer(500)
        failed = self._library.tf_stitch_gpu_plan(
            ctypes.byref(kernel), (ctypes.c_longlong * 1)(n), ctypes.byref(launch), error, len(error)
        )
        return error.value.decode() if failed else launch

    def launch(self, kernel: StitchGpuKernel, n: int, stream: int = 7) -> str:
        """Starts it; what went wrong, or ""."""
        error = ctypes.create_string_buffer(500)
        inputs, outputs = (ctypes.c_void_p * 2)(100, 200), (ctypes.c_void_p * 1)(300)
        self._library.tf_stitch_gpu_launch(
            *(ctypes.byref(kernel), inputs, outputs, (ctypes.c_longlong * 1)(n)),
            *(ctypes.c_void_p(400), ctypes.c_void_p(stream), error, len(error)),
        )
        return error.value.decode()


def compiled(directory: Path, name: str, sources: Sequence[Path], *flags: str) -> ctypes.CDLL:
    library = directory / f"{name}.so"
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{ABI}", *flags]
    subprocess.run([*command, "-o", str(library), *map(str, sources), "-ldl"], check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    directory = tmp_path_factory.mktemp("launch")
    driver = compiled(directory, "driver", [HERE / "recording_driver.cc"])
    named = f'-DTF_STITCH_LIBCUDA="{directory / "driver.so"}"'
    library = compiled(directory, "launch", [ABI / "cuda_launch.cc", ABI / "cuda_driver.cc"], named)
    return Launcher(library, driver)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> StitchGpuKernel:
    directory = tmp_path_factory.mktemp("kernel")
    source = directory / "kernel.cc"
    source.write_text(KERNEL)
    library: Any = compiled(directory, "kernel", [source])
    return StitchGpuKernel.in_dll(library, "kernel")


def test_an_entry_gets_its_parameters_in_order(launcher: Launcher, kernel: StitchGpuKernel) -> None:
    launcher.fresh(parameters=5)
    assert not launcher.launch(kernel, 500)
    load, function, barrier, start = launcher.log()
    assert (load, function, barrier) == ("load cubin 80", "function small", "allocate 256")
    head, _, parameters = start.partition(": ")
    assert head == "cuLaunchKernel small grid 500 block 128 shared 0 stream 7"
    source, destination, scratch, address, n = map(int, parameters.split())
    assert (source, destination, scratch, n) == (200, 300, 400, 500)
    assert ctypes.string_at(address, 256) == bytes(256)


def test_modules_and_functions_are_loaded_once_for_a_context(launcher: Launcher, kernel: StitchGpuKernel) -> None:
    launcher.fresh()
    for n in (1, 2, 1500, 1501):
        assert not launcher.launch(kernel, n)
    assert [line for line in launcher.log() if not line.startswith("cuLaunch")] == [
        *("load cubin 80", "function small", "allocate 256", "function large")
    ]
    launcher.fresh()
    assert not launcher.launch(kernel, 1)
    assert launcher.log()[0] == "load cubin 80"


def test_each_stream_has_a_barrier_of_its_own(launcher: Launcher, kernel: StitchGpuKernel) -> None:
    launcher.fresh(parameters=5)
    for stream in (1, 2, 1):
        assert not launcher.launch(kernel, 5, stream)
    addresses = [line.split()[-2] for line in launcher.log() if line.startswith("cuLaunch")]
    assert addresses[0] == addresses[2] != addresses[1]


@pytest.mark.parametrize(
    ("capability", "image"),
    [
        (70, "cubin 70"),
        (72, "cubin 70"),  # of one generation, no older
        (75, "cubin 70"),
        (80, "cubin 80"),
        (86, "cubin 86"),
        (89, "cubin 86"),
        (90, "ptx 90"),
        (120, "ptx 90"),
    ],
)
def test_the_module_that_fits_the_gpu_best(
    capability: int, image: str, launcher: Launcher, kernel: StitchGpuKernel
) -> None:
    launcher.fresh(capability=capability)
    assert not launcher.launch(kernel, 5)
    assert launcher.log()[0] == f"load {image}"


def test_a_gpu_that_no_module_is_for(launcher: Launcher, kernel: StitchGpuKernel) -> None:
    launcher.fresh(capability=61)
    assert launcher.plan(kernel, 5) == (
        "the kernel was compiled for sm_70, sm_80, sm_86, compute_75, compute_90, and this GPU is an sm_61"
    )


def test_blocks_that_wait_for_each_other_are_launched_together(launcher: Launcher, kernel: StitchGpuKernel) -> None:
    launcher.fresh(multiprocessors=100, occupancy=4)
    assert not launcher.launch(kernel, 1500)
    assert launcher.log()[-1].startswith("cuLaunchCooperativeKernel large grid 400 block 256 shared 1024")


def test_never_more_of_them_than_the_gpu_holds(launcher: Launcher, kernel: StitchGpuKernel) -> None:
    launcher.fresh(multiprocessors=100, occupancy=3)  # the kernel was made for 4
    plan = launcher.plan(kernel, 1500)
    assert isinstance(plan, StitchLaunch)
    assert plan.blocks == 300
    launcher.fresh(multiprocessors=100, occupancy=0)
    assert "a block of 256 threads with 1024 bytes of shared memory does not fit" in str(launcher.plan(kernel, 1500))
    launcher.fresh(cooperative=0)
    assert launcher.plan(kernel, 1500) == "the GPU has no cooperative launch"
    assert isinstance(launcher.plan(kernel, 5), StitchLaunch)


def test_much_shared_memory_is_asked_for_once(launcher: Launcher, kernel: StitchGpuKernel) -> None:
    launcher.fresh()
    for n in (1500, 2500, 2500, 1500):
        assert not launcher.launch(kernel, n)
    assert [line for line in launcher.log() if line.startswith("attribute")] == ["attribute 8 = 100000"]
    launcher.fresh(cuFuncSetAttribute=1)
    assert launcher.plan(kernel, 2500) == "a block needs 100000 bytes of shared memory: CUDA_ERROR_1"


def test_nothing_is_launched_for_nothing(launcher: Launcher, kernel: StitchGpuKernel) -> None:
    launcher.fresh()
    assert not launcher.launch(kernel, 0)
    assert launcher.log() == []


def test_what_the_driver_says_is_told(launcher: Launcher, kernel: StitchGpuKernel) -> None:
    launcher.fresh(cuModuleLoadDataEx=209)
    assert launcher.launch(kernel, 5) == "cuModuleLoadDataEx: CUDA_ERROR_209"
    launcher.fresh(cuModuleLoadDataEx=218, capability=90)
    assert launcher.launch(kernel, 5) == "cuModuleLoadDataEx: CUDA_ERROR_218: ptxas has something to say"
    launcher.fresh(cuModuleGetFunction=500)
    assert launcher.launch(kernel, 5) == "the module has no entry small: CUDA_ERROR_500"
    launcher.fresh(cuLaunchKernel=700)
    assert launcher.launch(kernel, 5) == "cuLaunchKernel: CUDA_ERROR_700"
    launcher.answer(context=0)
    assert launcher.launch(kernel, 5) == "no CUDA context is current on the calling thread"


def test_a_module_that_did_not_load_is_tried_again(launcher: Launcher, kernel: StitchGpuKernel) -> None:
    launcher.fresh(cuModuleLoadDataEx=2)
    assert launcher.launch(kernel, 5)
    launcher.answer(cuModuleLoadDataEx=0)
    assert not launcher.launch(kernel, 5)
    assert launcher.log().count("load cubin 80") == 2


def test_without_a_driver(tmp_path: Path, kernel: StitchGpuKernel) -> None:
    named = '-DTF_STITCH_LIBCUDA="libcuda-that-is-not-there.so.1"'
    library = compiled(tmp_path, "launch", [ABI / "cuda_launch.cc", ABI / "cuda_driver.cc"], named)
    error = ctypes.create_string_buffer(500)
    assert library.tf_stitch_gpu_plan(
        *(ctypes.byref(kernel), (ctypes.c_longlong * 1)(5), ctypes.byref(StitchLaunch()), error, len(error))
    )
    assert b"libcuda-that-is-not-there.so.1, NVIDIA's driver, does not load: " in error.value


def test_the_library_needs_nothing_of_cuda() -> None:
    path = paths.library_path()
    missing = subprocess.run(["nm", "-D", "--undefined-only", path], check=True, capture_output=True, text=True).stdout
    ours = [line.split()[-1] for line in missing.splitlines() if " cu" in line or "cuda" in line.lower()]
    assert not ours, textwrap.shorten(", ".join(ours), 200)
    needed = subprocess.run(["readelf", "-d", path], check=True, capture_output=True, text=True).stdout
    assert "libcuda" not in needed
