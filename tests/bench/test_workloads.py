from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.grappler import tf_optimizer
from tensorflow.python.training.saver import export_meta_graph

from bench.baselines import MOVES_NOTHING
from bench.harness import float64_run, relative_error
from bench.workloads import chain
from bench.workloads.clusters import ON_CPUS, find
from bench.workloads.optimizers import LARGEST_NORM, LAYERS
from bench.workloads.workload import LARGE, MOST_COPIES, UNROLLED, Workload

TINY = {2: (6, 40), 4: (2, 3, 5, 8)}
COPIES = 5
every_workload = pytest.mark.parametrize("workload", ON_CPUS, ids=lambda w: w.name)
every_chain = pytest.mark.parametrize("workload", [w for w in ON_CPUS if not w.alone], ids=lambda w: w.name)


def tiny(workload: Workload) -> tuple[int, ...]:
    return (LAYERS, 4) if workload.name == "adamw" else TINY[len(workload.quick[0])]


def run(function, arrays) -> tuple[np.ndarray, ...]:
    outputs = tf.function(function, autograph=False)(*map(tf.constant, arrays))
    return tuple(t.numpy().astype(np.float64) for t in tf.nest.flatten(outputs))


@every_workload
def test_agrees_with_float64(workload):
    arrays = workload.arrays(tiny(workload), 1)
    assert relative_error(run(chain.unrolled(workload, 1), arrays), float64_run(workload, 1, arrays)) < 1e-6


@every_chain
def test_a_chain_stays_tame(workload):
    copies = workload.most_copies
    arrays = workload.arrays(tiny(workload), copies)
    outputs = run(chain.rows(workload, copies), arrays)
    assert relative_error(outputs, float64_run(workload, copies, arrays)) < 1e-5
    assert 1e-3 < np.abs(outputs[0]).max() < 1e3


@every_chain
def test_a_loop_and_calls_are_the_same_chain(workload):
    arrays = workload.arrays(tiny(workload), COPIES)
    wanted = run(chain.unrolled(workload, COPIES), arrays)
    if workload.fresh_count:
        assert relative_error(run(chain.called(workload, COPIES), arrays), wanted) < 1e-5
    else:  # it returns what the last copy emitted, and that comes first in a row's results
        assert relative_error(run(chain.looped(workload, COPIES), arrays), wanted[: 1 + workload.emits]) < 1e-5


@every_chain
def test_rows_in_a_loop_are_the_same_chain(workload):
    copies = min(2 * UNROLLED, workload.most_copies)
    arrays = workload.arrays(tiny(workload), copies)
    wanted = run(chain.unrolled(workload, copies), arrays)
    assert relative_error(run(chain.rows(workload, copies), arrays), wanted) < 1e-6


@every_chain
def test_nothing_of_a_chain_is_folded(workload):
    one, many = (ops_after_grappler(workload, copies) for copies in (1, COPIES))
    assert many.pop("PlaceholderWithDefault") == COPIES - 1
    assert many == Counter({op: COPIES * count for op, count in one.items()})


def ops_after_grappler(workload: Workload, copies: int) -> Counter[str]:
    specs = [tf.TensorSpec(a.shape, a.dtype) for a in workload.arrays(tiny(workload), copies)]
    function = tf.function(chain.unrolled(workload, copies), autograph=False).get_concrete_function(*specs)
    graph = export_meta_graph(graph_def=function.graph.as_graph_def(), graph=function.graph)
    graph.collection_def["train_op"].node_list.value.extend(t.name for t in function.outputs)
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1
    optimised = tf_optimizer.OptimizeGraph(config, graph)
    return Counter(n.op for n in optimised.node if n.op not in ("Const", "Placeholder", "NoOp", *MOVES_NOTHING))


def test_a_rival_gives_the_same_answer():
    workload = find("adamw")
    arrays = workload.arrays(tiny(workload), 1)
    prepared = workload.rival.prepare(*map(tf.constant, arrays))
    tf.function(prepared.function, autograph=False)(*prepared.arguments)
    outputs = tuple(t.numpy().astype(np.float64) for t in prepared.outputs())
    assert relative_error(outputs, float64_run(workload, 1, arrays)) < 1e-6


def test_the_optimizer_clips():
    workload = find("adamw")
    gradients = workload.arrays(workload.quick[0], 1)[-60:]
    assert sum(g.size for g in gradients) > LARGE
    assert np.sqrt(sum(np.sum(np.square(g)) for g in gradients)) > LARGEST_NORM


def test_ops_in_the_long_chains():
    assert sum(ops_after_grappler(find("mixed_ops_32"), 1).values()) == 32
    assert sum(ops_after_grappler(find("small_ops_200"), 1).values()) == 200


def test_xla_keeps_the_loop():
    workload = find("residual_layernorm")
    arguments = tuple(map(tf.constant, workload.arrays((64, 32), COPIES)))
    compiled = tf.function(chain.looped(workload, COPIES), autograph=False, jit_compile=True)
    hlo = compiled.experimental_get_compiler_ir(*arguments)(stage="optimized_hlo")
    inner = [part for part in hlo.split("\n\n") if not part.startswith("ENTRY")]
    assert hlo.count(" while(") == 1
    assert not any("f32[64,32]{1,0} copy(" in part for part in inner)


def test_copies_fit_the_work():
    layernorm = find("residual_layernorm")
    assert layernorm.copies((2, 8)) == MOST_COPIES
    assert layernorm.copies((512, 768)) == 5 * UNROLLED
    assert layernorm.copies((4096, 1024)) == 1
    assert find("lstm_pointwise").copies((2, 8)) == UNROLLED  # with arguments and results of its own
    assert find("batchnorm_plain").copies((1, 2, 2, 8)) == UNROLLED  # with results of its own
    assert find("adamw").copies((3, 8)) == 1


def test_quick_shapes_are_among_all():
    for workload in ON_CPUS:
        assert set(workload.quick) <= set(workload.full)
        assert workload.quick
