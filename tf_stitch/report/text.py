"""An Explanation as plain text of at most 80 columns."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tf_stitch.report.explanation import (
        ExplainedCluster,
        ExplainedGraph,
        ExplainedRejection,
        ExplainedStep,
        Explanation,
    )
    from tf_stitch.report.neighbours import Neighbour

WIDTH = 80
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_LISTED = 8  # neighbours of a cluster, and names beside a reason
_ORIGINS, _TYPES = 15, 20  # columns of steps for the names of nodes, at least, and for types, at most


def text(explanation: Explanation) -> str:
    """The whole explanation."""
    lines = [*_head(explanation)]
    busy = [g for g in explanation.graphs if g.clusters]
    for graph in busy:
        lines += ["", *_graph(graph)]
    idle = [g for g in explanation.graphs if not g.clusters and g.rejections]
    if idle and busy:
        lines += ["", *_paragraph(f"Nothing stitched in {_names([_title(g) for g in idle])}.")]
    for graph in idle if not busy else ():
        lines += ["", *_rule(_title(graph)), *_rejections(graph.rejections)]
    for name, reason in explanation.skipped.items():
        lines += ["", *_paragraph(f"Left alone as a whole: {name}, {reason}.")]
    return printable("\n".join(lines) + "\n")


def text_of_node(explanation: Explanation, name: str) -> str:
    """What became of the nodes of this name."""
    lines: list[str] = []
    for graph in explanation.graphs:
        for cluster in graph.clusters:
            ops = dict(cluster.nodes)
            if name in ops:
                lines += [f"{name} ({ops[name]}) in {_title(graph)} is stitched: cluster {cluster.name}"]
                steps = [s for s in cluster.steps if s.origin == name and s.kind != "input"]
                lines += [f"  {line}" for line in _steps(steps)]
                if not steps:
                    lines += ["  it computes nothing of its own: its operand, or an equal step, stands for it"]
        for rejection in graph.rejections:
            if rejection.node == name:
                lines += [f"{name} ({rejection.op}) in {_title(graph)} is not stitched"]
                lines += _paragraph(_because(rejection), "  ")
    return printable("\n".join(lines) + ("\n" if lines else ""))


def printable(words: str) -> str:
    """Without control characters: names come out of models, and would reach a terminal."""
    return _CONTROL.sub("�", words)


def _head(explanation: Explanation) -> Iterator[str]:
    if explanation.already:
        count = len(explanation.already)
        yield from _paragraph(
            f"{explanation.target} is stitched already: it holds {_count(count, 'StitchOp')}. "
            "To see why the rest was not, explain the model that it was made from."
        )
        for found in explanation.already:
            yield ""
            yield _cut(f"{found.name} in {found.function or 'the main graph'}, kernel {found.kernel[:12]}")
            yield from _paragraph(_names(found.nodes, 1000), "  ")
        return
    if not explanation.graphs:
        yield f"{explanation.target}: nothing to stitch."
        return
    nodes = sum(g.nodes for g in explanation.graphs)
    graphs = _count(len(explanation.graphs), "graph")
    yield from _paragraph(
        f"{explanation.target}: {_count(len(explanation.clusters), 'cluster')} of "
        f"{explanation.stitched_nodes} nodes, out of {nodes} nodes in {graphs}; "
        f"for {explanation.cpu}.{_settings(explanation)}"
    )


def _settings(explanation: Explanation) -> str:
    settings = ", ".join(f"{name}={value}" for name, value in explanation.config.items())
    return f" With {settings}." if settings else ""


def _graph(graph: ExplainedGraph) -> Iterator[str]:
    yield from _rule(_title(graph), f": {_count(len(graph.clusters), 'cluster')}")
    for cluster, *others in graph.alike:
        yield ""
        yield from _cluster(cluster, [c.name for c in others])
    if graph.rejections:
        yield ""
        yield "Not stitched"
        yield from _rejections(graph.rejections)


def _cluster(cluster: ExplainedCluster, others: Sequence[str]) -> Iterator[str]:
    yield _cut(f"{cluster.name}: {_count(len(cluster.nodes), 'node')} → one kernel, {cluster.kernel}")
    if others:
        yield from _paragraph(f"alike    {_names(others)}", "  ", "           ")
    yield from _paragraph("nodes    " + ", ".join(f"{n} ({op})" for n, op in cluster.nodes), "  ", "           ")
    for label, values in (("reads", cluster.inputs), ("writes", cluster.outputs)):
        yield from _paragraph(f"{label:<8} " + ", ".join(f"{v} {t}" for v, t in values), "  ", "           ")
    for symbol, meaning in cluster.symbols.items():
        yield from _paragraph(f"{'where':<8} {symbol} is {meaning}", "  ", "           ")
    for opened in cluster.open:
        yield from _paragraph(f"{'open':<8} {opened}", "  ", "           ")
    for guard in cluster.guards:
        yield from _paragraph(f"{'assumes':<8} {guard}", "  ", "           ")
    assumed = f" (for {', '.join(f'{s} = 1' for s in cluster.unknown)})" if cluster.symbols else ""
    moved = f"{human_bytes(cluster.bytes_before)} → {human_bytes(cluster.bytes_after)}{assumed}"
    yield from _paragraph(f"{'moves':<8} {moved}", "  ", "           ")
    for text_ in (f"apart {cluster.bytes_before_text}", f"stitched {cluster.bytes_after_text}"):
        if cluster.symbols:
            yield from _paragraph(f"{'':<8} {text_} bytes", "  ", "           ")
    yield from _paragraph(f"{'launches':<8} {cluster.launches_before} → 1", "  ", "           ")
    for launch in cluster.gpus:
        estimate = f"{launch}, {human_bytes(launch.bytes)} moved{assumed}"
        yield from _paragraph(f"{launch.arch:<8} about {estimate}", "  ", "           ")
    for record in cluster.measured:
        lost = "" if record.outcome.kept else ": slower, and so left out where kernels are raced"
        yield from _paragraph(f"{'measured':<8} {record.outcome}, for {record.sizes}{lost}", "  ", "           ")
    for number, group in enumerate(cluster.groups):
        dominant = cluster.steps[group.dominant]
        words = f"group {number}  {group.loops}; dominant %{group.dominant} ({dominant.origin})"
        if group.sub_dominants:
            below = ", ".join(f"%{s} ({cluster.steps[s].origin})" for s in group.sub_dominants)
            words += f", sub-dominant {below}"
        yield from _paragraph(words, "  ", "           ")
    yield from (f"    {line}" for line in _steps([s for s in cluster.steps if s.scheme and not s.constant]))
    yield from _neighbours(cluster.neighbours)


def _steps(steps: Sequence[ExplainedStep]) -> Iterator[str]:
    """One line a step: `%3  sum %0 over (1)  f32[d0, 1]  0  regional  Mean`, the group where there are several."""
    numbers = [f"%{s.index}" for s in steps]
    groups = [",".join(map(str, s.groups)) for s in steps]
    groups = groups if len(set(groups)) > 1 else [""] * len(groups)
    columns = [numbers, [s.text for s in steps], [s.type for s in steps], groups, [s.scheme.lower() for s in steps]]
    widths = [max(map(len, column), default=0) for column in columns]
    room = WIDTH - 4 - sum(w + 2 for w in (widths[0], *widths[3:]) if w)
    origins = min(_ORIGINS, max((len(s.origin) for s in steps), default=0))
    widths[2] = min(widths[2], _TYPES)
    widths[1] = min(widths[1], room - origins - widths[2] - 4)
    for s, *cells in zip(steps, *columns, strict=True):
        shown = [f"{_cut(cell, width):<{width}}  " for cell, width in zip(cells, widths, strict=True) if width]
        line = "".join(shown)
        yield f"{line}{_short(s.origin, WIDTH - 4 - len(line))}".rstrip()


def _neighbours(neighbours: Sequence[Neighbour]) -> Iterator[str]:
    for n in neighbours[:_LISTED]:
        where = f"in cluster {n.cluster}: " if n.cluster else ""
        detail = f" ({n.detail})" if n.detail else ""
        yield from _paragraph(
            f"{n.side:<8} {n.node} ({n.op}): {where}{n.code}, {n.meaning}{detail}", "  ", "           "
        )
    if len(neighbours) > _LISTED:
        yield f"           and {len(neighbours) - _LISTED} more neighbours"


def _rejections(rejections: Sequence[ExplainedRejection]) -> Iterator[str]:
    """Grouped by reason, most frequent first; then by op and detail."""
    by_code: dict[str, list[ExplainedRejection]] = {}
    for rejection in rejections:
        by_code.setdefault(rejection.code, []).append(rejection)
    for code, of_code in sorted(by_code.items(), key=lambda item: -len(item[1])):
        yield from _paragraph(f"{code} ({len(of_code)}): {of_code[0].meaning}", "  ", "    ")
        by_detail: dict[tuple[str, str], list[str]] = {}
        for rejection in of_code:
            by_detail.setdefault((rejection.op, rejection.detail), []).append(rejection.node)
        for (op, detail), names in by_detail.items():
            words = f"{op}{f' ×{len(names)}' if len(names) > 1 else ''}{f', {detail}' if detail else ''}: "
            yield from _paragraph(words + _names(names, 3), "    ", "      ")


def _because(rejection: ExplainedRejection) -> str:
    return f"{rejection.code}: {rejection.meaning}" + (f" ({rejection.detail})" if rejection.detail else "")


# ---- Words ------------------------------------------------------------------------------------------------


def _title(graph: ExplainedGraph) -> str:
    return graph.name or "the main graph"


def _rule(title: str, more: str = "") -> Iterator[str]:
    yield f"── {_cut(title, WIDTH - 5 - len(more))}{more} ".ljust(WIDTH, "─")


def _names(names: Sequence[str], most: int = _LISTED) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def human_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _cut(line: str, width: int = WIDTH) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"


def _short(name: str, width: int) -> str:
    """A node's name; of a long one the end, which tells it from others."""
    if len(name) <= width:
        return name
    parts = name.split("/")
    ends = ("…/" + "/".join(parts[n:]) for n in range(1, len(parts)))
    return next((end for end in ends if len(end) <= width), _cut(parts[-1], width))


def _paragraph(words: str, indent: str = "", more: str | None = None) -> Iterable[str]:
    return textwrap.wrap(
        words,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if more is None else more,
        break_on_hyphens=False,
    )
