"""Tuner: the outcome of each contest, from memory, from disk, or from a race; and what becomes of the losers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tf_stitch.config import TUNE_SECONDS, strict
from tf_stitch.errors import Reason
from tf_stitch.passes.clustering import Rejection
from tf_stitch.toolchain.once import warn_once
from tf_stitch.tuning.contest import Unraceable
from tf_stitch.tuning.race import Clock, Competitors, Outcome, Rules, race

if TYPE_CHECKING:
    from tf_stitch.pipeline import Stitched
    from tf_stitch.tuning.contest import Contest
    from tf_stitch.tuning.records import Records

"""For all races of one conversion."""

_LOG = logging.getLogger("tf_stitch.tuning")


@dataclass(frozen=True)
class Verdict:
    """outcome: None where there was no race. why: the reason for that, or "measured" or "recorded"."""

    outcome: Outcome | None
    why: str

    @property
    def kept(self) -> bool:
        return self.outcome is None or self.outcome.kept


class Tuner:
    """Any number of threads may ask; races are run one at a time, so as not to disturb each other."""

    def __init__(
        self,
        records: Records,
        rules: Rules | None = None,
        seconds: float = TUNE_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        """seconds: of all races together; when they are spent, what has no outcome yet is kept unraced."""
        self._records = records
        self._rules = rules or Rules()
        self._clock = clock or Clock()
        self._seconds = seconds
        self._known: dict[str, Outcome] = {}
        self._failed: set[str] = set()
        self._lock = threading.Lock()

    def known(self, contest: Contest) -> Outcome | None:
        """What is known of a contest without a race: never runs anything, and so may be asked anywhere."""
        outcome = self._known.get(contest.key)
        if outcome is None:
            outcome = self._records.lookup(contest)
            if outcome is not None:
                self._known[contest.key] = outcome
        return outcome

    def verdict(self, contest: Contest, competitors: Callable[[Contest], Competitors]) -> Verdict:
        """What is known, else what a race of these competitors gives.

        An error in the race keeps the kernel, and is logged once; under TF_STITCH_STRICT=1 it is raised.
        """
        with self._lock:
            outcome = self.known(contest)
            if outcome is not None:
                return Verdict(outcome, "recorded")
            if contest.key in self._failed:
                return Verdict(None, "an error")
            if self._seconds <= 0:
                return Verdict(None, "no time left")
            started = self._clock.wall()
            try:
                outcome = race(competitors(contest), self._rules, self._clock)
            except Unraceable as reason:
                return Verdict(None, str(reason))
            except Exception as error:
                if strict():
                    raise
                self._failed.add(contest.key)
                about = ("race", type(error))
                warn_once(_LOG, about, "a kernel is kept without a race: %s: %s", type(error).__name__, error)
                return Verdict(None, f"{type(error).__name__}: {error}")
            finally:
                self._seconds -= self._clock.wall() - started
            self._known[contest.key] = outcome
            self._records.store(contest, outcome)
            return Verdict(outcome, "measured")


def without_losers(stitched: Stitched, outcomes: Sequence[Outcome | None]) -> Stitched:
    """`stitched` less the clusters that lost: their nodes are left as they were.

    outcomes: for each cluster, None where there was no race.
    """
    kept = [made for made, o in zip(stitched.clusters, outcomes, strict=True) if o is None or o.kept]
    if len(kept) == len(stitched.clusters):
        return stitched
    rejections = list(stitched.rejections)
    for made, outcome in zip(stitched.clusters, outcomes, strict=True):
        if outcome is not None and not outcome.kept:
            nodes = stitched.graph.nodes
            rejections += [Rejection(n, nodes[n].op, Reason.SLOWER, str(outcome)) for n in made.cluster.nodes]
    return replace(stitched, clusters=tuple(kept), rejections=tuple(rejections))
