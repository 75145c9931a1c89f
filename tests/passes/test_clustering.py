"""Which nodes become one cluster, which may not, and which need not. Every reason code is produced here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.settings import tries
from tests.passes.drawing import Drawing, checked, clusters, f32, reasons
from tf_stitch.config import Config
from tf_stitch.errors import Reason
from tf_stitch.ir.graph import Value
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.passes.folding import folded_nodes

CPU0, CPU1, GPU = "/device:CPU:0", "/device:CPU:1", "/job:localhost/replica:0/task:0/device:GPU:0"


def chain(*, device: str = "", **of_second: object) -> Drawing:
    """x -> a -> b -> c; b as the caller wants it."""
    d = Drawing()
    d.input("x", f32("B", 8))
    d.node("a", "Tanh", Value("x"), device=device)
    d.node("b", "Exp", Value("a"), **of_second)
    d.node("c", "Sigmoid", Value("b"), device=device)
    return d


def test_neighbours_join() -> None:
    found = checked(chain().graph(returned=[Value("c")]))
    (cluster,) = found.clusters
    assert cluster.nodes == ("a", "b", "c")
    assert cluster.inputs == (Value("x"),)
    assert cluster.outputs == (Value("c"),)
    assert cluster.controls == ()
    assert cluster.name == "c"
    assert found.rejections == ()


def test_values_that_others_read_are_outputs() -> None:
    d = chain()
    d.node("user", "Cumsum", Value("a"))
    (cluster,) = checked(d.graph(returned=[Value("c")])).clusters
    assert set(cluster.outputs) == {Value("a"), Value("c")}


def test_nodes_that_nothing_reads_are_dropped() -> None:
    assert reasons(chain().graph()) == dict.fromkeys("abc", Reason.NOT_PROFITABLE)


def test_names_of_clusters_are_unique() -> None:
    d = Drawing()
    x = d.input("x", f32("B", 8))
    for part in ("left", "right"):
        d.node(f"{part}/y", "Tanh", d.node(f"{part}/t", "Exp", x))
        d.node(f"{part}/cut", "Cumsum", Value(f"{part}/y"))
        d.node(f"{part}/y_1", "Tanh", d.node(f"{part}/u", "Exp", Value(f"{part}/cut")))
    graph = d.graph(returned=[Value(f"{p}/{y}") for p in ("left", "right") for y in ("y", "y_1")])
    names = [c.name for c in checked(graph, Config(remote_stitching=False)).clusters]
    assert len(set(names)) == 4


# -- legality: nodes -------------------------------------------------------------------------------------------


def test_ops_that_are_not_in_the_table_stay() -> None:
    d = chain()
    d.node("y", "FFT", Value("c"))
    assert reasons(d.graph(returned=[Value("y")])) == {"y": Reason.UNSUPPORTED_OP}


@pytest.mark.parametrize(("exclude", "name"), [("Exp", "b"), ("b", "b"), ("Sigmoid", "c")])
def test_what_is_excluded_stays(exclude: str, name: str) -> None:
    graph = chain().graph(returned=[Value("c")])
    found = reasons(graph, Config(exclude=frozenset({exclude}), min_cluster_size=1))
    assert found == {name: Reason.EXCLUDED}


def test_what_is_fetched_stays() -> None:
    graph = chain().graph(returned=[Value("c")], fetched=["c"])
    assert clusters(graph) == [["a", "b"]]
    assert reasons(graph) == {"c": Reason.FETCHED}


def test_what_has_state_stays() -> None:
    graph = chain(stateful=True).graph(returned=[Value("c")])
    assert clusters(graph, Config(min_cluster_size=1)) == [["a"], ["c"]]
    assert reasons(graph)["b"] is Reason.STATEFUL


@pytest.mark.parametrize("dtype", [DType.OTHER])
def test_dtypes_that_are_not_computed_on_stay(dtype: DType) -> None:
    d = Drawing()
    x = d.input("x", TensorType(dtype, shape_of(3)))
    y = d.node("y", "AddV2", x, x)
    assert reasons(d.graph(returned=[y])) == {"y": Reason.DTYPE}


def test_a_function_without_this_dtype_stays() -> None:
    d = Drawing()
    x = d.input("x", TensorType(DType.I32, shape_of(3)))
    y = d.node("y", "Exp", x)
    assert reasons(d.graph(returned=[y])) == {"y": Reason.DTYPE}


def test_an_unknown_rank_stays() -> None:
    d = Drawing()
    x = d.input("x", TensorType(DType.F32, None))
    y = d.node("y", "Exp", d.node("a", "Tanh", x))
    assert reasons(d.graph(returned=[y])) == {"a": Reason.UNKNOWN_RANK, "y": Reason.UNKNOWN_RANK}


def test_dims_that_no_input_tells_stay() -> None:
    """A reshape to a shape that is not known: its size does not follow from the operand's."""
    d = Drawing()
    x, shape = d.input("x", f32("B", "N")), d.input("shape", TensorType(DType.I32, shape_of(2)))
    y = d.node("y", "Reshape", d.node("a", "Tanh", x), shape, type_=f32("P", "Q"))
    d.node("z", "Exp", y)
    found = reasons(d.graph(returned=[Value("z")]), Config(min_cluster_size=1))
    assert found == {"y": Reason.UNKNOWN_DIM}


