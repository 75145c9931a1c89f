import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from rich.console import Console

from bench import cluster_table, clusters, results
from bench.__main__ import bench


def row(**changes):
    plain = {
        "workload": "batchnorm_plain_grad",
        "shape": "1x12x128x128",
        "threads": 1,
        "tf_ms": 1234.5,
        "xla_ms": 20.0,
        "stitch_ms": 10.0,
        "tf_over_stitch": 123.45,
        "xla_over_stitch": 2.0,
        "stitch_kernels": 1,
        "stitch_left": 0,
        "xla_kernels": 6,
        "max_err_f64": 1.2e-7,
        "tf_err_f64": 3e-7,
        "xla_err_f64": 3e-7,
        "tf_compile_cpu_s": 0.1,
        "xla_compile_cpu_s": 0.2,
        "stitch_compile_cpu_s": 0.15,
        "absent": {},
        "disagree": [],
        "rival": None,
        "notes": [],
    }
    return plain | changes


LOST = row(tf_ms=4.0, xla_ms=9.0, stitch_ms=8.0, tf_over_stitch=0.5, xla_over_stitch=1.125)
NOT_MEASURED = row(
    stitch_ms=None,
    tf_over_stitch=None,
    xla_over_stitch=None,
    stitch_kernels=None,
    stitch_left=None,
    max_err_f64=None,
    stitch_compile_cpu_s=None,
    absent={"stitch": "ImportError: a long and winding sentence about a library that could not be loaded"},
)

MANY_KERNELS = row(stitch_kernels=41, stitch_left=62, xla_kernels=360)


def rendered(rows, width):
    console = Console(width=width, record=True, force_terminal=False, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    cluster_table.show(console, rows, results.cluster_summary(rows, "default"))
    return console.export_text()


@pytest.mark.parametrize("width", [80, 100])
def test_the_table_fits(width):
    text = rendered([row(), LOST, NOT_MEASURED, MANY_KERNELS], width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for part in ("batchnorm_plain_grad", "1x12x128x128", "1234.5", "123.45", "1/6", "41+62/360", "XLA/s"):
        assert part in text
    assert "could not be loaded" in " ".join(text.split())
    assert ("1e-07" in text) == (width >= cluster_table.WIDE)


def test_a_rival_has_a_line_of_its_own():
    text = rendered([row(rival={"name": "ResourceApplyAdam", "ms": 25.5, "over_stitch": 2.55, "err_f64": 1e-7})], 80)
    (line,) = (line for line in text.splitlines() if "ResourceApplyAdam" in line)
    assert line.split() == ["ResourceApplyAdam", "25.5", "2.55"]


def test_ops_that_were_left_stand_beside_the_kernels():
    assert "1/6" in rendered([row()], 80)
    assert "2+4/6" in rendered([row(stitch_kernels=2, stitch_left=4)], 80)


def test_the_table_ends_with_the_means():
    text = rendered([row(tf_over_stitch=4.0, xla_over_stitch=2.0), LOST], 80)
    last = text.strip().splitlines()[-1]
    assert "TF/stitch 1.41" in last
    assert "XLA/stitch 1.50" in last


def test_the_summary():
    summary = results.cluster_summary([row(tf_over_stitch=4.0), LOST], "default")
    assert summary["geomean_tf_over_stitch"] == pytest.approx(2**0.5)
    assert summary["worst_over_better"] == pytest.approx(0.5)
    assert summary["xla_compile_cpu_s"] == pytest.approx(0.4)
    assert summary["versions"]["tensorflow"].startswith("2.21")


def test_a_rival_counts_as_the_better():
    faster = {"name": "ResourceApplyAdam", "ms": 5.0, "over_stitch": 0.5, "err_f64": 1e-7}
    assert results.cluster_summary([row(rival=faster)], "default")["worst_over_better"] == pytest.approx(0.5)


@pytest.mark.parametrize(("wrong", "code"), [([], 0), (["stitch"], clusters.DISAGREEMENT)])
def test_exit_codes(monkeypatch, tmp_path, wrong, code):
    monkeypatch.setattr(clusters, "_worker_results", lambda *_: iter([row(disagree=wrong)]))
    out = tmp_path / "rows.json"
    outcome = CliRunner().invoke(bench, ["clusters", "--threads", "1", "--json", str(out)])
    assert outcome.exit_code == code
    document = json.loads(out.read_text())
    assert document["schema"] == 1
    assert len(document["rows"]) == 1


@pytest.mark.parametrize("threads", ["", "one", "0"])
def test_bad_thread_counts_are_a_usage_error(threads):
    assert CliRunner().invoke(bench, ["clusters", "--threads", threads]).exit_code == 2


@pytest.mark.slow
def test_the_command_from_end_to_end(tmp_path):
    out = tmp_path / "rows.json"
    command = [
        sys.executable,
        "-m",
        "bench",
        "clusters",
        "prelu",
        "--quick",
        "--threads",
        "1,2",
        "--json",
        out,
    ]
    subprocess.run(command, cwd=clusters.ROOT, check=True, timeout=240)
    rows = json.loads(out.read_text())["rows"]
    assert [(r["workload"], r["threads"], r["clock"]) for r in rows] == [
        ("prelu", 1, "cpu"),
        ("prelu", 2, "wall"),
    ]


@pytest.mark.slow
def test_an_unknown_workload_is_named(tmp_path):
    command = [sys.executable, "-m", "bench", "clusters", "nonsense", "--threads", "1"]
    run = subprocess.run(command, cwd=clusters.ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 2
    assert "no workload nonsense" in run.stderr
