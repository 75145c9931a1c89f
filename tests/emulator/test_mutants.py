"""No barrier, fence, bound or guard of a right kernel can go without being missed."""

from __future__ import annotations

import pytest

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
      if (i < n) return;
      for (int i = threadIdx.x; i < n; i += 4) h();
    }"""
    found = [(mutant.kind, mutant.line) for mutant in mutants(text)]
    assert found == [("block barrier", 3), ("guard", 4), ("early return", 5), ("loop bound", 6)]
    assert all(mutant.text.count("\n") == text.count("\n") for mutant in mutants(text))
