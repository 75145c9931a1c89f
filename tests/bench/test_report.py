"""`bench report` on a small file of `bench models` (models.json, made by hand) and changed copies of it."""

import copy
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import report, report_clusters, report_html, report_markdown, report_models
from bench.__main__ import bench
from bench.report_files import UnreadableFile, load
from bench.report_kinds import KINDS
from bench.report_parts import Scale, Table, ratio_scale

MODELS = Path(__file__).with_name("models.json")
GPU = Path(__file__).parents[2] / "bench" / "results" / "gpu.json"


@pytest.fixture
def document():
    return json.loads(MODELS.read_text(encoding="utf-8"))


@pytest.fixture
def saved(tmp_path):
    def save(document, name="changed.json"):
        path = tmp_path / name
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    return save


def shown(*arguments):
    return CliRunner(env={"COLUMNS": "80"}).invoke(bench, ["report", *map(str, arguments)])


def sections(*paths):
    return report.sections_of([load(Path(path)) for path in paths])


def table(title, *paths):
    return next(t for section in sections(*paths) for t in section.tables if t.title == title)


def chart(name, *paths):
    return next(c for section in sections(*paths) for c in section.charts if c.name == name)


# -- files -------------------------------------------------------------------------------------------------------


def test_files_are_told_apart_by_their_command_or_their_rows(document, saved):
    assert load(MODELS).command == "models"
    assert load(GPU).command == "gpu"  # names no command
    del document["command"]
    assert load(saved(document)).command == "models"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema": 99}, "has schema '99', this reads 1; run its command again"),
        ({"command": "planner"}, "is of `bench planner`; there are reports of models, compare, clusters"),
        ({"command": ["models"]}, "there are reports of models"),
        ({"rows": {}}, "should have a list of rows"),
        ({"rows": [1]}, "should have a list of rows"),
        ({"rows": [{"mode": "infer"}]}, "row 1 .* has no 'model'; run `bench models` again"),
        ({"rows": [], "command": None}, "has no rows, and does not say which command"),
        ({"rows": [{"a": 1}], "command": None}, "are of no command"),
    ],
)
def test_what_is_no_file_of_ours_is_refused_with_a_sentence(document, saved, change, reason):
    changed = {name: value for name, value in (document | change).items() if value is not None}
    with pytest.raises(UnreadableFile, match=reason):
        load(saved(changed))


@pytest.mark.parametrize("text", ["", "[1, 2", '{"schema": NaN}', "[" * 100_000, "[]"])
def test_what_is_no_document_is_refused(tmp_path, text):
    path = tmp_path / "odd.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UnreadableFile, match=r"odd\.json"):
        load(path)


def test_the_command_ends_with_a_sentence(tmp_path):
    outcome = shown(tmp_path / "nothing.json")
    assert outcome.exit_code == 1
    assert "nothing.json cannot be read: No such file or directory" in outcome.output
    assert "Traceback" not in outcome.output


# -- what is shown -----------------------------------------------------------------------------------------------


def test_the_terminal_has_80_columns(document, saved):
    document["rows"][0]["model"] = "a-model-whose-name-goes-on-and-on-" * 3
    for paths in ([MODELS], [GPU], [MODELS, GPU], [MODELS, saved(document)]):
        outcome = shown(*paths)
        assert outcome.exit_code == 0, outcome.output
        assert max(map(len, outcome.output.splitlines())) <= 80


def test_means_are_geometric_and_of_one_mode():
    rows = load(MODELS).rows
    assert report_models.means(rows, "infer")["tf_over_stitch"] == pytest.approx((1.25 * 1.0 * 0.8) ** (1 / 3))
    assert report_models.means(rows, "infer")["xla_over_stitch"] == pytest.approx((1.5625 * 0.6) ** 0.5)
    assert report_models.means(rows, "train")["tf_over_stitch"] == pytest.approx(1.5)


def test_what_went_wrong_is_seen_first():
    alarms = sections(MODELS)[0].alarms
    assert alarms == (
        "guesslang 1, 2 threads: slower",
        "bert-train 4x64, 2 threads: mismatch",
        "not measured: movenet, its package could not be fetched",
    )


