"""No barrier, fence, bound or guard of a right kernel can go without being missed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.building import KERNELS
from tests.emulator.emulated import Argument
from tests.emulator.kernels import Case, every_case
from tests.emulator.mutants import judge_all, mutants, table


@pytest.mark.parametrize("case", every_case(), ids=lambda case: case.name)
def test_no_mutant_escapes(case: Case):
    verdicts = judge_all(case.text, case.run)
    print("\n" + table(verdicts))
    assert len(verdicts) >= 5
    assert not [str(verdict) for verdict in verdicts if verdict.by is None]


def test_mutants_of_a_text():
    text = """
    void f() {
      __syncthreads();  // not __syncthreads();
      if (lane == 0) g();
      if (const int m = 2 * n; m < 7) g();
      if (i < n) return;
      for (int i = threadIdx.x; i < n; i += 4) h();
    }"""
    found = [(mutant.kind, mutant.line) for mutant in mutants(text)]
    assert found == [("block barrier", 3), ("guard", 4), ("check", 5), ("early return", 6), ("loop bound", 7)]
    assert all(mutant.text.count("\n") == text.count("\n") for mutant in mutants(text))
    assert "if (const int m = 2 * n; true) g();" in next(m.text for m in mutants(text) if m.kind == "check")


# Everybody reads what everybody wrote, three times over: so both words of the barrier are used, and one again.
_ROUNDS = """
extern "C" __global__ void rounds(int* x, int* y, stitch::GridBarrier* barrier) {
  const int threads = gridDim.x * blockDim.x, me = blockIdx.x * blockDim.x + threadIdx.x;
  for (int round = 0; round < 3; ++round) {
    int* const from = round % 2 == 0 ? x : y;
    int* const to = round % 2 == 0 ? y : x;
    to[me] = from[(me + 17) % threads] + from[threads - 1 - me];
    stitch::grid_barrier(barrier, round % 2);
  }
}
"""


def _rounds() -> Case:
    prelude = (KERNELS / "prelude/cuda/grid.h").read_text(encoding="utf-8")
    x = np.arange(4 * 64, dtype=np.int32)
    expected = x
    for _ in range(3):
        expected = np.roll(expected, -17) + expected[::-1]

    def arguments() -> list[Argument]:
        return [x.copy(), np.zeros_like(x), np.zeros(2, np.uint32)]

    return Case(prelude + _ROUNDS, "rounds", 4, 64, 0, arguments, 1, expected, 4)


def test_no_part_of_the_grid_barrier_can_be_missed():
    case = _rounds()
    kinds = ("block barrier", "fence", "guard", "grid barrier")
    verdicts = judge_all(case.text, case.run, kinds)
    print("\n" + table(verdicts))
    assert {verdict.mutant.kind for verdict in verdicts} == set(kinds)
    assert not [str(verdict) for verdict in verdicts if verdict.by is None]
