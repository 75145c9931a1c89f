"""Where the time of a step goes, on steps written down by hand."""

from __future__ import annotations

import json

import pytest

from bench.kernel_rule import Kind
from bench.models_row import ceiling
from bench.models_trace import Operation, Step, _innermost, breakdown, chrome_trace, gaps, shares, top_table

COMPUTE, MEMORY, VIEW = Kind.COMPUTE, Kind.MEMORY, Kind.VIEW


def op(name, start, end, kind=MEMORY, thread=1):
    return Operation(f"node/{name}", name, kind, start, end - start, thread)


# thread 1:  0 [MatMul  ] 40    50 [Add] 70
# thread 2:        20 [Mul   ] 50              80 [Read] 90    of a step of 100
MATMUL, MUL = op("MatMul", 0, 40, COMPUTE), op("Mul", 20, 50, thread=2)
ADD, READ = op("AddV2", 50, 70), op("ReadVariableOp", 80, 90, VIEW, thread=2)
STEP = Step(100.0, (MATMUL, MUL, ADD, READ))


def test_what_runs_at_the_same_time_shares_it():
    assert shares(STEP) == {MATMUL: 30.0, MUL: 20.0, ADD: 20.0}


def test_the_parts_are_scaled_to_the_step_that_was_not_traced():
    parts = breakdown(STEP, 10.0)
    assert parts == {
        "compute_ms": pytest.approx(3.0),
        "memory_ms": pytest.approx(4.0),
        "gap_ms": pytest.approx(3.0),
        "compute_ops": 1,
        "memory_ops": 2,
    }
    assert ceiling(parts) == {"third": pytest.approx(10 / (3 + 7 / 3)), "none": pytest.approx(10 / 3)}


def test_a_step_without_compute_has_no_ceiling():
    parts = breakdown(Step(100.0, (ADD,)), 1.0)
    assert ceiling(parts) == {"third": pytest.approx(3.0), "none": None}
    assert ceiling(None) is None


def test_equal_ops_at_the_same_time_count_each():
    twice = (op("AddV2", 0, 10), op("AddV2", 0, 10, thread=2))
    assert breakdown(Step(10.0, twice), 1.0)["memory_ops"] == 2
    assert breakdown(Step(10.0, twice), 1.0)["memory_ms"] == pytest.approx(1.0)


def test_gaps_are_where_nothing_runs():
    assert gaps(STEP) == [(30.0, "the end of the step")]
    assert gaps(Step(60.0, (op("AddV2", 10, 20), op("Mul", 25, 60)))) == [
        (10.0, "node/AddV2:AddV2"),
        (5.0, "node/Mul:Mul"),
    ]


def test_an_op_that_holds_others_is_not_counted():
    loop, body = op("While", 0, 50), op("AddV2", 10, 20)
    beside = op("Mul", 10, 20, thread=2)
    assert _innermost([loop, body, beside]) == [body, beside]
    assert _innermost([op("AddV2", 0, 10), op("Mul", 10, 20)]) == [op("AddV2", 0, 10), op("Mul", 10, 20)]


def test_an_empty_step():
    parts = breakdown(Step(0.0, ()), 1.0)
    assert (parts["compute_ms"], parts["memory_ms"], parts["gap_ms"]) == (0, 0, 1.0)


def test_the_table_is_sorted_by_time():
    lines = top_table(STEP, 10.0, "a title").splitlines()
    assert lines[0] == "a title"
    assert lines[1] == "compute 3.000 ms (30%), memory 4.000 ms (40%), gap 3.000 ms (30%)"
    assert [line.split()[-1] for line in lines[4:7]] == ["MatMul", "Mul", "AddV2"]


def test_the_trace_opens_in_a_browser():
    events = json.loads(chrome_trace(STEP))["traceEvents"]
    assert all({"name", "ph", "ts", "dur", "pid", "tid"} <= set(event) for event in events)
    assert [e["name"] for e in events] == ["step", "MatMul", "Mul", "AddV2", "ReadVariableOp"]
    assert events[2] | {"args": None} == {
        "name": "Mul",
        "cat": "memory",
        "ph": "X",
        "ts": 20,
        "dur": 30,
        "pid": 1,
        "tid": 2,
        "args": None,
    }
