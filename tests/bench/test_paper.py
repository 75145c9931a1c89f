"""The paper's figures beside ours: what is theirs adds up, and what is ours comes from files."""

import json
from pathlib import Path

import pytest

from bench import paper, paper_tables
from bench.ablation_steps import ABLATIONS
from bench.report_files import load
from bench.workloads.models import PAPER

MODELS = Path(__file__).with_name("models.json")
RESULTS = Path(__file__).parents[2] / "bench" / "results"
GPU = RESULTS / "gpu.json"


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def tables(*paths):
    found = paper_tables.sections([load(Path(path)) for path in paths])
    return {table.title: table for section in found for table in section.tables}


def cells(table, name):
    return next(entry.cells for entry in table.entries if entry.cells[0] == name)


def test_the_papers_means_follow_from_its_rows():
    assert mean(m.inference.astitch for m in paper.MODELS) == pytest.approx(paper.INFERENCE_OVER_TF, abs=0.01)
    assert mean(m.inference.over_xla for m in paper.MODELS) == pytest.approx(paper.INFERENCE_OVER_XLA, abs=0.01)
    assert mean(m.training.astitch for m in paper.MODELS if m.training) == pytest.approx(
        paper.TRAINING_OVER_TF, abs=0.01
    )
    assert mean(1 - m.kernels.astitch / m.kernels.xla for m in paper.MODELS) == pytest.approx(
        paper.FEWER_KERNELS, abs=0.001
    )


def test_its_models_and_steps_are_ours():
    ours = {name.removesuffix("-base") for name in PAPER}
    assert {model.bench for model in paper.MODELS} == ours
    assert set(paper.ABLATION_MS) - {"xla"} < {step.name for step in ABLATIONS}


def test_speed_ups_stand_beside_its():
    found = tables(MODELS)
    inference = found["Speed-up, inference: AStitch's and ours"]
    assert cells(inference, "BERT") == ("BERT", "1.65×", "1.12×", "1.25×", "1.56×", "200", "1x128")
    assert cells(inference, "DIEN") == ("DIEN", "1.63×", "2.20×", "–", "–", "256", "–")
    training = found["Speed-up, training: AStitch's and ours"]
    assert cells(training, "BERT") == ("BERT", "1.28×", "1.01×", "1.50×", "1.33×", "12", "4x64")
    assert [entry.cells[0] for entry in training.entries] == ["BERT", "Transformer", "DIEN", "mean"]


def test_kernels_stand_beside_its():
    kernels = tables(MODELS)["Kernels, XLA's and stitched"]
    assert cells(kernels, "BERT") == ("BERT", "64", "26", "59.4%", "515", "260", "77", "70.4%")
    assert cells(kernels, "mean")[-1] == "70.4%"  # of the one that has both


def test_counts_of_bench_kernels_go_before_those_of_bench_models(tmp_path):
    row = {
        "model": "bert-base",
        "size": "1x128",
        "tf_kernels": 5,
        "xla_kernels": 4,
        "stitch_kernels": 1,
        "stitch_by_op": {},
    }
    path = tmp_path / "kernels.json"
    path.write_text(json.dumps({"schema": 1, "rows": [row], "summary": {}}), encoding="utf-8")
    assert cells(tables(MODELS, path)["Kernels, XLA's and stitched"], "BERT")[4:7] == ("5", "4", "1")


def test_the_row_of_most_threads_counts(tmp_path):
    document = json.loads(MODELS.read_text(encoding="utf-8"))
    document["rows"].insert(0, document["rows"][0] | {"threads": 1, "tf_over_stitch": 9.0})
    path = tmp_path / "models.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    assert cells(tables(path)["Speed-up, inference: AStitch's and ours"], "BERT")[3] == "1.25×"


def test_ideas_taken_away_stand_beside_its_with_xlas_own_count():
    ideas = tables(RESULTS / "ablation.json", RESULTS / "kernels.json")["Ideas taken away"]
    assert cells(ideas, "CRNN in the paper") == (
        ("CRNN in the paper", "ms", "23.95", "–", "21.98", "20.45", "17.64", "1.36×", "–")
    )
    kernels = cells(ideas, "crnn 1")
    assert kernels[:3] == ("crnn 1", "kernels", "844")
    assert int(kernels[3]) >= int(kernels[5]) >= int(kernels[6])


def test_traffic_is_counted_for_each_gpu():
    traffic = tables(GPU)["Memory traffic"]
    assert cells(traffic, "CRNN, inference, paper's counters")[2] == "1.39×"
    assert [e.cells[0] for e in traffic.entries if "clusters" in e.cells[0]] == [
        f"23 clusters for {gpu}, counted" for gpu in ("V100", "T4", "A100", "H100")
    ]


def test_without_figures_of_ours_there_is_no_table(tmp_path):
    path = tmp_path / "models.json"
    path.write_text(json.dumps({"schema": 1, "command": "models", "rows": [], "summary": {}}), encoding="utf-8")
    assert tables(path) == {}
