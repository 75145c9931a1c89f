"""Warnings that are true of the whole process, and so are said once in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Hashable

_said: set[tuple[Hashable, ...]] = set()


def warn_once(log: logging.Logger, about: tuple[Hashable, ...], message: str, *args: object) -> None:
    """Logs a warning, unless one about the same was logged before."""
    if about not in _said:
        _said.add(about)
        log.warning(message, *args)


def forget() -> None:
    """Says all of them again; for tests."""
    _said.clear()
