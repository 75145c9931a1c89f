"""What `bench gpu` compares: clusters at sizes that a GPU is worth using for, and the parts of models around products.

Most need one pass over memory. Some elements are needed once more after all of them have been read, because a result
depends on more than a multiprocessor holds: on any GPU (`again` says why), or where a row (`row_bytes`) is longer than
a block's shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bench.workloads.clusters import find

Shape = tuple[int, ...]

ROWS = (4096, 1024)
IMAGES = (32, 28, 28, 256)
LONG_ROWS = (64, 131_072)
SCORES = (8, 12, 128, 128)

OF_A_CHANNEL = "a channel's mean and variance are those of the whole batch, and the variance is taken about the mean"
OF_ALL = "each element is scaled by the norm of all"

# Whose results of a row need all of the row.
ROW_WISE = tuple(map(find, "residual_layernorm rms_norm l2_normalise masked_softmax log_softmax softmax_xent".split()))


@dataclass(frozen=True)
class GpuCluster:
    """specs: of the arguments. row_bytes: what a row's results wait for. products: matmuls in it, which don't count."""

    name: str
    function: Callable[..., Any]
    specs: tuple[tf.TensorSpec, ...]
    again: str = ""
    row_bytes: int = 0
    products: bool = False

    @property
    def shape(self) -> str:
        return "x".join(map(str, self.specs[0].shape))

    def again_on(self, shared_bytes: int) -> str:
        """Why there has to be a second pass on a GPU with so much shared memory for a block; "" where it has not."""
        if self.again or self.row_bytes <= shared_bytes:
            return self.again
        return f"a row of {self.row_bytes >> 10} KiB is more than the {shared_bytes >> 10} KiB of a block"


def _workload(name: str, shape: Shape, again: str = "", label: str = "") -> GpuCluster:
    workload = find(name)
    specs = [tf.TensorSpec(a.shape, a.dtype) for a in workload.arrays(shape, 1)]
    row_bytes = shape[-1] * specs[0].dtype.size if workload in ROW_WISE else 0
    return GpuCluster(label or name, workload.step, tuple(specs), again, row_bytes)


def _specs(shapes: Sequence[Shape], dtype: Any = tf.float32) -> tuple[tf.TensorSpec, ...]:
    return tuple(tf.TensorSpec(shape, dtype) for shape in shapes)


# -- models ----------------------------------------------------------------------------------------------------

BATCH, LENGTH, WIDTH, HEADS = 8, 128, 768, 12


def bert_layer(x: Any, mask: Any, *parameters: Any) -> Any:
    """An encoder layer: attention and feed-forward part, a layer norm behind each.

    Its weights are arguments, as in training. XLA joins those of query, key and value, which takes it a kernel that it
    doesn't need for a frozen model.
    """
    query, key, value, out, first, second, norms = _grouped(parameters)
    depth = WIDTH // HEADS

    def dense(t: Any, weights: Any, bias: Any) -> Any:
        return tf.nn.bias_add(tf.matmul(t, weights), bias)

    def heads(t: Any) -> Any:
        return tf.transpose(tf.reshape(t, [BATCH, LENGTH, HEADS, depth]), [0, 2, 1, 3])

    flat = tf.reshape(x, [BATCH * LENGTH, WIDTH])
    q, k, v = (heads(dense(flat, *weights)) for weights in (query, key, value))
    scores = tf.matmul(q, k, transpose_b=True) * (1 / math.sqrt(depth)) + mask
    context = tf.transpose(tf.matmul(tf.nn.softmax(scores), v), [0, 2, 1, 3])
    attended = dense(tf.reshape(context, [BATCH * LENGTH, WIDTH]), *out)
    h = layer_norm(attended + flat, *norms[:2])
    fed = dense(tf.nn.gelu(dense(h, *first), approximate=False), *second)
    return layer_norm(fed + h, *norms[2:])


def _grouped(parameters: Sequence[Any]) -> tuple[Any, ...]:
    pairs = [tuple(parameters[n : n + 2]) for n in range(0, 12, 2)]
    return (*pairs, parameters[12:])


def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + tf.cast(1e-5, x.dtype)) * gamma + beta


def _bert_shapes() -> tuple[Shape, ...]:
    square, vector = ((WIDTH, WIDTH), (WIDTH,)), (WIDTH,)
    wide = ((WIDTH, 4 * WIDTH), (4 * WIDTH,), (4 * WIDTH, WIDTH), vector)
    return ((BATCH, LENGTH, WIDTH), (BATCH, 1, 1, LENGTH), *square * 4, *wide, *(vector,) * 4)


def lstm_cell(x: Any, h: Any, c: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
    z = tf.nn.bias_add(tf.matmul(x, kernel) + tf.matmul(h, recurrent), bias)
    i, f, g, o = tf.split(z, 4, axis=-1)
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(c), c


def global_norm(x: Any) -> Any:
    """A tensor clipped by its norm."""
    return tf.clip_by_norm(x, 1.0)


def batch_norm_relu(x: Any, scale: Any, offset: Any) -> Any:
    """In training, in primitives."""
    mean, variance = tf.nn.moments(x, [0, 1, 2])
    return tf.nn.relu(tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-3)), mean, variance


CHANNELS = (IMAGES[-1],)

CLUSTERS: tuple[GpuCluster, ...] = (
    _workload("residual_layernorm", ROWS),
    _workload("rms_norm", ROWS),
    _workload("l2_normalise", ROWS),
    _workload("masked_softmax", ROWS),
    _workload("attention_softmax", SCORES),
    _workload("log_softmax", ROWS),
    _workload("bias_gelu_erf", ROWS),
    _workload("bias_gelu_tanh", ROWS),
    _workload("bias_relu_residual", ROWS),
    _workload("mixed_ops_32", ROWS),
    _workload("lstm_pointwise", (512, 1024)),
    _workload("batchnorm_relu", (8, 56, 56, 64)),
    GpuCluster("lstm_cell", lstm_cell, _specs(((64, 512),) * 3 + ((512, 2048),) * 2 + ((2048,),)), products=True),
    GpuCluster("bert_layer_f32", bert_layer, _specs(_bert_shapes()), products=True),
    GpuCluster("bert_layer_f16", bert_layer, _specs(_bert_shapes(), tf.float16), products=True),
    _workload("layernorm_grad", ROWS),
    _workload("softmax_grad", SCORES),
    _workload("softmax_xent", (64, 30_000)),
    GpuCluster("batchnorm_training", batch_norm_relu, _specs((IMAGES, CHANNELS, CHANNELS)), OF_A_CHANNEL),
    _workload("batchnorm_plain_grad", IMAGES, OF_A_CHANNEL),
    _workload("residual_layernorm", LONG_ROWS, label="layernorm_long_rows"),
    _workload("masked_softmax", LONG_ROWS, label="softmax_long_rows"),
    GpuCluster("global_norm", global_norm, _specs(((4_194_304,),)), OF_ALL),
)
BY_NAME = {cluster.name: cluster for cluster in CLUSTERS}
