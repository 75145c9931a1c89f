"""`python -m bench clusters`: each thread count in its own process, since TensorFlow makes its pools once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console

from bench import cluster_table, results
from bench.elsewhere import CHATTER, ROOT
from bench.results import Row

USAGE, DISAGREEMENT = 2, 4  # exit codes
OUTPUT = click.Path(dir_okay=False, path_type=Path)

# glibc gives large blocks back to the kernel and has them faulted in again at the next step; with these it
# keeps them. The same for all three, as they share a process.
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_ARENA_MAX": "1",
}

MALLOC = click.option(
    "--malloc",
    type=click.Choice(["default", "keep"]),
    default="default",
    show_default=True,
    help="keep: malloc gives no memory back, for all alike.",
)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--quick", is_flag=True, help="One or two shapes a workload, less time each.")
@click.option("--threads", default="1,2", show_default=True, help="Thread counts, with commas between.")
@click.option("--json", "json_path", type=OUTPUT, help="Write the rows here.")
@MALLOC
def clusters(names: tuple[str, ...], quick: bool, threads: str, json_path: Path | None, malloc: str) -> None:
    """Cluster workloads under TensorFlow, XLA and tf_stitch, side by side (all, or those NAMED)."""
    counts = thread_counts(threads)
    console, log = Console(), Console(stderr=True, highlight=False)
    rows: list[Row] = []
    failure: WorkerError | None = None
    for result in (r for count in counts for r in _worker_results(names, quick, count, malloc)):
        if isinstance(result, WorkerError):
            failure = result
            log.print(str(failure), style="red", markup=False, soft_wrap=True)
            if failure.code == USAGE:
                break
        else:
            rows.append(result)
            log.print(cluster_table.log_line(result), markup=False, soft_wrap=True)
    if rows:  # what was measured is shown all the same
        summary = results.cluster_summary(rows, malloc)
        if json_path is not None:
            results.write(json_path, rows, summary)
        cluster_table.show(console, rows, summary)
    if failure is not None:
        sys.exit(failure.code)
    if any(row["disagree"] for row in rows):
        sys.exit(DISAGREEMENT)


class WorkerError(RuntimeError):
    """The process that measures has failed; what it said last, and the exit code to end with."""

    def __init__(self, threads: int, returncode: int, stderr: str) -> None:
        super().__init__(f"the worker on {threads} threads ended with {returncode}:\n{stderr}")
        self.code = USAGE if returncode == USAGE else 1


def thread_counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is no list of numbers", param_hint="--threads") from None
    if not counts or min(counts) < 1:
        raise click.BadParameter("at least one thread", param_hint="--threads")
    return counts


def _worker_results(names: tuple[str, ...], quick: bool, threads: int, malloc: str) -> Iterator[Row | WorkerError]:
    options = ["--threads", str(threads), *(["--quick"] if quick else [])]
    command = [sys.executable, "-m", "bench", "_worker", *options, *names]
    with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryDirectory() as cold_cache:
        environment = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "-1",
            # Kernels of an earlier run would be compiled in no time.
            "TF_STITCH_CACHE_DIR": cold_cache,
            **(KEEP_MEMORY if malloc == "keep" else {}),
        }
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                yield json.loads(line)
            process.wait()
        if process.returncode != 0:
            errors.seek(0)
            said = [line for line in errors if not line.startswith(CHATTER)]
            yield WorkerError(threads, process.returncode, "".join(said[-40:]))
