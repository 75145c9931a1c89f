"""`python -m bench compare SAVED_MODEL`: a model of your own under TensorFlow, XLA and tf_stitch."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

from bench import clusters, models, models_case, models_measure, models_table
from bench.models_case import Case
from tf_stitch.errors import StitchError, UsageError

TOLERANCE = 1e-5
FLOAT64_FACTOR = 2.0
_DEFAULT_SIGNATURE = "serving_default"


class Mistake(click.ClickException):
    """Something that was asked for and is not there, or does not fit."""

    exit_code = 2


@click.command()
@click.argument("saved_model", type=click.Path(path_type=Path))
@click.option("--inputs", metavar="NAME=FILE.npy", multiple=True, help="An input; the others are made up.")
@click.option("--signature", metavar="KEY", help="The signature to run.  [default: serving_default, or the only one]")
@click.option(
    "--size",
    metavar="DIM=N",
    multiple=True,
    help="What an unknown dim is to be: 0=8 for the first axis of all inputs, x.1=128 for one of x.  "
    "[default: 2, 16, then 32, by axis]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the inputs that are made up.")
@click.option("--quick", is_flag=True, help="One process, no auto-clustering, no float64.")
@click.option("--threads", default="2", show_default=True, help="Thread counts, with commas between.")
@click.option("--processes", type=click.IntRange(1), help="That measure a row.  [default: 5; with --quick 1]")
@click.option(
    "--xla-limit",
    type=click.FloatRange(1),
    help="Seconds in which XLA has to be ready.  [default: 300; with --quick 45]",
)
@click.option("--json", "json_path", type=models.OUTPUT, help="Write the rows here.")
@click.option("--profile", type=models.DIRECTORY, help="Write traces, and tables of what takes longest, here.")
def compare(
    saved_model: Path,
    inputs: tuple[str, ...],
    signature: str | None,
    size: tuple[str, ...],
    seed: int,
    quick: bool,
    threads: str,
    processes: int | None,
    xla_limit: float | None,
    json_path: Path | None,
    profile: Path | None,
) -> None:
    """The table of `bench models` for a SavedModel of your own."""
    counts = clusters.thread_counts(threads)
    plan = models.planned(quick, processes, xla_limit, profile)
    log = Console(stderr=True, highlight=False)
    with tempfile.TemporaryDirectory(prefix="bench-compare-") as scratch:
        try:
            case = case_of(saved_model, signature, inputs, size, seed, Path(scratch))
        except StitchError as error:
            raise Mistake(str(error)) from None
        rows = [models_measure.row(case, count, plan) for count in counts]
        for row in rows:
            log.print(models_table.log_line(row), markup=False, soft_wrap=True)
    models.finish(rows, json_path)


def case_of(
    saved_model: Path, signature: str | None, inputs: Sequence[str], sizes: Sequence[str], seed: int, scratch: Path
) -> Case:
    """The model with the inputs that are given, and others made up from the types of its signature.

    Raises:
      UsageError: where there is no such model, signature, input or axis, or a file does not fit.
    """
    if not (saved_model / "saved_model.pb").exists():
        raise UsageError(f"{saved_model} is no SavedModel; give a directory that holds saved_model.pb.")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    from tf_stitch.cli import model_inputs

    chosen = model_inputs.Sizes.parse(sizes)
    key, types = _signature(saved_model, signature)
    if (unused := chosen.unused(types)) is not None:
        raise UsageError(f"--size {unused}: no input has that axis; the inputs are {', '.join(types)}.")
    given = model_inputs.from_files(inputs, types)
    generator = np.random.default_rng(seed)
    arrays = {
        name: given[name] if name in given else model_inputs.made_up(name, types[name], chosen, generator)
        for name in sorted(types)
    }
    case = Case(
        name=saved_model.resolve().name,
        mode="infer",
        size=",".join("x".join(map(str, array.shape)) or "scalar" for array in arrays.values()),
        path=str(saved_model.resolve()),
        signature=key,
        inputs="",
        tolerance=TOLERANCE,
        float64_factor=FLOAT64_FACTOR,
    )
    return models_case.with_inputs(case, arrays, scratch)


def _signature(saved_model: Path, wanted: str | None) -> tuple[str, Mapping[str, Any]]:
    """The key, and the types of the inputs.

    Raises:
      UsageError: where the model does not load, or has no such signature.
    """
    import tensorflow as tf

    try:
        loaded: Any = tf.saved_model.load(str(saved_model))
    except Exception as error:  # TensorFlow raises anything from OSError to KeyError here
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise UsageError(f"{saved_model} does not load as a SavedModel: {reason}.") from error
    keys = list(loaded.signatures)
    key = wanted or (_DEFAULT_SIGNATURE if _DEFAULT_SIGNATURE in keys else keys[0] if len(keys) == 1 else None)
    if key not in keys:
        asked = f"{saved_model} has no signature {key!r}" if key else f"name a signature of {saved_model}"
        raise UsageError(f"{asked}; it has {', '.join(keys) or 'none'}.")
    assert key is not None
    return key, loaded.signatures[key].structured_input_signature[1]