def test_another_device_stays() -> None:
    graph = chain(device=GPU).graph(returned=[Value("c")])
    assert clusters(graph, Config(min_cluster_size=1)) == [["b"]]
    assert reasons(graph, Config(min_cluster_size=1)) == {"a": Reason.DEVICE, "c": Reason.DEVICE}


def test_arithmetic_on_shapes_stays() -> None:
    d = chain()
    shape = d.node("shape", "Shape", Value("x"), type_=TensorType(DType.I32, shape_of(2)))
    twice = d.node("twice", "Mul", shape, shape)
    d.extents(twice, Dim.symbol("B"), Dim(8))
    assert reasons(d.graph(returned=[Value("c"), twice]))["twice"] is Reason.TOO_SMALL


def test_what_has_no_elements_stays() -> None:
    d = Drawing()
    x = d.input("x", f32("B", 0))
    y = d.node("y", "Exp", d.node("a", "Tanh", x))
    assert set(reasons(d.graph(returned=[y])).values()) == {Reason.TOO_SMALL}


# -- legality: neighbours --------------------------------------------------------------------------------------


def test_no_cycle_through_what_stays() -> None:
    """a and c could be one but for the path a -> cut -> c; b joins either."""
    d = Drawing()
    x = d.input("x", f32("B", 8))
    a = d.node("a", "Exp", d.node("a0", "Tanh", x))
    cut = d.node("cut", "Cumsum", a)
    c = d.node("c", "AddV2", a, cut)
    y = d.node("y", "Exp", c)
    assert clusters(d.graph(returned=[y])) == [["a0", "a"], ["c", "y"]]


def test_a_node_that_a_cycle_leaves_alone_says_so() -> None:
    d = Drawing()
    x = d.input("x", f32("B", 8))
    a = d.node("a", "Exp", d.node("a0", "Tanh", x))
    c = d.node("c", "AddV2", a, d.node("cut", "Cumsum", a))
    assert reasons(d.graph(returned=[c])) == {"cut": Reason.UNSUPPORTED_OP, "c": Reason.CYCLE}


def test_no_cycle_through_another_cluster() -> None:
    """left -> cut -> right, and right -> cut2 -> last: last may join right's cluster or none, never left's."""
    d = Drawing()
    x = d.input("x", f32("B", 8))
    left = d.node("left", "Exp", d.node("left0", "Tanh", x))
    right = d.node("right", "Exp", d.node("right0", "Tanh", d.node("cut", "Cumsum", left)))
    last = d.node("last", "AddV2", left, d.node("cut2", "Cumsum", right))
    y = d.node("y", "Exp", last)
    found = clusters(d.graph(returned=[y]))
    assert found == [["left0", "left"], ["right0", "right"], ["last", "y"]]


def test_a_constant_that_waits_for_a_member_is_no_way_around() -> None:
    """Constants that TensorFlow folds late wait for what they were folded from, as in the gradient of a layer norm."""
    d = Drawing()
    x = d.input("x", f32("B", 8))
    a = d.node("a", "Exp", x)
    two = d.constant("two", np.float32(2.0), controls=["a"])
    b = d.node("b", "Mul", a, two)
    (cluster,) = checked(d.graph([b])).clusters
    assert cluster.nodes == ("a", "b")
    assert cluster.controls == ()


def test_a_constant_that_is_read_as_data_and_waits_for_a_member_is_a_way_around() -> None:
    d = Drawing()
    x = d.input("x", f32("B", 8))
    a = d.node("a", "Exp", x)
    many = d.constant("many", np.arange(8, dtype=np.float32), controls=["a"])
    c = d.node("c", "Tanh", d.node("b", "Mul", a, many))
    assert clusters(d.graph([c])) == [["b", "c"]]


