"""Bodies and their plans, as text: each of the planner's rules on the smallest body that needs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from textwrap import dedent

import pytest

from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.body import Body, BodyBuilder, Reduce
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.ir.verify import BrokenInvariant
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.indexing import IndexMap
from tf_stitch.plan.plan import Scheme, StitchPlan
from tf_stitch.plan.printer import print_plan
from tf_stitch.plan.verify import verify_plan

B, N, S = Dim.symbol("B"), Dim.symbol("N"), Dim.symbol("S")


def f32(*dims: int | str | Dim) -> TensorType:
    return TensorType(DType.F32, shape_of(*dims))


def body(build: Callable[[BodyBuilder], Sequence[int]]) -> Body:
    builder = BodyBuilder(FUNCTIONS, REDUCERS)
    return builder.finish(build(builder))


def planned(build: Callable[[BodyBuilder], Sequence[int]]) -> StitchPlan:
    plan = plan_groups(body(build))
    verify_plan(plan)
    return plan


def check(build: Callable[[BodyBuilder], Sequence[int]], text: str) -> None:
    assert print_plan(planned(build)) == dedent(text)


# -- one group -------------------------------------------------------------------------------------------------


def test_elementwise_follows_its_output() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x, scale = b.input(f32("B", "N")), b.input(f32("N"))
        return [b.apply("mul", b.apply("tanh", x), scale)]

    check(build, """\
        group 0: for a0 < B, a1 < N; dominant %5
          %0[a0, a1]  input 0       f32[B, N]  load
          %1[a1]      input 1       f32[N]     load
          %2[a0, a1]  tanh %0       f32[B, N]  local
          %3[0, a1]   reshape %1    f32[1, N]  local
          %4[a0, a1]  broadcast %3  f32[B, N]  local
          %5[a0, a1]  mul %2 %4     f32[B, N]  independent, store

        scratch: none
        """)  # fmt: skip


def test_reductions_of_one_row_share_its_loop() -> None:
    """A softmax: the maximum dominates, the sum and the result are sub-dominant."""

    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("B", "N"))
        parts = b.apply("exp", b.apply("sub", x, b.reduce("max", x, [1], keep_dims=True)))
        return [b.apply("div", parts, b.reduce("sum", parts, [1], keep_dims=True))]

    check(build, """\
        group 0: for a0 < B, for each a1 < N; dominant %1, sub-dominant %5 %7
          %0[a0, a1]  input 0          f32[B, N]  load
          %1[a0, 0]   max %0 over (1)  f32[B, 1]  regional
          %2[a0, a1]  broadcast %1     f32[B, N]  local
          %3[a0, a1]  sub %0 %2        f32[B, N]  local
          %4[a0, a1]  exp %3           f32[B, N]  local
          %5[a0, 0]   sum %4 over (1)  f32[B, 1]  regional
          %6[a0, a1]  broadcast %5     f32[B, N]  local
          %7[a0, a1]  div %4 %6        f32[B, N]  independent, store

        scratch: none
        """)  # fmt: skip


def test_values_of_a_row_are_stored_once_a_row() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("B", "N"))
        return [b.reduce("max", x, [1]), b.apply("sqrt", b.reduce("sum", x, [1]))]

    check(build, """\
        group 0: for a0 < B, for each a1 < N; dominant %1, sub-dominant %3 %2 %5
          %0[a0, a1]  input 0          f32[B, N]  load
          %1[a0, 0]   max %0 over (1)  f32[B, 1]  regional
          %2[a0]      reshape %1       f32[B]     independent, store
          %3[a0, 0]   sum %0 over (1)  f32[B, 1]  regional
          %4[a0]      reshape %3       f32[B]     regional
          %5[a0]      sqrt %4          f32[B]     independent, store

        scratch: none
        """)  # fmt: skip


def test_a_value_of_a_row_may_fill_the_row() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("B", "N"))
        return [b.broadcast(b.reduce("sum", x, [1], keep_dims=True), (B, N))]

    check(build, """\
        group 0: for a0 < B, for each a1 < N; dominant %1, sub-dominant %2
          %0[a0, a1]  input 0          f32[B, N]  load
          %1[a0, 0]   sum %0 over (1)  f32[B, 1]  regional
          %2[a0, a1]  broadcast %1     f32[B, N]  independent, store

        scratch: none
        """)  # fmt: skip


def test_a_reduction_of_everything_has_one_row() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("B", "N"))
        return [b.apply("div", x, b.reduce("sum", x, [0, 1], keep_dims=True))]

    check(build, """\
        group 0: once, for each a0 < B, a1 < N; dominant %1, sub-dominant %3
          %0[a0, a1]  input 0             f32[B, N]  load
          %1[0, 0]    sum %0 over (0, 1)  f32[1, 1]  regional
          %2[a0, a1]  broadcast %1        f32[B, N]  local
          %3[a0, a1]  div %0 %2           f32[B, N]  independent, store

        scratch: none
        """)  # fmt: skip


# -- index maps ------------------------------------------------------------------------------------------------


def test_a_reshape_and_a_transpose_are_index_maps() -> None:
    """Heads split off: the row of 768 is read as 12 times 64."""

    def build(b: BodyBuilder) -> list[int]:
        x = b.apply("relu", b.input(f32("B", 768)))
        return [b.transpose(b.reshape(x, (B, Dim(12), Dim(64))), [1, 0, 2])]

    check(build, """\
        group 0: for a0 < 12, a1 < B, a2 < 64; dominant %3
          %0[a1, 64*a0 + a2]  input 0                    f32[B, 768]     load
          %1[a1, 64*a0 + a2]  relu %0                    f32[B, 768]     local
          %2[a1, a0, a2]      reshape %1                 f32[B, 12, 64]  local
          %3[a0, a1, a2]      transpose %2 by (1, 0, 2)  f32[12, B, 64]  independent, store

        scratch: none
        """)  # fmt: skip


def test_axes_are_cut_where_a_reshape_asks_for_it() -> None:
    """Heads merged: the loops over [B*S, 768] become four."""

    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("B", 12, "S", 64))
        merged = b.reshape(b.transpose(x, [0, 2, 1, 3]), (B * S, Dim(768)))
        return [b.apply("add", merged, b.input(f32(B * S, 768)))]

    check(build, """\
        group 0: for a0 < B, a1 < S, a2 < 12, a3 < 64; dominant %4
          %0[a0, a2, a1, a3]         input 0                       f32[B, 12, S, 64]  load
          %1[a0, a1, a2, a3]         transpose %0 by (0, 2, 1, 3)  f32[B, S, 12, 64]  local
          %2[S*a0 + a1, 64*a2 + a3]  reshape %1                    f32[B*S, 768]      local
          %3[S*a0 + a1, 64*a2 + a3]  input 1                       f32[B*S, 768]      load
          %4[S*a0 + a1, 64*a2 + a3]  add %2 %3                     f32[B*S, 768]      independent, store

        scratch: none
        """)  # fmt: skip


def test_a_reduction_over_merged_axes_runs_over_both() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.apply("tanh", b.input(f32("B", 4, 8)))
        return [b.reduce("sum", b.reshape(x, (B, Dim(32))), [1])]

    check(build, """\
        group 0: for a0 < B, for each a1 < 4, a2 < 8; dominant %3, sub-dominant %4
          %0[a0, a1, a2]     input 0          f32[B, 4, 8]  load
          %1[a0, a1, a2]     tanh %0          f32[B, 4, 8]  local
          %2[a0, 8*a1 + a2]  reshape %1       f32[B, 32]    local
          %3[a0, 0]          sum %2 over (1)  f32[B, 1]     regional
          %4[a0]             reshape %3       f32[B]        independent, store

        scratch: none
        """)  # fmt: skip


def test_slices_are_offsets() -> None:
    """One value, read at two places: an LSTM's gates."""

    def build(b: BodyBuilder) -> list[int]:
        z = b.apply("tanh", b.input(f32("B", 8)))
        return [b.apply("mul", b.slice(z, [0, 0], (B, Dim(4))), b.slice(z, [0, 4], (B, Dim(4))))]

    check(build, """\
        group 0: for a0 < B, a1 < 4; dominant %4
          %0[a0, a1 + 4]  input 0                           f32[B, 8]  load
          %0[a0, a1]      input 0                           f32[B, 8]  load
          %1[a0, a1 + 4]  tanh %0                           f32[B, 8]  local
          %1[a0, a1]      tanh %0                           f32[B, 8]  local
          %2[a0, a1]      slice %1 from (0, 0) step (1, 1)  f32[B, 4]  local
          %3[a0, a1]      slice %1 from (0, 4) step (1, 1)  f32[B, 4]  local
          %4[a0, a1]      mul %2 %3                         f32[B, 4]  independent, store

        scratch: none
        """)  # fmt: skip


