"""The process that measures cluster workloads on one number of threads, and prints a JSON row a line."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading

import click

LONGEST_ROW_S = 300  # a compiler that hangs ends the process, and says where


@click.command(name="_worker", hidden=True)
@click.argument("names", nargs=-1)
@click.option("--threads", type=int, required=True)
@click.option("--quick", is_flag=True)
def worker(names: tuple[str, ...], threads: int, quick: bool) -> None:
    rows_out = _keep_stdout_for_rows()
    _end_with_the_parent()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    tf.get_logger().setLevel("ERROR")

    from bench import baselines, harness, timing
    from bench.workloads.clusters import ON_CPUS

    effort = timing.QUICK if quick else timing.FULL
    ways = baselines.ways()
    _first_compilation(ways)
    unknown = set(names) - {w.name for w in ON_CPUS}
    if unknown:
        known = ", ".join(w.name for w in ON_CPUS)
        raise click.UsageError(f"no workload {', '.join(sorted(unknown))}; there are: {known}")
    for workload in ON_CPUS:
        if names and workload.name not in names:
            continue
        for shape in workload.shapes(quick):
            faulthandler.dump_traceback_later(LONGEST_ROW_S, exit=True)
            row = harness.measure(harness.Case.of(workload, shape), ways, threads, effort)
            print(json.dumps(row, allow_nan=False), file=rows_out, flush=True)


def _keep_stdout_for_rows():
    """Libraries print to stdout as they like; they get stderr."""
    kept = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return kept


def _end_with_the_parent() -> None:
    """The parent never writes to our stdin: it closes when the parent is gone."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _first_compilation(ways) -> None:
    """What a process pays once (LLVM's start, loading the op library) is no cost of a workload."""
    import tensorflow as tf

    from bench.baselines import Way

    for way in ways:
        if isinstance(way, Way):
            try:
                way.compiled(lambda x: tf.exp(x * 2.0) + 1.0)(tf.zeros([64, 64]))
            except Exception:  # noqa: BLE001  it will be reported with the first row
                continue
