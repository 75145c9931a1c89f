r"""Layout of a directed acyclic graph in layers, for the pictures in `explain --html`.

a   b        1. layer of a vertex: one below the lowest that it reads; a source goes right above its readers
 \ / \       2. an edge over several layers passes through a point in each, which is a vertex like others
  c   |      3. order in a layer: sorted by the mean place of the neighbours above, then below, a few times
  |  /       4. place: the median of the neighbours, as far as those to the left leave room
  d
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

WIDTH, HEIGHT = 104.0, 38.0  # of a vertex
_GAP, _POINT_GAP = 18.0, 10.0  # beside a vertex, and beside the points of an edge
_LAYER = 70.0
_MARGIN = 16.0
_SWEEPS = 8


@dataclass(frozen=True)
class Layout:
    """centres: of each vertex. paths: the points of each edge, from the foot of one to the head of another."""

    width: float
    height: float
    centres: tuple[tuple[float, float], ...]
    paths: tuple[tuple[tuple[float, float], ...], ...]


def layout(count: int, edges: Sequence[tuple[int, int]]) -> Layout:
    """Of vertices 0 to `count` - 1; edges lead to higher numbers."""
    layer = _layers(count, edges)
    total = max(layer, default=0) + 1
    rows: list[list[int]] = [[] for _ in range(total)]
    for vertex in range(count):
        rows[layer[vertex]].append(vertex)
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    chains: list[list[int]] = []
    for source, target in edges:
        chain = [source]
        for row in range(layer[source] + 1, layer[target]):
            rows[row].append(len(above))
            chain.append(len(above))
            above.append([])
            below.append([])
        chain.append(target)
        for upper, lower in pairwise(chain):
            below[upper].append(lower)
            above[lower].append(upper)
        chains.append(chain)
    rows = _ordered(rows, above, below)
    x = _places(rows, above, below, count)
    leftmost = min((x[v] for row in rows for v in row), default=0.0) - WIDTH / 2 - _MARGIN
    x = [place - leftmost for place in x]
    y = [0.0] * len(above)
    for number, row in enumerate(rows):
        for vertex in row:
            y[vertex] = _MARGIN + HEIGHT / 2 + number * _LAYER
    paths = tuple(
        (
            (x[chain[0]], y[chain[0]] + HEIGHT / 2),
            *((x[v], y[v]) for v in chain[1:-1]),
            (x[chain[-1]], y[chain[-1]] - HEIGHT / 2),
        )
        for chain in chains
    )
    width = max(x, default=0.0) + WIDTH / 2 + _MARGIN
    height = 2 * _MARGIN + HEIGHT + (total - 1) * _LAYER
    return Layout(width, height, tuple((x[v], y[v]) for v in range(count)), paths)


def curve(points: Sequence[tuple[float, float]]) -> str:
    """An SVG path through the points, upright at each."""
    (x, y), *rest = points
    parts = [f"M{x:.1f},{y:.1f}"]
    for next_x, next_y in rest:
        middle = (y + next_y) / 2
        parts.append(f"C{x:.1f},{middle:.1f} {next_x:.1f},{middle:.1f} {next_x:.1f},{next_y:.1f}")
        x, y = next_x, next_y
    return "".join(parts)


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    layer = [0] * count
    for source, target in sorted(edges, key=lambda e: e[1]):
        layer[target] = max(layer[target], layer[source] + 1)
    readers: dict[int, list[int]] = {}
    for source, target in edges:
        readers.setdefault(source, []).append(layer[target])
    read = {target for _, target in edges}
    for vertex, rows in readers.items():
        if vertex not in read:
            layer[vertex] = min(rows) - 1
    return layer


def _ordered(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> list[list[int]]:
    place = {v: float(i) for row in rows for i, v in enumerate(row)}
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = above if downwards else below
        for row in rows if downwards else reversed(rows):
            means = {v: sum(place[n] for n in neighbours[v]) / len(neighbours[v]) for v in row if neighbours[v]}
            row.sort(key=lambda v, means=means: means.get(v, place[v]))
            place.update({v: i - len(row) / 2 for i, v in enumerate(row)})
    return rows


def _places(rows: list[list[int]], above: list[list[int]], below: list[list[int]], count: int) -> list[float]:
    def half(vertex: int) -> float:
        return WIDTH / 2 + _GAP / 2 if vertex < count else _POINT_GAP / 2

    x = [0.0] * len(above)
    for row in rows:
        edge = -sum(half(v) for v in row)
        for vertex in row:
            x[vertex] = edge + half(vertex)
            edge += 2 * half(vertex)
    for sweep in range(_SWEEPS):
        neighbours = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [_median([x[n] for n in neighbours[v]]) if neighbours[v] else x[v] for v in row]
            left, right = [], []
            edge = float("-inf")
            for vertex, want in zip(row, wanted, strict=True):
                left.append(max(want, edge + half(vertex)))
                edge = left[-1] + half(vertex)
            edge = float("inf")
            for vertex, want in zip(reversed(row), reversed(wanted), strict=True):
                right.append(min(want, edge - half(vertex)))
                edge = right[-1] - half(vertex)
            for vertex, a, b in zip(row, left, reversed(right), strict=True):
                x[vertex] = (a + b) / 2  # both keep the distances, and so does their mean
    return x


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
