"""`python -m bench gpu-bundle`: what `gpu_check` needs on a machine with a GPU, in one directory.

gpu_check.py  launch.so  manifest.json  kernels/NAME.so  cases/NAME.npz  wheels/
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from bench import gpu_check

if TYPE_CHECKING:
    from bench.workloads.workload import Workload
    from tf_stitch.ir.graph import Graph
    from tf_stitch.pipeline import StitchedCluster
    from tf_stitch.plan.gpu_target import GpuTarget
    from tf_stitch.toolchain.artifact import Toolchain

_MOST_ROWS = 33  # of what lies in the bundle with its results: odd, and not much to carry
KERNELS = Path(__file__).resolve().parents[1] / "kernels"


@click.command("gpu-bundle")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.argument("names", nargs=-1)
@click.option("--target", default="cuda:sm_80,sm_90", show_default=True, help="The GPUs to compile for.")
@click.option("--wheel", "wheels", multiple=True, type=click.Path(exists=True, path_type=Path), help="To carry along.")
def gpu_bundle(directory: Path, names: tuple[str, ...], target: str, wheels: tuple[Path, ...]) -> None:
    """Packs the cluster workloads' kernels (all, or those NAMED) for gpu_check.py into DIRECTORY."""
    from bench.workloads.clusters import WORKLOADS, find
    from tf_stitch.config import Config
    from tf_stitch.frontend.engine import engine_for

    engine = engine_for(Config(target=target))
    assert isinstance(engine.target, tuple)
    workloads = [find(name) for name in names] or list(WORKLOADS)
    count = pack(directory, workloads, engine.target, engine.toolchain)
    for wheel in wheels:
        (directory / "wheels").mkdir(exist_ok=True)
        shutil.copy(wheel, directory / "wheels")
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    click.echo(f"{count} kernels, {size / 2**20:.1f} MiB in {directory}; run {directory}/gpu_check.py there")


def pack(
    directory: Path,
    workloads: Sequence[Workload],
    targets: tuple[GpuTarget, ...],
    toolchain: Toolchain,
    *,
    large: bool = True,
) -> int:
    """Fills a directory, and says with how many kernels.

    Each workload comes small, with inputs and results, and where `large` is asked for once more as it is worth timing:
    such a one's inputs are made where it runs.
    """
    for part in ("kernels", "cases"):
        (directory / part).mkdir(parents=True, exist_ok=True)
    _build_launcher(directory / "launch.so")
    shutil.copy(gpu_check.__file__, directory)
    entries: list[dict[str, Any]] = []
    for workload in workloads:
        shapes = (*workload.quick, *workload.full)
        *rows, width = min(shapes, key=math.prod)
        small, most = (*(min(r, _MOST_ROWS) for r in rows), width), max(shapes, key=math.prod)
        for shape in (small, most) if large else (small,):
            for graph, made in _stitched(workload, shape, targets, toolchain):
                name = f"{workload.name}_{len(entries)}"
                entries.append(_packed(directory, name, graph, made, has_case=shape == small))
    (directory / "manifest.json").write_text(json.dumps(entries, indent=1) + "\n")
    return len(entries)


def _build_launcher(library: Path) -> None:
    sources = [str(KERNELS / "cuda_launch.cc"), str(KERNELS / "cuda_driver.cc")]
    command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", "-static-libstdc++", "-static-libgcc", f"-I{KERNELS}"]
    subprocess.run([*command, "-o", str(library), *sources, "-ldl"], check=True)


def _stitched(
    workload: Workload, shape: tuple[int, ...], targets: tuple[GpuTarget, ...], toolchain: Toolchain
) -> Iterator[tuple[Graph, StitchedCluster]]:
    import tensorflow as tf

    from tf_stitch import pipeline
    from tf_stitch.config import Config
    from tf_stitch.frontend.importer import import_graph_def

    specs = [tf.TensorSpec(a.shape, a.dtype) for a in workload.arrays(shape, 1)]
    function = tf.function(workload.step, input_signature=specs, autograph=False).get_concrete_function()
    graph_def = function.graph.as_graph_def(add_shapes=True)
    graph = import_graph_def(graph_def, fetched={t.op.name for t in function.outputs})
    config = Config(target="cuda:" + ",".join(target.arch for target in targets))
    stitched = pipeline.stitch(graph, config, targets, toolchain)
    yield from ((graph, made) for made in stitched.clusters)


def _packed(directory: Path, name: str, graph: Graph, made: StitchedCluster, *, has_case: bool) -> dict[str, Any]:
    """Its entry of the manifest. The sizes of a kernel that was made for more are those that it was traced with."""
    shutil.copy(made.artifact.path, directory / "kernels" / f"{name}.so")
    from tf_stitch.report.sizes import known_sizes

    kernel = made.kernel
    symbols = known_sizes(graph, kernel, made.cluster.inputs)
    inputs = [
        None if type_ is None else {"shape": [d.evaluate(symbols) for d in type_.dims], "dtype": type_.dtype.numpy.name}
        for type_ in kernel.inputs
    ]
    entry: dict[str, Any] = {
        "name": name,
        "library": f"kernels/{name}.so",
        "inputs": inputs,
        "outputs": [type_.dtype.numpy.name for type_ in kernel.outputs],
        "case": None,
    }
    if has_case:
        entry["case"] = f"cases/{name}.npz"
        _write_case(directory / "cases" / f"{name}.npz", made, gpu_check.inputs_of(directory, entry | {"case": None}))
    return entry


def _write_case(path: Path, made: StitchedCluster, arrays: Sequence[np.ndarray[Any, Any] | None]) -> None:
    from tf_stitch.lower import interp
    from tf_stitch.lower.common import lower

    results = interp.run(lower(made.plan, made.kernel.name), arrays)
    kept: dict[str, Any] = {f"input_{n}": array for n, array in enumerate(arrays) if array is not None}
    kept |= {f"output_{n}": result for n, result in enumerate(results)}
    np.savez(path, **kept)
