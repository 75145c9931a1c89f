"""TF_STITCH_LOGS."""

from __future__ import annotations

import logging

import pytest

from tf_stitch.debug import logs


@pytest.fixture(autouse=True)
def untouched():
    """Puts the loggers back."""
    names = ["tf_stitch", "tf_stitch.cache", "tf_stitch.toolchain"]
    root = logging.getLogger("tf_stitch")
    before = [(logging.getLogger(n), logging.getLogger(n).level) for n in names]
    handlers, propagate = list(root.handlers), root.propagate
    yield
    for logger, level in before:
        logger.setLevel(level)
    root.handlers[:], root.propagate = handlers, propagate


def test_nothing_is_touched_by_default(monkeypatch):
    monkeypatch.delenv("TF_STITCH_LOGS", raising=False)
    handlers = list(logging.getLogger("tf_stitch").handlers)
    logs.configure_from_environment()
    assert logging.getLogger("tf_stitch").handlers == handlers


def test_a_level(monkeypatch, capsys):
    monkeypatch.setenv("TF_STITCH_LOGS", "info")
    logs.configure_from_environment()
    logs.configure_from_environment()
    logging.getLogger("tf_stitch.cache").info("pruned")
    logging.getLogger("tf_stitch").debug("too much")
    stderr = capsys.readouterr().err
    assert stderr.count("tf_stitch.cache INFO: pruned") == 1
    assert "too much" not in stderr


def test_categories(capsys):
    logs.configure("cache=debug, toolchain=error")
    logging.getLogger("tf_stitch.cache").debug("looked up")
    logging.getLogger("tf_stitch.toolchain").warning("slow")
    logging.getLogger("tf_stitch").info("too much")
    stderr = capsys.readouterr().err
    assert "looked up" in stderr
    assert "slow" not in stderr
    assert "too much" not in stderr


def test_nonsense_is_told(capsys):
    logs.configure("verbose,cache=info")
    assert "'verbose' is no level; the levels are debug, info, warning, error" in capsys.readouterr().err
    assert logging.getLogger("tf_stitch.cache").level == logging.INFO
