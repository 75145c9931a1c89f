"""ONNX Runtime on a case. Runs in the environment of `make venv-peers`.

Every graph optimization is on. Inputs and outputs are bound before the clock starts, so a run copies and allocates
nothing of them: it writes to memory that is warm already, which neither TensorFlow nor tf_stitch are given. What a copy
reads is what the one before it wrote: two buffers take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort  # pyright: ignore[reportMissingImports]

from bench.peers_case import Arrays, Exported, read_arrays, write_arrays
from bench.peers_onnx import empty_of
from bench.peers_protocol import Calls


def prepared(directory: Path, onnx: Path, threads: int) -> Calls:
    """Calls of a chain, and of all of it but the copies; what it computes goes to ort.npz, as right.npz is."""
    case = Exported.read(directory)
    arguments = [_value(a) for a in read_arrays(directory / "arguments.npz")]
    like = read_arrays(directory / "right.npz")[: len(case.outputs)]
    chain = _Chain(case, _session(onnx, threads), arguments, like)
    chain()
    one, last = chain.outputs(0), chain.outputs(case.copies - 1)
    if case.copies > 1:
        # x of the first copy has been written over since.
        one = _alone(case, _session(onnx, threads), arguments, like)
    write_arrays(directory / "ort.npz", [*one, *(last[:1] if case.copies > 1 else ())])
    if case.whole:
        return {"ort": chain}
    empty = _Chain(case, _session(empty_of(onnx), threads), arguments, (np.zeros(1, like[0].dtype),), False)
    empty()
    return {"ort": chain, "ort empty": empty}


class _Chain:
    """Runs of one session, one after the other."""

    def __init__(
        self, case: Exported, session: Any, arguments: Sequence[Any], like: Arrays, handing_on: bool = True
    ) -> None:
        self._session = session
        self._outputs: list[list[Any]] = []
        self._bindings: list[Any] = []
        buffers = [_value(np.empty_like(like[0])) for _ in range(min(2, case.copies))]
        x = arguments[0]
        for copy in range(case.copies):
            outputs = [buffers[copy % 2], *(_value(np.empty_like(a)) for a in like[1:])]
            inputs = dict(zip(map(_stem, case.inputs), (x, *case.rest_of_copy(copy, arguments)), strict=True))
            self._bindings.append(_bound(session, inputs, outputs, case.outputs))
            self._outputs.append(outputs)
            x = outputs[0] if handing_on else x

    def __call__(self) -> None:
        run = self._session.run_with_iobinding
        for binding in self._bindings:
            run(binding)

    def outputs(self, copy: int) -> Arrays:
        return tuple(value.numpy().copy() for value in self._outputs[copy])


def _alone(case: Exported, session: Any, arguments: Sequence[Any], like: Arrays) -> Arrays:
    """The outputs of the first copy."""
    first = Exported(case.inputs, case.outputs)
    run = _Chain(first, session, (arguments[0], *case.rest_of_copy(0, arguments)), like)
    run()
    return run.outputs(0)


def _session(path: Path, threads: int) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _bound(session: Any, inputs: dict[str, Any], outputs: Sequence[Any], names: Sequence[str]) -> Any:
    """By name, for a conversion drops inputs that nothing reads, and orders outputs as it likes."""
    binding = session.io_binding()
    for wanted in session.get_inputs():
        binding.bind_ortvalue_input(wanted.name, inputs[_stem(wanted.name)])
    made = {_stem(output.name): output.name for output in session.get_outputs()}
    if len(outputs) == 1:
        binding.bind_ortvalue_output(next(iter(made.values())), outputs[0])
        return binding
    for name, value in zip(names, outputs, strict=True):
        binding.bind_ortvalue_output(made[_stem(name)], value)
    return binding


def _value(array: np.ndarray) -> Any:
    return ort.OrtValue.ortvalue_from_numpy(array)


def _stem(name: str) -> str:
    return name.partition(":")[0]