def test_no_cycle_through_a_control_edge() -> None:
    """c waits for an assertion that reads what c's neighbour computes."""
    d = Drawing()
    x = d.input("x", f32("B", 8))
    a = d.node("a", "Exp", d.node("a0", "Tanh", x))
    d.node("assert", "Assert", a, stateful=True)
    c = d.node("c", "Sigmoid", a, controls=["assert"])
    graph = d.graph(returned=[c])
    assert clusters(graph) == [["a0", "a"]]
    assert reasons(graph) == {"assert": Reason.UNSUPPORTED_OP, "c": Reason.CONTROL_EDGE}


def test_a_cluster_waits_for_what_its_nodes_wait_for() -> None:
    d = Drawing()
    x = d.input("x", f32("B", 8))
    d.node("assert", "Assert", x, stateful=True)
    a = d.node("a", "Exp", d.node("a0", "Tanh", x))
    c = d.node("c", "Sigmoid", a, controls=["assert", "a0"])
    (cluster,) = checked(d.graph(returned=[c])).clusters
    assert cluster.nodes == ("a0", "a", "c")
    assert cluster.controls == ("assert",)


def test_frames_are_not_crossed() -> None:
    d = Drawing()
    x = d.input("x", f32("B", 8))
    outside = d.node("outside", "Exp", d.node("outside0", "Tanh", x))
    enter = d.node("enter", "Enter", outside, context=["frame loop"])
    inside = d.node("inside", "Exp", d.node("inside0", "Tanh", enter, context=["frame loop"]), context=["frame loop"])
    leave = d.node("exit", "Exit", inside)
    y = d.node("y", "Exp", d.node("y0", "Tanh", leave))
    assert clusters(d.graph(returned=[y])) == [["outside0", "outside"], ["inside0", "inside"], ["y0", "y"]]


def test_branches_are_not_crossed() -> None:
    """What runs in one branch only, and what runs always, do not mix; a node alone there says FRAME."""
    d = Drawing()
    x = d.input("x", f32("B", 8))
    a = d.node("a", "Exp", d.node("a0", "Tanh", x))
    b = d.node("b", "Sigmoid", a, context=["p=1"])
    c = d.node("c", "Sigmoid", a, context=["p=0"])
    graph = d.graph(returned=[b, c])
    assert clusters(graph) == [["a0", "a"]]
    assert reasons(graph) == {"b": Reason.FRAME, "c": Reason.FRAME}


def test_constants_of_a_branch_keep_their_nodes_in_it() -> None:
    """Nothing but a control edge of the constants says that the branch may not be taken."""
    d = Drawing()
    d.node("pivot", "Opaque", d.input("p", f32()), context=["p=1"])
    one = d.constant("one", np.float32(1.0), controls=["pivot"], context=["p=1"])
    shape = d.constant("shape", np.array([50, 8], np.int32), controls=["pivot"], context=["p=1"])
    ones = d.node("ones", "BroadcastTo", one, shape, type_=f32(50, 8), context=["p=1"])
    y = d.node("y", "Tanh", d.node("e", "Exp", ones, context=["p=1"]), context=["p=1"])
    for cluster in checked(d.graph(returned=[y])).clusters:
        assert cluster.inputs or cluster.controls == ("pivot",)


def test_a_back_edge_of_a_loop_is_no_path() -> None:
    d = Drawing()
    loop = ["frame loop"]
    x = d.input("x", f32("B", 8))
    merge = d.node("merge", "Merge", x, Value("next"), context=loop)
    body = d.node("body", "Exp", d.node("body0", "Tanh", merge, context=loop), context=loop)
    d.node("next", "NextIteration", body, context=loop)
    y = d.node("y", "Exp", d.node("exit", "Exit", merge))
    assert clusters(d.graph(returned=[y]), Config(min_cluster_size=1)) == [["body0", "body"], ["y"]]


def test_what_is_before_a_loop_does_not_join_what_is_behind_it() -> None:
    """What the loop is given, and what it returns, meet only in the second round."""
    d = Drawing()
    loop = ["frame loop"]
    x = d.input("x", f32("B", 8))
    given = d.node("given", "Exp", d.node("given0", "Tanh", x))
    first = d.node("first", "Merge", x, Value("next"), context=loop)
    constant = d.node("constant", "Enter", given, context=loop)
    step = d.node("step", "AddV2", constant, constant, context=loop)
    result = d.node("exit", "Exit", first)
    d.node("y", "AddV2", d.node("y0", "Tanh", result), given)
    d.node("next", "NextIteration", step, context=loop)
    graph = d.graph(returned=[Value("y")])
    assert not any({"given", "y"} <= set(c) for c in clusters(graph))


