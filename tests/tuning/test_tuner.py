"""Where outcomes come from, and what becomes of losers."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

import pytest

from tests.report import by_hand
from tests.tuning.test_race import FakeTime, steady
from tf_stitch.errors import Reason
from tf_stitch.ir.types import DType
from tf_stitch.toolchain import once
from tf_stitch.tuning.contest import Contest, Operand, Unraceable
from tf_stitch.tuning.race import Competitors, Outcome
from tf_stitch.tuning.records import Records
from tf_stitch.tuning.tuner import Tuner, without_losers

CONTEST = Contest("ab" * 32, "cd" * 32, (Operand(DType.F32, (8, 64)),))
OTHER_SIZE = Contest(CONTEST.kernel, CONTEST.nodes, (Operand(DType.F32, (9, 64)),))
WON = Outcome(1.0, 2.0, 1.0, 2.0, -1.0, 0.1, 20)
LOST = Outcome(3.0, 2.0, 3.0, 2.0, 0.9, 0.1, 20)


@pytest.fixture
def records(own_cache: Path) -> Records:
    return Records("this machine", own_cache)


class Track:
    """Makes competitors, and counts how often."""

    def __init__(self, stitched: float = 10, original: float = 20) -> None:
        self.time = FakeTime()
        self.made = 0
        self._times = (stitched, original, 0.0)

    def __call__(self, _: Contest) -> Competitors:
        self.made += 1
        return Competitors(*(self.time.taking(steady(t)) for t in self._times))


def the_record(records: Records) -> Path:
    (path,) = (records._root / "races").rglob("*.json")
    return path


class TestRecords:
    def test_are_found_by_contest_and_machine(self, records, own_cache):
        assert records.lookup(CONTEST) is None
        records.store(CONTEST, WON)
        assert records.lookup(CONTEST) == WON
        assert records.lookup(OTHER_SIZE) is None
        assert Records("another machine", own_cache).lookup(CONTEST) is None
        assert [p.name for p in the_record(records).parent.iterdir()] == [the_record(records).name]

    def test_of_a_kernel_whatever_the_sizes(self, records, own_cache):
        records.store(CONTEST, WON)
        records.store(OTHER_SIZE, LOST)
        found = {r.sizes: r.outcome for r in records.of_kernel(CONTEST.kernel, CONTEST.nodes)}
        assert found == {"f32[8, 64]": WON, "f32[9, 64]": LOST}
        assert records.of_kernel(CONTEST.kernel, "other nodes") == []
        assert Records("another machine", own_cache).of_kernel(CONTEST.kernel, CONTEST.nodes) == []

    @pytest.mark.parametrize(
        "damage",
        [
            lambda text: "",
            lambda text: text[: len(text) // 2],
            lambda text: text.replace("2.0", "0.5"),
            lambda text: "[1, 2]",
            lambda text: "\0" * 100,
        ],
        ids=["empty", "cut", "changed", "no record", "zeros"],
    )
    def test_a_damaged_one_is_none(self, records, damage, caplog):
        records.store(CONTEST, WON)
        path = the_record(records)
        path.write_text(damage(path.read_text()))
        assert records.lookup(CONTEST) is None
        assert records.of_kernel(CONTEST.kernel, CONTEST.nodes) == []
        assert "damaged" in caplog.text
        records.store(CONTEST, LOST)
        assert records.lookup(CONTEST) == LOST

    def test_a_directory_that_cannot_be_written_does_no_harm(self, tmp_path):
        (tmp_path / "file").write_text("")
        records = Records("this machine", tmp_path / "file")
        records.store(CONTEST, WON)
        assert records.lookup(CONTEST) is None


class TestVerdict:
    def test_raced_once(self, records):
        track = Track()
        tuner = Tuner(records, clock=track.time.clock())
        first, second = tuner.verdict(CONTEST, track), tuner.verdict(CONTEST, track)
        assert (first.why, second.why) == ("measured", "recorded")
        assert first.outcome == second.outcome
        assert track.made == 1
        assert Tuner(records).verdict(CONTEST, track).why == "recorded"  # another process
        assert track.made == 1
        tuner.verdict(OTHER_SIZE, track)
        assert track.made == 2

    def test_a_damaged_record_is_raced_again(self, records):
        track = Track()
        Tuner(records, clock=track.time.clock()).verdict(CONTEST, track)
        the_record(records).write_text("{")
        assert Tuner(records, clock=track.time.clock()).verdict(CONTEST, track).why == "measured"
        assert records.lookup(CONTEST) is not None

    def test_what_is_known_needs_no_race(self, records):
        tuner = Tuner(records)
        assert tuner.known(CONTEST) is None
        records.store(CONTEST, LOST)
        assert tuner.known(CONTEST) == LOST

    def test_no_race_begins_when_the_time_is_spent(self, records):
        track = Track(stitched=1e6, original=2e6)
        tuner = Tuner(records, seconds=1.0, clock=track.time.clock())
        assert tuner.verdict(CONTEST, track).why == "measured"
        late = tuner.verdict(OTHER_SIZE, track)
        assert (late.outcome, late.kept, late.why) == (None, True, "no time left")
        assert tuner.verdict(CONTEST, track).outcome is not None

    def test_an_error_keeps_the_kernel_and_is_logged_once(self, records, monkeypatch, caplog):
        monkeypatch.setenv("TF_STITCH_STRICT", "0")
        once.forget()
        tries = itertools.count()

        def fails(_: Contest) -> Competitors:
            next(tries)
            raise RuntimeError("out of order")

        tuner = Tuner(records)
        with caplog.at_level(logging.WARNING, "tf_stitch"):
            for contest in (CONTEST, OTHER_SIZE, CONTEST):
                verdict = tuner.verdict(contest, fails)
                assert verdict.kept
                assert verdict.outcome is None
        assert caplog.text.count("out of order") == 1
        assert next(tries) == 2
        assert records.lookup(CONTEST) is None

    def test_an_error_is_raised_under_strict(self, records):
        def fails(_: Contest) -> Competitors:
            raise RuntimeError("out of order")

        with pytest.raises(RuntimeError, match="out of order"):
            Tuner(records).verdict(CONTEST, fails)

    def test_what_cannot_be_raced_is_no_error(self, records):
        def fails(_: Contest) -> Competitors:
            raise Unraceable("another CPU")

        assert Tuner(records).verdict(CONTEST, fails).why == "another CPU"


def test_losers_are_rejected_with_both_times():
    (stitched,) = by_hand.stitched(by_hand.layer_norm())
    assert without_losers(stitched, [WON]) is stitched
    assert without_losers(stitched, [None]) is stitched
    left = without_losers(stitched, [LOST])
    assert left.clusters == ()
    added = left.rejections[len(stitched.rejections) :]
    assert [r.node for r in added] == list(stitched.clusters[0].cluster.nodes)
    assert {(r.reason, r.detail) for r in added} == {(Reason.SLOWER, "stitched 3.00 µs, apart 2.00 µs")}
