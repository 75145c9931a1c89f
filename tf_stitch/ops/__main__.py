"""`python -m tf_stitch.ops`: the op table as Markdown, for docs/ops.md."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tf_stitch.ir.types import ALL, FLOATS, INTEGERS, NUMBERS, DType
from tf_stitch.ops import FUNCTIONS, OPS, REDUCERS, Cost
from tf_stitch.ops.compute import COMPUTE_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
_GROUPS = (
    (ALL, "all"),
    (NUMBERS, "numbers"),
    (FLOATS | {DType.BOOL}, "floats, bool"),
    (FLOATS, "floats"),
    (INTEGERS, "integers"),
    (frozenset({DType.F32, DType.F64}), "f32 f64"),
)
_HEAD = """\
# Ops

Written by `python -m tf_stitch.ops`; do not edit.

*floats* are f16, bf16, f32 and f64; *integers* i32 and i64; *numbers* both; *all* has bool besides. f16 and
bf16 are computed in f32 and rounded where TensorFlow rounds. What is not here is left to TensorFlow.
"""


def markdown() -> str:
    """The whole document."""
    kinds: dict[str, list[Sequence[str]]] = {}
    for definition in {d.tf_names: d for d in OPS.values()}.values():
        row = (", ".join(definition.tf_names), _dtypes(definition.dtypes), definition.notes)
        kinds.setdefault(definition.kind.value, []).append(row)
    parts = [_HEAD]
    for kind, rows in kinds.items():
        parts += [f"## {kind.capitalize()}\n", _table(("TensorFlow op", "dtypes", "notes"), rows)]
    functions = [
        (f.name, f"`{f.cpp}`", _dtypes(f.dtypes), "heavy" if f.cost is Cost.HEAVY else "light", f"{f.ulps:g}")
        for f in FUNCTIONS.values()
    ]
    reducers = [(r.name, r.combine, _dtypes(r.dtypes)) for r in REDUCERS.values()]
    parts += [
        "## Functions of one element\n",
        "What the ops above expand to. `ulps`: how far the f32 result may be from the exact one.\n",
        _table(("function", "C++", "dtypes", "cost", "ulps"), functions),
        "## Reducers\n",
        _table(("reducer", "combines with", "dtypes"), reducers),
        "## Ops whose types are followed\n",
        "No code is generated for these; dims flow through them to what stands behind.\n",
        ", ".join(sorted(COMPUTE_TYPES)) + "\n",
    ]
    return "\n".join(parts)


def _dtypes(dtypes: frozenset[DType]) -> str:
    for group, name in _GROUPS:
        if dtypes == group:
            return name
    return " ".join(d.value for d in DType if d in dtypes)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