def test_two_cpus_do_not_share_a_kernel() -> None:
    d = Drawing()
    x = d.input("x", f32("B", 8))
    a = d.node("a", "Exp", d.node("a0", "Tanh", x, device=CPU0), device=CPU0)
    b = d.node("b", "Sigmoid", a, device=CPU1)
    assert reasons(d.graph(returned=[b])) == {"b": Reason.DEVICE}
    assert clusters(d.graph(returned=[b])) == [["a0", "a"]]


def test_two_cpus_do_not_share_a_kernel_by_way_of_a_third_node() -> None:
    d = Drawing()
    x = d.input("x", f32("B", 8))
    a = d.node("a", "Exp", d.node("a0", "Tanh", x, device=CPU0), device=CPU0)
    anywhere = d.node("anywhere", "Sigmoid", a)
    b = d.node("b", "Exp", d.node("b0", "Tanh", anywhere, device=CPU1), device=CPU1)
    for members in clusters(d.graph(returned=[b])):
        devices = {"a0": CPU0, "a": CPU0, "b0": CPU1, "b": CPU1}
        assert len({devices[m] for m in members if m in devices}) == 1


def test_clusters_are_no_larger_than_they_may_be() -> None:
    d = Drawing()
    value = d.input("x", f32("B", 8))
    for number in range(10):
        value = d.node(f"n{number}", "Exp", value)
    found = clusters(d.graph(returned=[value]), Config(max_cluster_size=4))
    assert max(map(len, found)) <= 4
    assert sum(map(len, found)) == 10


# -- profitability ---------------------------------------------------------------------------------------------


def test_one_node_alone_is_too_small() -> None:
    d = Drawing()
    y = d.node("y", "Exp", d.input("x", f32("B", 8)))
    assert reasons(d.graph(returned=[y])) == {"y": Reason.TOO_SMALL}
    assert clusters(d.graph(returned=[y]), Config(min_cluster_size=1)) == [["y"]]


def test_a_few_elements_are_too_small() -> None:
    d = Drawing()
    y = d.node("y", "Exp", d.node("a", "Tanh", d.input("x", f32(4))))
    assert set(reasons(d.graph(returned=[y])).values()) == {Reason.TOO_SMALL}


def heads(value: Value, d: Drawing, name: str = "heads") -> Value:
    """[16, 32] to [4, 16, 8], as attention splits its heads."""
    to, perm = (d.constant(f"{name}/{n}", np.array(v, np.int32)) for n, v in (("to", [16, 4, 8]), ("perm", [1, 0, 2])))
    split = d.node(f"{name}/split", "Reshape", value, to, type_=f32(16, 4, 8))
    return d.node(f"{name}/moved", "Transpose", split, perm, type_=f32(4, 16, 8))


def test_a_bias_and_a_transpose_are_one_pass() -> None:
    """The reshape keeps TensorFlow from folding the bias into the product, as in Keras' Tensordot."""
    d = Drawing()
    product = d.node("product", "BatchMatMulV2", d.input("x", f32(16, 32)), type_=f32(16, 32))
    flat = d.node("flat", "Reshape", product, d.constant("to", np.array([16, 32], np.int32)))
    bias = d.node("bias", "BiasAdd", flat, d.input("b", f32(32)))
    graph = d.graph(returned=[d.node("y", "BatchMatMulV2", heads(bias, d), type_=f32(4, 16, 16))])
    assert not folded_nodes(graph)
    assert clusters(graph) == [["flat", "bias", "heads/split", "heads/moved"]]


@pytest.mark.parametrize(
    ("tokens", "perm", "worth"), [(16, [2, 1, 0], True), (16000, [2, 1, 0], False), (16000, [1, 0, 2], True)]
)
def test_two_moves_are_one_pass(tokens: int, perm: list[int], worth: bool) -> None:
    """But for many rows that become columns."""
    d = Drawing()
    x = d.node(
        "moved",
        "Transpose",
        d.input("x", f32(tokens, 4, 8)),
        d.constant("p", np.array([1, 0, 2], np.int32)),
        type_=f32(4, tokens, 8),
    )
    again = d.node(
        "again",
        "Transpose",
        x,
        d.constant("q", np.array(perm, np.int32)),
        type_=f32(*([4, tokens, 8][p] for p in perm)),
    )
    assert bool(clusters(d.graph(returned=[again]))) is worth


