"""Compiles StableHLO for GPUs that are not there. Run by the Python of an environment with jax and its CUDA plugin.

    python xla_gpu_worker.py DIRECTORY v100,a100

    DIRECTORY/NAME.stablehlo   ->   DIRECTORY/NAME.ARCH.hlo       the optimised HLO
                                    DIRECTORY/NAME.ARCH.thunks    what is launched, in order
                                    DIRECTORY/NAME.ARCH.error     instead, where it is refused: why
                                    DIRECTORY/versions.json

The plugin compiles for a described GPU: nothing of CUDA's driver is loaded, and nothing is tuned by running it, so a
product is compiled as XLA does with autotuning off. It imports nothing of this project and no TensorFlow.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import metadata
from pathlib import Path

SPECS = Path(__file__).resolve().parent / "xla_gpus.json"
PACKAGES = ("jax", "jaxlib", "jax-cuda13-plugin", "jax-cuda13-pjrt", "nvidia-cuda-nvcc-cu12")
_DUMPED = "dumped"

# A description of a GPU as XLA reads it (GpuTargetConfigProto); %(…)s are of xla_gpus.json.
_TARGET = """
gpu_device_info {
  name: "%(name)s" device_vendor: "NVIDIA Corporation"
  cuda_compute_capability { major: %(major)d minor: %(minor)d %(features)s }
  core_count: %(multiprocessors)d fpus_per_core: %(lanes)d clock_rate_ghz: %(clock_ghz)s
  threads_per_core_limit: %(threads)d threads_per_block_limit: 1024 threads_per_warp: 32
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  shared_memory_per_core: %(shared_bytes)d shared_memory_per_block: 49152
  shared_memory_per_block_optin: %(shared_bytes_of_block)d
  l2_cache_size: %(l2_bytes)d memory_bandwidth: %(bytes_per_second)d device_memory_size: %(memory_bytes)d
  device_address_bits: 64 ecc_enabled: true
  driver_version: "13.0.0" runtime_version: "13.0.0" compile_time_toolkit_version: "13.0.0" dnn_version: "9.10.0"
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 patch: 0 } device_description_str: "%(name)s"
"""


def main(directory: Path, archs: list[str]) -> None:
    _prepare(directory / _DUMPED)
    for arch in archs:
        compile_ = _compiler(arch)
        for path in sorted(directory.glob("*.stablehlo")):
            out = directory / f"{path.stem}.{arch}"
            try:
                hlo, thunks = compile_(path.read_bytes(), directory / _DUMPED)
            except Exception as error:  # noqa: BLE001 - one that is refused must not cost the others
                _suffixed(out, ".error").write_text(f"{type(error).__name__}: {error}"[:2000])
            else:
                _suffixed(out, ".hlo").write_text(hlo)
                _suffixed(out, ".thunks").write_text(thunks)
            print(f"{path.stem} {arch}", flush=True)
    versions = {name: metadata.version(name) for name in PACKAGES}
    (directory / "versions.json").write_text(json.dumps(versions))


def _suffixed(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _prepare(dumped: Path) -> None:
    """What has to be said before jax is imported. Its own check of the plugin's versions wants cuDNN to be there."""
    dumped.mkdir(exist_ok=True)
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_dump_to={dumped} --xla_dump_hlo_as_text"
    ptxas = Path(metadata.distribution("nvidia-cuda-nvcc-cu12").locate_file("nvidia/cuda_nvcc/bin"))  # type: ignore[arg-type]
    os.environ["PATH"] = f"{ptxas}{os.pathsep}{os.environ['PATH']}"


def _compiler(arch: str):
    """bytes of StableHLO, where dumps go -> the optimised HLO, the thunks."""
    import numpy as np
    from jax._src.interpreters import mlir  # pyright: ignore[reportMissingImports]
    from jax._src.lib import xla_client  # pyright: ignore[reportMissingImports]
    from jax._src.lib.mlir import ir  # pyright: ignore[reportMissingImports]
    from jax.experimental import topologies  # pyright: ignore[reportMissingImports]

    described = _TARGET % json.loads(SPECS.read_text())[arch]
    topology = topologies.get_topology_desc(
        platform="cuda", topology_name=arch, target_config=described, topology="1x1x1"
    )
    (device,) = topology.devices

    def compile_(module: bytes, dumped: Path) -> tuple[str, str]:
        for old in dumped.iterdir():
            old.unlink()
        options = xla_client.CompileOptions()
        options.num_replicas = options.num_partitions = 1
        options.device_assignment = xla_client.DeviceAssignment.create(np.zeros((1, 1), np.int32))
        with mlir.make_ir_context():
            parsed = ir.Module.parse(module)
            made = device.client.compile(parsed, xla_client.DeviceList((device,)), options)
        (thunks,) = dumped.glob("*thunk_sequence.txt")
        return made.hlo_modules()[0].to_string(), thunks.read_text()

    return compile_


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2].split(","))