def test_outputs_in_another_order_follow_the_first() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.apply("tanh", b.input(f32("B", "N")))
        return [x, b.apply("neg", b.transpose(x, [1, 0]))]

    check(build, """\
        group 0: for a0 < B, a1 < N; dominant %1, sub-dominant %3
          %0[a0, a1]  input 0                 f32[B, N]  load
          %1[a0, a1]  tanh %0                 f32[B, N]  local, store
          %2[a1, a0]  transpose %1 by (1, 0)  f32[N, B]  local
          %3[a1, a0]  neg %2                  f32[N, B]  independent, store

        scratch: none
        """)  # fmt: skip


# -- several groups --------------------------------------------------------------------------------------------


def test_rows_and_columns_are_two_groups_that_share_an_input() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.apply("square", b.input(f32("B", "N")))
        return [b.reduce("sum", x, [1]), b.reduce("sum", x, [0])]

    check(build, """\
        group 0: for a0 < B, for each a1 < N; dominant %2, sub-dominant %3
          %0[a0, a1]  input 0          f32[B, N]  load
          %1[a0, a1]  square %0        f32[B, N]  local
          %2[a0, 0]   sum %1 over (1)  f32[B, 1]  regional
          %3[a0]      reshape %2       f32[B]     independent, store

        group 1: for a0 < N, for each a1 < B; dominant %4, sub-dominant %5
          %0[a1, a0]  input 0          f32[B, N]  load
          %1[a1, a0]  square %0        f32[B, N]  local
          %4[0, a0]   sum %1 over (0)  f32[1, N]  regional
          %5[a0]      reshape %4       f32[N]     independent, store

        scratch: none
        """)  # fmt: skip