def test_what_only_moves_or_fills_is_too_small() -> None:
    d = Drawing()
    moved = heads(d.input("x", f32(16, 32)), d)
    dims, zero = d.constant("dims", np.array([2, 64], np.int32)), d.constant("zero", np.float32(0.0))
    zeros = d.node("zeros", "Fill", dims, zero, type_=f32(2, 64))
    assert not clusters(d.graph(returned=[moved, zeros]))
    y = d.node("z", "AddV2", zeros, d.input("w", f32(2, 64)))
    assert not clusters(d.graph(returned=[y]))


@pytest.mark.parametrize(("op", "attributes"), [("Reshape", {}), ("Identity", {}), ("Squeeze", {"squeeze_dims": (1,)})])
def test_views_at_the_edge_stay_views(op: str, attributes: dict[str, object]) -> None:
    """A reshape of an input, which others read as well, would be a copy inside of a cluster."""
    d = Drawing()
    x = d.input("x", f32("B", 1, 8))
    operands = [x, d.constant("to", np.array([-1, 8], np.int32))] if op == "Reshape" else [x]
    view = d.node("view", op, *operands, type_=f32("B", 1, 8) if op == "Identity" else f32("B", 8), **attributes)
    y = d.node("y", "Exp", d.node("a", "Tanh", view))
    d.node("other", "Cumsum", view)
    found = checked(d.graph(returned=[y]))
    assert [c.nodes for c in found.clusters] == [("a", "y")]
    assert {r.node: r.reason for r in found.rejections}["view"] is Reason.NOT_PROFITABLE


@pytest.mark.parametrize("op", ["ConcatV2", "Pack"])
def test_a_concatenation_of_what_is_computed_is_stored_in_place(op: str) -> None:
    d = Drawing()
    x, plain = d.input("x", f32("B", 8)), d.input("plain", f32("B", 8))
    e = d.node("e", "Exp", d.node("a", "Tanh", x))
    axis = [d.constant("axis", np.int32(-1))] if op == "ConcatV2" else []
    whole = d.node("whole", op, plain, e, *axis, type_=f32("B", 16) if op == "ConcatV2" else f32(2, "B", 8))
    d.node("product", "BatchMatMulV2", whole, d.input("w", f32(16, 4)), type_=f32("B", 4))
    found = checked(d.graph())
    assert [c.nodes for c in found.clusters] == [("a", "e", "whole")]
    assert len(found.clusters[0].outputs) == 1


def test_a_concatenation_of_copies_stays_outside() -> None:
    """Even where others of the cluster read it: nothing is saved by copying it there."""
    d = Drawing()
    x, y = d.input("x", f32("B", 8)), d.input("y", f32("B", 3))
    whole = d.node("whole", "ConcatV2", x, y, d.constant("axis", np.int32(1)), type_=f32("B", 11))
    d.node("e", "Exp", d.node("a", "Tanh", whole, type_=f32("B", 11)), type_=f32("B", 11))
    found = checked(d.graph(returned=[Value("e")]))
    assert [c.nodes for c in found.clusters] == [("a", "e")]
    assert {r.node: r.reason for r in found.rejections}["whole"] is Reason.NOT_PROFITABLE


def test_a_concatenation_of_unknown_lengths() -> None:
    d = Drawing()
    x, y = d.input("x", f32("S", 8)), d.input("y", f32("T", 8))
    pieces = [d.node("e", "Exp", d.node("a", "Tanh", x)), y]
    whole = d.node("whole", "ConcatV2", *pieces, d.constant("axis", np.int32(0)), type_=f32("U", 8))
    found = checked(d.graph(returned=[whole]))
    assert [c.nodes for c in found.clusters] == [("a", "e", "whole")]
    (body,) = (c.body for c in found.clusters)
    assert str(body.steps[body.outputs[0]].type) == "f32[d2, 8]"
    assert [(name, str(derivation)) for name, derivation in body.derivations] == [("d2", "(d0 + d1)")]


