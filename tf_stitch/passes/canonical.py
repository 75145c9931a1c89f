"""Equal clusters get equal bodies, and so one kernel: whatever order TensorFlow lists their nodes in.

A model has the same block many times, and TensorFlow's optimizer lists each copy in another order and swaps the
operands of additions as it likes. Three things are put in order here: operands of commutative functions, steps (each
right before its first reader), inputs and symbols (as the steps show them).
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from tf_stitch.ir.body import Body, Elementwise, Extent, Input, Step
from tf_stitch.ir.types import Dim, TensorType

# Equal to the last bit in either order. `max` and `min` are not: of two zeros they take the second.
_COMMUTATIVE = frozenset(("add", "mul", "equal", "not_equal", "logical_and", "logical_or"))


def canonical_order(body: Body) -> tuple[Body, tuple[int, ...]]:
    """The body with its operands, steps and inputs in order; and for each input, which one it was."""
    digests = _digests(body)
    steps = [_with_sorted_operands(step, digests) for step in body.steps]
    place: dict[int, int] = {}
    inputs: dict[int, int] = {}
    ordered: list[Step] = []
    for root in body.outputs:
        stack = [(root, False)]
        while stack:
            index, ready = stack.pop()
            if index in place:
                continue
            step = steps[index]
            if not ready:
                stack.append((index, True))
                stack.extend((operand, False) for operand in reversed(step.operands))
                continue
            if isinstance(step.op, Input):
                number = inputs.setdefault(step.op.index, len(inputs))
                step = replace(step, op=Input(number))
            place[index] = len(ordered)
            ordered.append(replace(step, operands=tuple(place[o] for o in step.operands)))
    order = [*inputs, *(i for i in range(len(body.inputs)) if i not in inputs)]
    # An input that no step reads any more is the fallback's alone.
    types = tuple(body.inputs[i] if i in inputs else None for i in order)
    outputs = tuple(place[o] for o in body.outputs)
    return replace(body, steps=tuple(ordered), inputs=types, outputs=outputs), tuple(order)


def _digests(body: Body) -> list[bytes]:
    """What each step computes, as a digest: equal for equal expressions of equal types, whatever their inputs."""
    found: list[bytes] = []
    for step in body.steps:
        match step.op:
            case Input():
                op = "input"
            case Extent(dim):  # its symbols have no canonical names yet
                op = f"extent {dim.coefficient} {len(dim.symbols)}"
            case _:
                op = repr(step.op)
        text = f"{op} {step.type.dtype.value} {len(step.type.dims)}".encode()
        operands = [found[o] for o in step.operands]
        if _is_commutative(step):
            operands.sort()
        found.append(hashlib.blake2b(text + b"".join(operands), digest_size=12).digest())
    return found


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
    return replace(body, steps=steps, inputs=inputs, requires=requires)
