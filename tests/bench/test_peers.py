import contextlib
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from bench import baselines, peers, peers_own, peers_rows, peers_table
from bench.__main__ import bench
from bench.baselines import Absent
from bench.peers_case import Exported, read_arrays, write_arrays
from bench.peers_protocol import ROOT, Lost, Refused, Worker
from bench.timing import Effort, Samples
from bench.workloads.clusters import WORKLOADS, find

TWO_ROUNDS = Effort(budget_s=0, slice_s=0.001, fewest_rounds=2, most_rounds=2)

# ---- the protocol --------------------------------------------------------------------------------

ANSWERS = """
import os, sys, time
from functools import partial
from bench.peers_protocol import Refused, serve, timed

def say(what):
    print("a library prints what it likes")
    os.write(1, b"even below Python\\n")
    return {"said": what, "process": os.getpid()}

def refuse(): raise Refused("not in this shape")
def fail(): raise ValueError("a bug\\nand a long trace")
def die():
    print("out of memory", file=sys.stderr)
    os._exit(7)

calls = {"short": lambda: None, "long": lambda: time.sleep(0.01), "deadly": die}
answers = {"say": say, "refuse": refuse, "fail": fail, "die": die, "hang": lambda: time.sleep(60)}
serve({**answers, "slice": partial(timed, calls)})
"""


@pytest.fixture
def worker():
    made = Worker("other", [sys.executable, "-c", ANSWERS], {"PYTHONPATH": str(ROOT)})
    yield made
    made.close()


def test_a_worker_answers_whatever_else_is_printed(worker):
    first, second = (worker.ask("say", limit_s=60, what=what) for what in ("é", [1, 2]))
    assert (first["said"], second["said"]) == ("é", [1, 2])
    assert first["process"] == second["process"]


@pytest.mark.parametrize(("what", "why"), [("refuse", "not in this shape"), ("fail", "ValueError: a bug")])
def test_a_refusal_is_an_answer_in_one_line(worker, what, why):
    with pytest.raises(Refused) as refused:
        worker.ask(what, limit_s=60)
    assert str(refused.value) == why
    assert worker.ask("say", limit_s=60, what="still here")["said"] == "still here"


def test_a_crash_is_told_and_the_next_question_starts_anew(worker):
    first = worker.ask("say", limit_s=60, what="")["process"]
    with pytest.raises(Refused, match="ended with 7: out of memory"):
        worker.ask("die", limit_s=60)
    assert worker.ask("say", limit_s=60, what="")["process"] != first


def test_who_does_not_answer_is_killed(worker):
    worker.ask("say", limit_s=60, what="")
    with pytest.raises(Refused, match="no answer after 0 s"):
        worker.ask("hang", limit_s=0.2)
    assert worker.ask("say", limit_s=60, what="again")["said"] == "again"


def test_who_is_stopped_starts_anew(worker):
    first = worker.ask("say", limit_s=60, what="")["process"]
    worker.stop()
    worker.stop()
    assert worker.ask("say", limit_s=60, what="")["process"] != first


def test_a_slice_is_timed_by_the_worker(worker):
    slices = worker.slices(["short", "long"], 60)
    slices["long"](3)  # a process that has just begun may still be busy beside
    cpu, wall = slices["long"](3)
    assert wall >= 0.01
    assert cpu < wall / 2  # it slept
    assert slices["short"](3)[1] < 0.005


def test_who_dies_in_a_slice_is_named(worker):
    with pytest.raises(Lost) as lost:
        worker.slices(["deadly"], 60)["deadly"](1)
    assert lost.value.worker == "other"


# ---- cases ---------------------------------------------------------------------------------------


def test_each_copy_gets_its_own_arguments_and_the_shared_ones():
    case = Exported(copies=2, fresh=2)
    assert case.rest_of_copy(0, ["x", "a0", "b0", "a1", "b1", "bias"]) == ("a0", "b0", "bias")
    assert case.rest_of_copy(1, ["x", "a0", "b0", "a1", "b1", "bias"]) == ("a1", "b1", "bias")
    assert Exported().rest_of_copy(0, ["x", "mask"]) == ("mask",)


@pytest.mark.parametrize("whole", [False, True])
def test_a_case_is_read_as_it_was_written(tmp_path, whole):
    case = Exported(("x:0", "bias:0"), ("y:0",), 16, 1, whole)
    case.write(tmp_path)
    assert Exported.read(tmp_path) == case


def test_arrays_keep_their_order_and_zero_sizes(tmp_path):
    arrays = [np.full(n % 3, n) for n in range(12)]
    write_arrays(tmp_path / "a.npz", arrays)
    for got, want in zip(read_arrays(tmp_path / "a.npz"), arrays, strict=True):
        np.testing.assert_array_equal(got, want)


