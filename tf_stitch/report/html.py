"""An Explanation as a page: self-contained, no script. Names of nodes are untrusted, and escaped by Jinja."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jinja2

from tf_stitch.plan.cost import UNKNOWN_DIM
from tf_stitch.report.picture import picture
from tf_stitch.report.text import human_bytes

if TYPE_CHECKING:
    from tf_stitch.report.explanation import ExplainedCluster, ExplainedGraph, ExplainedRejection, Explanation

GROUP_COLOURS = 8
_LISTED = 200  # nodes named for one reason and op


def html(explanation: Explanation) -> str:
    """The page."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tf_stitch.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["bytes"] = human_bytes
    anchors: dict[str, str] = {}
    graphs = [_graph(number, g, anchors) for number, g in enumerate(explanation.graphs) if g.clusters or g.rejections]
    graphs.sort(key=lambda graph: not graph["clusters"])
    return environment.get_template("explain.html").render(
        explanation=explanation,
        graphs=graphs,
        nodes=sum(g.nodes for g in explanation.graphs),
        saved=1 - _total(explanation, "bytes_after") / max(_total(explanation, "bytes_before"), 1),
        unknown=UNKNOWN_DIM,
        dynamic=any(c.dynamic for c in explanation.clusters),
        colours=GROUP_COLOURS,
    )


def _total(explanation: Explanation, what: str) -> int:
    return sum(getattr(c, what) for c in explanation.clusters)


def _graph(number: int, graph: ExplainedGraph, anchors: dict[str, str]) -> dict[str, Any]:
    """anchors: where on the page each kernel is shown already; those of this graph are added."""
    rows: list[dict[str, Any]] = []
    for position, (first, *others) in enumerate(graph.alike):
        is_new = first.source not in anchors
        anchor = anchors.setdefault(first.source, f"g{number}c{position}")
        rows.append(_cluster(anchor, first, [c.name for c in others]) | {"is_new": is_new})
    return {"name": graph.name or "main graph", "graph": graph, "clusters": rows, "reasons": _reasons(graph)}


def _cluster(anchor: str, cluster: ExplainedCluster, others: list[str]) -> dict[str, Any]:
    return {
        "anchor": anchor,
        "cluster": cluster,
        "others": others,
        "picture": picture(cluster),
        "part": cluster.bytes_after / max(cluster.bytes_before, 1),
        "steps": [s for s in cluster.steps if s.scheme and not s.constant],
    }


def _reasons(graph: ExplainedGraph) -> list[dict[str, Any]]:
    """Rejections by code, and within a code by op and detail; most frequent first."""
    by_code: dict[str, dict[tuple[str, str], list[ExplainedRejection]]] = {}
    for rejection in graph.rejections:
        of_code = by_code.setdefault(rejection.code, {})
        of_code.setdefault((rejection.op, rejection.detail), []).append(rejection)
    found: list[dict[str, Any]] = []
    for code, of_code in by_code.items():
        rows = sorted(of_code.items(), key=lambda item: -len(item[1]))
        found.append(
            {
                "code": code,
                "meaning": rows[0][1][0].meaning,
                "count": sum(len(rejections) for _, rejections in rows),
                "rows": [
                    {
                        "op": op,
                        "detail": detail,
                        "nodes": [r.node for r in rejections[:_LISTED]],
                        "count": len(rejections),
                    }
                    for (op, detail), rejections in rows
                ],
            }
        )
    return sorted(found, key=lambda reason: -reason["count"])
