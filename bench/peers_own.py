"""TensorFlow and tf_stitch on the cases of `bench peers`, in this environment's Python; hands cases to the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.peers_case import Arrays, Exported, read_arrays, write_arrays
from bench.peers_protocol import Answer, Calls, reason, serve, timed

if TYPE_CHECKING:  # TensorFlow, which the command line does without
    from bench.baselines import Way


@click.command(name="_peers_own", hidden=True)
@click.option("--threads", type=int, required=True)
def peers_own(threads: int) -> None:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    tf.get_logger().setLevel("ERROR")
    calls: Calls = {}

    def prepare(name: str, shape: list[int], directory: str) -> Answer:
        calls.clear()
        made, answer = prepared(name, tuple(shape), Path(directory))
        calls.update(made)
        return {"calls": list(calls), **answer}

    serve({"cases": cases, "prepare": prepare, "compare": compare, "slice": partial(timed, calls)})


def cases(names: list[str], quick: bool) -> Answer:
    """What is measured: (name, shape) of workloads and of models; and the names that are neither."""
    from bench.workloads.clusters import WORKLOADS
    from bench.workloads.models import ALL, MODELS

    shapes = {w.name: w.shapes(quick) for w in WORKLOADS} | {m.name: m.sizes[:1] for m in ALL.values()}
    wanted = names or [w.name for w in WORKLOADS] + ([] if quick else list(MODELS))
    found = [(name, shape) for name in wanted for shape in shapes.get(name, ())]
    return {"cases": found, "unknown": sorted(set(names) - shapes.keys()), "known": list(shapes)}


def prepared(name: str, shape: tuple[int, ...], directory: Path) -> tuple[Calls, Answer]:
    """Calls of both ways, and of all of them but the copies; tf_stitch's error, or why it cannot be measured.

    Leaves the case in the directory for others; what TensorFlow says is right.
    """
    from bench.workloads.models import ALL

    return _prepared_model(name, shape, directory) if name in ALL else _prepared_workload(name, shape, directory)


def compare(directory: str, name: str) -> Answer:
    """How far what a runtime left in a directory is from TensorFlow's, relative to the largest value of each output."""
    from bench.harness import relative_error

    got, right = (tuple(a.astype("f8") for a in read_arrays(Path(directory) / f"{n}.npz")) for n in (name, "right"))
    return {"error": relative_error(got, right)}


def _prepared_workload(name: str, shape: tuple[int, ...], directory: Path) -> tuple[Calls, Answer]:
    import tensorflow as tf

    from bench import peers_graph
    from bench.workloads import chain
    from bench.workloads.clusters import find

    workload = find(name)
    copies = workload.copies(shape)
    arrays = workload.arrays(shape, copies)
    one_copy = chain.unrolled(workload, 1)
    case = Exported(copies=copies, fresh=workload.fresh_count)
    ones = (arrays[0], *case.rest_of_copy(0, arrays))
    inputs, outputs = peers_graph.export(one_copy, ones, directory)
    replace(case, inputs=inputs, outputs=outputs).write(directory)
    write_arrays(directory / "arguments.npz", arrays)
    arguments, first = ([tf.constant(a) for a in kind] for kind in (arrays, ones))

    def way_prepared(way: Way) -> Calls:
        one = way.compiled(one_copy)
        got = _arrays(one(*first))
        chained = way.alone(one) if copies == 1 else way.chained(workload, copies)
        last = _arrays(chained.chain(*arguments))[:1] if copies > 1 else ()
        write_arrays(directory / _file(way.name), [*got, *last])
        chained.empty(*arguments)
        return {
            way.name: lambda: chained.chain(*arguments),
            f"{way.name} empty": lambda: chained.empty(*arguments),
        }

    return _both(way_prepared, directory, copies, whole=False)


def _prepared_model(name: str, size: tuple[int, ...], directory: Path) -> tuple[Calls, Answer]:
    import tensorflow as tf

    from bench import peers_graph
    from bench.workloads.models import ALL

    model = ALL[name]
    arrays = model.inputs(size=size)
    loaded = tf.saved_model.load(str(model.path()))

    def run(*tensors: Any) -> list[Any]:
        # By way of the model: its variables live only as long as it does.
        made = loaded.signatures[model.signature](**dict(zip(arrays, tensors, strict=True)))
        return [made[name] for name in sorted(made)]

    inputs, outputs = peers_graph.export_model(run, list(arrays.values()), directory)
    Exported(inputs, outputs, whole=True).write(directory)
    write_arrays(directory / "arguments.npz", list(arrays.values()))
    arguments = [tf.constant(a) for a in arrays.values()]

    def way_prepared(way: Way) -> Calls:
        compiled = way.compiled(run)
        write_arrays(directory / _file(way.name), _arrays(compiled(*arguments)))
        return {way.name: lambda: compiled(*arguments)}

    return _both(way_prepared, directory, 1, whole=True)


def _both(way_prepared: Callable[[Way], Calls], directory: Path, copies: int, whole: bool) -> tuple[Calls, Answer]:
    """TensorFlow, then tf_stitch, without which TensorFlow's figures are worth having all the same."""
    from bench import baselines
    from bench.baselines import Absent

    tensorflow, _, stitch = baselines.ways()
    assert not isinstance(tensorflow, Absent)
    calls = way_prepared(tensorflow)
    absent: dict[str, str] = {}
    errors: dict[str, float] = {}
    if isinstance(stitch, Absent):
        absent[stitch.name] = stitch.reason
    else:
        try:
            made = way_prepared(stitch)
            errors[stitch.name] = compare(str(directory), stitch.name)["error"]
            calls |= made
        except Exception as error:  # noqa: BLE001
            absent[stitch.name] = reason(error)
    return calls, {"copies": copies, "whole": whole, "absent": absent, "errors": errors}


def _file(way: str) -> str:
    return "right.npz" if way == "tf" else f"{way}.npz"


def _arrays(result: Any) -> Arrays:
    import tensorflow as tf

    return tuple(t.numpy() for t in tf.nest.flatten(result))