def small(workload):
    """A shape that is measured nowhere, as odd as the workload allows."""
    if workload.name == "adamw":
        return (3, 4)
    return (2, 3, 5, 8) if len(workload.quick[0]) == 4 else (3, 20)


@pytest.mark.parametrize("copies", [1, 3])
def test_a_case_that_is_handed_on_has_tensorflows_outputs(tmp_path, monkeypatch, copies):
    lstm = find("lstm_pointwise")
    monkeypatch.setattr(type(lstm), "copies", lambda *_: copies)
    calls, answer = peers_own.prepared("lstm_pointwise", (3, 20), tmp_path)
    assert (answer["copies"], answer["absent"], list(answer["errors"])) == (copies, {}, ["stitch"])
    assert answer["errors"]["stitch"] < 1e-6
    assert list(calls) == ["tf", "tf empty", "stitch", "stitch empty"]
    case = Exported.read(tmp_path)
    assert (len(case.inputs), len(case.outputs), case.copies, case.fresh) == (3, 2, copies, 1)
    right = read_arrays(tmp_path / "right.npz")
    assert [a.shape for a in right] == [(3, 20)] * (2 if copies == 1 else 3)
    write_arrays(tmp_path / "wrong.npz", [right[0] + 1e-3, *right[1:]])
    assert peers_own.compare(str(tmp_path), "wrong")["error"] > 1e-4


def test_all_cases_and_those_that_are_named():
    clusters = {w.name for w in WORKLOADS}
    everything, quick = (peers_own.cases([], quick) for quick in (False, True))
    assert {name for name, _ in everything["cases"]} >= {*clusters, "bert-base"}
    assert {name for name, _ in quick["cases"]} == clusters
    assert everything["unknown"] == []
    named = peers_own.cases(["bert-base", "l2_normalise", "nothing"], quick=True)
    assert named["cases"] == [("bert-base", (1, 128)), ("l2_normalise", (512, 768))]
    assert named["unknown"] == ["nothing"]


# ---- rows ----------------------------------------------------------------------------------------


def samples(cpu, wall=9.0):
    return Samples(cpu=[cpu, cpu, cpu], wall=[wall, wall, wall])


def row(errors=None, absent=None, threads=1, **ways):
    ways = ways or {"tf": 0.021, "stitch": 0.006, "ort": 0.011, "torch": 0.016}
    taken = {way: samples(s) for way, s in ways.items()} | {f"{way} empty": samples(0.001) for way in ways}
    errors = {"stitch": 1e-7} if errors is None else errors
    return peers_rows.row("batchnorm_plain_grad", (8, 12, 128, 128), threads, taken, errors, absent or {}, 10)


def test_a_row_is_a_step_less_what_the_call_costs():
    made = row()
    assert made["shape"] == "8x12x128x128"
    assert [made[f"{way}_ms"] for way in peers_rows.WAYS] == pytest.approx([2.0, 0.5, 1.0, 1.5])
    assert [made[f"{way}_over_stitch"] for way in ("tf", "ort", "torch")] == pytest.approx([4, 2, 3])
    assert (made["clock"], made["absent"], made["disagree"]) == ("cpu", {}, [])
    json.dumps(made, allow_nan=False)


def test_several_threads_are_timed_by_the_wall():
    made = peers_rows.row("w", (1,), 2, {"tf": samples(1.0, 0.003), "stitch": samples(1.0, 0.001)}, {}, {}, 1)
    assert made["clock"] == "wall"
    assert made["tf_ms"] == pytest.approx(3)  # a model: nothing is taken off


def test_a_peer_that_was_skipped_is_null_and_named():
    made = row(absent={"ort": "tf2onnx has no form of Erfc"}, tf=0.021, stitch=0.006, torch=0.016)
    assert made["ort_ms"] is made["ort_over_stitch"] is None
    of_all = peers_rows.summary([made, made], {"torch": "2.13"}, "default")
    assert of_all["absent"] == {"ort": {"tf2onnx has no form of Erfc": ["batchnorm_plain_grad"]}}
    assert of_all["geomean_ort_over_stitch"] is None
    assert of_all["geomean_torch_over_stitch"] == pytest.approx(3)
    assert of_all["peers"] == {"torch": "2.13"}


def test_a_wrong_output_is_named_and_does_not_count_as_ahead():
    made = row(errors={"stitch": 1e-7, "torch": 0.1}, tf=0.021, stitch=0.006, ort=0.004, torch=0.002)
    assert made["disagree"] == ["torch"]
    of_all = peers_rows.summary([made], {}, "default")
    assert of_all["disagreeing"] == ["batchnorm_plain_grad 8x12x128x128, 1 T: torch"]
    assert of_all["ahead"] == ["batchnorm_plain_grad 8x12x128x128, 1 T: ort 0.60"]


