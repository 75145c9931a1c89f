"""The commands whose files there are reports of. One that is new has a file like these, and a line here."""

from __future__ import annotations

from dataclasses import replace

from bench import (
    report_ablation,
    report_clusters,
    report_compile,
    report_gpu,
    report_kernels,
    report_models,
    report_peers,
)
from bench.report_parts import Kind

KINDS: dict[str, Kind] = {
    kind.command: kind
    for kind in (
        report_models.KIND,
        replace(report_models.KIND, command="compare"),  # the same rows, of a model of your own
        report_clusters.KIND,
        report_kernels.KIND,
        report_gpu.KIND,
        report_compile.KIND,
        report_ablation.KIND,
        report_peers.KIND,
    )
}