def reductions_of(plan: StitchPlan) -> list[list[str]]:
    """For each group, the names of the reductions that it computes."""
    steps = plan.body.steps
    return [
        [steps[s].origin for s in (g.dominant, *g.sub_dominants) if isinstance(steps[s].op, Reduce)]
        for g in plan.groups
    ]


def test_columns_wait_for_rows_together() -> None:
    """The gradient of a layer norm: dbeta needs no row's result, but dgamma, over the same columns, does."""

    def build(b: BodyBuilder) -> list[int]:
        x, dy = b.input(f32("R", "C")), b.input(f32("R", "C"))
        dbeta = b.reduce("sum", dy, [0])
        centred = b.apply("sub", x, b.reduce("sum", x, [1], keep_dims=True))
        return [dbeta, b.reduce("sum", b.apply("mul", dy, centred), [0])]

    plan = planned(build)
    assert [len(names) for names in reductions_of(plan)] == [1, 2]
    assert [len(g.inner) for g in plan.groups] == [1, 1]


def test_a_group_that_is_read_stays_where_it_is() -> None:
    """The sums of the columns are what rows are made of, whose results other sums of columns need."""

    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("R", "C"))
        scaled = b.apply("mul", x, b.reduce("sum", x, [0]))
        centred = b.apply("sub", x, b.reduce("sum", scaled, [1], keep_dims=True))
        return [b.reduce("sum", centred, [0])]

    assert [len(names) for names in reductions_of(planned(build))] == [1, 1, 1]


def test_what_a_later_group_reads_is_global() -> None:
    """A row sum is subtracted, then summed over columns: the difference is an output, and read from there."""

    def build(b: BodyBuilder) -> list[int]:
        x, y = b.input(f32("B", "N")), b.input(f32("B", "N"))
        centred = b.apply("sub", x, b.reduce("sum", b.apply("mul", x, y), [1], keep_dims=True))
        return [centred, b.reduce("sum", b.apply("mul", centred, y), [0])]

    plan = planned(build)
    assert [len(g.outer) for g in plan.groups] == [1, 1]
    assert plan.scratch == ()
    assert [s for s, scheme in plan.schemes.items() if scheme is Scheme.GLOBAL] == [plan.body.outputs[0]]


