"""DIEN of deepctr: will a user click, by GRUs with attention over what was clicked before. Random weights.

The package needs TensorFlow 1's graphs, and names that TensorFlow 2 has moved. Its loops get their number of turns,
which is the length of the history: XLA cannot size their TensorLists without.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from bench.workloads.models.model import Inputs, Model, Size
from bench.workloads.models.source import stand_in
from bench.workloads.models.weights import random_values

HISTORY = 50
WIDTH = 18
IDS = {"user": 10000, "gender": 3, "item_id": 20000, "cate_id": 500}


def _inputs(random: np.random.Generator, size: Size) -> Inputs:
    (batch,) = size

    def ids(name: str, *shape: int) -> np.ndarray:
        return random.integers(1, IDS[name], (batch, *shape)).astype(np.int32)

    return {
        **{name: ids(name, 1) for name in IDS},
        "pay_score": random.random((batch, 1)).astype(np.float32),
        **{f"hist_{name}": ids(name, HISTORY) for name in ("item_id", "cate_id")},
        "seq_length": random.integers(1, HISTORY + 1, (batch, 1)).astype(np.int32),
    }


def _build(destination: Path) -> None:
    os.environ.update(TF_USE_LEGACY_KERAS="1")
    stand_in("requests")  # asks for newer versions
    _bring_names_back()
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_util_v2

    v1: Any = tf.compat.v1
    v1.disable_eager_execution()
    v1.enable_control_flow_v2()
    v1.enable_resource_variables()
    control_flow_util_v2.set_output_all_intermediates(False)  # loops keep nothing for gradients
    v1.set_random_seed(0)
    model = _model()
    session = v1.keras.backend.get_session()
    random = np.random.default_rng(0)
    session.run(v1.global_variables_initializer())
    for variable in model.weights:
        variable.load(random_values(random, variable.name, variable.shape), session)
    used = {name: t for name, t in zip(model.input_names, model.inputs, strict=True) if t.consumers()}
    v1.saved_model.simple_save(
        session,
        str(destination),
        inputs=used,
        outputs={"clicks": model.output},
    )


def _model() -> Any:
    from deepctr.feature_column import DenseFeat, SparseFeat, VarLenSparseFeat  # pyright: ignore[reportMissingImports]
    from deepctr.models import DIEN as dien  # noqa: N811  # pyright: ignore[reportMissingImports]

    columns: list[Any] = [SparseFeat(name, size, embedding_dim=WIDTH) for name, size in IDS.items()]
    columns.append(DenseFeat("pay_score", 1))
    for name in ("item_id", "cate_id"):
        clicked = SparseFeat(f"hist_{name}", IDS[name], embedding_dim=WIDTH, embedding_name=name)
        columns.append(VarLenSparseFeat(clicked, maxlen=HISTORY, length_name="seq_length"))
    return dien(columns, ["item_id", "cate_id"], dnn_hidden_units=[200, 80], gru_type="AUGRU")


def _bring_names_back() -> None:
    import tensorflow as tf
    from tensorflow.python.ops import array_ops, control_flow_ops, math_ops
    from tensorflow.python.util import nest

    v1: Any = tf.compat.v1

    def while_loop(*args: Any, **kwargs: Any) -> Any:
        return v1.while_loop(*args, **{"maximum_iterations": HISTORY, **kwargs})

    array_ops.stack, array_ops.unstack = tf.stack, tf.unstack
    control_flow_ops.Assert, control_flow_ops.cond = tf.debugging.Assert, v1.cond
    control_flow_ops.while_loop = while_loop
    math_ops.to_int32 = lambda x, name=None: tf.cast(x, tf.int32, name)
    math_ops.reduce_min, math_ops.reduce_max = tf.reduce_min, tf.reduce_max
    nest.is_sequence = nest.is_nested


DIEN = Model(
    name="dien",
    notes="embeddings, attention, GRUs of 50 steps in loops; batch unknown; random weights",
    packages=("deepctr==0.9.4", "tf-keras==2.21.0"),
    sizes=((256,), (7,)),
    make_inputs=_inputs,
    build=_build,
)
