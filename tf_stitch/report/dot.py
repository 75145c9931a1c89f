"""An Explanation as a digraph for Graphviz: a subgraph for each cluster, and what was left between them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tf_stitch.report.picture import FOLDED, source_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tf_stitch.report.explanation import ExplainedCluster, Explanation

_STYLES = {"GLOBAL": "dotted", "REGIONAL": "dashed"}


def dot(explanation: Explanation) -> str:
    """The digraph."""
    lines = [
        "digraph explanation {",
        f"  label={_quoted(explanation.target)};",
        '  node [shape=box, style="filled,rounded", colorscheme=pastel28, fontname="Helvetica"];',
    ]
    number = 0
    for graph in explanation.graphs:
        for cluster in graph.clusters:
            title = f"{graph.name or 'main graph'}: {cluster.name}"
            lines += [f"  {line}" for line in _cluster(number, title, cluster)]
            number += 1
    return "\n".join([*lines, "}"]) + "\n"


def _cluster(number: int, title: str, cluster: ExplainedCluster) -> Iterator[str]:
    yield f"subgraph cluster_{number} {{"
    yield f"  label={_quoted(title)};"
    shown = [s for s in cluster.steps if not s.constant and s.kind not in FOLDED]
    for step in shown:
        label = _quoted(f"{step.text.split(' ', 1)[0]}\n{step.origin}")
        colour = f"fillcolor={1 + step.groups[0] % 8}" if step.groups else 'shape=ellipse, fillcolor="white"'
        rim = ", penwidth=3" if step.role == "dominant" else ""
        yield f"  c{number}s{step.index} [label={label}, tooltip={_quoted(step.type)}, {colour}{rim}];"
    for step in shown:
        for operand in dict.fromkeys(step.operands):
            source, _ = source_of(cluster, operand)
            made = cluster.steps[source]
            if not made.constant:
                style = _STYLES.get(made.scheme, "solid")
                edge = f"c{number}s{source} -> c{number}s{step.index}"
                yield f"  {edge} [style={style}, tooltip={_quoted(made.type)}];"
    yield "}"


def _quoted(text: str) -> str:
    """A DOT string: JSON's escapes of quotes and backslashes are DOT's, too."""
    return json.dumps(text, ensure_ascii=False)
