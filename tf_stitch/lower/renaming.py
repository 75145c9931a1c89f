"""Names of a nest that are a kernel's own, renamed: where one function has buffers, symbols and values side by side.

    float* mul_out, i64 d0          of the kernel
    float mul_out = ...             of a node that is called so     ->     mul_out_value

A load has the name of its buffer, and is told apart from it by the printer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tf_stitch.lower.kernel import Accumulate, Compute, Kernel, Load, Nest, Statement, Store, Sweep, statements


def apart(kernel: Kernel) -> Kernel:
    """The kernel with no value, and no reduction, that is named like a symbol, or like a buffer other than its own.

    Nor is anything named like a reduction of a nest before: what threads leave for each other is named after those.
    """
    taken = {s.symbol for s in kernel.symbols} | {b.name for b in kernel.scratch}
    taken |= {s.access.buffer.name for nest in kernel.nests for s in statements(nest) if isinstance(s, Load | Store)}
    nests: list[Nest] = []
    for nest in kernel.nests:
        nests.append(_apart(nest, taken))
        taken = taken | {r.name for r in nests[-1].reductions}
    return replace(kernel, nests=tuple(nests))


def _apart(nest: Nest, taken: set[str]) -> Nest:
    own = {s.name for s in statements(nest) if isinstance(s, Load) and s.name == s.access.buffer.name}
    names = {s.name for s in statements(nest) if not isinstance(s, Store | Accumulate)}
    names |= {r.name for r in nest.reductions}
    new: dict[str, str] = {}
    for name in sorted(names & taken - own):
        fresh = f"{name}_value"
        while fresh in names | taken or fresh in new.values():
            fresh += "_"
        new[name] = fresh
    return renamed(nest, new) if new else nest


def renamed(nest: Nest, names: Mapping[str, str]) -> Nest:
    """The nest with these names changed."""

    def changed(s: Statement) -> Statement:
        match s:
            case Compute():
                operands = tuple(names.get(o, o) for o in s.operands)
                return replace(s, name=names.get(s.name, s.name), operands=operands)
            case Load(name, _, _, at):
                looked_up = tuple(replace(a, value=names.get(a.value, a.value)) for a in at)
                return replace(s, name=names.get(name, name), at=looked_up)
            case Accumulate(_, value) | Store(_, value):
                return replace(s, value=names.get(value, value))
            case _:
                return replace(s, name=names.get(s.name, s.name))

    sweeps = tuple(Sweep(tuple(map(changed, s.row)), tuple(map(changed, s.elements))) for s in nest.sweeps)
    reductions = tuple(replace(r, name=names.get(r.name, r.name)) for r in nest.reductions)
    return replace(nest, sweeps=sweeps, finish=tuple(map(changed, nest.finish)), reductions=reductions)
