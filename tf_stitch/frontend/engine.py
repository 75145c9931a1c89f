"""Engine: the target and the toolchain that a Config asks for. Found once, for finding them takes a while."""

from __future__ import annotations

import functools
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tf_stitch import pipeline
from tf_stitch.backends import Targets, isa_of
from tf_stitch.debug.dump import observer_from_environment
from tf_stitch.debug.logs import configure_from_environment
from tf_stitch.errors import UsageError
from tf_stitch.plan.gpu_target import GpuTarget
from tf_stitch.plan.target import Target
from tf_stitch.toolchain.cuda import CudaToolchain
from tf_stitch.toolchain.host import HostToolchain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tf_stitch.config import Config
    from tf_stitch.ir.graph import Graph
    from tf_stitch.toolchain.artifact import Toolchain


configure_from_environment()


@dataclass(frozen=True)
class Engine:
    """What stages 3 to 7 need beside a graph."""

    config: Config
    target: Targets
    toolchain: Toolchain

    def stitch(self, graphs: Sequence[Graph], progress: pipeline.Progress | None = None) -> list[pipeline.Stitched]:
        """`pipeline.stitch_all`, one Stitched for each graph."""
        observer = observer_from_environment(isa_of(self.target))
        return pipeline.stitch_all(graphs, self.config, self.target, self.toolchain, progress, observer)


@functools.lru_cache(maxsize=16)
def engine_for(config: Config) -> Engine:
    """The engine for this machine.

    Raises:
      EnvironmentProblem: where there is no compiler; asked again the next time.
      UsageError: for a baseline that this CPU's family does not have, and for an unknown GPU.
    """
    target, timeout = targets_of(config), config.compiler_timeout
    if isinstance(target, Target):
        return Engine(config, target, HostToolchain.find(target, timeout=timeout))
    host = HostToolchain.find(_host_of_gpus(config.cpu_baseline), timeout=timeout)
    archs = [gpu.arch for gpu in target]
    codes = [*archs, archs[-1].replace("sm_", "compute_")]
    return Engine(config, target, CudaToolchain.find(codes, host, timeout=timeout))


def targets_of(config: Config) -> Targets:
    """What kernels are made for.

    Raises:
      UsageError: as `engine_for` does.
    """
    if config.target == "cpu":
        return Target.baseline(config.cpu_baseline)
    if config.never_slower:
        raise UsageError("kernels are raced on this machine's CPU, so never_slower goes with target 'cpu' alone.")
    return gpus_of(config.target)


def gpus_of(target: str) -> tuple[GpuTarget, ...]:
    """The GPUs that a `Config.target` names, the oldest first.

    Raises:
      UsageError: where it names one that is none, or those of this machine and there are none.
    """
    if target != "cuda":
        return GpuTarget.several(target)
    import tensorflow as tf

    found = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    archs = ["sm_{}{}".format(*details["compute_capability"]) for details in found if "compute_capability" in details]
    if not archs:
        raise UsageError("TensorFlow finds no GPU here; name those to stitch for, as in cuda:sm_80,sm_90")
    return GpuTarget.several(",".join(archs))


def _host_of_gpus(baseline: str) -> Target:
    """The least CPU that feeds a GPU: what runs on it is nothing that a better one would run faster."""
    native = "aarch64" if platform.machine() in ("aarch64", "arm64") else "x86-64"
    return Target.baseline("aarch64" if baseline == "aarch64" else native)
