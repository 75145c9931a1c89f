"""Rows and summary of `bench peers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from bench import machine
from bench.results import Row, Summary, geomean
from bench.timing import Samples, Spread

PEERS = ("ort", "torch")
WAYS = ("tf", "stitch", *PEERS)
EMPTY = " empty"  # after a way's name: what a call of it costs that does all but the work
# Of an output's largest value. Sums of 750,000 rows and chains of 512 copies differ by that between any two orders.
TOLERANCE = 1e-4
AHEAD = 0.95  # a peer that takes less than this of tf_stitch's time is ahead, beyond what a busy machine does


def row(
    name: str,
    shape: Sequence[int],
    threads: int,
    samples: Mapping[str, Samples],
    errors: Mapping[str, float],
    absent: Mapping[str, str],
    copies: int,
) -> Row:
    """samples: by way, and by `… empty` what is to be taken off, where anything is. errors: against TensorFlow."""
    clock = "cpu" if threads == 1 else "wall"
    spreads = {
        way: Spread.of(getattr(samples[way], clock), _taken_off(samples, way, clock), copies)
        for way in WAYS
        if way in samples
    }
    ms = {way: spreads[way].median if way in spreads else None for way in WAYS}

    def over_stitch(way: str) -> float | None:
        other, stitch = ms[way], ms["stitch"]
        return other / stitch if other is not None and stitch is not None else None

    return {
        "workload": name,
        "shape": "x".join(map(str, shape)),
        "threads": threads,
        **{f"{way}_ms": ms[way] for way in WAYS},
        **{f"{way}_over_stitch": over_stitch(way) for way in ("tf", *PEERS)},
        "absent": dict(absent),
        "max_err": dict(errors),
        "disagree": [way for way, error in errors.items() if error > TOLERANCE],
        "clock": clock,
        "copies": copies,
        "spread": {way: asdict(spread) for way, spread in spreads.items()},
    }


def summary(rows: Sequence[Row], versions: Mapping[str, str], malloc: str) -> Summary:
    """versions: of the peers' packages."""
    return {
        **{f"geomean_{way}_over_stitch": geomean(r[f"{way}_over_stitch"] for r in rows) for way in ("tf", *PEERS)},
        **{f"geomean_tf_over_{peer}": geomean(_over(r, "tf", peer) for r in rows) for peer in PEERS},
        "ahead": list(_ahead(rows)),
        "absent": absent(rows),
        "disagreeing": [f"{_which(r)}: {way}" for r in rows for way in r["disagree"]],
        "malloc": malloc,
        **machine.description(),
        "peers": dict(versions),
    }


def absent(rows: Sequence[Row]) -> dict[str, dict[str, list[str]]]:
    """Who, and why, by the workloads that were skipped."""
    found: dict[str, dict[str, list[str]]] = {}
    for r in rows:
        for way, why in r["absent"].items():
            names = found.setdefault(way, {}).setdefault(why, [])
            if r["workload"] not in names:
                names.append(r["workload"])
    return found


def _taken_off(samples: Mapping[str, Samples], way: str, clock: str) -> list[float]:
    return getattr(samples[way + EMPTY], clock) if way + EMPTY in samples else [0.0]


def _ahead(rows: Sequence[Row]) -> Iterator[str]:
    for r in rows:
        for peer in PEERS:
            ratio = r[f"{peer}_over_stitch"]
            if ratio is not None and ratio < AHEAD and peer not in r["disagree"]:
                yield f"{_which(r)}: {peer} {ratio:.2f}"


def _over(r: Row, a: str, b: str) -> float | None:
    return r[f"{a}_ms"] / r[f"{b}_ms"] if r[f"{a}_ms"] is not None and r[f"{b}_ms"] is not None else None


def _which(r: Row) -> str:
    return f"{r['workload']} {r['shape']}, {r['threads']} T"