@pytest.mark.parametrize("shape", [(1, "C"), ("C",)])
def test_what_is_dear_is_computed_once_for_all_rows(shape: tuple[int | str, ...]) -> None:
    """A function of the channels alone gets a group of its own, and is kept in scratch."""

    def build(b: BodyBuilder) -> list[int]:
        x, v = b.input(f32("B", "C")), b.input(f32(*shape))
        return [b.apply("mul", x, b.apply("exp", v))]

    plan = planned(build)
    assert [[str(a.extent) for a in g.outer] for g in plan.groups] == [["C"], ["B", "C"]]
    assert [plan.schemes[s] for s in plan.scratch] == [Scheme.GLOBAL]


def test_outputs_of_other_sizes_get_their_own_loops() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.apply("tanh", b.input(f32("B", 8)))
        return [x, b.apply("neg", b.slice(x, [0, 2], (B, Dim(3))))]

    check(build, """\
        group 0: for a0 < B, a1 < 8; dominant %1
          %0[a0, a1]  input 0  f32[B, 8]  load
          %1[a0, a1]  tanh %0  f32[B, 8]  global, store

        group 1: for a0 < B, a1 < 3; dominant %3
          %1[a0, a1 + 2]  tanh %0                           f32[B, 8]  load
          %2[a0, a1]      slice %1 from (0, 2) step (1, 1)  f32[B, 3]  local
          %3[a0, a1]      neg %2                            f32[B, 3]  independent, store

        scratch: none
        """)  # fmt: skip


# -- found by fuzzing, or in models ----------------------------------------------------------------------------


def test_a_sliced_row_does_not_decide_where_the_whole_row_is_stored() -> None:
    """The slice is planned first; the other output covers all of the row nevertheless."""

    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("B", 6))
        y = b.apply("div", x, b.reduce("sum", x, [1], keep_dims=True))
        part = b.slice(b.apply("minimum", y, x), [0, 2], (B, Dim(1)))
        return [b.apply("neg", b.apply("sigmoid", b.apply("neg", y))), part]

    planned(build)


def test_an_input_may_be_an_output() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("B"))
        return [x, b.apply("exp", x), x]

    planned(build)


@pytest.mark.parametrize("rows", [0, 3, "R"])
@pytest.mark.parametrize("columns", [1, 2, 8])
def test_dear_steps_that_their_own_group_reads_are_not_stored(rows: int | str, columns: int) -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32(rows, columns))
        parts = b.apply("exp", b.apply("sub", x, b.reduce("max", x, [1], keep_dims=True)))
        y = b.apply("div", parts, b.reduce("sum", parts, [1], keep_dims=True))
        return [b.apply("mul", y, b.apply("exp", b.apply("tanh", b.slice(y, [0, 0], (b.shape(x)[0], Dim(1))))))]

    planned(build)


# -- what cannot be planned, and what the verifier catches -----------------------------------------------------


def test_a_reshape_that_turns_axes_has_no_index_map() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.apply("tanh", b.input(f32("B", "N")))
        return [b.apply("add", x, b.transpose(b.reshape(x, (N, B)), [1, 0]))]

    with pytest.raises(Unsupported, match="no loop nest") as refusal:
        planned(build)
    assert refusal.value.reason is Reason.SCHEME


def softmax() -> StitchPlan:
    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("B", "N"))
        parts = b.apply("exp", b.apply("sub", x, b.reduce("max", x, [1], keep_dims=True)))
        return [b.apply("div", parts, b.reduce("sum", parts, [1], keep_dims=True))]

    return planned(build)


def broken(**changes: object) -> StitchPlan:
    """The softmax with its one group changed."""
    plan = softmax()
    return replace(plan, groups=(replace(plan.groups[0], **changes),))


def with_instance(position: int, **changes: object) -> StitchPlan:
    group = softmax().groups[0]
    instances = list(group.instances)
    instances[position] = replace(instances[position], **changes)
    return broken(instances=tuple(instances))


def map_of(position: int) -> IndexMap:
    return softmax().groups[0].instances[position].index_map


