"""The benchmark of what a call costs by itself."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from bench import calls
from bench.__main__ import bench


def row(tf_us: float, stitch_us: float) -> dict[str, float]:
    return {"tensors": 1, "variables": 0, "tf_us": tf_us, "stitch_us": stitch_us, "tf_over_stitch": tf_us / stitch_us}


def test_every_size_has_a_row(tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    outcome = CliRunner().invoke(bench, ["calls", "--calls", "50", "--json", str(path)])
    assert outcome.exit_code == 0, outcome.output
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [(r["tensors"], r["variables"]) for r in rows] == list(calls.SIZES)
    assert all(r["tf_us"] > r["stitch_us"] > 0 for r in rows)
    assert all(f"{r['tf_us']:.0f}" in outcome.output for r in rows)


def test_functions_take_turns() -> None:
    order: list[str] = []
    calls.in_turns({name: lambda name=name: order.append(name) for name in "ab"}, 3)
    measured = order[4:]  # behind those that `timing` looks at first
    assert [set(measured[i : i + 2]) for i in range(0, len(measured), 2)] == [{"a", "b"}] * (calls.WARM_UP + 3)


def test_a_slower_call_is_named() -> None:
    assert calls.summarise([row(300.0, 100.0), row(100.0, 101.0)])["slower"] == ["1 tensors, 0 variables"]
