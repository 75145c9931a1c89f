"""The picture of a cluster: its steps as vertices, what they read as edges.

Constants are left out, and a broadcast or reshape becomes part of the edge: what is left is what computes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tf_stitch.report import layout

if TYPE_CHECKING:
    from tf_stitch.report.explanation import ExplainedCluster, ExplainedStep

FOLDED = ("broadcast", "reshape")
_LABEL, _ORIGIN, _PILL = 13, 16, 15  # characters that fit into a box


@dataclass(frozen=True)
class Vertex:
    """A box. kind: "input", "output" or "step"; group: which colour; title: what hovering shows."""

    x: float
    y: float
    label: str
    origin: str
    kind: str
    group: int
    role: str
    title: str


@dataclass(frozen=True)
class Edge:
    path: str
    scheme: str
    width: float
    title: str


@dataclass(frozen=True)
class Picture:
    width: float
    height: float
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]


def picture(cluster: ExplainedCluster) -> Picture:
    """Of one cluster."""
    shown = [s for s in cluster.steps if not s.constant and s.kind not in FOLDED]
    number = {s.index: n for n, s in enumerate(shown)}
    links: dict[tuple[int, int], list[int]] = {}
    for step in shown:
        for operand in step.operands:
            source, through = source_of(cluster, operand)
            if source in number:
                links.setdefault((number[source], number[step.index]), through)
    leaves: list[tuple[int, str]] = []
    for (value, _), step in zip(cluster.outputs, cluster.output_steps, strict=True):
        source, through = source_of(cluster, step)
        if source in number:
            links[number[source], len(shown) + len(leaves)] = through
            leaves.append((source, value))
    placed = layout.layout(len(shown) + len(leaves), list(links))
    vertices = [_vertex(cluster, s, *placed.centres[number[s.index]]) for s in shown]
    for position, (source, value) in enumerate(leaves):
        x, y = placed.centres[len(shown) + position]
        title = f"output {value}\n{cluster.steps[source].type}"
        vertices.append(Vertex(x, y, "output", _tail(value, _PILL), "output", 0, "", title))
    largest = max((s.bytes for s in shown), default=1)
    edges = [
        _edge(cluster, shown[source], through, layout.curve(path), largest)
        for ((source, _), through), path in zip(links.items(), placed.paths, strict=True)
    ]
    return Picture(placed.width, placed.height, tuple(vertices), tuple(edges))


def source_of(cluster: ExplainedCluster, index: int) -> tuple[int, list[int]]:
    """The step that a value comes from, and the broadcasts and reshapes on the way."""
    through: list[int] = []
    while cluster.steps[index].kind in FOLDED:
        through.insert(0, index)
        index = cluster.steps[index].operands[0]
    return index, through


def _vertex(cluster: ExplainedCluster, step: ExplainedStep, x: float, y: float) -> Vertex:
    group = step.groups[0] if step.groups else 0
    if step.kind == "input":
        title = f"input {step.origin}\n{step.type}, {step.bytes_text} bytes"
        return Vertex(x, y, "input", _tail(step.origin, _PILL), "input", 0, "", title)
    lines = [
        f"%{step.index} = {step.text}",
        f"{step.type}, {step.bytes_text} bytes",
        f"from {step.origin}",
        f"{'heavy' if step.heavy else 'light'}, {step.scheme.lower()}"
        + (f", {step.role} of group {group}" if step.role else f", group {group}"),
    ]
    if len(step.groups) > 1:
        lines.append(f"computed in groups {', '.join(map(str, step.groups))}")
    return Vertex(x, y, _label(cluster, step), _tail(step.origin, _ORIGIN), "step", group, step.role, "\n".join(lines))


def _label(cluster: ExplainedCluster, step: ExplainedStep) -> str:
    """`mul 0.5`: the function, and the constant that it is applied to."""
    words = [step.text.split(" ", 1)[0]]
    for operand in step.operands:
        source, _ = source_of(cluster, operand)
        if cluster.steps[source].constant:
            words.append(_short(cluster.steps[source].text.partition(" ")[2]))
    label = " ".join(words)
    return label if len(label) <= _LABEL else f"{label[: _LABEL - 1]}…"


def _short(constant: str) -> str:
    try:
        return f"{float(constant):.4g}"
    except ValueError:
        return constant


def _edge(cluster: ExplainedCluster, source: ExplainedStep, through: list[int], path: str, largest: int) -> Edge:
    scheme = "memory" if source.kind == "input" else source.scheme.lower()
    width = 1.0 + 4.0 * math.log1p(source.bytes) / math.log1p(max(largest, 1))
    steps = [source, *(cluster.steps[t] for t in through)]
    title = " → ".join(f"{'' if s is source else s.kind + ' '}{s.type}" for s in steps)
    return Edge(path, scheme, round(width, 2), f"{title}\n{scheme}, {source.bytes_text} bytes")


def _tail(name: str, width: int) -> str:
    """The end of a name, where nodes differ."""
    return name if len(name) <= width else f"…{name[1 - width :]}"