def loading(position: int) -> StitchPlan:
    """The softmax, reading a step that nobody has stored."""
    plan = with_instance(position, loaded=True, operands=())
    step = plan.groups[0].instances[position].step
    return replace(plan, schemes={s: scheme for s, scheme in plan.schemes.items() if s != step})


@pytest.mark.parametrize(
    ("plan", "rule"),
    [
        (lambda: broken(stores=()), "outputs and the scratch"),
        (lambda: broken(stores=softmax().groups[0].stores * 2), "stored once"),
        (lambda: broken(sub_dominants=()), "dominate or are sub-dominant"),
        (lambda: broken(outer=softmax().groups[0].outer * 2), "told apart"),
        (lambda: with_instance(0, operands=(0,)), "reads nothing"),
        (lambda: loading(4), "in scratch, or an output"),
        (lambda: with_instance(4, operands=(5,)), "operands come first"),
        (lambda: with_instance(4, operands=(2,)), "what their steps read"),
        (lambda: with_instance(3, index_map=()), "an index for each axis"),
        (lambda: with_instance(3, index_map=map_of(3)[::-1]), "within its axis|read elsewhere"),
        (lambda: with_instance(1, index_map=map_of(0)), "kept axes|each row once|within its axis"),
        (lambda: replace(softmax(), schemes={}), "has a scheme"),
        (lambda: replace(softmax(), schemes=dict.fromkeys(softmax().schemes, Scheme.GLOBAL)), "GLOBAL is what crosses"),
        (lambda: replace(softmax(), schemes=dict.fromkeys(softmax().schemes, Scheme.LOCAL)), "no register"),
        (lambda: replace(softmax(), schemes=dict.fromkeys(softmax().schemes, Scheme.INDEPENDENT)), "nothing reads it"),
        (lambda: replace(softmax(), scratch=(4,)), "outputs and the scratch"),
        (lambda: replace(softmax(), groups=softmax().groups * 2), "stored once"),
    ],
)  # fmt: skip
def test_broken_plans_are_caught(plan: Callable[[], StitchPlan], rule: str) -> None:
    with pytest.raises(BrokenInvariant, match=rule):
        verify_plan(plan())


# -- sizes that agree by chance --------------------------------------------------------------------------------


def test_columns_do_not_join_rows_that_are_as_many_and_as_long() -> None:
    """Of a square. In the nest of the rows each element of a column would lie in another line of memory."""

    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32(8, 8))
        return [b.reduce("sum", x, [1], keep_dims=True), b.reduce("sum", x, [0], keep_dims=True)]

    check(build, """\
        group 0: for a0 < 8, for each a1 < 8; dominant %1
          %0[a0, a1]  input 0          f32[8, 8]  load
          %1[a0, 0]   sum %0 over (1)  f32[8, 1]  independent, store

        group 1: for a0 < 8, for each a1 < 8; dominant %2
          %0[a1, a0]  input 0          f32[8, 8]  load
          %2[0, a0]   sum %0 over (0)  f32[1, 8]  independent, store

        scratch: none
        """)  # fmt: skip


def test_columns_do_not_join_groups_of_channels_that_are_as_many_and_as_long() -> None:
    """A group norm's gradient: 2 * 3 groups of 4 * 2 elements each, and 6 channels, over 2 * 4 places."""

    def build(b: BodyBuilder) -> list[int]:
        dy = b.input(f32(2, 4, 6))
        grouped = b.reshape(dy, shape_of(2, 4, 3, 2))
        return [b.reduce("sum", grouped, [1, 3]), b.reduce("sum", dy, [0, 1])]

    plan = planned(build)
    assert len(plan.groups) == 2
    assert [len(g.outer) for g in plan.groups] == [2, 1]


def test_what_lies_crosswise_joins_what_it_is_multiplied_with() -> None:
    """A sum over a row, times what is transposed: x is read once."""

    def build(b: BodyBuilder) -> list[int]:
        x, w = b.input(f32(8, 8)), b.input(f32(8, 8))
        weighted = b.apply("mul", x, b.transpose(w, [1, 0]))
        return [b.reduce("sum", x, [1]), b.reduce("sum", weighted, [1])]

    assert len(planned(build).groups) == 1
