"""The rule by which a race is decided, on a clock that only the competitors move."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tf_stitch.tuning.race import Clock, Competitors, Outcome, Rules, microseconds, race

RULES = Rules(seconds=0.05)
CALL = 40e-6  # what any call costs


class FakeTime:
    def __init__(self) -> None:
        self.now = 0.0
        self.calls = 0

    def clock(self) -> Clock:
        return Clock(lambda: self.now, lambda: 0.5 * self.now)

    def taking(self, microseconds: Iterator[float]) -> Callable[[], object]:
        def call() -> None:
            self.calls += 1
            self.now += CALL + 1e-6 * next(microseconds)

        return call


def outcome(stitched: Iterator[float], original: Iterator[float], rules: Rules = RULES, copies: int = 1) -> Outcome:
    time = FakeTime()
    calls = (time.taking(stitched), time.taking(original), time.taking(itertools.repeat(0.0)))
    return race(Competitors(*calls, copies), rules, time.clock())


def steady(microseconds: float) -> Iterator[float]:
    return itertools.repeat(microseconds)


@pytest.mark.parametrize(
    ("stitched", "original", "kept"),
    [(10, 20, True), (10, 10, True), (10.2, 10, True), (10.4, 10, False), (30, 10, False)],
)
def test_a_kernel_may_be_slower_by_the_margin(stitched, original, kept):
    found = outcome(steady(stitched), steady(original))
    assert found.kept is kept
    assert found.stitch_us == pytest.approx(stitched)
    assert found.original_us == pytest.approx(original)
    assert found.stitch_cpu_us == pytest.approx(stitched / 2)


def test_times_are_of_one_copy():
    found = outcome(steady(160), steady(320), copies=16)
    assert (found.stitch_us, found.original_us) == pytest.approx((10, 20))


def test_the_margin_is_of_the_net_time():
    """40 µs of a call would hide that 2 µs became 3."""
    assert not outcome(steady(3), steady(2)).kept


def test_in_doubt_the_kernel_stays():
    """The kernel's times are spread evenly from 8 to 17 µs: their median is a little above what is allowed."""
    found = outcome(itertools.cycle([8, 17, 9, 16, 10, 15, 11, 14, 12, 13]), steady(12), Rules(most=20))
    assert found.excess_us > 0
    assert found.doubt_us > 0
    assert found.kept


def test_a_long_call_now_and_then_does_not_count():
    assert outcome(itertools.cycle([10] * 9 + [5000]), steady(12)).kept
    assert not outcome(steady(14), itertools.cycle([12] * 9 + [5000])).kept


def test_a_clear_race_ends_early_and_a_close_one_in_time():
    clear = outcome(steady(10), steady(100))
    assert clear.rounds == 4 * RULES.fewest
    even = steady(10), steady(10)
    assert outcome(*even).kept
    scattered = list(range(10, 31))
    close = outcome(itertools.cycle(scattered), itertools.cycle([t / (1 + RULES.margin) for t in scattered]))
    assert close.kept
    assert close.rounds * (3 * CALL + 40e-6) == pytest.approx(RULES.patience * RULES.seconds, rel=0.05)
    assert outcome(steady(10), steady(9.6)).rounds == 4 * RULES.fewest  # close, and yet clear


def test_slow_calls_are_run_a_few_times_all_the_same():
    assert outcome(steady(1e6), steady(1.001e6)).rounds == RULES.fewest


def test_an_exception_is_passed_on():
    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        race(Competitors(fails, fails, fails), RULES, Clock())


def test_microseconds():
    assert [microseconds(n) for n in (0.02, 1.234, 12.34, 1234.5)] == ["< 0.1 µs", "1.23 µs", "12.3 µs", "1234 µs"]
