"""`python -m bench gpu`: kernels and bytes of XLA and tf_stitch on GPUs, on a machine that has none.

    row            cluster, arch, xla_kernels, stitch_kernels, xla_bytes, stitch_bytes, min_bytes, …

    kernels        launches of memory-intensive kernels, by `kernel_rule`: products don't count on either side
    bytes          operands and results of each kernel; of a stitched one, of each pass over memory (`lower.gpu_cost`)
    min_bytes      inputs and outputs once

What must hold of each row (`shortfalls`): no more kernels than XLA, and fewer where XLA has several for what tf_stitch
makes one cluster of; bytes at most 1.15 × the minimum in one pass, 1.6 × where a second pass is unavoidable. A row that
falls short is printed, and ends the command with status 1.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from bench import gpu_table, gpu_xla, machine, results
from bench.gpu_xla import Uncounted, XlaCount
from bench.results import Row, Summary

if TYPE_CHECKING:
    from bench.gpu_clusters import GpuCluster
    from bench.gpu_stitch import StitchCount

ARCHS = ("v100", "t4", "a100", "h100")
ONE_PASS, TWO_PASSES = 1.15, 1.6  # of the minimum
OUTPUT = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("names", nargs=-1, metavar="[CLUSTER]...")
@click.option("--arch", "archs", default=",".join(ARCHS), show_default=True, help="GPUs, with commas between.")
@click.option("--json", "json_path", type=OUTPUT, help="Write the rows here.")
def gpu(names: tuple[str, ...], archs: str, json_path: Path | None) -> None:
    """Kernels and bytes of XLA:GPU and tf_stitch, for GPUs that need not be there (all clusters, or those NAMED)."""
    chosen = _archs(archs)
    from bench.gpu_clusters import BY_NAME, CLUSTERS

    if unknown := sorted(set(names) - set(BY_NAME)):
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(BY_NAME)}", param_hint="CLUSTER")
    rows, versions = compared([BY_NAME[name] for name in names] or CLUSTERS, chosen)
    outcome = summary(rows, versions)
    if json_path is not None:
        results.write(json_path, rows, outcome)
    gpu_table.show(Console(), rows, outcome)
    if outcome["short"]:
        sys.exit(1)


def _archs(text: str) -> list[str]:
    found = text.split(",")
    if unknown := sorted(set(found) - set(ARCHS)):
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(ARCHS)}", param_hint="--arch")
    return found


def compared(clusters: Sequence[GpuCluster], archs: Sequence[str]) -> tuple[list[Row], dict[str, str]]:
    """A row for each cluster and GPU; and what XLA's environment holds, nothing where there is none."""
    from bench import gpu_stitch
    from tf_stitch.plan.gpu_target import GpuTarget

    log = Console(stderr=True, highlight=False)
    absent, versions = "", {}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        try:
            gpu_xla.python()
            log.print(f"XLA compiles {len(clusters)} clusters for {', '.join(archs)}")
            modules = {c.name: gpu_xla.stablehlo(c.function, c.specs) for c in clusters}
            versions = gpu_xla.compiled(modules, archs, directory)
        except Uncounted as reason:
            absent = str(reason)
            log.print(absent, style="yellow", markup=False)
        for cluster in clusters:
            graph = gpu_stitch.graph_of(cluster)
            for arch in archs:
                ours = gpu_stitch.counted(graph, GpuTarget.named(arch))
                xla, reason = None, absent
                if not absent:
                    try:
                        xla = gpu_xla.found_in(directory, cluster.name, arch)
                    except Uncounted as refused:
                        reason = str(refused)
                rows.append(row(cluster, arch, ours, xla, reason))
    return rows, versions


def row(cluster: GpuCluster, arch: str, ours: StitchCount, xla: XlaCount | None, absent: str) -> Row:
    """absent: why there is no count of XLA's."""
    from tf_stitch.plan.gpu_target import GpuTarget

    found: Row = {
        "cluster": cluster.name,
        "shape": cluster.shape,
        "arch": arch,
        "xla_kernels": xla.kernels if xla else None,
        "stitch_kernels": ours.kernels,
        "xla_bytes": xla.bytes if xla else None,
        "stitch_bytes": ours.bytes,
        "min_bytes": ours.min_bytes,
        "stitch_over_min": ours.bytes / ours.min_bytes if ours.min_bytes else None,
        "stitch_us": ours.us,
        "stitch_barriers": ours.barriers,
        "stitch_occupancy": ours.occupancy,
        "stitch_left": ours.left,
        "xla_by_op": xla.by_op if xla else {},
        "xla_others": xla.others if xla else {},
        "again": cluster.again_on(GpuTarget.named(arch).shared_bytes_of_block),
        "products": cluster.products,
        "absent": {"xla": absent} if absent else {},
    }
    found["short"] = list(shortfalls(found))
    return found


def shortfalls(row: Row) -> Iterable[str]:
    """What a row lacks of what must hold, in words."""
    ours, xla = row["stitch_kernels"], row["xla_kernels"]
    if xla is not None and ours > xla:
        yield f"{ours} kernels, XLA has {xla}"
    if xla is not None and not row["products"] and xla > 1 and ours == xla:
        yield f"{ours} kernels, as many as XLA"
    allowed = TWO_PASSES if row["again"] else ONE_PASS
    ratio = row["stitch_over_min"]
    if ratio is not None and ratio > allowed:
        yield f"{ratio:.2f} × the minimum of bytes, over {allowed}"


def summary(rows: Sequence[Row], versions: dict[str, str]) -> Summary:
    """Geometric means over the rows that have both."""
    return {
        "xla_over_stitch_kernels": results.geomean(_over(r["xla_kernels"], r["stitch_kernels"]) for r in rows),
        "xla_over_stitch_bytes": results.geomean(_over(r["xla_bytes"], r["stitch_bytes"]) for r in rows),
        "stitch_over_min": results.geomean(r["stitch_over_min"] for r in rows),
        "short": [f"{r['cluster']} {r['arch']}: {what}" for r in rows for what in r["short"]],
        "xla_versions": versions,
        **machine.description(),
    }


def _over(a: int | None, b: int | None) -> float | None:
    return a / b if a and b else None