def test_a_counter_that_a_loop_hands_on_keeps_nothing_apart() -> None:
    """counter ─► read ─► product ─► select, and counter ─► mask ─► select. What stays outside reads the counter's view:
    were it in the mask's cluster, the path through the product would keep the two from being one."""
    d = Drawing()
    counter = d.node("counter", "Identity", d.input("c", f32(64, 64)))
    mask = d.node(
        "mask", "GreaterEqual", counter, d.input("lengths", f32(64, 64)), type_=TensorType(DType.BOOL, shape_of(64, 64))
    )
    x = d.node("product", "BatchMatMulV2", counter, counter)
    select = d.node("select", "Select", mask, d.node("tanh", "Exp", x), counter, type_=f32(64, 64))
    assert clusters(d.graph(returned=[select])) == [["mask", "tanh", "select"]]


def test_what_is_looked_up_in_comes_from_outside() -> None:
    """exp ─► gather ─► tanh ─► add, and exp ─► add: no cluster holds a table, or indices, and what looks them up."""
    d = Drawing()
    table = d.node("exp", "Exp", d.node("neg", "Neg", d.input("x", f32(8, 64))))
    indices = d.node("shift", "AddV2", d.input("i", TensorType(DType.I32, shape_of(8))), d.constant("one", np.int32(1)))
    found = d.node("gather", "GatherV2", table, indices, d.constant("axis", np.int32(0)))
    y = d.node("add", "AddV2", d.node("tanh", "Tanh", found), table)
    assert clusters(d.graph(returned=[y])) == [["neg", "exp", "shift"], ["gather", "tanh", "add"]]


def test_a_step_that_a_loop_reads_is_inside_of_its_reader() -> None:
    """x[:, t]: where to begin comes from outside, and so does x; a begin that is known asks for neither."""
    d = Drawing()
    x = d.node("x", "Exp", d.input("x0", f32(64, 50, 36)))
    begin = d.node(
        "begin",
        "Pack",
        *(d.input(n, TensorType(DType.I32, ())) for n in "otp"),
        type_=TensorType(DType.I32, shape_of(3)),
    )
    ones = d.constant("ones", np.ones(3, np.int32))
    masks = {"begin_mask": 5, "end_mask": 5, "shrink_axis_mask": 2}
    step = d.node("step", "StridedSlice", x, begin, ones, ones, type_=f32(64, 36), **masks)
    first = d.node("first", "StridedSlice", x, ones, ones, ones, type_=f32(64, 36), **masks)
    y = d.node("mul", "Mul", d.node("neg", "Neg", step), d.input("y0", f32(64, 36)))
    z = d.node("add", "AddV2", d.node("tanh", "Tanh", first), d.input("z0", f32(64, 36)))
    assert clusters(d.graph(returned=[y, z])) == [["x", "first", "tanh", "add"], ["step", "neg", "mul"]]


@pytest.mark.parametrize(
    ("op", "dims", "worth"),
    [
        ("Softmax", (64, 128), True),
        ("LogSoftmax", (64, 128), True),
        ("Softmax", (1, 12), False),
        ("Exp", (64, 128), False),
    ],
)
def test_a_single_node_that_goes_over_its_rows_again_is_worth_a_kernel(op: str, dims: Any, worth: bool) -> None:
    d = Drawing()
    y = d.node("y", op, d.input("x", f32(*dims)))
    assert clusters(d.graph(returned=[y])) == ([["y"]] if worth else [])


def test_a_single_reduction_is_tensorflows() -> None:
    d = Drawing()
    y = d.node("y", "BiasAddGrad", d.input("x", f32(64, 128)), type_=f32(128))
    assert not clusters(d.graph(returned=[y]))


def test_on_a_gpu_a_step_of_a_loop_stays_outside_alone() -> None:
    """There TensorFlow has the place in the host's memory, and raises where it is out of range; a gather does not."""
    d = Drawing()
    x, ones = d.input("x", f32(64, 50, 36)), d.constant("ones", np.ones(3, np.int32))
    begin = d.node("begin", "Mul", d.input("t", TensorType(DType.I32, shape_of(3))), ones)
    masks = {"begin_mask": 5, "end_mask": 5, "shrink_axis_mask": 2}
    step = d.node("step", "StridedSlice", x, begin, ones, ones, type_=f32(64, 36), **masks)
    table, ids = d.input("table", f32(99, 36)), d.input("ids", TensorType(DType.I32, shape_of(64)))
    words = d.node("words", "GatherV2", table, ids, d.constant("axis", np.int32(0)), type_=f32(64, 36), batch_dims=0)
    both = d.node("both", "Mul", d.node("a", "Tanh", step), words)
    graph = d.graph(returned=[d.node("z", "Exp", both)])
    assert clusters(graph) == [["step", "words", "a", "both", "z"]]
    for target in ("cuda", "cuda:sm_80"):
        assert clusters(graph, Config(target=target)) == [["words", "a", "both", "z"]]
        found = reasons(graph, Config(target=target))
        assert found == {"begin": Reason.DEVICE, "step": Reason.UNSUPPORTED_OP}