def test_a_lead_of_xla_that_is_in_its_products_is_said_to_be():
    (told,) = (s for s in sections(MODELS)[0].sentences if s.startswith("XLA is ahead"))
    assert told == (
        "XLA is ahead on hed 1x160x160, 2 threads, 1.67×: matrix products and convolutions take 48.0 ms there (80% of "
        "the step), 90.0 ms under TensorFlow (90%), whose kernels tf_stitch runs too; that is the whole of its lead of "
        "40.0 ms."
    )


@pytest.mark.parametrize(
    ("share", "verdict"),
    [
        (1.0, "that is 75% of its lead of 40.0 ms."),  # 90 ms here, 60 there
        (None, "what share of its step is matrix products and convolutions was not measured."),
    ],
)
def test_a_lead_of_xla_that_is_partly_elsewhere(document, saved, share, verdict):
    document["rows"][1]["gemm_share"]["xla"] = share
    (told,) = (s for s in sections(saved(document))[0].sentences if s.startswith("XLA is ahead"))
    assert told.endswith(verdict)


def test_a_lead_of_xla_that_is_not_in_its_products(document, saved):
    document["rows"][1]["gemm_share"]["tf"] = 0.4
    (told,) = (s for s in sections(saved(document))[0].sentences if s.startswith("XLA is ahead"))
    assert told.endswith("so its lead of 40.0 ms is in the memory-intensive rest.")


def test_bars_have_whiskers_and_bounds():
    first = chart("speedup-infer", MODELS).lines[0]
    over_tf, over_xla = first.bars
    assert (first.label, first.detail) == ("bert", "1x128, 2 threads")
    assert [(s.start, s.end) for s in over_tf.segments] == [(1.0, 1.25)]
    assert over_tf.whisker == (1.2125, 1.275)
    assert [tick.value for tick in over_tf.ticks] == [1.3636, 1.6667]
    assert over_xla.ticks == ()


def test_a_way_that_was_refused_has_no_bar_but_its_reason():
    (line,) = (line for line in chart("speedup-infer", MODELS).lines if line.label == "guesslang")
    assert line.bars[1].absent == "XLA refuses: Unsupported type in DataTypeToPrimitiveType: 'string'"
    assert line.bars[1].segments == ()


def test_a_step_is_stacked_in_parts_of_tensorflows_time():
    tf, stitched = chart("breakdown", MODELS).lines[0].bars
    assert [(s.kind, s.start, s.end) for s in tf.segments] == [
        ("compute", 0.0, 0.6),
        ("memory", 0.6, pytest.approx(0.9)),
        ("gap", pytest.approx(0.9), pytest.approx(1.0)),
    ]
    assert stitched.segments[-1].end == pytest.approx(160 / 200)


def test_notes_of_a_row_are_shown_and_do_not_go_on(document, saved):
    document["rows"][0]["notes"] = ["stitch differs most in 'pooled'", "not compared: " + "gradient/0, " * 200]
    notes = table("Notes of rows", saved(document))
    assert notes.entries[0].cells == ("bert", "1x128", "2", "stitch differs most in 'pooled'")
    assert len(notes.entries[1].cells[-1]) == 240
    assert notes.entries[1].cells[-1].endswith("…")


def test_rows_that_lack_figures_are_shown_all_the_same(document, saved):
    bare = [{"model": "bare", "mode": "infer"}, {"model": "odd", "mode": "infer", "tf_ms": "fast", "breakdown": [1]}]
    outcome = shown(saved(document | {"rows": bare}))
    assert outcome.exit_code == 0, outcome.output
    assert re.search(r"^bare +– +– +–", outcome.output, re.MULTILINE)


def test_one_model_and_none(document, saved):
    assert shown(saved(document | {"rows": document["rows"][:1]})).exit_code == 0
    assert shown(saved(document | {"rows": []})).exit_code == 0


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_shows_a_row_that_has_no_more_than_it_must(kind, saved):
    row = dict.fromkeys(kind.required, "x") | {"ways": {}}
    path = saved({"schema": 1, "command": kind.command, "rows": [row], "summary": {}})
    assert shown(path).exit_code == 0
    assert report_html.render(sections(path), [load(path)])


