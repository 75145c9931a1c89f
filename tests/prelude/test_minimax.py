"""The coefficients in the header are those that the script derives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PRELUDE = Path(__file__).parents[2] / "kernels" / "prelude"


@pytest.mark.slow
def test_the_header_is_what_the_script_prints() -> None:
    pytest.importorskip("mpmath")
    printed = subprocess.run(
        [sys.executable, str(PRELUDE / "minimax.py")], check=True, capture_output=True, text=True
    ).stdout
    assert printed == (PRELUDE / "cpu" / "coefficients.h").read_text()
