"""The counting rule on small graphs, with counts that can be checked by hand."""

from __future__ import annotations

import pytest
import tensorflow as tf

import tf_stitch
from bench import kernel_graph, kernel_hlo, kernel_trace
from bench.kernel_rule import SMALL, Kind, Launch, kernels, kind_of_instruction, kind_of_op

X = tf.reshape(tf.linspace(-1.0, 1.0, 64 * 256), [64, 256])
W = tf.reshape(tf.linspace(-0.1, 0.1, 256 * 128), [256, 128])


def straight(x, w):
    """Two ops, a product, three ops; views and shapes between them."""
    y = tf.exp(x) + 1.0
    rows = tf.shape(y)[0]
    z = tf.reshape(tf.matmul(y, w), [rows, 2, 64])
    return tf.transpose(tf.sin(z) * 0.5, [0, 2, 1])


def looping(turns):
    """Two ops a turn; the loop's counter is small."""

    def function(x):
        return tf.while_loop(lambda i, _: i < turns, lambda i, x: (i + 1, tf.sin(x) * 0.5), (0, x))[1]

    return function


def counted(function, *arguments):
    made = tf.function(function, autograph=False)
    return kernel_graph.launches(lambda: made(*arguments))


def counted_stitched(function, *arguments, exclude=()):
    config = tf_stitch.Config(exclude=frozenset(exclude))
    made = tf_stitch.function(function, autograph=False, config=config)
    return kernel_graph.launches(lambda: made(*arguments))


def counted_by_xla(function, *arguments):
    compiled = tf.function(function, autograph=False, jit_compile=True)
    compiled(*arguments)
    hlo = compiled.experimental_get_compiler_ir(*arguments)(stage="optimized_hlo")
    return kernel_hlo.launches(hlo, kernel_trace.executed_instructions(lambda: compiled(*arguments)))


def memory_ops(launches: tuple[Launch, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for launch in launches:
        if launch.kind is Kind.MEMORY:
            op = launch.op.removeprefix("_Mkl")
            found[op] = found.get(op, 0) + launch.times
    return found


def test_tensorflow():
    launches = counted(straight, X, W)
    assert memory_ops(launches) == {"Exp": 1, "AddV2": 1, "Sin": 1, "Mul": 1, "Transpose": 1}
    assert kernels(launches) == 5
    assert sum(launch.kind is Kind.COMPUTE for launch in launches) == 1


def test_stitched_and_what_is_left():
    launches = counted_stitched(straight, X, W, exclude=["Transpose", "MatMul"])
    assert memory_ops(launches) == {"StitchOp": 2, "Transpose": 1}


def test_xla():
    launches = counted_by_xla(straight, X, W)
    assert kernels(launches) == 2
    assert [launch.op for launch in launches if launch.kind is Kind.COMPUTE] == ["dot"]


@pytest.mark.parametrize("turns", [3, 200])
def test_loops_count_by_turns(turns):
    assert memory_ops(counted(looping(turns), X)) == {"Sin": turns, "Mul": turns}
    assert memory_ops(counted_stitched(looping(turns), X)) == {"StitchOp": turns}
    fused = [launch for launch in counted_by_xla(looping(turns), X) if launch.op == "fusion of multiply, sine"]
    assert [(launch.kind, launch.times) for launch in fused] == [(Kind.MEMORY, turns)]


def test_functions_that_are_called_count_by_the_same_rule():
    @tf.function(experimental_attributes={"_noinline": True}, autograph=False)
    def called(x, factor):
        return tf.sin(x) * (factor + 1.0)

    factor = tf.constant(2.0)
    launches = counted(lambda x, factor: tf.exp(called(x, factor - 3.0)), X, factor)
    assert memory_ops(launches) == {"Sin": 1, "Mul": 1, "Exp": 1}
    small = {launch.op: launch.times for launch in launches if launch.kind is Kind.SMALL}
    assert small == {"Sub": 1, "AddV2": 1}


@pytest.mark.parametrize(
    ("op", "sizes", "kind"),
    [
        ("AddV2", [SMALL, SMALL, SMALL], Kind.SMALL),
        ("AddV2", [SMALL + 1, 1, SMALL + 1], Kind.MEMORY),
        ("Sum", [1000, 1, 1], Kind.MEMORY),
        ("AddV2", [1, None, None], Kind.MEMORY),
        ("_MklSoftmax", [1000, 1000], Kind.MEMORY),
        ("_FusedBatchNormEx", [1000, 1000], Kind.MEMORY),
        ("_MklNativeFusedMatMul", [1000, 1000, 1000], Kind.COMPUTE),
        ("_FusedConv2D", [1000, 1000, 1000], Kind.COMPUTE),
        ("BatchMatMulV2", [1, 1, 1], Kind.COMPUTE),
        ("TopKV2", [1000, 1, 4, 4], Kind.COMPUTE),
        ("Reshape", [1000, 2, 1000], Kind.VIEW),
        ("_Retval", [1000], Kind.VIEW),
        ("TensorListGetItem", [1, 1, 2, 1000], Kind.VIEW),
        ("TensorListStack", [1, 2, 1000], Kind.MEMORY),
        ("StitchOp", [1000, 1000], Kind.MEMORY),
    ],
)
def test_kinds_of_ops(op, sizes, kind):
    assert kind_of_op(op, sizes) is kind


@pytest.mark.parametrize(
    ("opcodes", "sizes", "kind"),
    [
        (["parameter", "add"], [SMALL], Kind.SMALL),
        (["parameter", "add"], [SMALL + 1], Kind.MEMORY),
        (["parameter", "bitcast"], [1000], Kind.VIEW),
        (["parameter", "add", "dot"], [1000], Kind.COMPUTE),
        (["custom-call"], [1000], Kind.COMPUTE),
        (["copy"], [1000], Kind.MEMORY),
    ],
)
def test_kinds_of_instructions(opcodes, sizes, kind):
    assert kind_of_instruction(opcodes, sizes) is kind