def test_lookups_at_the_same_indices_are_one_cluster() -> None:
    """The caches of a beam search. A single one is TensorFlow's."""

    def found(count: int) -> list[list[str]]:
        d = Drawing()
        indices = d.input("i", TensorType(DType.I32, shape_of(1, 4, 2)))
        caches = [d.input(f"x{n}", f32(1, 8, 16)) for n in range(count)]
        picked = [d.node(f"g{n}", "GatherNd", x, indices, type_=f32(1, 4, 16)) for n, x in enumerate(caches)]
        return clusters(d.graph(returned=picked))

    assert found(3) == [["g0", "g1", "g2"]]
    assert not found(1)


def test_views_that_wait_for_a_member_stay_inside() -> None:
    """As TensorFlow writes x + zeros_like(t): an Identity of x that waits for the zeros."""
    d = Drawing()
    x = d.input("x", f32("B", 8))
    d.node("zeros", "ZerosLike", d.node("a", "Tanh", x))
    view = d.node("view", "Identity", x, controls=["zeros"])
    y = d.node("y", "AddV2", d.node("e", "Exp", view), Value("a"))
    d.node("other", "Cumsum", view)
    d.node("more", "Cumsum", Value("zeros"))
    checked(d.graph(returned=[y]))


def test_views_that_read_a_member_stay_inside() -> None:
    """A shape that is computed inside."""
    d = Drawing()
    x, like = d.input("x", f32("B", 8)), d.input("like", TensorType(DType.I32, shape_of(2)))
    shape = d.node("shape", "Maximum", d.node("twice", "AddV2", like, like), like)
    d.extents(shape, Dim(2, ("B",)), Dim(4))
    view = d.node("view", "Reshape", x, shape, type_=f32(Dim(2, ("B",)), 4))
    z = d.node("z", "BroadcastTo", view, shape, type_=f32(Dim(2, ("B",)), 4))
    y = d.node("y", "AddV2", d.node("e", "Exp", z), view)
    d.node("other", "Cumsum", view)
    d.node("more", "Cumsum", d.node("last", "Maximum", shape, like))
    checked(d.graph(returned=[y, Value("last")]), Config(min_cluster_size=1))


def test_views_between_are_inside() -> None:
    d = Drawing()
    x = d.input("x", f32("B", 8))
    view = d.node("view", "Reshape", d.node("a", "Tanh", x), d.constant("to", np.array([-1, 4], np.int32)),
                  type_=f32(Dim(2, ("B",)), 4))  # fmt: skip
    y = d.node("y", "Exp", view)
    assert clusters(d.graph(returned=[y])) == [["a", "view", "y"]]


@pytest.mark.parametrize("producer", ["MatMul", "Conv2D"])
def test_what_tensorflow_folds_itself_stays(producer: str) -> None:
    d = Drawing()
    x, w, bias = d.input("x", f32("B", 512)), d.input("w", f32(512, 512)), d.input("bias", f32(512))
    product = d.node("product", producer, x, w)
    y = d.node("y", "Relu", d.node("biased", "BiasAdd", product, bias))
    graph = d.graph(returned=[y])
    assert reasons(graph) == {
        "product": Reason.NOT_PROFITABLE if producer == "MatMul" else Reason.UNSUPPORTED_OP,
        "biased": Reason.NOT_PROFITABLE,
        "y": Reason.NOT_PROFITABLE,
    }


