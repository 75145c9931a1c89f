"""Equal clusters get equal bodies, and so one kernel: whatever order TensorFlow lists their nodes in.

A model has the same block many times, and TensorFlow's optimizer lists each copy in another order and swaps the
operands of additions as it likes. Five things are put in order here: outputs, operands of commutative functions, steps
(each right before its first reader), inputs and symbols (as the steps show them).

They are ordered by digests, of which a step has three, each of what the one before leaves open:

    down   what it computes: its op, dtype and rank, and the digests of its operands
    up     who reads it, and how: its own, its dims, and the digests of its readers
    again  as down, over the digests up: by which of two twins

    a = exp x; b = exp y; (a + b) * tanh a        down: a and b are twins;  up: tanh reads a alone
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tf_stitch.ir.body import Body, Elementwise, Extent, Input, Step
from tf_stitch.ir.symbols import Derivation
from tf_stitch.ir.types import Dim, TensorType, terms_of

# Equal to the last bit in either order. `max` and `min` are not: of two zeros they take the second.
_COMMUTATIVE = frozenset(("add", "mul", "equal", "not_equal", "logical_and", "logical_or"))


@dataclass(frozen=True)
class Ordered:
    """A body in canonical order. inputs, outputs: for each of the body's, which one it was."""

    body: Body
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def canonical_order(body: Body) -> Ordered:
    """The body with its outputs, operands, steps and inputs in order."""
    digests = _digests(body)
    steps = [_with_sorted_operands(step, digests) for step in body.steps]
    roots = sorted(range(len(body.outputs)), key=lambda number: digests[body.outputs[number]])
    place: dict[int, int] = {}
    inputs: dict[int, int] = {}
    ordered: list[Step] = []
    for root in roots:
        stack = [(body.outputs[root], False)]
        while stack:
            index, ready = stack.pop()
            if index in place:
                continue
            step = steps[index]
            if not ready:
                stack.append((index, True))
                stack.extend((operand, False) for operand in reversed(step.operands))
                continue
            op = step.op
            if isinstance(op, Input):
                op = Input(inputs.setdefault(op.index, len(inputs)))
            place[index] = len(ordered)
            ordered.append(Step(op, tuple(place[o] for o in step.operands), step.type, step.origin))
    order = [*inputs, *(i for i in range(len(body.inputs)) if i not in inputs)]
    # An input that no step reads any more is the fallback's alone.
    types = tuple(body.inputs[i] if i in inputs else None for i in order)
    outputs = tuple(place[body.outputs[root]] for root in roots)
    indices = sorted(
        (replace(w, input=inputs[w.input]) for w in body.indices if w.input in inputs),
        key=lambda w: (w.input, w.first, w.step),
    )
    found = replace(body, steps=tuple(ordered), inputs=types, outputs=outputs, indices=tuple(indices))
    return Ordered(found, tuple(order), tuple(roots))


def _digests(body: Body) -> list[bytes]:
    """For each step: equal for equal expressions of equal types with equal readers, whatever their inputs."""
    down = _down(body, [_text(step) for step in body.steps])
    if not _has_twins(body, down):
        return down
    sized = [_digest(digest, [_dims_text(step)]) for step, digest in zip(body.steps, down, strict=True)]
    again = _down(body, _up(body, sized))
    return [first + second for first, second in zip(down, again, strict=True)]


def _has_twins(body: Body, down: Sequence[bytes]) -> bool:
    """Whether the digests leave some order open: of outputs, or of operands that commute."""
    commuting = ([down[o] for o in dict.fromkeys(s.operands)] for s in body.steps if _is_commutative(s))
    return any(len(set(digests)) < len(digests) for digests in ([down[o] for o in body.outputs], *commuting))


def _text(step: Step) -> bytes:
    """A step by itself. Its symbols have no canonical names yet: they are counted."""
    match step.op:
        case Input():
            op = "input"
        case Extent(dim):
            op = f"extent {dim.coefficient} {len(dim.symbols)}"
        case _:
            op = repr(step.op)
    return f"{op} {step.type.dtype.value} {len(step.type.dims)}".encode()


def _dims_text(step: Step) -> bytes:
    return ",".join(f"{d.coefficient} {len(d.symbols)}" for d in step.type.dims).encode()


def _down(body: Body, labels: Sequence[bytes]) -> list[bytes]:
    """From the inputs on: each step's label with the digests of its operands."""
    found: list[bytes] = []
    for step, label in zip(body.steps, labels, strict=True):
        operands = [found[o] for o in step.operands]
        if _is_commutative(step):
            operands.sort()
        found.append(_digest(label, operands))
    return found


def _up(body: Body, labels: Sequence[bytes]) -> list[bytes]:
    """From the outputs back: each step's label with the digests of its readers, and which operand it is to them."""
    found: list[bytes] = [b""] * len(labels)
    readers: list[list[bytes]] = [[] for _ in labels]
    for output in body.outputs:
        readers[output].append(b"output")
    for index in range(len(labels) - 1, -1, -1):
        found[index] = _digest(labels[index], sorted(readers[index]))
        step = body.steps[index]
        for place, operand in enumerate(step.operands):
            readers[operand].append(found[index] + (b"" if _is_commutative(step) else b"%d" % place))
    return found


def _digest(label: bytes, others: Sequence[bytes]) -> bytes:
    return hashlib.blake2b(label + b"".join(others), digest_size=12).digest()


def _with_sorted_operands(step: Step, digests: list[bytes]) -> Step:
    if not _is_commutative(step):
        return step
    return replace(step, operands=tuple(sorted(step.operands, key=digests.__getitem__)))


def _is_commutative(step: Step) -> bool:
    return isinstance(step.op, Elementwise) and step.op.function in _COMMUTATIVE


def canonical_symbols(body: Body) -> Body:
    """Symbols renamed in the order in which the inputs show them."""
    names: dict[str, str] = {}
    types = [t for t in body.inputs if t is not None] + [s.type for s in body.steps]
    for type_ in types:
        for dim in type_.dims:
            for symbol in dim.symbols:
                names.setdefault(symbol, f"d{len(names)}")
    for symbol, derivation in reversed(body.derivations):
        for other in sorted(derivation.symbols) if symbol in names else ():
            names.setdefault(other, f"d{len(names)}")
    if not names and not body.requires:
        return body

    def dim_of(dim: Dim) -> Dim:
        return Dim(dim.coefficient, tuple(sorted(names[s] for s in dim.symbols)))

    def type_of(type_: TensorType) -> TensorType:
        return TensorType(type_.dtype, tuple(dim_of(d) for d in type_.dims))

    steps = tuple(
        replace(s, type=type_of(s.type), op=Extent(dim_of(s.op.dim)) if isinstance(s.op, Extent) else s.op)
        for s in body.steps
    )
    inputs = tuple(None if t is None else type_of(t) for t in body.inputs)
    # What is required of a dim that no step has left needs no guard.
    requires = tuple(
        (dim_of(small), dim_of(large))
        for small, large in body.requires
        if all(s in names for s in small.symbols + large.symbols)
    )
    indices = tuple(replace(w, below=dim_of(w.below)) for w in body.indices)
    derivations = tuple(
        (names[symbol], Derivation(terms_of(map(dim_of, d.terms)), d.divisor))
        for symbol, d in body.derivations
        if symbol in names
    )
    return replace(body, steps=steps, inputs=inputs, requires=requires, indices=indices, derivations=derivations)
