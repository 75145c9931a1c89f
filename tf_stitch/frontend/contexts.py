"""Contexts: in which while-loop frame, and under which conditions, a node runs.

TensorFlow's dataflow control ops, and what they do to the key of what they pass on:

    Switch(data, pred) ─┬─ :0  adds  {pred is false}         Enter   pushes a frame
                        └─ :1  adds  {pred is true}          Exit    pops it, and what was added inside it
    Merge(a, b)         what its inputs have in common       loop Merge: as its Enter, whatever comes round
                        (it waits for control inputs, but runs even where they are dead)
    anything else       all that its inputs have, data and control alike

A node is dead where any of its inputs is. Two nodes of equal key are dead together and run equally often;
two of unequal key may not be joined. Keys err on the unequal side: a Merge whose inputs are not the
complete set of branches of one Switch gets a key of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tf_stitch.ir.graph import Value

NOWHERE: frozenset[str] = frozenset()
SWITCHES = frozenset({"Switch", "RefSwitch", "_SwitchN"})
MERGES = frozenset({"Merge", "RefMerge", "_XlaMerge"})
ENTERS = frozenset({"Enter", "RefEnter"})
EXITS = frozenset({"Exit", "RefExit"})
NEXTS = frozenset({"NextIteration", "RefNextIteration"})
CONTROL_FLOW = SWITCHES | MERGES | ENTERS | EXITS | NEXTS | {"LoopCond", "ControlTrigger"}
_PASSING = frozenset({"Identity", "LoopCond"})


@dataclass(frozen=True, slots=True)
class _Condition:
    """Branch `branch` of `branches` of the Switches on one predicate, met inside `frames`."""

    predicate: str
    branch: int
    branches: int
    frames: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.predicate}={self.branch}"


@dataclass(frozen=True, slots=True)
class _Key:
    frames: tuple[str, ...] = ()
    conditions: frozenset[_Condition] = frozenset()


@dataclass(frozen=True, slots=True)
class Wiring:
    """What contexts need to know of a node."""

    op: str
    inputs: Sequence[Value]
    controls: Sequence[str]
    frame: str = ""
    outputs: int = 2


def contexts_of(order: Sequence[str], wiring: Mapping[str, Wiring]) -> dict[str, frozenset[str]]:
    """The context of each node that has one; a node that always runs once is left out.

    order: topological, back edges of loops aside.
    """
    if not any(w.op in CONTROL_FLOW for w in wiring.values()):
        return {}
    keys: dict[str, _Key] = {}
    for name in order:
        keys[name] = _key(name, wiring, keys)
    return {name: _words(key) for name, key in keys.items() if key.frames or key.conditions}


def _words(key: _Key) -> frozenset[str]:
    frames = frozenset("frame " + "/".join(key.frames[: i + 1]) for i in range(len(key.frames)))
    return frames | frozenset(map(str, key.conditions))


def _key(name: str, wiring: Mapping[str, Wiring], keys: Mapping[str, _Key]) -> _Key:
    node = wiring[name]
    arriving = [_through(value, wiring, keys) for value in node.inputs if value.node in keys]
    arriving += [keys[control] for control in node.controls if control in keys]
    if node.op in MERGES:
        return _merged(name, node, arriving, wiring)
    key = _union(arriving)
    if node.op in ENTERS:
        return _Key((*key.frames, node.frame), key.conditions)
    if node.op in EXITS:
        outer = key.frames[:-1]
        kept = (c for c in key.conditions if c.frames[: len(key.frames)] != key.frames)
        return _Key(outer, frozenset(kept))
    return key


def _union(keys: Sequence[_Key]) -> _Key:
    if not keys:
        return _Key()
    frames = max((k.frames for k in keys), key=len)
    return _Key(frames, frozenset[_Condition]().union(*(k.conditions for k in keys)))


def _through(value: Value, wiring: Mapping[str, Wiring], keys: Mapping[str, _Key]) -> _Key:
    """The key of one output: that of its node, and for a Switch the branch taken."""
    key = keys[value.node]
    node = wiring[value.node]
    if node.op not in SWITCHES or len(node.inputs) < 2:
        return key
    branches = node.outputs if node.op == "_SwitchN" else 2
    condition = _Condition(_source(node.inputs[1], wiring), value.index, branches, key.frames)
    return _Key(key.frames, key.conditions | {condition})


def _source(value: Value, wiring: Mapping[str, Wiring]) -> str:
    """Where a predicate comes from, Identities aside: Switches on copies of one predicate go the same way."""
    for _ in range(100):
        node = wiring.get(value.node)
        if node is None or node.op not in _PASSING or not node.inputs:
            break
        value = node.inputs[0]
    return str(value)


def _merged(name: str, node: Wiring, arriving: Sequence[_Key], wiring: Mapping[str, Wiring]) -> _Key:
    producers = [wiring[v.node].op for v in node.inputs if v.node in wiring]
    if any(op in NEXTS for op in producers):
        entered = [k for k, op in zip(arriving, producers, strict=False) if op in ENTERS]
        return _union(entered or arriving)
    arrived = arriving[: len(node.inputs)]
    frames = _union(arriving).frames
    common = arrived[0].conditions if arrived else frozenset[_Condition]()
    for key in arrived:
        common &= key.conditions
    rest = [k.conditions - common for k in arrived]
    lone = {next(iter(r)) for r in rest if len(r) == 1}
    complete = (
        all(len(r) == 1 for r in rest)
        and len({c.predicate for c in lone}) == 1
        and all(len(lone) == c.branches for c in lone)
    )
    own = frozenset[_Condition]() if complete else frozenset({_Condition(f"merge {name}", 0, 1, frames)})
    return _Key(frames, common | own)