@pytest.mark.parametrize("training", [False, True])
def test_batch_normalisation_is_folded_in_inference_only(training: bool) -> None:
    d = Drawing()
    x, w, vector = d.input("x", f32("B", 8, 8, 4)), d.input("w", f32(3, 3, 4, 4)), d.input("vector", f32(4))
    image = d.node("image", "Conv2D", x, w)
    y = d.node("y", "FusedBatchNormV3", image, *[vector] * 4, is_training=training)
    assert folded_nodes(d.graph(returned=[y])) == (frozenset() if training else {"y"})


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin", "Cumsum"])
def test_an_op_that_is_no_map_and_no_sum_leaves_its_neighbours_together(op: str) -> None:
    d = Drawing()
    x, axis = d.input("x", f32("B", 8)), d.constant("axis", np.int32(1))
    before = d.node("before", "Softmax", d.node("scaled", "Mul", x, x))
    found = d.node("found", op, before, axis, type_=f32("B") if op != "Cumsum" else None)
    after = d.node("after", "Tanh", d.node("doubled", "Mul", before, before))
    graph = d.graph(returned=[found, after])
    assert clusters(graph) == [["scaled", "before", "doubled", "after"]]
    assert reasons(graph) == {"found": Reason.UNSUPPORTED_OP}


def test_a_longer_tail_behind_a_matmul_is_stitched() -> None:
    d = Drawing()
    x, w, bias = d.input("x", f32("B", 8)), d.input("w", f32(8, 8)), d.input("bias", f32(8))
    product = d.node("product", "MatMul", x, w)
    biased = d.node("biased", "BiasAdd", product, bias)
    y = d.node("y", "Mul", d.node("erf", "Erf", biased), biased)
    graph = d.graph(returned=[y])
    (members,) = clusters(graph)
    assert {"erf", "y"} <= set(members)


# -- step 3: what cannot be planned as a whole -----------------------------------------------------------------


def test_what_cannot_be_planned_is_cut_where_the_planner_says() -> None:
    """A reshape that turns axes around has no index map: it goes, its neighbours stay."""
    d = Drawing()
    x = d.input("x", f32("M", "N"))
    a = d.node("a", "Exp", d.node("a0", "Tanh", x))
    shape = d.node("shape", "Pack", type_=TensorType(DType.I32, shape_of(2)))
    d.extents(shape, Dim.symbol("N"), Dim.symbol("M"))
    turned = d.node("turned", "Reshape", a, shape, type_=f32("N", "M"))
    back = d.node("back", "Transpose", turned, d.constant("perm", np.array([1, 0], np.int32)), type_=f32("M", "N"))
    y = d.node("y", "AddV2", d.node("z", "Exp", back), a)
    found = checked(d.graph(returned=[y]))
    inside = {n for c in found.clusters for n in c.nodes}
    assert {"a0", "a"} <= inside
    assert not any({"a", "turned", "back", "y"} <= set(c.nodes) for c in found.clusters)
    assert Reason.SCHEME in {r.reason for r in found.rejections}


def test_every_reason_is_produced_by_a_test() -> None:
    """In this file, the one on the pipeline, or those on races."""
    here = Path(__file__).parent
    files = [here / "test_clustering.py", here / "test_pipeline.py", *here.with_name("tuning").glob("*.py")]
    texts = "".join(file.read_text() for file in files)
    assert [r.name for r in Reason if f"Reason.{r.name}" not in texts and f'"{r.name}"' not in texts] == []


# -- any graph -------------------------------------------------------------------------------------------------


@tries(150)
@given(st.data())
def test_random_graphs_stay_acyclic(data: st.DataObject) -> None:
    """Random nodes, some opaque, with random data and control edges, contexts and devices."""
    d = Drawing()
    names = ["x"]
    d.input("x", f32("B", 8))
    for number in range(data.draw(st.integers(2, 18))):
        recent = names[-6:]
        inputs = [Value(data.draw(st.sampled_from(recent))) for _ in range(data.draw(st.integers(1, 2)))]
        opaque = data.draw(st.integers(0, 4)) == 0
        op = "Opaque" if opaque else ("Exp" if len(inputs) == 1 else "AddV2")
        controls = [data.draw(st.sampled_from(names))] if data.draw(st.integers(0, 3)) == 0 else []
        d.node(
            f"n{number}", op, *inputs,
            controls=[c for c in controls if c != "x"],
            context=["p=1"] if data.draw(st.integers(0, 5)) == 0 else [],
            device=data.draw(st.sampled_from(["", "", "", CPU0, CPU1])),
            stateful=opaque,
        )  # fmt: skip
        names.append(f"n{number}")
    used = {v.node for n in d.graph().nodes.values() for v in n.inputs}
    graph = d.graph(returned=[Value(n) for n in names[1:] if n not in used])
    found = checked(graph, Config(min_cluster_size=1))
    for cluster in found.clusters:
        assert len({graph.nodes[n].context for n in cluster.nodes}) == 1
        assert len({graph.nodes[n].device for n in cluster.nodes} - {""}) <= 1