def test_compile_time(saved):
    row = {
        "name": "layer_norm",
        "shapes": 50,
        "threads": 1,
        "first_calls_s": {"tf": 0.2, "stitch": 0.5},
        "compile_cpu_s": {"tf": 0.1, "xla": 12.0, "stitch": 0.4},
        "refused": {},
    }
    path = saved({"schema": 1, "command": "compile", "rows": [row], "summary": {}})
    (section,) = sections(path)
    assert section.sentences == ("layer_norm, 50 shapes: XLA takes 12.0 CPU seconds, tf_stitch 0.40 (30.00×).",)
    assert section.tables[0].entries[0].cells == ("layer_norm", "50", "0.10", "12.0", "0.40", "0.20", "–", "0.50")


def test_means_of_clusters_are_over_shapes_and_say_their_lowest_row():
    def row(workload, threads, tf, xla):
        return {"workload": workload, "threads": threads, "tf_over_stitch": tf, "xla_over_stitch": xla}

    rows = [row("norm", 1, 2.0, 4.0), row("relu", 1, 3.0, None), row("norm", 1, 8.0, 0.9), row("norm", 2, 5.0, 1.0)]
    assert [e.cells for e in report_clusters.by_workload(rows).entries] == [
        ("norm", "1", "2", "4.00×", "1.90×", "0.90×"),
        ("norm", "2", "1", "5.00×", "1.00×", "1.00×"),
        ("relu", "1", "1", "3.00×", "–", "3.00×"),
    ]
    assert [e.cells[:2] for e in report_clusters.overview(rows).entries] == [("1", "3"), ("2", "1")]


def test_clusters_and_peers_are_told_apart_without_a_command(saved):
    cluster = {"workload": "softmax", "shape": "8x8", "threads": 1, "stitch_ms": 1.0, "tf_over_stitch": 2.0}
    clusters = saved({"schema": 1, "rows": [cluster | {"max_err_f64": 1e-7}], "summary": {}}, "c.json")
    peers = saved({"schema": 1, "rows": [cluster | {"ort_ms": 1.5, "torch_ms": None}], "summary": {}}, "p.json")
    assert [load(path).command for path in (clusters, peers)] == ["clusters", "peers"]
    assert [chart("clusters-1", clusters).lines[0].bars[0].figure, chart("peers-1", peers).lines[0].bars[0].figure] == [
        "2.00×",
        "2.00×",
    ]


# -- pages -------------------------------------------------------------------------------------------------------


def test_the_page_stands_alone_and_takes_names_for_text(document, saved):
    document["rows"][0]["model"] = "<script>alert(1)</script>"
    document["summary"]["cpu"] = '"><img src=x>'
    path = saved(document)
    html = report_html.render(sections(path, GPU), [load(path), load(GPU)])
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "<script" not in html
    assert "<img" not in html
    assert not re.search(r"https?://|\bhref=|@import|url\(", html)


def test_bars_stay_inside_the_chart():
    html = report_html.render(sections(MODELS), [load(MODELS)])
    places = [float(p) for p in re.findall(r'(?:x|x1|x2|cx)="([-\d.]+)%"', html)]
    assert len(places) > 50
    assert all(0 <= place <= 100 for place in places)
    for x, width in re.findall(r'<rect class="\w+" x="([\d.]+)%" width="([\d.]+)%"', html):
        assert float(x) + float(width) <= 100.2


def test_markdown_takes_names_for_text(document, saved):
    document["rows"][0]["model"] = "a|b <i>*c*"
    text = report_markdown.render(sections(saved(document)))
    assert "| a\\|b \\<i\\>\\*c\\* | 1x128 |" in text
    assert text.count("\n## ") + text.startswith("## ") == len(re.findall(r"^## ", text, re.MULTILINE))


def test_charts_as_png(tmp_path):
    pytest.importorskip("matplotlib")
    outcome = shown(MODELS, "--png", tmp_path)
    assert outcome.exit_code == 0, outcome.output
    names = {path.stem for path in tmp_path.iterdir()}
    assert names >= {"speedup-infer", "speedup-train", "breakdown", "kernels", "accuracy", "first-call", "bandwidth"}
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")


def test_charts_of_two_runs_do_not_overwrite_each_other(tmp_path):
    pytest.importorskip("matplotlib")
    from bench import report_png

    (speed,) = (section for section in sections(MODELS) if section.title == "Speed-up, training")
    written = report_png.write(tmp_path, [speed, speed])
    assert [path.name for path in written] == ["speedup-train.png", "speedup-train-run2.png"]
    assert all(path.exists() for path in written)


# -- comparisons -------------------------------------------------------------------------------------------------


def compared(before, after):
    return table("models: B over A", before, after), sections(before, after)[0]


