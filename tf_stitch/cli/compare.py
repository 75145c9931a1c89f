"""`tf-stitch compare`: two SavedModels on the same inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tf_stitch.cli import output
from tf_stitch.cli.exit_codes import Exit
from tf_stitch.errors import StitchError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tf_stitch.report.difference import Difference

_DEFAULT_SIGNATURE = "serving_default"


@click.command()
@click.argument("first", metavar="A", type=click.Path(path_type=Path))
@click.argument("second", metavar="B", type=click.Path(path_type=Path))
@click.option("--inputs", metavar="NAME=FILE.npy", multiple=True, help="An input; the others are made up.")
@click.option("--signature", metavar="KEY", help="The signature to run.  [default: serving_default, or the only one]")
@click.option(
    "--size",
    metavar="DIM=N",
    multiple=True,
    help="What an unknown dim is to be: 0=8 for the first axis of all inputs, x.1=128 for one of x.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the inputs that are made up.")
@click.option(
    "--rtol",
    type=click.FloatRange(min=0),
    help="How far an output may be off, relative to its largest value.  [default: 1e-5; f16 2e-3, bf16 2e-2]",
)
@output.json_option
@click.pass_context
def compare(
    ctx: click.Context,
    first: Path,
    second: Path,
    *,
    inputs: tuple[str, ...],
    signature: str | None,
    size: tuple[str, ...],
    seed: int,
    rtol: float | None,
    as_json: bool,
) -> None:
    """Runs SavedModels A and B on the same inputs, and tells how far B's outputs are from A's.

    The exit status is 4 when they are further off than --rtol.
    """
    for path in (first, second):
        if not path.is_dir():
            raise UsageError(f"{path} does not exist; give the directory of a SavedModel.")
    output.import_tensorflow()
    from tf_stitch.cli import model_inputs
    from tf_stitch.report.difference import dtype_name

    sizes = model_inputs.Sizes.parse(size)
    with output.quietly("loading"):
        key, models = _load(first, second, signature)
    types: Mapping[str, Any] = models[0].structured_input_signature[1]
    if (unused := sizes.unused(types)) is not None:
        raise UsageError(f"--size {unused}: no input has that axis; the inputs are {', '.join(types)}.")
    given = model_inputs.from_files(inputs, types)
    generator = model_inputs.np.random.default_rng(seed)
    values = {n: given[n] if n in given else model_inputs.made_up(n, types[n], sizes, generator) for n in sorted(types)}
    with output.quietly("running"):
        calls, differences = _run(first, second, models, values, rtol)
    agree = all(d.agrees for d in differences)
    if as_json:
        output.print_json(
            {
                "a": str(first),
                "b": str(second),
                "signature": key,
                "inputs": {n: {"dtype": dtype_name(v), "shape": list(v.shape)} for n, v in values.items()},
                "seed": seed,
                "agree": agree,
                "outputs": [d.to_json() for d in differences],
                "stitched": calls,
            }
        )
    else:
        _show(key, values, differences, calls)
    if not agree:
        output.log("tf-stitch: the outputs differ.")
        ctx.exit(Exit.MISMATCH)


def _load(first: Path, second: Path, wanted: str | None) -> tuple[str, list[Any]]:
    """The key of the signature, and the function of each model.

    Raises:
      UsageError: where a model does not load, or has no such signature.
    """
    import tensorflow as tf

    loaded: list[Any] = []
    for path in (first, second):
        try:
            loaded.append(tf.saved_model.load(str(path)))
        except Exception as error:  # TensorFlow raises anything from OSError to KeyError here
            raise UsageError(f"{path} does not load as a SavedModel: {_first_line(error)}.") from error
    keys = [k for k in loaded[0].signatures if k in loaded[1].signatures]
    key = wanted or (_DEFAULT_SIGNATURE if _DEFAULT_SIGNATURE in keys else keys[0] if len(keys) == 1 else None)
    if key not in keys:
        have = f"the signatures of both are {', '.join(keys)}" if keys else "they have no signature in common"
        asked = f"signature {key!r} is not in both models" if key else "no signature was named"
        raise UsageError(f"{asked}; {have}.")
    assert key is not None
    functions = [model.signatures[key] for model in loaded]
    for function, model in zip(functions, loaded, strict=True):
        function.keep_alive = model  # its variables die with the model
    inputs = [set(f.structured_input_signature[1]) for f in functions]
    if inputs[0] != inputs[1]:
        raise UsageError(f"signature {key!r} takes {sorted(inputs[0])} in {first} and {sorted(inputs[1])} in {second}.")
    return key, functions


def _run(
    first: Path, second: Path, models: list[Any], values: Mapping[str, Any], rtol: float | None
) -> tuple[dict[str, dict[str, int]], list[Difference]]:
    """Runs both. The first result: calls of kernels in each model, and how many of them fell back.

    Raises:
      StitchError: where one fails on these inputs.
    """
    import tensorflow as tf

    from tf_stitch.report.difference import difference
    from tf_stitch.runtime import stitch_op

    results: list[dict[str, Any]] = []
    calls: dict[str, dict[str, int]] = {}
    for side, path, model in zip("ab", (first, second), models, strict=True):
        stitch_op.reset_counters()
        try:
            outputs = model(**{name: tf.constant(value) for name, value in values.items()})
        except (tf.errors.OpError, ValueError, TypeError) as error:
            raise StitchError(
                f"{path} fails on these inputs: {_first_line(error)}; "
                "choose sizes with --size, or give inputs with --inputs."
            ) from error
        results.append({name: tensor.numpy() for name, tensor in outputs.items()})
        total = stitch_op.counters()["total"]
        calls[side] = {"calls": total["calls"], "fallbacks": sum(total["fallbacks"].values())}
    names = sorted(results[0])
    if names != sorted(results[1]):
        raise StitchError(f"{first} has the outputs {names}, and {second} {sorted(results[1])}.")
    return calls, [difference(name, results[0][name], results[1][name], rtol) for name in names]


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _show(key: str, values: Mapping[str, Any], differences: list[Difference], calls: dict[str, dict[str, int]]) -> None:
    from tf_stitch.report.difference import dtype_name

    console = output.console()
    shapes = ", ".join(f"{n} {dtype_name(v)}{list(v.shape)}" for n, v in values.items())
    console.print(f"{key}({shapes})")
    console.print()
    numbers = ("ulps", "difference", "relative")
    table = output.table("output", "type", *numbers, "", right=numbers, wide="output")
    for d in differences:
        type_ = f"{d.dtype}{list(d.shape)}"
        if d.problem:
            table.add_row(d.name, type_, "", "", "", d.problem, style="red")
            continue
        verdict = "equal" if not d.unequal else "agrees" if d.agrees else "DIFFERS"
        far = "" if d.max_ulps is None else str(d.max_ulps)
        row = (d.name, type_, far, f"{d.max_abs:.2g}", f"{d.relative:.2g}", verdict)
        table.add_row(*row, style="" if d.agrees else "red")
    console.print(table)
    console.print()
    for side, path in zip("ab", ("A", "B"), strict=True):
        count = calls[side]
        fell = f", {count['fallbacks']} of them unstitched" if count["fallbacks"] else ""
        console.print(f"{path}: {count['calls']} calls of kernels{fell}")
