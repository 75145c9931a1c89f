"""How hard the fuzz tests try. TF_STITCH_FUZZ=20 tries 20 times as many examples, other ones each time."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_TIMES = int(os.environ.get("TF_STITCH_FUZZ", "0"))


def tries(examples: int) -> settings:
    """Settings for a test of `examples` examples, the same ones in each run."""
    return settings(
        max_examples=examples * max(_TIMES, 1),
        derandomize=not _TIMES,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
