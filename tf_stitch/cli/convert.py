"""`tf-stitch convert`: a SavedModel in, a stitched SavedModel out."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tf_stitch.cli import output
from tf_stitch.cli.exit_codes import Exit
from tf_stitch.config import ABLATIONS, TUNE_SECONDS, Config, default_config, is_for_gpus
from tf_stitch.errors import UsageError
from tf_stitch.report.text import human_bytes, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tf_stitch.frontend.conversion import Conversion, ConvertedCluster
    from tf_stitch.frontend.tuning import RacedCluster

BASELINES = ("native", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64")
_DEFAULT = Config()


@click.command()
@click.argument("source", metavar="SRC", type=click.Path(path_type=Path))
@click.argument("destination", metavar="DST", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace a SavedModel that is at DST.")
@click.option(
    "--target",
    metavar="TARGET",
    default=_DEFAULT.target,
    show_default=True,
    help="cpu, or the GPUs that the model is to run on: cuda:sm_80,sm_90, or cuda:a100,h100. None is needed here.",
)
@click.option(
    "--cpu-baseline",
    type=click.Choice(BASELINES),
    default=_DEFAULT.cpu_baseline,
    show_default=True,
    help="The least CPU that the model is to run on; native is this one.",
)
@click.option(
    "--exclude",
    metavar="OP_OR_NODE",
    multiple=True,
    help="Never stitch this op (Exp), or the node of this name. May be given again.",
)
@click.option(
    "--max-cluster-size",
    type=click.IntRange(min=1),
    default=_DEFAULT.max_cluster_size,
    show_default=True,
    help="TensorFlow nodes in one kernel, at most.",
)
@click.option(
    "--ablate",
    metavar="SWITCH",
    type=click.Choice(ABLATIONS),
    multiple=True,
    help=f"Take one idea of the method away, to see what it is worth: {', '.join(ABLATIONS)}. May be given again.",
)
@click.option(
    "--tune",
    is_flag=True,
    help="Race each kernel against the ops that it replaces, on this machine; leave those that lose.",
)
@click.option(
    "--tune-inputs",
    metavar="FILE.npz",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Inputs by name, whose sizes to race with.  [default: for unknown dims 8 on the first axis, else 64]",
)
@click.option(
    "--tune-seconds",
    type=click.FloatRange(min=0, min_open=True),
    help=f"For all races; what is not raced by then is stitched.  [default: {TUNE_SECONDS:g}]",
)
@output.json_option
@click.pass_context
def convert(
    ctx: click.Context,
    source: Path,
    destination: Path,
    *,
    force: bool,
    target: str,
    cpu_baseline: str,
    exclude: tuple[str, ...],
    max_cluster_size: int,
    ablate: tuple[str, ...],
    tune: bool,
    tune_inputs: Path | None,
    tune_seconds: float | None,
    as_json: bool,
) -> None:
    """Stitches the SavedModel in SRC and writes it to DST.

    SRC is never touched. DST is written whole or not at all, and holds the kernels: nothing is compiled
    where it is served. Where nothing can be stitched nothing is written, and the exit status is 3.
    """
    if not tune and (tune_inputs is not None or tune_seconds is not None):
        raise click.UsageError("--tune-inputs and --tune-seconds go with --tune")
    if tune and is_for_gpus(target):
        raise click.UsageError("--tune races kernels on this machine's CPU, and --target is not that")
    output.import_tensorflow()
    from tf_stitch.frontend.saved_model import convert_saved_model

    config = replace(
        default_config().without(ablate),
        max_cluster_size=max_cluster_size,
        exclude=frozenset(exclude),
        target=target,
        cpu_baseline=cpu_baseline,
        never_slower=tune,
    )
    inputs = None if tune_inputs is None else _arrays(tune_inputs)
    seconds = TUNE_SECONDS if tune_seconds is None else tune_seconds
    with output.progress() as progress:
        conversion = convert_saved_model(
            source, destination, config=config, force=force, progress=progress, tune_inputs=inputs, tune_seconds=seconds
        )
    for warning in conversion.warnings:
        output.log(f"tf-stitch: {warning}")
    if as_json:
        output.print_json(conversion.to_json())
    else:
        _show(conversion)
    if conversion.destination is None:
        lost = "every kernel was slower than the ops that it replaces"
        nothing = lost if conversion.raced else "nothing was stitched"
        already = f"{source} is stitched already" if conversion.already_stitched else nothing
        output.log(f"tf-stitch: {already}; {destination} was not written.")
        ctx.exit(Exit.NOTHING)


def _arrays(path: Path) -> dict[str, Any]:
    """The arrays in a .npz file, by name."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise UsageError(f"--tune-inputs {path} cannot be read as a .npz file: {error}.") from error


