"""Python's garbage collector, paused: the compiler makes much data and no cycles.

A full collection walks every object of the process, and TensorFlow has a million: a fifth of a second each, and
planning a large graph would start several.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOCK = threading.Lock()
_running = 0  # in how many threads


@contextmanager
def collection_paused() -> Iterator[None]:
    """No cycles are collected, in any thread, while one is in here. A collector that is off stays off."""
    global _running  # noqa: PLW0603
    with _LOCK:
        if _running == 0 and not gc.isenabled():
            paused = False
        else:
            paused = True
            _running += 1
            gc.disable()
    try:
        yield
    finally:
        if paused:
            with _LOCK:
                _running -= 1
                if _running == 0:
                    gc.enable()
