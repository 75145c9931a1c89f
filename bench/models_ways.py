"""A signature of a SavedModel under TensorFlow, XLA, XLA's auto-clustering and tf_stitch, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import context

from bench.models_case import Case

Arrays = dict[str, np.ndarray]
Call = Callable[[], dict[str, Any]]
Function = Callable[..., Any]


class TrainingError(RuntimeError):
    """A training step that cannot be compared."""


@dataclass(frozen=True)
class Loaded:
    """A copy of the model, on constant inputs. start: its variables' values as they were loaded, where it trains."""

    model: Any
    signature: str
    inputs: dict[str, tf.Tensor]
    start: tuple[np.ndarray, ...] = ()

    def step(self, **inputs: Any) -> dict[str, Any]:
        return self.model.signatures[self.signature](**inputs)

    @property
    def variables(self) -> Sequence[Any]:
        return self.model.variables

    def start_again(self) -> None:
        for variable, value in zip(self.variables, self.start, strict=True) if self.start else ():
            variable.assign(value)


@dataclass(frozen=True)
class Way:
    """One way to run a loaded model. function: what `compiled` made of its step."""

    name: str
    loaded: Loaded
    function: Function = field(repr=False)

    def __call__(self) -> dict[str, Any]:
        return self.function(**self.loaded.inputs)


def load(case: Case, start: tuple[np.ndarray, ...] = ()) -> Loaded:
    """The model, and its inputs as tensors. start: where another copy of it has been loaded, what that started from.

    Raises:
      TrainingError: of a training step without variables.
    """
    model: Any = tf.saved_model.load(case.path)
    inputs = {name: tf.constant(array) for name, array in case.arrays().items()}
    if case.mode != "train":
        return Loaded(model, case.signature, inputs)
    if not getattr(model, "variables", ()):
        raise TrainingError(
            f"{case.name} trains, but `tf.saved_model.load({case.path!r})` has no `variables`; save them in an "
            "attribute of that name."
        )
    return Loaded(model, case.signature, inputs, start or tuple(v.numpy().copy() for v in model.variables))


def ways(case: Case, names: Sequence[str]) -> Iterator[Way]:
    """One after another. They share one copy of the model, unless they would train it: then each loads its own."""
    first = load(case)
    for number, name in enumerate(names):
        copy = load(case, first.start) if number and case.mode == "train" else first
        yield Way(name, copy, COMPILED[name](copy.step))


# ---- how a step is compiled ---------------------------------------------------------------------------------


def _plain(step: Function) -> Function:
    return tf.function(step, autograph=False)


def _jitted(step: Function) -> Function:
    return tf.function(step, autograph=False, jit_compile=True)


def _auto_clustered(step: Function) -> Function:
    """Clusters are made on CPUs only in a process whose TF_XLA_FLAGS allow it; see models_process."""
    return _under_jit_level(config_pb2.OptimizerOptions.ON_2, _plain(step))


def _not_clustered(step: Function) -> Function:
    return _under_jit_level(config_pb2.OptimizerOptions.OFF, _plain(step))


def _under_jit_level(level: Any, function: Function) -> Function:
    """The options of the thread that calls decide, so that both can be measured in turns."""
    config = config_pb2.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = level
    options = context.FunctionCallOptions(config_proto=config)
    tf_context: Any = context.context()

    def call(**inputs: Any) -> Any:
        own = tf_context.function_call_options
        tf_context.function_call_options = options
        try:
            return function(**inputs)
        finally:
            tf_context.function_call_options = own

    return call


def _stitched(step: Function) -> Function:
    import tf_stitch

    return tf_stitch.function(step, autograph=False)


COMPILED: dict[str, Callable[[Function], Function]] = {
    "tf": _plain,
    "xla": _jitted,
    "stitch": _stitched,
    "xla-auto": _auto_clustered,
    "tf-beside-auto": _not_clustered,
}
