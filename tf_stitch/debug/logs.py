"""TF_STITCH_LOGS: what is logged, through the standard logging module.

    TF_STITCH_LOGS=info                     all of it
    TF_STITCH_LOGS=cache=debug              one category
    TF_STITCH_LOGS=warning,toolchain=info   both

A category is a logger below "tf_stitch": cache, toolchain, convert, dump, runtime. Where the variable is not set
nothing is touched, and warnings appear as the program that imports us says.
"""

from __future__ import annotations

import logging
import os
import sys

LOGGER = "tf_stitch"
VARIABLE = "TF_STITCH_LOGS"
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure_from_environment() -> None:
    """Does what TF_STITCH_LOGS says. Again is harmless."""
    text = os.environ.get(VARIABLE, "").strip()
    if text:
        configure(text)


def configure(text: str) -> None:
    """Sets levels, and sends what is logged to stderr. What is not understood is logged as a warning."""
    root = logging.getLogger(LOGGER)
    if not any(isinstance(h, _Handler) for h in root.handlers):
        root.addHandler(_Handler())
        root.propagate = False
    root.setLevel(logging.WARNING)
    for part in text.split(","):
        category, _, name = part.strip().rpartition("=")
        level = _LEVELS.get(name.strip().lower())
        if level is None:
            root.warning("%s=%s: %r is no level; the levels are %s", VARIABLE, text, name, ", ".join(_LEVELS))
            continue
        logging.getLogger(f"{LOGGER}.{category.strip()}" if category else LOGGER).setLevel(level)


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    """To what is stderr at the time."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s: %(message)s", "%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)
