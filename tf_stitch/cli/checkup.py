"""Checkup: what `tf-stitch doctor` finds, as data. Every check stands alone: a broken one spoils no other."""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import platform
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tf_stitch import __version__
from tf_stitch.errors import EnvironmentProblem, StitchError
from tf_stitch.plan.gpu_target import GpuTarget
from tf_stitch.plan.target import Target
from tf_stitch.runtime import paths
from tf_stitch.toolchain.cache import KernelCache
from tf_stitch.toolchain.compilers import find_compilers
from tf_stitch.toolchain.device_compilers import find_device_compilers, find_nvcc

if TYPE_CHECKING:
    from collections.abc import Callable

    from tf_stitch.toolchain.compilers import Compiler
    from tf_stitch.toolchain.device_compilers import DeviceCompiler

_OLDEST_PYTHON = (3, 10)
_INSTALL = "run `pip install 'tensorflow-cpu>=2.21,<2.22'`"
_VARIABLES = {
    "TF_STITCH": "0 turns tf_stitch off",
    "TF_STITCH_STRICT": "1 raises instead of falling back",
    "TF_STITCH_LOGS": "what is logged",
    "TF_STITCH_DUMP": "where every stage is written to",
    "TF_STITCH_CACHE_DIR": "where kernels are kept",
    "TF_STITCH_CACHE_MAX_BYTES": "how much is kept",
    "CXX": "the compiler to use",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "",
    "TF_ENABLE_ONEDNN_OPTS": "",
    "TF_NUM_INTEROP_THREADS": "",
    "TF_NUM_INTRAOP_THREADS": "",
    "TF_XLA_FLAGS": "XLA's clusters are left alone",
    "XLA_FLAGS": "",
}


@dataclass(frozen=True)
class Check:
    """One finding. status: "ok", "warning", "broken", or "" where there is nothing to judge."""

    name: str
    status: str
    found: str
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def examine() -> list[Check]:
    """All checks, in the order in which one builds on the other."""
    target, isa = _target()
    checks = [
        _guarded("tf_stitch", _package),
        _guarded("Python", _python),
        _guarded("TensorFlow", _tensorflow),
        _guarded("op library", _library),
        isa,
    ]
    if target is not None:
        checks += _compilers(target)
    checks += [_guarded("GPU", _driver), _guarded("GPU compiler", _device_compilers)]
    checks += [_guarded("cache", _cache), _guarded("threads", _threads), *_variables()]
    if not any(check.status == "broken" for check in checks):
        checks.append(_guarded("trial", _trial))
    return checks


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except StitchError as error:
        sentence, _, remedy = str(error).partition("; ")
        return Check(name, "broken", sentence, remedy)
    except Exception as error:  # noqa: BLE001  a checkup that dies of what it looks for helps nobody
        return Check(name, "broken", f"{type(error).__name__}: {error}")


def _package() -> Check:
    return Check("tf_stitch", "ok", f"{__version__} in {Path(paths.__file__).parents[1]}")


def _python() -> Check:
    found = f"{platform.python_version()} in {sys.prefix}"
    if sys.version_info < _OLDEST_PYTHON:
        return Check("Python", "broken", found, "use Python 3.10 or later")
    return Check("Python", "ok", found)


def _tensorflow() -> Check:
    """Reads what is installed before it is imported: a mismatch would crash."""
    distributions = {
        name: importlib.metadata.version(name)
        for name in ("tensorflow", "tensorflow-cpu", "tensorflow-intel")
        if _is_installed(name)
    }
    if not distributions:
        return Check("TensorFlow", "broken", "not installed", _INSTALL)
    import tensorflow as tf

    built = json.loads(paths.build_record_path().read_text(encoding="utf-8"))["tensorflow"]
    from tf_stitch.runtime import stitch_op  # raises where the two do not go together

    stitch_op.check_environment(tf.__version__, built)
    listed = ", ".join(f"{name} {version}" for name, version in distributions.items())
    found = f"{listed}; the op library was built for {built}"
    if len(distributions) > 1:
        remedy = "uninstall all of them, and install one: they overwrite each other's files"
        return Check("TensorFlow", "warning", found, remedy)
    return Check("TensorFlow", "ok", found)


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _library() -> Check:
    path = paths.library_path()
    from tf_stitch.runtime import stitch_op

    record = json.loads(paths.build_record_path().read_text(encoding="utf-8"))
    loaded = len(stitch_op.loaded_kernels())
    return Check("op library", "ok", f"{path}, kernel ABI {record['kernel_abi']}, {loaded} kernels loaded")


def _target() -> tuple[Target | None, Check]:
    try:
        target = Target.this_cpu()
    except StitchError as error:
        return None, Check("CPU", "broken", str(error), "stitch on a machine of one of these kinds")
    caches = " / ".join(f"{size // 1024} KiB" for size in (target.l1_bytes, target.l2_bytes, target.l3_bytes))
    found = f"{target.name}: {target.isa}, vectors of {target.vector_bytes} bytes, caches {caches}"
    return target, Check("CPU", "ok", found)


def _compilers(target: Target) -> list[Check]:
    try:
        found = list(find_compilers(target))
    except EnvironmentProblem as error:
        sentence, _, remedy = str(error).partition("; ")
        return [Check("compiler", "broken", sentence, remedy)]
    if not found:
        remedy = "install one: `pip install tf-stitch[compiler]`, or the g++ of your system"
        return [Check("compiler", "broken", "none: no g++, no clang++, no ziglang package", remedy)]
    named = "CXX names it" if os.environ.get("CXX", "").strip() else "the first that is there, fastest first"
    why = named if len(found) == 1 else f"{named}; the next is used for what it fails on"
    first = Check("compiler", "ok", f"{_compiler_text(found[0])}\nchosen: {why}")
    others = [Check("", "", f"also there: {_compiler_text(compiler)}") for compiler in found[1:]]
    return [first, *others]


