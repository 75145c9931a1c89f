"""The table: in 80 columns, with all that went wrong below it."""

from __future__ import annotations

import pytest
from rich.console import Console

from bench import models_row, models_table


def row(**changes):
    plain = {
        "model": "facemesh-attention",
        "mode": "infer",
        "size": "1x1024x2048",
        "threads": 2,
        "tf_ms": 12345.6,
        "xla_ms": 1234.5,
        "xla_refused": None,
        "stitch_ms": 123.45,
        "tf_over_stitch": 100.0,
        "xla_over_stitch": 10.0,
        "better_over_stitch": 10.0,
        "ceiling_over_tf": {"third": 1.25, "none": 1.5},
        "stitch_ops": 1234,
        "flags": ["mismatch", "slower"],
        "notes": ["stitch differs most in 'scores', by 1.0e-03"],
    }
    return plain | changes


REFUSED = row(
    model="bert-train",
    mode="train",
    threads=1,
    xla_ms=None,
    xla_over_stitch=None,
    xla_refused="not ready after 45 s",
    tf_over_stitch=4.0,
    better_over_stitch=4.0,
    flags=[],
    notes=[],
)
ABSENT = models_row.absent_row("asr", "infer", "transformers==4.57.1 cannot be fetched: no network")


def rendered(*rows, width=80):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    models_table.show(console, rows, models_row.summary(rows))
    return console.export_text()


def test_the_table_fits_into_80_columns():
    text = rendered(row(), REFUSED, ABSENT)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for part in ("facemesh-attention", "1x1024x2048", "12346", "123.5", "100.00", "1.25", "1234"):
        assert part in text


def test_what_went_wrong_is_below():
    text = " ".join(rendered(row(), REFUSED, ABSENT).split())
    assert "flagged: facemesh-attention 1x1024x2048, 2 threads: mismatch, slower" in text
    assert "by 1.0e-03" in text
    assert "bert-train 1x1024x2048, 1 thread: XLA: not ready after 45 s" in text
    assert "absent: asr: transformers==4.57.1 cannot be fetched: no network" in text


def test_training_has_a_table_and_means_of_its_own():
    text = rendered(row(), REFUSED)
    assert "training step" in text
    assert "geometric means, infer: TF/s 100.00 · XLA/s 10.00 · better/s 10.00" in text
    assert "geometric means, train: TF/s 4.00 · XLA/s – · better/s 4.00" in text


def test_the_mean_is_geometric():
    summary = models_row.summary([row(), row(tf_over_stitch=1.0)])
    assert summary["geomeans"]["infer"]["tf_over_stitch"] == pytest.approx(10.0)
    assert "train" not in summary["geomeans"]


def test_nothing_measured():
    assert rendered(ABSENT).strip().startswith("absent: asr")