def test_what_changed_by_more_than_the_spread_is_marked(document, saved):
    better = document["rows"][0]
    better["stitch_ms"], better["spread"]["stitch"] = 140.0, {"median": 140.0, "q1": 138.0, "q3": 142.0}
    better["kernels"]["stitch"] = 78
    found, _ = compared(MODELS, saved(document))
    cells = dict(zip((c.title for c in found.columns), found.entries[0].cells, strict=True))
    assert cells["row"] == "bert infer 1x128 2"
    assert cells["stitch ms B/A"] == "0.88+"
    assert cells["TF/s B/A"] == "1.00 "
    assert cells["kernels B/A"] == "1.01−"
    assert found.entries[0].mark == "bad"


def test_what_is_within_the_spread_is_not_marked(document, saved):
    row = document["rows"][0]
    row["stitch_ms"], row["spread"]["stitch"] = 155.0, {"median": 155.0, "q1": 150.0, "q3": 158.0}
    found, section = compared(MODELS, saved(document))
    assert found.entries[0].cells[3] == "0.97 "
    assert "0 figures better and 0 worse" in section.sentences[0]


def test_more_is_better_of_a_speed_up(document, saved):
    row = document["rows"][0]
    row["tf_over_stitch"], row["ratio_spread"]["tf_over_stitch"] = 1.5, {"median": 1.5, "q1": 1.45, "q3": 1.6}
    found, _ = compared(MODELS, saved(document))
    assert "1.20+" in found.entries[0].cells


def test_rows_of_one_run_only_and_other_machines_are_named(document, saved):
    document["rows"][1]["size"] = "1x320x320"
    document["summary"]["cores"] = 64
    _, section = compared(MODELS, saved(document))
    assert "only in A: hed infer 1x160x160 2" in section.alarms
    assert "only in B: hed infer 1x320x320 2" in section.alarms
    assert "Their cores differ: 2 and 64." in section.sentences


def test_without_a_spread_nothing_is_marked_and_that_is_said(document, saved):
    before, after = copy.deepcopy(document), document
    for row in before["rows"] + after["rows"]:
        row.pop("spread", None)
        row.pop("ratio_spread", None)
    after["rows"][0]["stitch_ms"] = 1.0
    found, section = compared(saved(before, "a.json"), saved(after, "b.json"))
    assert found.entries[0].mark == ""
    assert any("no spread" in alarm for alarm in section.alarms)


def test_three_runs_are_compared_with_the_first(document, saved):
    paths = MODELS, saved(document, "b.json"), saved(document, "c.json")
    leads = [s.sentences[0] for s in sections(*paths) if s.title.endswith("B over A")]
    assert [lead.split(" (B) ")[0] for lead in leads] == [str(path) for path in paths[1:]]


# -- parts -------------------------------------------------------------------------------------------------------


def test_a_table_with_a_cell_too_few_is_a_mistake():
    from bench.report_parts import Column, Entry

    with pytest.raises(ValueError, match="2 columns, a row of it 1"):
        Table("odd", (Column("a"), Column("b")), (Entry(("1",)),))


@pytest.mark.parametrize("values", [[], [1.0], [0.001, 1000.0], [0.97, 1.02], [2.0, 3.0]])
def test_a_scale_of_ratios_has_1_on_it_and_a_few_marks(values):
    scale = ratio_scale(values, "")
    assert scale.low < 1 < scale.high
    assert 0 < scale.at(1.0) < 1
    assert 2 <= len(scale.marks()) <= 8
    assert all(scale.holds(mark) for mark in scale.marks())


def test_what_is_beyond_a_scale_is_at_its_edge():
    for scale in (Scale(1.0, 4.0, ""), Scale(1.0, 4.0, "", is_log=True)):
        assert [scale.at(value) for value in (0.0, 1.0, 4.0, 9.0)] == [0, 0, 1, 1]
        assert not scale.holds(9.0)
    assert Scale(1.0, 4.0, "", is_log=True).at(2.0) == pytest.approx(0.5)


@pytest.mark.parametrize("high", [1e-3, 0.7, 1.0, 3.0, 12.6, 1e6])
def test_marks_are_round_and_few(high):
    marks = Scale(0.0, high, "").marks()
    assert marks[0] == 0
    assert 3 <= len(marks) <= 6
    assert marks[-1] <= high
