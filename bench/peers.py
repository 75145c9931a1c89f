"""`python -m bench peers`: tf_stitch beside ONNX Runtime and torch.compile, with TensorFlow as the yardstick.

    own (this environment)          TensorFlow, tf_stitch; writes each case into a directory
    onnx (of make venv-peers)       that directory -> an ONNX file
    ort, torch (the same)           run it, on as many threads

Each is a process; `peers_protocol` says why, and how they are measured in turns. A figure is made as for
`bench clusters`: of a chain of copies, less what all of it but the copies costs, by the CPU's clock on one thread and
the wall's on more. A peer calls its compiled copy again and again, on what it made, from a loop in Python, and what
such a loop costs with nothing to do is taken off. A model is one call, and nothing is taken off. Outputs are compared
with TensorFlow's.

On several threads, only figures of an idle machine count: torch's threads have equal shares of a loop and wait for the
slowest, so whoever else is at work costs it many times what it costs a pool that hands out small blocks.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import click
from rich.console import Console

from bench import peers_table, results, timing
from bench.clusters import DISAGREEMENT, KEEP_MEMORY, MALLOC, OUTPUT, thread_counts
from bench.elsewhere import ROOT
from bench.peers_protocol import Lost, Refused, Worker
from bench.peers_rows import EMPTY, PEERS, WAYS, Row, row, summary
from bench.timing import Effort, Samples

ENVIRONMENT = "TF_STITCH_PEERS"  # names another directory than the default
DEFAULT = ROOT / ".venv-peers"

START_S, PREPARE_S, SLICE_S = 120, 900, 300  # the longest that an answer may take


@click.command()
@click.argument("names", nargs=-1)
@click.option("--quick", is_flag=True, help="One or two shapes a cluster, less time each; no model but those NAMED.")
@click.option("--threads", default="1,2", show_default=True, help="Thread counts, with commas between.")
@click.option("--json", "json_path", type=OUTPUT, help="Write the rows here.")
@MALLOC
def peers(names: tuple[str, ...], quick: bool, threads: str, json_path: Path | None, malloc: str) -> None:
    """tf_stitch beside ONNX Runtime and torch.compile (all clusters and models, or those NAMED)."""
    counts, python = thread_counts(threads), _python()
    console, log = Console(), Console(stderr=True, highlight=False)
    effort = timing.QUICK if quick else timing.FULL
    rows: list[Row] = []
    versions: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as directory:
        for count in counts:
            with Processes(python, count, malloc) as processes:
                versions |= processes.versions()
                for name, shape in processes.cases(names, quick):
                    rows.append(measure(processes, name, shape, Path(directory), effort))
                    log.print(peers_table.log_line(rows[-1]), markup=False, soft_wrap=True)
                    if json_path is not None:  # all of it takes an hour, and may be interrupted
                        results.write(json_path, rows, summary(rows, versions, malloc))
    of_all = summary(rows, versions, malloc)
    peers_table.show(console, rows, of_all)
    if of_all["disagreeing"]:
        sys.exit(DISAGREEMENT)


class Processes:
    """Own, onnx and the peers on one number of threads; they end with the `with`."""

    def __init__(self, python: Path, threads: int, malloc: str = "default") -> None:
        own = [sys.executable, "-m", "bench", "_peers_own", "--threads", str(threads)]
        environment = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "-1",
            **(KEEP_MEMORY if malloc == "keep" else {}),
        }
        others = {k: v for k, v in environment.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
        commands = {n: [str(python), "-m", "bench.peers_worker", n, str(threads)] for n in ("onnx", *PEERS)}
        self.threads = threads
        self.own = Worker("own", own, environment)
        self.others = {name: Worker(name, command, others) for name, command in commands.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            for worker in (self.own, *self.others.values()):
                stack.enter_context(closing(worker))

    def versions(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for worker in self.others.values():
            try:
                found |= worker.ask("versions", limit_s=START_S)
            except Refused:  # it is not installed, and every row will say so
                continue
        return found

    def cases(self, names: tuple[str, ...], quick: bool) -> list[tuple[str, list[int]]]:
        """Raises:
        click.UsageError: for a name that is neither a workload's nor a model's.
        click.ClickException: where not even TensorFlow can be started.
        """
        try:
            found = self.own.ask("cases", limit_s=START_S, names=names, quick=quick)
        except Refused as refused:
            raise click.ClickException(str(refused)) from refused
        if found["unknown"]:
            raise click.UsageError(f"no {', '.join(found['unknown'])}; there are: {', '.join(found['known'])}")
        return [(name, shape) for name, shape in found["cases"]]


def measure(processes: Processes, name: str, shape: list[int], directory: Path, effort: Effort) -> Row:
    """A row. directory: keeps ONNX files for the next number of threads."""
    with tempfile.TemporaryDirectory(dir=directory) as of_case:
        ready = _prepared(processes, name, shape, Path(of_case), directory)
    samples: dict[str, Samples] = {}
    while ready.slices and not samples:
        try:
            samples = timing.in_turns(ready.slices, effort)
        except Lost as lost:  # who dies while it is measured costs the row nothing but its own figure
            gone = ("tf", "stitch") if lost.worker == processes.own.name else (lost.worker,)
            ready.absent.update(dict.fromkeys(gone, str(lost)))
            ready = replace(ready, slices={n: s for n, s in ready.slices.items() if n.removesuffix(EMPTY) not in gone})
    return row(name, shape, processes.threads, samples, ready.errors, ready.absent, ready.copies)


@dataclass(frozen=True)
class _Ready:
    """What can be measured of a case. slices: by a way's name, and by `… empty` for what is taken off."""

    slices: dict[str, timing.Slice] = field(default_factory=dict[str, timing.Slice])
    errors: dict[str, float] = field(default_factory=dict[str, float])
    absent: dict[str, str] = field(default_factory=dict[str, str])
    copies: int = 1


def _prepared(processes: Processes, name: str, shape: list[int], of_case: Path, directory: Path) -> _Ready:
    where, own = str(of_case), processes.own
    try:
        answer = own.ask("prepare", limit_s=PREPARE_S, name=name, shape=shape, directory=where)
    except Refused as refused:  # without TensorFlow's outputs there is nothing to compare with
        return _Ready(absent=dict.fromkeys(WAYS, str(refused)))
    slices = own.slices(answer["calls"], SLICE_S)
    ready = _Ready(slices, answer["errors"], answer["absent"], answer["copies"])
    onnx = directory / f"{name}-{'x'.join(map(str, shape))}.onnx"
    for peer in PEERS:
        try:
            if peer == "ort":
                _convert(processes.others["onnx"], where, onnx, answer["whole"])
            calls = processes.others[peer].ask("prepare", limit_s=PREPARE_S, directory=where, onnx=str(onnx))["calls"]
            ready.errors[peer] = own.ask("compare", limit_s=PREPARE_S, directory=where, name=peer)["error"]
            ready.slices.update(processes.others[peer].slices(calls, SLICE_S))
        except Refused as refused:
            ready.absent[peer] = str(refused)
    return ready


def _convert(worker: Worker, where: str, onnx: Path, whole: bool) -> None:
    try:
        worker.ask("convert", limit_s=PREPARE_S, directory=where, to=str(onnx))
    finally:
        if whole:  # tf2onnx keeps 12 GB of BERT
            worker.stop()


def _python() -> Path:
    found = Path(os.environ.get(ENVIRONMENT, DEFAULT)) / "bin" / "python"
    if not found.exists():
        raise click.ClickException(f"no ONNX Runtime and torch in {found.parents[1]}: make venv-peers")
    return found