def test_the_table_fits_in_80_columns():
    absent = {"ort": "tf2onnx has no form of " + ", ".join(["FusedBatchNormGradV3"] * 5)}
    skipped = row(absent=absent, tf=0.021, stitch=0.006, torch=0.016)
    slow = row(threads=2, tf=98.7654, stitch=12.3456, ort=45.6789, torch=34.5678) | {"tf_ms": 1234.5, "ort_ms": 234.5}
    wrong = row(errors={"torch": 0.5})
    rows = [row(), skipped, slow, wrong]
    console = Console(width=80, record=True, force_terminal=False, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    peers_table.show(console, rows, peers_rows.summary(rows, {"torch": "2.13.0+cpu"}, "default"))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for part in ("batchnorm_plain_grad 8x12x128x128", "1234.5", "not measured, ORT:", "TensorFlow's output", "torch/s"):
        assert part in text
    assert text.strip().splitlines()[-1].startswith("geometric means: TF/stitch ")


# ---- the command ---------------------------------------------------------------------------------


class Double:
    """A worker of this process."""

    def __init__(self, name, answers, dies=False):
        self.name, self.answers, self.dies = name, answers, dies
        self.asked = []
        self.stopped = 0

    def ask(self, what, **_):
        self.asked.append(what)
        answer = self.answers[what]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def slices(self, names, _):
        def run(times):
            if self.dies:
                raise Lost(self.name, "the process ended with -11: it said nothing")
            return 0.002, 0.002

        return dict.fromkeys(names, run)

    def stop(self):
        self.stopped += 1


def processes(**changes):
    def double(name, calls=(), **answers):
        prepared = {"calls": [c + e for c in calls for e in ("", " empty")], "copies": 1}
        prepared = {"prepare": prepared | {"whole": False, "absent": {}, "errors": {"stitch": 0.0}}}
        return Double(name, prepared | {"compare": {"error": 0.0}, "convert": {}} | answers)

    made = {
        "own": double("own", ("tf", "stitch")),
        "onnx": double("onnx"),
        "ort": double("ort", ("ort",)),
        "torch": double("torch", ("torch",)),
    } | changes
    return SimpleNamespace(threads=1, own=made.pop("own"), others=made)


def measured(tmp_path, **changes):
    return peers.measure(processes(**changes), "w", [4, 8], tmp_path, TWO_ROUNDS)


def test_all_four_are_measured(tmp_path):
    made = measured(tmp_path)
    assert all(made[f"{way}_ms"] > 0 for way in peers_rows.WAYS)
    assert made["max_err"] == {"stitch": 0.0, "ort": 0.0, "torch": 0.0}
    assert list(tmp_path.iterdir()) == []  # arrays take much room


def test_what_cannot_be_converted_is_not_given_to_onnx_runtime(tmp_path):
    ort = Double("ort", {})
    onnx = Double("onnx", {"convert": Refused("tf2onnx has no form of Erfc")})
    made = measured(tmp_path, onnx=onnx, ort=ort)
    assert made["absent"] == {"ort": "tf2onnx has no form of Erfc"}
    assert made["torch_ms"] > 0
    assert ort.asked == []


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("convert", [{}, Refused("no such op")])
def test_what_converting_a_model_took_is_given_back(tmp_path, whole, convert):
    made = processes()
    made.own.answers["prepare"]["whole"] = whole
    made.others["onnx"].answers["convert"] = convert
    peers.measure(made, "bert", [1, 128], tmp_path, TWO_ROUNDS)
    assert made.others["onnx"].stopped == whole


def test_a_peer_that_dies_while_it_is_measured_leaves_the_others(tmp_path):
    torch = Double("torch", {"prepare": {"calls": ["torch", "torch empty"]}}, dies=True)
    made = measured(tmp_path, torch=torch)
    assert list(made["absent"]) == ["torch"]
    assert "ended with -11" in made["absent"]["torch"]
    assert made["torch_ms"] is None
    assert made["ort_ms"] > 0


def test_outputs_that_cannot_be_compared_are_not_measured(tmp_path):
    own = processes().own
    own.answers["compare"] = Refused("ValueError: shapes (3,) and (4,)")
    made = measured(tmp_path, own=own)
    assert made["absent"] == dict.fromkeys(("ort", "torch"), "ValueError: shapes (3,) and (4,)")
    assert made["ort_ms"] is made["torch_ms"] is None
    assert made["stitch_ms"] > 0


def test_without_tensorflow_there_is_a_row_with_the_reason(tmp_path):
    made = measured(tmp_path, own=Double("own", {"prepare": Refused("FetchError: no such package")}))
    assert set(made["absent"]) == set(peers_rows.WAYS)
    assert made["stitch_ms"] is None
    assert made["max_err"] == {}


@pytest.fixture
def measured_by_doubles(monkeypatch, python_is_there):
    made = processes()
    monkeypatch.setattr(peers, "Processes", lambda *_: contextlib.nullcontext(made))
    made.versions = dict
    made.cases = lambda names, quick: [(name, [4, 8]) for name in names]
    return made


@pytest.fixture
def python_is_there(monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    monkeypatch.setenv(peers.ENVIRONMENT, str(tmp_path))


@pytest.mark.parametrize(("error", "code"), [(1e-7, 0), (0.5, peers.DISAGREEMENT)])
def test_exit_codes_and_the_file(measured_by_doubles, tmp_path, error, code):
    measured_by_doubles.own.answers["compare"] = {"error": error}
    out = tmp_path / "rows.json"
    outcome = CliRunner().invoke(bench, ["peers", "a", "b", "--quick", "--threads", "1,2", "--json", str(out)])
    assert outcome.exit_code == code, outcome.output
    document = json.loads(out.read_text())
    assert document["schema"] == 1
    assert [r["workload"] for r in document["rows"]] == ["a", "b"] * 2
    assert document["summary"].keys() >= {"geomean_ort_over_stitch", "absent", "ahead", "cpu", "date", "command_line"}


def test_without_the_environment_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv(peers.ENVIRONMENT, str(tmp_path))
    outcome = CliRunner().invoke(bench, ["peers"])
    assert outcome.exit_code == 1
    assert "make venv-peers" in outcome.output


# ---- with the environment ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def python():
    try:
        return peers._python()
    except Exception as error:  # noqa: BLE001
        pytest.skip(str(error))


EVERY_GRAPH = """
import sys
from pathlib import Path
from bench import peers_onnx, peers_ort, peers_torch
from bench.peers_case import read_arrays, write_arrays
from bench.peers_protocol import Refused, reason
import torch

peers_torch.use(1)
for directory in map(Path, sys.argv[1:]):
    arguments = [torch.from_numpy(a) for a in read_arrays(directory / "arguments.npz")]
    write_arrays(directory / "torch.npz", [t.numpy() for t in peers_torch.function_of(directory)(*arguments)])
    try:
        peers_onnx.convert(str(directory), str(directory / "graph.onnx"))
    except Refused as refused:
        print(directory.name, reason(refused))
        continue
    calls = peers_ort.prepared(directory, directory / "graph.onnx", 1)
    assert list(calls) == ["ort", "ort empty"]
"""


@pytest.mark.slow
def test_every_workload_is_the_same_in_torch_and_in_onnx_runtime_where_it_converts(python, tmp_path, monkeypatch):
    monkeypatch.setattr(type(WORKLOADS[0]), "copies", lambda *_: 1)
    tensorflow, xla, _ = baselines.ways()
    monkeypatch.setattr(baselines, "ways", lambda: (tensorflow, xla, Absent("stitch", "has tests of its own")))
    directories = [tmp_path / workload.name for workload in WORKLOADS]
    for workload, directory in zip(WORKLOADS, directories, strict=True):
        directory.mkdir()
        peers_own.prepared(workload.name, small(workload), directory)
    run = subprocess.run(
        [python, "-c", EVERY_GRAPH, *directories], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    refused = dict(line.split(" ", 1) for line in run.stdout.splitlines())
    assert all(why.startswith("tf2onnx") for why in refused.values()), refused
    assert {"residual_layernorm", "masked_softmax", "bias_gelu_erf", "lstm_pointwise"} & refused.keys() == set()
    for directory in directories:
        for peer in ("torch", "ort") if directory.name not in refused else ("torch",):
            error = peers_own.compare(str(directory), peer)["error"]
            assert error < peers_rows.TOLERANCE / 10, (directory.name, peer, error)


@pytest.mark.slow
@pytest.mark.usefixtures("python")
def test_the_command_from_end_to_end(tmp_path):
    out = tmp_path / "rows.json"
    command = [sys.executable, "-m", "bench", "peers", "prelu", "lstm_pointwise", "--quick", "--threads", "2"]
    subprocess.run([*command, "--json", out], cwd=ROOT, check=True, timeout=290)
    document = json.loads(out.read_text())
    assert [r["workload"] for r in document["rows"]] == ["prelu", "lstm_pointwise"]
    for made in document["rows"]:
        assert made["absent"] == {}
        assert made["disagree"] == []
        assert made["max_err"].keys() == {"stitch", "ort", "torch"}
        assert all(made[f"{way}_ms"] > 0 for way in peers_rows.WAYS)
    assert document["summary"]["peers"].keys() == {"onnx", "tf2onnx", "onnxruntime", "torch"}