def _show(conversion: Conversion) -> None:
    if conversion.already_stitched:
        return
    console = output.console()
    if conversion.clusters:
        clusters = output.table("function", "cluster", "nodes", "kernel", "bytes moved", right=("nodes", "bytes moved"))
        for row in _cluster_rows(conversion.clusters):
            clusters.add_row(*row)
        console.print(clusters)
        console.print()
    if conversion.raced:
        races = output.table("raced", "stitched", "apart", "", "sizes", right=("stitched", "apart"), wide="sizes")
        for row in _race_rows(conversion.raced):
            races.add_row(*row)
        console.print(races)
        console.print()
    if conversion.rejections:
        console.print(_rejections(conversion.rejections))
        console.print()
    for function, reason in conversion.skipped.items():
        console.print(f"left alone: {printable(function)}, {reason}")
    console.print(_closing(conversion))


def _cluster_rows(clusters: tuple[ConvertedCluster, ...]) -> Iterator[tuple[str, ...]]:
    """A row for each kernel of a function: equal clusters share one."""
    alike: dict[tuple[str, str], list[ConvertedCluster]] = {}
    for cluster in clusters:
        alike.setdefault((cluster.function, cluster.kernel), []).append(cluster)
    before = None
    for (function, kernel), equal in alike.items():
        first = equal[0]
        name = first.id.removeprefix("stitch/")
        more = f" and {len(equal) - 1} alike" if len(equal) > 1 else ""
        moved = f"{human_bytes(first.bytes_before)} → {human_bytes(first.bytes_after)}"
        shown = "" if function == before else _short(function) or "(main graph)"
        yield shown, _cut(name, 22 - len(more)) + more, str(len(first.nodes)), kernel[:8], moved
        before = function


def _race_rows(raced: tuple[RacedCluster, ...]) -> Iterator[tuple[str, ...]]:
    """A row for each race: of equal clusters there was one."""
    alike: dict[tuple[str, str, str], list[RacedCluster]] = {}
    for race in raced:
        alike.setdefault((race.kernel, race.sizes, str(race.verdict.outcome)), []).append(race)
    for equal in alike.values():
        verdict = equal[0].verdict
        more = f" +{len(equal) - 1}" if len(equal) > 1 else ""
        name = _cut(printable(equal[0].cluster), 18 - len(more)) + more
        if verdict.outcome is None:
            yield name, "", "", "kept", f"not raced: {printable(verdict.why)}"
            continue
        from tf_stitch.tuning.race import microseconds

        times = (microseconds(verdict.outcome.stitch_us), microseconds(verdict.outcome.original_us))
        yield name, *times, "kept" if verdict.kept else "SLOWER", equal[0].sizes


def _short(function: str) -> str:
    """A function's name without what TensorFlow puts in front of every one."""
    return _cut(printable(function).removeprefix("__inference_"), 16)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _rejections(counts: dict[str, int]) -> object:
    from tf_stitch.errors import Reason

    table = output.table("left as they are", "nodes", "because", right=("nodes",), wide="because")
    for code, count in sorted(counts.items(), key=lambda item: -item[1]):
        table.add_row(code, str(count), Reason[code].value)
    return table


def _closing(conversion: Conversion) -> str:
    nodes = f"{conversion.nodes_before} nodes"
    if not conversion.clusters:
        return f"{nodes}, none of them stitched"
    compiled = (
        f"{conversion.kernels_compiled} compiled in {conversion.compile_seconds:.2f} CPU seconds"
        if conversion.kernels_compiled
        else "all from the cache"
    )
    return (
        f"{nodes} → {conversion.nodes_after}: {conversion.stitch_ops} StitchOps, "
        f"{conversion.kernels} kernels ({compiled})\n"
        f"written to {conversion.destination}"
    )
