"""The named clusters: what transformers, recurrent and convolutional models have between their matmuls.

Each is a TensorFlow function of float arguments; `N`, `R` and the like stand for dims that a test makes static or
unknown. The tests of planning, lowering, rendering and of the whole read this one list.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from tf_stitch.config import Config
from tf_stitch.frontend.importer import import_graph_def
from tf_stitch.ir.graph import Graph
from tf_stitch.ir.types import DType
from tf_stitch.passes.cluster import cluster
from tf_stitch.passes.clustering import Clustering

Array = np.ndarray[Any, np.dtype[Any]]
Dims = tuple[int | str, ...]

FLOATS = (DType.F32, DType.F64, DType.F16, DType.BF16)


@dataclass(frozen=True)
class Named:
    """A cluster.

    arguments: the shape of each; a string is a dim that may be unknown.
    static: a value for each such dim, where a test wants it static.
    groups: how many loop nests it takes. schemes: of its steps, by the name of the TensorFlow node.
    sizes: what the unknown dims are to be, in turn, besides what every cluster is tried at.
    dtypes: of its arguments. positive: arguments that are above 0. masks: arguments that are 0 or 1.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Dims, ...]
    static: Mapping[str, int]
    groups: int = 1
    schemes: Mapping[str, str] = field(default_factory=dict[str, str])
    sizes: tuple[Mapping[str, int], ...] = ()
    dtypes: tuple[DType, ...] = (DType.F32, DType.F64, DType.F16, DType.BF16)
    positive: tuple[int, ...] = ()
    masks: tuple[int, ...] = ()


def _number(value: float, like: Any) -> Any:
    return tf.cast(value, like.dtype)


def _layer_norm(x: Any, residual: Any, gamma: Any, beta: Any) -> Any:
    t = x + residual
    mean = tf.reduce_mean(t, -1, keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(t, mean), -1, keepdims=True)
    return (t - mean) * tf.math.rsqrt(variance + _number(1e-5, x)) * gamma + beta


def _rms_norm(x: Any, gamma: Any) -> Any:
    return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + _number(1e-6, x)) * gamma


def _masked_softmax(x: Any, mask: Any) -> Any:
    return tf.nn.softmax(x * _number(0.125, x) + (_number(1.0, x) - mask) * _number(-1e4, x))


def _log_softmax(x: Any) -> Any:
    return tf.nn.log_softmax(x * _number(2.0, x))


def _gelu_erf(x: Any, bias: Any) -> Any:
    x = tf.nn.bias_add(x, bias)
    return _number(0.5, x) * x * (_number(1.0, x) + tf.math.erf(x / _number(np.sqrt(2.0), x)))


def _gelu_tanh(x: Any, bias: Any) -> Any:
    x = x + bias
    inner = _number(np.sqrt(2.0 / np.pi), x) * (x + _number(0.044715, x) * x * x * x)
    return _number(0.5, x) * x * (_number(1.0, x) + tf.tanh(inner))


def _bias_activation(x: Any, bias: Any) -> Any:
    return tf.nn.relu(tf.nn.bias_add(x, bias)) * _number(2.0, x)


def _l2_normalise(x: Any) -> Any:
    return x * tf.math.rsqrt(tf.maximum(tf.reduce_sum(tf.square(x), -1, keepdims=True), _number(1e-6, x)))


def _lstm(z: Any, bias: Any, c: Any) -> Any:
    i, j, o, f = tf.split(z + bias, 4, axis=1)
    c = tf.sigmoid(f + _number(1.0, f)) * c + tf.sigmoid(i) * tf.tanh(j)
    return tf.tanh(c) * tf.sigmoid(o), c


def _chain(x: Any) -> Any:
    for _ in range(4):
        x = tf.tanh(x) * _number(1.5, x) + _number(0.1, x)
        x = tf.exp(-tf.abs(x)) * _number(0.5, x)
        x = tf.maximum(x - _number(0.3, x), -x)
    return x


def _split_heads(x: Any, bias: Any) -> Any:
    x = tf.reshape(x + bias, [-1, 16, 4, 8])
    return tf.transpose(x, [0, 2, 1, 3]) * _number(0.5, x)


def _merge_heads(x: Any, residual: Any) -> Any:
    x = tf.transpose(x * _number(2.0, x), [0, 2, 1, 3])
    return tf.reshape(x, [-1, 32]) + residual


