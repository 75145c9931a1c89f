"""Figures out of rows that may lack them, and how figures are written."""

from __future__ import annotations

import math
from typing import Any

from bench.results import Row

NONE = "–"


def number(row: Any, *path: str) -> float | None:
    """The number at this path of nested fields; None where there is none, or what is there is no finite number."""
    for name in path:
        if not isinstance(row, dict):
            return None
        row = row.get(name)
    if isinstance(row, bool) or not isinstance(row, int | float) or not math.isfinite(row):
        return None
    return float(row)


def text(row: Any, *path: str) -> str:
    """What is at this path as text; nothing where there is nothing."""
    for name in path:
        row = row.get(name) if isinstance(row, dict) else None
    return "" if row is None else str(row)


def is_absent(row: Row) -> bool:
    """Whether all that a row has is the reason why there is nothing. (Some rows have reasons way by way, in a dict.)"""
    return bool(row.get("absent")) and not isinstance(row["absent"], dict)


def shortened(reason: str, most: int = 120) -> str:
    """A reason that fits beside a bar; the file has it whole."""
    return reason if len(reason) <= most else f"{reason[: most - 1]}…"


def texts(row: Row, name: str) -> tuple[str, ...]:
    found = row.get(name)
    return tuple(map(str, found)) if isinstance(found, list) else ()


def quartiles(spread: Any, name: str) -> tuple[float, float] | None:
    low, high = number(spread, name, "q1"), number(spread, name, "q3")
    return None if low is None or high is None else (low, high)


def over(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def ratio(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def times(value: float | None) -> str:
    return NONE if value is None else f"{ratio(value)}×"


def ms(value: float | None) -> str:
    if value is None:
        return NONE
    return (
        f"{value:.3f}"
        if value < 1
        else f"{value:.2f}"
        if value < 10
        else f"{value:.1f}"
        if value < 1000
        else f"{value:.0f}"
    )


def seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def count(value: float | None) -> str:
    return NONE if value is None else f"{value:.0f}"


def error(value: float | None) -> str:
    return NONE if value is None else "0" if value == 0 else f"{value:.0e}"


def share(value: float | None) -> str:
    return NONE if value is None else f"{value:.0%}"


def megabytes(value: float | None) -> str:
    """Of bytes."""
    return NONE if value is None else f"{value / 1e6:.1f}"


def machine(summary: Row) -> str:
    """What the figures were measured on, and when."""
    versions = summary.get("versions")
    named = [f"{k} {v}" for k, v in versions.items() if k != "tensorflow_cpu"] if isinstance(versions, dict) else []
    cores = f"{text(summary, 'cores')} cores" if summary.get("cores") else ""
    parts = (text(summary, "date"), text(summary, "cpu"), cores, ", ".join(named))
    return " · ".join(filter(None, parts))
