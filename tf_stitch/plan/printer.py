"""A StitchPlan as text: a paragraph for each group, a line for each instance in the notation of `ir.printer`.

group 0: for a0 < d0, for each a1 < 64; dominant %4, sub-dominant %12
  %3[a0, a1]    input 0             f32[d0, 64]
  %4[a0, 0]     sum %3 over (1)     f32[d0, 1]    regional    Mean
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tf_stitch.ir.body import Constant, Extent
from tf_stitch.ir.printer import print_body

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tf_stitch.plan.indexing import Index, IndexMap
    from tf_stitch.plan.plan import Group, StitchPlan


def print_plan(plan: StitchPlan) -> str:
    """The groups, what each computes at which map, what is kept in scratch. Equal plans have equal texts."""
    right_hands = [
        line.partition(" = ")[2].rpartition(" : ")[0].rstrip() for line in print_body(plan.body).splitlines()
    ]
    lines: list[str] = []
    for number, group in enumerate(plan.groups):
        lines += [*_group(plan, number, group, right_hands), ""]
    lines.append(f"scratch: {_steps(plan.scratch) or 'none'}")
    return "\n".join(lines) + "\n"


def print_index_map(index_map: IndexMap, names: Mapping[int, str]) -> str:
    """`[a0, 64*a1 + a2]`."""
    return f"[{', '.join(_index(i, names) for i in index_map)}]"


def _group(plan: StitchPlan, number: int, group: Group, right_hands: list[str]) -> Iterator[str]:
    names = {axis.identity: f"a{n}" for n, axis in enumerate(group.outer + group.inner)}
    outer = [f"{names[a.identity]} < {a.extent}" for a in group.outer]
    inner = [f"{names[a.identity]} < {a.extent}" for a in group.inner]
    loops = f"for {', '.join(outer)}" if outer else "once"
    if inner:
        loops += f", for each {', '.join(inner)}"
    below = f", sub-dominant {_steps(group.sub_dominants)}" if group.sub_dominants else ""
    yield f"group {number}: {loops}; dominant %{group.dominant}{below}"
    rows: list[tuple[str, str, str, str, str]] = []
    for position, instance in enumerate(group.instances):
        step = plan.body.steps[instance.step]
        at = print_index_map(instance.index_map, names)
        scheme = plan.schemes.get(instance.step)
        is_value = isinstance(step.op, Constant | Extent)
        how = "load" if instance.loaded else "" if scheme is None or is_value else scheme.value
        if position in group.stores:
            how = f"{how}, store".removeprefix(", ")
        origin = "" if is_value else step.origin
        rows.append((f"%{instance.step}{at}", right_hands[instance.step], str(step.type), how, origin))
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
        yield f"  {'  '.join([*cells, row[4]])}".rstrip()


def _index(index: Index, names: Mapping[int, str]) -> str:
    parts = [
        names[axis] if stride.is_one else f"{stride}*{names[axis]}"
        for axis, stride in sorted(index.terms, key=lambda term: names[term[0]])
    ]
    if index.offset or not parts:
        parts.append(str(index.offset))
    return " + ".join(parts)


def _steps(steps: tuple[int, ...]) -> str:
    return " ".join(f"%{step}" for step in steps)