def _batch_norm(x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    outputs = tf.raw_ops.FusedBatchNormV3(
        x=x, scale=scale, offset=offset, mean=mean, variance=variance, is_training=False
    )
    return tf.nn.relu(outputs.y) * 2.0


def _integers(x: Any, y: Any) -> Any:
    z = tf.where(x > 3, x * x + 1, -x) - y
    return tf.maximum(z, y) // 3, tf.reduce_sum(z, -1)


def _booleans(x: Any, y: Any) -> Any:
    either = tf.logical_or(tf.logical_not(x), y)
    return tf.math.logical_xor(either, x), tf.reduce_all(either, -1), tf.reduce_any(tf.logical_and(either, y), -1)


def _max_and_softmax(x: Any) -> Any:
    x = x * _number(2.0, x)
    return tf.reduce_max(x, -1), tf.nn.softmax(x)


_ROWS = {"R": 5, "N": 96}
_ODD = tuple({"R": r, "N": n} for n, r in ((1, 1), (31, 33), (33, 2), (1023, 3), (4097, 1), (0, 3), (7, 0)))

NAMED = (
    Named("layer_norm", _layer_norm, (("R", "N"), ("R", "N"), ("N",), ("N",)), _ROWS, sizes=_ODD),
    Named("rms_norm", _rms_norm, (("R", "N"), ("N",)), _ROWS, sizes=_ODD),
    Named(
        "masked_softmax", _masked_softmax, (("B", 3, "Q", "K"), ("B", 1, 1, "K")), {"B": 2, "Q": 5, "K": 33},
        sizes=tuple(
            {"B": b, "Q": q, "K": k} for b, q, k in ((1, 1, 1), (2, 3, 31), (1, 2, 1023), (0, 4, 5), (3, 1, 0))
        ),
        masks=(1,),
    ),
    Named("log_softmax", _log_softmax, (("R", "N"),), _ROWS, sizes=_ODD),
    Named("gelu_erf", _gelu_erf, (("R", "N"), ("N",)), _ROWS, sizes=_ODD),
    Named("gelu_tanh", _gelu_tanh, (("R", "N"), ("N",)), _ROWS, sizes=_ODD),
    Named("bias_activation", _bias_activation, (("R", "N"), ("N",)), _ROWS, sizes=_ODD),
    Named("l2_normalise", _l2_normalise, (("R", "N"),), _ROWS, sizes=_ODD),
    Named("lstm", _lstm, (("R", 132), (132,), ("R", 33)), {"R": 5}, sizes=({"R": 1}, {"R": 31}, {"R": 0})),
    Named("chain", _chain, (("R", "N"),), _ROWS, sizes=_ODD),
    Named("split_heads", _split_heads, (("M", 32), (32,)), {"M": 48}, sizes=({"M": 16}, {"M": 0})),
    Named("merge_heads", _merge_heads, (("B", 4, 16, 8), ("M", 32)), {"B": 3, "M": 48},
          sizes=({"B": 1, "M": 16}, {"B": 0, "M": 0})),
    Named(
        "batch_norm", _batch_norm, (("B", "H", 7, 24), (24,), (24,), (24,), (24,)), {"B": 2, "H": 5}, groups=2,
        sizes=({"B": 1, "H": 1}, {"B": 3, "H": 31}, {"B": 0, "H": 5}), dtypes=(DType.F32,), positive=(4,),
    ),
    Named("max_and_softmax", _max_and_softmax, (("R", "N"),), _ROWS, sizes=_ODD),
    Named("integers", _integers, (("R", "N"), ("N",)), _ROWS, sizes=_ODD, dtypes=(DType.I32, DType.I64)),
    Named("booleans", _booleans, (("R", "N"), ("R", "N")), _ROWS, sizes=_ODD, dtypes=(DType.BOOL,)),
)  # fmt: skip
BY_NAME = {named.name: named for named in NAMED}


@dataclass(frozen=True)
class Traced:
    """A function of tensors with its graph, before and after clustering."""

    concrete: Any
    graph: Graph
    clustering: Clustering


def trace(function: Callable[..., Any], specs: Sequence[Any], config: Config | None = None) -> Traced:
    """The graph of a function as TensorFlow traces it, and its clusters."""
    concrete = tf.function(function, input_signature=list(specs), autograph=False).get_concrete_function()
    graph_def = concrete.graph.as_graph_def(add_shapes=True)
    graph = import_graph_def(graph_def, fetched={t.op.name for t in concrete.outputs})
    return Traced(concrete, graph, cluster(graph, config or Config()))


@functools.cache
def traced(name: str, dtype: DType | None = None, *, static: bool = False) -> Traced:
    """A named cluster, of its first dtype unless another is asked for; dims are unknown, or as `static` says."""
    named = BY_NAME[name]
    dtype = dtype or named.dtypes[0]
    return trace(named.function, specs_of(named, dtype, static=static))


def specs_of(named: Named, dtype: DType, *, static: bool) -> list[Any]:
    return [
        tf.TensorSpec([named.static[d] if static and isinstance(d, str) else None if isinstance(d, str) else d
                       for d in dims], tf.as_dtype(dtype.numpy))
        for dims in named.arguments
    ]  # fmt: skip


def arguments_of(named: Named, sizes: Mapping[str, int], dtype: DType, seed: int = 0) -> list[Array]:
    """Arguments at these sizes; numbers of moderate size, so that half precision holds the results."""
    random = np.random.default_rng(seed)
    found: list[Array] = []
    for number, dims in enumerate(named.arguments):
        shape = [sizes[d] if isinstance(d, str) else d for d in dims]
        values = random.standard_normal(shape)
        if number in named.positive:
            values = np.abs(values) + 0.1
        if number in named.masks:
            values = (values > -0.5).astype(np.float64)
        if dtype in (DType.I32, DType.I64):
            values = np.round(values * 10)
        if dtype is DType.BOOL:
            values = values > 0
        found.append(values.astype(dtype.numpy))
    return found
