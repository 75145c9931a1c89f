"""A Body as text, one step a line: `%1 = max %0 over (1) : f32[B, 1]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tf_stitch.ir.body import (
    Broadcast,
    Concat,
    Constant,
    Elementwise,
    Extent,
    Gather,
    Input,
    Iota,
    Reduce,
    Reshape,
    Slice,
    Transpose,
    Windows,
)

if TYPE_CHECKING:
    from tf_stitch.ir.body import Body, Step


def print_body(body: Body) -> str:
    """The steps, what is required of the dims, and the outputs. Equal bodies have equal texts."""
    left = [f"%{index} = {_right_hand(step)}" for index, step in enumerate(body.steps)]
    width = max(map(len, left), default=0)
    lines = [f"{text:<{width}} : {step.type}" for text, step in zip(left, body.steps, strict=True)]
    lines += [f"{name} = {derivation}" for name, derivation in body.derivations if name != str(derivation)]
    lines += [f"require {small} <= {large}" for small, large in body.requires]
    lines += [f"require {within}" for within in body.indices]
    lines.append(f"return {_names(body.outputs)}")
    return "\n".join(lines) + "\n"


def _right_hand(step: Step) -> str:
    operands = _names(step.operands)
    match step.op:
        case Input(index):
            return f"input {index}"
        case Constant():
            return f"constant {step.op.value(step.type.dtype)!s}"  # shortest in its own dtype
        case Extent(dim):
            return f"extent {dim}"
        case Iota():
            return "iota"
        case Elementwise(function):
            return f"{function} {operands}"
        case Broadcast():
            return f"broadcast {operands}"
        case Reshape():
            return f"reshape {operands}"
        case Transpose(permutation):
            return f"transpose {operands} by {_numbers(permutation)}"
        case Slice(begin, steps):
            return f"slice {operands} from {_numbers(begin)} step {_numbers(steps)}"
        case Windows(axis, by, dilation):
            return f"windows {operands} along {axis} step {by} dilation {dilation}"
        case Concat(axis):
            return f"concat {operands} along {axis}"
        case Gather(axes):
            return f"gather {operands} along {_numbers(axes)}"
        case Reduce(function, axes):
            return f"{function} {operands} over {_numbers(axes)}"


def _names(steps: tuple[int, ...]) -> str:
    return " ".join(f"%{step}" for step in steps)


def _numbers(numbers: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, numbers))})"
