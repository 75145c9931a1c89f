"""One row of `bench models`: which processes are run for it, one after another.

cold tf, xla                 what a first call costs; XLA has a time limit, beyond which it is left out
reference                    float64, where the model is small enough; with --quick, where tf_stitch is further from
                             TensorFlow than it may be
turns × processes            all ways in turns; the first process begins with tf_stitch alone, with no kernel in the
                             cache, for what its first call costs; it also tells what all compute, and is traced
turns with auto-clustering   beside TensorFlow, in a process that allows it
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import models_process, models_row
from bench.models_case import Case
from bench.models_process import Failure, Result
from bench.models_row import Findings
from bench.results import Row

# A float64 run takes a few times as long as TensorFlow's, and twice the memory.
_FLOAT64_STEP_S = 1.0
_FLOAT64_MEGABYTES = 800
_FLOAT64_LIMIT_S = 180
_PROCESS_LIMIT_S = 900
_WAYS = ("stitch", "tf", "xla")
_AUTO = ("tf-beside-auto", "xla-auto")

Run = Callable[[str, dict[str, Any], Path, float], "Result | Failure"]


@dataclass(frozen=True)
class Plan:
    """How a row is measured. xla_limit_s: for XLA's first two calls, in a process of their own.

    profile: a directory for traces. float64: whether outputs are held against float64 where that is possible; without,
      only those that are further from TensorFlow's than they may be.
    """

    processes: int
    quick: bool
    auto: bool
    float64: bool
    xla_limit_s: float
    profile: Path | None = None
    auto_limit_s: float = 300.0


QUICK = Plan(processes=1, quick=True, auto=False, float64=False, xla_limit_s=45.0)
FULL = Plan(processes=5, quick=False, auto=True, float64=True, xla_limit_s=300.0)


class _NotMeasured(Exception):
    """One of the ways that a row cannot do without has failed."""


def row(case: Case, threads: int, plan: Plan, kernels: Row | None = None, run: Run = models_process.run) -> Row:
    """A row, or an absent one with the reason. kernels: of this model, by `bench kernels`."""
    try:
        with tempfile.TemporaryDirectory(prefix="bench-models-") as scratch:
            findings = _Measurement(case, threads, plan, run, Path(scratch)).findings(kernels)
        return models_row.row_of(findings)
    except _NotMeasured as why:
        more = {"size": case.size, "threads": threads}
        return models_row.absent_row(case.name, case.mode, str(why), failed=True, **more)


@dataclass(frozen=True)
class _Measurement:
    case: Case
    threads: int
    plan: Plan
    run: Run
    scratch: Path

    def findings(self, kernels: Row | None) -> Findings:
        cold, refused = self._cold()
        step_s = cold["tf"]["second_call_s"]
        right, notes = self._right(step_s) if self.plan.float64 else (None, [])
        ways = [way for way in _WAYS if way not in refused]
        turns: list[Result] = []
        for number in range(self.plan.processes):
            # Another one first in each process, in whose turn the caches are another's.
            turn = number % len(ways)
            order = ways[turn:] + ways[:turn]
            turns.append(self._turns(order, is_first=number == 0, right=right))
            if number == 0 and not self.plan.float64 and turns[0]["errors"]["stitch"][0] > self.case.tolerance:
                right, notes = self._right(step_s)
                if right is not None:  # which of the two is nearer to it?
                    turns[0] = self._turns(order, is_first=True, right=right)
            for way, reason in turns[-1]["refused"].items():
                refused[way] = reason
                ways.remove(way)
        cold["stitch"] = turns[0]["cold"]
        auto = self._auto(refused) if self.plan.auto else None
        return Findings(
            case=self.case,
            threads=self.threads,
            cold=cold,
            turns=turns,
            reference="tf" if right is None else "float64",
            auto=auto,
            refused=refused,
            kernels=kernels,
            notes=tuple(notes),
        )

    def _cold(self) -> tuple[dict[str, Result], dict[str, str]]:
        found: dict[str, Result] = {}
        refused: dict[str, str] = {}
        for way in ("tf", "xla"):
            limit = self.plan.xla_limit_s if way == "xla" else _PROCESS_LIMIT_S
            result = self._task("cold", limit, way=way)
            if not isinstance(result, Failure):
                found[way] = result
            elif way == "xla":
                refused[way] = result.reason
            else:
                raise _NotMeasured(f"{way}: {result.reason}")
        return found, refused

    def _right(self, step_s: float) -> tuple[Path | None, list[str]]:
        """The outputs in float64, or why there are none."""
        if self.case.mode == "train":
            return None, ["reference: TensorFlow, for float64 copies do not train"]
        if step_s > _FLOAT64_STEP_S or self.case.megabytes > _FLOAT64_MEGABYTES:
            return None, ["reference: TensorFlow, as the model is large"]
        out = self.scratch / "float64.npz"
        result = self._task("reference", _FLOAT64_LIMIT_S, out=str(out))
        if isinstance(result, Failure):
            return None, [f"reference: TensorFlow, as float64 failed: {result.reason}"]
        kept = [f"reference: float64, less {result['kept']} ops that have no float64 kernel"] if result["kept"] else []
        return out, kept

    def _turns(self, ways: list[str], *, is_first: bool, right: Path | None) -> Result:
        profile = None if self.plan.profile is None else str(self.plan.profile.absolute())
        result = self._task(
            "turns",
            _PROCESS_LIMIT_S,
            ways=ways,
            look=is_first,
            first_is_cold=is_first,
            right=None if right is None else str(right),
            profile=profile if is_first else None,
            hlo=not self.plan.quick,
        )
        if isinstance(result, Failure):
            raise _NotMeasured(f"measuring in turns: {result.reason}")
        return result

    def _auto(self, refused: dict[str, str]) -> Result | None:
        result = self._task("turns", self.plan.auto_limit_s, ways=list(_AUTO), look=False, auto=True)
        if isinstance(result, Failure):
            refused["xla-auto"] = result.reason
            return None
        if "xla-auto" in result["refused"]:
            refused["xla-auto"] = result["refused"]["xla-auto"]
        elif result["clusters"] == 0:
            refused["xla-auto"] = "no op was clustered"
        return result

    def _task(self, task: str, limit_s: float, **more: Any) -> Result | Failure:
        asked = {"case": self.case.to_json(), "threads": self.threads, "quick": self.plan.quick, **more}
        return self.run(task, asked, self.scratch / "kernels", limit_s)