def _compiler_text(compiler: Compiler) -> str:
    return f"{compiler.version} ({' '.join(compiler.command)})"


def _driver() -> Check:
    """What running kernels for GPUs needs. Its lack breaks nothing else."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
        named = [f"{d.get('device_name', 'GPU')} (sm_{''.join(map(str, d['compute_capability']))})" for d in details]
        return Check("GPU", "ok", ", ".join(named))
    missing: list[str] = []
    if not tf.test.is_built_with_cuda():
        missing.append("this TensorFlow is built without CUDA; for a GPU `pip install tf-stitch[gpu]` instead of [cpu]")
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        missing.append("there is no libcuda.so.1: install NVIDIA's driver")
    if not missing:
        missing.append("run `nvidia-smi`, and see that CUDA_VISIBLE_DEVICES does not hide it")
    return Check("GPU", "", "none; kernels run on the CPU", "; ".join(missing))


def _device_compilers() -> Check:
    """What making kernels for GPUs needs, for which no GPU has to be here."""
    compilers = list(find_device_compilers())
    if not compilers:
        remedy = "to stitch for GPUs, `pip install 'nvidia-cuda-nvrtc-cu12>=12.5,<13'`, or tf-stitch[gpu] and nvcc"
        return Check("GPU compiler", "", "none: no NVRTC, no PyCUDA with nvcc", remedy)
    lines = [_device_compiler_text(compiler) for compiler in compilers]
    if all(compiler.name != "PyCUDA" for compiler in compilers):
        remedy = "" if find_nvcc() is None else "for PyCUDA beside it, docker/build_pycuda.sh makes a wheel"
        return Check("GPU compiler", "ok", "\n".join(lines), remedy)
    return Check("GPU compiler", "ok", "\n".join(lines))


def _device_compiler_text(compiler: DeviceCompiler) -> str:
    archs = ", ".join(target.arch for target in GpuTarget.all() if compiler.compiles(target.arch))
    return f"{compiler.version} for {archs}"


def _cache() -> Check:
    cache = KernelCache()
    contents = cache.info()
    found = f"{contents.root}, {contents.entries} kernels, {contents.bytes / 2**20:.1f} MiB"
    problem = contents.problem
    if problem is None:
        try:
            with tempfile.TemporaryFile(dir=contents.root):
                free = shutil.disk_usage(contents.root).free
        except OSError as error:
            problem = error.strerror or str(error)
        else:
            if free < 64 * 2**20:
                problem = f"only {free / 2**20:.0f} MiB are free on its disk"
    if problem is not None:
        remedy = "set TF_STITCH_CACHE_DIR to a directory of your own; until then every process compiles again"
        return Check("cache", "warning", f"{found}: {problem}", remedy)
    return Check("cache", "ok", f"{found}, writable")


def _threads() -> Check:
    import tensorflow as tf

    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    intra = tf.config.threading.get_intra_op_parallelism_threads() or "one a CPU"
    inter = tf.config.threading.get_inter_op_parallelism_threads() or "one a CPU"
    return Check("threads", "ok", f"{here} CPUs for this process; TensorFlow: intra-op {intra}, inter-op {inter}")


def _variables() -> list[Check]:
    """The variables that are set, of those that change what happens."""
    checks: list[Check] = []
    for name, meaning in _VARIABLES.items():
        value = os.environ.get(name)
        if value is not None:
            off = name == "TF_STITCH" and value == "0"
            found = f"{name}={value}" + (f" ({meaning})" if meaning else "")
            remedy = "unset it to have functions stitched" if off else ""
            checks.append(Check("environment", "warning" if off else "", found, remedy))
    return checks


def _trial() -> Check:
    """Stitches a softmax, and compares it with TensorFlow's."""
    import numpy as np
    import tensorflow as tf

    import tf_stitch
    from tf_stitch.runtime import stitch_op

    x = tf.constant(np.random.default_rng(0).standard_normal((4, 9)), tf.float32)
    function = tf_stitch.function(lambda x: tf.nn.softmax(x * 0.5 + 1.0))
    before = _calls(stitch_op.counters())
    result = function(x).numpy()
    calls, fallbacks = (now - then for now, then in zip(_calls(stitch_op.counters()), before, strict=True))
    expected = tf.nn.softmax(x * 0.5 + 1.0).numpy()
    if not np.allclose(result, expected, rtol=1e-5, atol=1e-7):
        remedy = "this is a bug: please report it with the output of `tf-stitch doctor --json`"
        return Check("trial", "broken", "a stitched softmax gives another result", remedy)
    if os.environ.get("TF_STITCH") == "0":
        return Check("trial", "", "not stitched: TF_STITCH=0")
    if calls != 1 or fallbacks:
        remedy = "run with TF_STITCH_LOGS=info to see why"
        return Check("trial", "broken", f"{calls} calls of a kernel, {fallbacks} of them fell back", remedy)
    return Check("trial", "ok", "a softmax was stitched, and agrees with TensorFlow's")


def _calls(counters: dict[str, Any]) -> tuple[int, int]:
    total = counters["total"]
    return total["calls"], sum(total["fallbacks"].values())
