"""DIEN of deepctr: will a user click, by GRUs with attention over what was clicked before. Random weights.

The package needs TensorFlow 1's graphs, and names that TensorFlow 2 has moved. Its loops get their number of turns,
which is the length of the history: XLA cannot size their TensorLists without.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.workloads.models.model import Inputs, Model, Size
from bench.workloads.models.source import stand_in
from bench.workloads.models.training import EPSILON, outputs
from bench.workloads.models.weights import random_values

PACKAGES = ("deepctr==0.9.4", "tf-keras==2.21.0")
CLICKED = ("item_id", "cate_id")
LEARNING_RATE = 1e-3  # of the package's examples


@dataclass(frozen=True)
class Scale:
    """history: items clicked before, in embeddings of so many numbers; ids: how many there are of each kind."""

    history: int
    width: int
    ids: dict[str, int]
    hidden: tuple[int, ...]


FULL = Scale(50, 18, {"user": 10000, "gender": 3, "item_id": 20000, "cate_id": 500}, (200, 80))
TINY = Scale(5, 6, {"user": 20, "gender": 3, "item_id": 30, "cate_id": 7}, (12, 5))


def _inputs(random: np.random.Generator, size: Size, scale: Scale = FULL) -> Inputs:
    (batch,) = size

    def ids(name: str, *shape: int) -> np.ndarray:
        return random.integers(1, scale.ids[name], (batch, *shape)).astype(np.int32)

    return {
        **{name: ids(name, 1) for name in scale.ids},
        "pay_score": random.random((batch, 1)).astype(np.float32),
        **{f"hist_{name}": ids(name, scale.history) for name in CLICKED},
        "seq_length": random.integers(1, scale.history + 1, (batch, 1)).astype(np.int32),
    }


def _labelled(random: np.random.Generator, size: Size, scale: Scale) -> Inputs:
    return _inputs(random, size, scale) | {"label": random.integers(0, 2, (*size, 1)).astype(np.float32)}


def _build(destination: Path) -> None:
    _save(destination, FULL, _clicks, training=False)


def _build_train(destination: Path, scale: Scale) -> None:
    _save(destination, scale, _step, training=True)


Ends = tuple[dict[str, Any], dict[str, Any]]  # inputs and outputs of a signature


def _clicks(model: Any) -> Ends:
    return _taken(model), {"clicks": model.output}


def _step(model: Any) -> Ends:
    """Cross entropy and the package's own regularisation, one step of Adam, and the averages of batch norms."""
    import tensorflow as tf

    v1: Any = tf.compat.v1
    label = v1.placeholder(tf.float32, [None, 1], "label")
    loss = tf.add_n([v1.losses.log_loss(label, model.output), *model.losses])
    optimizer = v1.train.AdamOptimizer(LEARNING_RATE, epsilon=EPSILON)
    found = [(g, v) for g, v in optimizer.compute_gradients(loss, model.trainable_weights) if g is not None]
    with tf.control_dependencies([loss]):  # it has read all variables by then
        updates = [optimizer.apply_gradients(found), *model.updates]
    with tf.control_dependencies(updates):
        loss = tf.identity(loss)
    return {**_taken(model), "label": label}, outputs(loss, [gradient for gradient, _ in found])


def _taken(model: Any) -> dict[str, Any]:
    """The inputs that something is computed from."""
    return {name: t for name, t in zip(model.input_names, model.inputs, strict=True) if t.consumers()}


def _save(destination: Path, scale: Scale, ends: Callable[[Any], Ends], *, training: bool) -> None:
    os.environ.update(TF_USE_LEGACY_KERAS="1")
    stand_in("requests")  # asks for newer versions
    _bring_names_back(scale.history)
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_util_v2

    v1: Any = tf.compat.v1
    v1.disable_eager_execution()
    v1.enable_control_flow_v2()
    v1.enable_resource_variables()
    control_flow_util_v2.set_output_all_intermediates(False)  # but what gradients ask for
    v1.keras.backend.set_learning_phase(int(training))
    v1.set_random_seed(0)
    model = _model(scale)
    inputs, outputs = ends(model)
    # Keras's own session has seen the loops as they were before gradients asked them for more outputs.
    session = v1.Session(graph=v1.get_default_graph())
    random = np.random.default_rng(0)
    session.run(v1.global_variables_initializer())
    for variable in model.weights:
        variable.load(random_values(random, variable.name, variable.shape, scaled=training), session)
    v1.saved_model.simple_save(session, str(destination), inputs=inputs, outputs=outputs)


def _model(scale: Scale) -> Any:
    from deepctr.feature_column import DenseFeat, SparseFeat, VarLenSparseFeat  # pyright: ignore[reportMissingImports]
    from deepctr.models import DIEN as dien  # noqa: N811  # pyright: ignore[reportMissingImports]

    columns: list[Any] = [SparseFeat(name, size, embedding_dim=scale.width) for name, size in scale.ids.items()]
    columns.append(DenseFeat("pay_score", 1))
    for name in CLICKED:
        clicked = SparseFeat(f"hist_{name}", scale.ids[name], embedding_dim=scale.width, embedding_name=name)
        columns.append(VarLenSparseFeat(clicked, maxlen=scale.history, length_name="seq_length"))
    return dien(columns, list(CLICKED), dnn_hidden_units=scale.hidden, gru_type="AUGRU")


def _bring_names_back(history: int) -> None:
    import tensorflow as tf
    from tensorflow.python.ops import array_ops, control_flow_ops, math_ops
    from tensorflow.python.util import nest

    v1: Any = tf.compat.v1

    def while_loop(*args: Any, **kwargs: Any) -> Any:
        return v1.while_loop(*args, **{"maximum_iterations": history, **kwargs})

    array_ops.stack, array_ops.unstack = tf.stack, tf.unstack
    control_flow_ops.Assert, control_flow_ops.cond = tf.debugging.Assert, v1.cond
    control_flow_ops.while_loop = while_loop
    math_ops.to_int32 = lambda x, name=None: tf.cast(x, tf.int32, name)
    math_ops.reduce_min, math_ops.reduce_max = tf.reduce_min, tf.reduce_max
    nest.is_sequence = nest.is_nested


DIEN = Model(
    name="dien",
    notes="embeddings, attention, GRUs of 50 steps in loops; batch unknown; random weights",
    packages=PACKAGES,
    sizes=((256,), (7,)),
    make_inputs=_inputs,
    build=_build,
)

DIEN_TRAIN = Model(
    name="dien-train",
    notes="a step of Adam: embeddings, attention, GRUs of 50 steps in loops and back; batch unknown; random weights",
    packages=PACKAGES,
    mode="train",
    revision=2,
    sizes=((256,), (7,)),
    make_inputs=partial(_labelled, scale=FULL),
    build=partial(_build_train, scale=FULL),
    tolerance=1e-4,
)

DIEN_TRAIN_TINY = replace(
    DIEN_TRAIN,
    name="dien-train-tiny",
    sizes=((7,),),
    make_inputs=partial(_labelled, scale=TINY),
    build=partial(_build_train, scale=TINY),
)
