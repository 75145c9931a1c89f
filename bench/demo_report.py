"""The demo's figures as one HTML file: inline style and SVG, nothing fetched from anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from bench.results import Row, Summary

WAYS = (("tf", "TensorFlow"), ("xla", "XLA"), ("stitch", "tf_stitch"))

# The drawing area of a chart, in SVG units: labels on the left, figures on the right.
LEFT, LENGTH, STEP = 88.0, 250.0, 30.0


@dataclass(frozen=True)
class Bar:
    kind: str
    label: str
    y: float
    width: float
    figure: str
    whisker: tuple[float, float] | None = None


@dataclass(frozen=True)
class Chart:
    title: str
    bars: tuple[Bar, ...]
    left: float = LEFT

    @property
    def width(self) -> float:
        return LEFT + LENGTH + 84

    @property
    def height(self) -> float:
        return STEP * len(self.bars)


def render(rows: list[Row], summary: Summary) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("demo.html").render(
        model=rows[0]["workload"],
        rows=rows,
        summary=summary,
        tiles=_tiles(rows, summary["conversion"]),
        times=[_times(row) for row in rows],
        counts=[*_ops(rows[0]), _nodes(summary["conversion"])],
        clusters=[_cluster(c) for c in summary["conversion"].get("clusters", [])],
        rejections=sorted(summary["conversion"].get("rejections", {}).items(), key=lambda r: -r[1]),
        kernels=kernels(summary["conversion"]),
        versions=" · ".join(f"{name} {version}" for name, version in summary["versions"].items()),
        agrees=not any(row["disagree"] for row in rows),
    )


def _tiles(rows: list[Row], conversion: dict[str, Any]) -> list[tuple[str, str]]:
    """(figure, what it is)"""
    first = rows[0]
    faster = [(f"{r['tf_over_stitch']:.2f}×", f"TensorFlow's time over ours, batch {_batch(r)}") for r in rows]
    ops = f"{_count(first['tf_ops'])} → {_count(first['stitch_ops'])}"
    return [
        *faster,
        (ops, f"ops executed; {_count(first['stitch_kernels'])} are StitchOps"),
        (_difference(max(r["max_difference"] for r in rows)), "largest difference, relative"),
        (f"{conversion['compile_seconds']:.1f} s", f"to compile {kernels(conversion)} kernels"),
    ]


def kernels(conversion: dict[str, Any]) -> int:
    """Different kernels: fewer than StitchOps where clusters are alike."""
    return conversion.get("kernels", conversion["kernels_compiled"])


def _times(row: Row) -> Chart:
    longest = max(row["quartiles_ms"][key][1] for key, _ in WAYS)
    scale = LENGTH / longest
    bars = []
    for i, (key, name) in enumerate(WAYS):
        q1, q3 = row["quartiles_ms"][key]
        ms = row[f"{key}_ms"]
        bars.append(Bar(key, name, i * STEP, ms * scale, f"{ms:.1f} ms", (LEFT + q1 * scale, LEFT + q3 * scale)))
    return Chart(f"Time of a call, batch {_batch(row)}", tuple(bars))


def _ops(row: Row) -> list[Chart]:
    if row["tf_ops"] is None or row["stitch_ops"] is None:
        return []
    return [_counts("Ops executed in a call", ("TensorFlow", "tf_stitch"), (row["tf_ops"], row["stitch_ops"]))]


def _nodes(conversion: dict[str, Any]) -> Chart:
    counts = conversion["nodes_before"], conversion["nodes_after"]
    return _counts("Nodes in the SavedModel", ("original", "converted"), counts)


def _counts(title: str, labels: tuple[str, str], counts: tuple[int, int]) -> Chart:
    scale = LENGTH / max(*counts, 1)
    named = zip(("tf", "stitch"), labels, counts, strict=True)
    bars = (Bar(kind, label, i * STEP, n * scale, str(n)) for i, (kind, label, n) in enumerate(named))
    return Chart(title, tuple(bars))


def _cluster(cluster: dict[str, Any]) -> dict[str, str]:
    """A row of the table of clusters, with whatever of it the converter told."""
    nodes = cluster.get("nodes", [])
    named = [n if isinstance(n, str) else f"{n.get('name', '')} ({n.get('op', '')})" for n in nodes]
    schemes = cluster.get("schemes", [])
    if isinstance(schemes, dict):
        schemes = [f"{count} {scheme}" for scheme, count in schemes.items()]
    before, after = (_bytes(cluster.get(key)) for key in ("bytes_before", "bytes_after"))
    return {
        "id": str(cluster.get("id", "")),
        "count": str(len(nodes)),
        "nodes": ", ".join(named),
        "schemes": schemes if isinstance(schemes, str) else ", ".join(map(str, schemes)),
        "dynamic": "dynamic" if cluster.get("dynamic") else "static",
        "bytes": f"{before} → {after}" if before and after else "",
    }


def _bytes(count: Any) -> str:
    if not isinstance(count, int | float):
        return ""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _difference(value: float) -> str:
    return f"{value:.0e}" if value else "none"


def _batch(row: Row) -> str:
    return row["shape"].partition("x")[0]


def _count(value: Any) -> str:
    return "–" if value is None else str(value)
