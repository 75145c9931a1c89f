"""Extremes with a number take one instruction, and negations vanish, where nobody sees the sign of a zero.

    relu(x) - a * relu(-x), a parametric ReLU

    %1 = relu %0            %1 = relu %0                   it never gives -0, so whether %4 is 0 - 0 or 0 - -0:
    %2 = neg %0        ->                                  both are 0, and the signs of zeros of %3 and %2 are free
    %3 = relu %2            %2 = at_most %0 0              -relu(-x), but for the sign of a zero
    %4 = mul %3 %a          %3 = mul %2 %a
    %5 = sub %1 %4          %4 = add %1 %3

TensorFlow's relu turns -0 into 0, and its maximum takes the second of two zeros: that is more than the instruction of
that name does. `at_least` and `at_most` are the instruction. Three questions, in this order:

  1. Forward: which steps never give -0?
  2. Backward: of which steps is the sign of a zero free? Of those whose readers hide it, or add it to a step of 1. That
     step is then *pinned*: it stays as it is. A step that is free no longer counts for 1.
  3. Forward: the new steps. A negation moves on to what reads it, until a sum takes it in.

All of it is exact, but for the sign of a NaN: negating commutes with rounding. -a - b stays as it is, which is not
-(a + b) where that is 0. A negation only moves through a step that alone reads it, so there are never more than before.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tf_stitch.ir.body import Body, Broadcast, Constant, Elementwise, Movement, Reshape, Step
from tf_stitch.ir.types import ONE, TensorType
from tf_stitch.ops import FUNCTIONS, ZeroSign

_NEG = Elementwise("neg")
_EXTREMES = {"maximum": "at_least", "minimum": "at_most"}
_EVEN = {"abs", "square"}  # f(-x) is f(x)
_ODD = {"mul", "div"}  # f(-x, y) is f(x, -y) is -f(x, y)


def without_dear_zeros(body: Body) -> Body:
    """The body with cheaper extremes and fewer negations."""
    if not any(_function(step) in ("neg", "relu", *_EXTREMES) for step in body.steps):
        return body
    return _Rewriting(body, _free_zeros(body)).run()


def _function(step: Step) -> str:
    """Of floats, or ""."""
    return step.op.function if isinstance(step.op, Elementwise) and step.type.dtype.is_float else ""


def _number(body: Body, index: int) -> float | None:
    """The constant that a step repeats, unless it is NaN."""
    step = body.steps[index]
    while isinstance(step.op, Broadcast | Reshape):
        step = body.steps[step.operands[0]]
    if not isinstance(step.op, Constant) or not step.type.dtype.is_float:
        return None
    value = float(step.op.value(step.type.dtype))
    return None if np.isnan(value) else value


# -- 1 and 2 -----------------------------------------------------------------------------------------------


def _free_zeros(body: Body) -> list[bool]:
    """For each step, whether the sign of its zeros may be either."""
    signs = _Signs(body)
    readers: list[list[tuple[int, int]]] = [[] for _ in body.steps]
    for index, step in enumerate(body.steps):
        for position, operand in enumerate(step.operands):
            readers[operand].append((index, position))
    outputs = set(body.outputs)
    for index in range(len(body.steps) - 1, -1, -1):
        if index not in outputs and index not in signs.pinned:
            signs.free[index] = all(signs.hides(*reader) for reader in readers[index])
    return signs.free


class _Signs:
    def __init__(self, body: Body) -> None:
        self.body = body
        self.free = [False] * len(body.steps)
        self.pinned: set[int] = set()
        self.positive: list[bool] = []  # never -0, as the body stands
        for step in body.steps:
            self.positive.append(any(all(self.positive[o] for o in some) for some in self._grounds(step)))

    def hides(self, reader: int, position: int) -> bool:
        """Whether a step does not let the sign of this operand's zeros through."""
        step = self.body.steps[reader]
        if isinstance(step.op, Movement):
            return self.free[reader]
        if not isinstance(step.op, Elementwise):
            return False
        function = step.op.function
        if function == "convert":
            return self.free[reader] or not step.type.dtype.is_float
        if function in ("add", "sub"):
            other = step.operands[1 - position]
            return self.free[reader] or ((function == "add" or position == 1) and self._pin(other))
        match FUNCTIONS[function].zero_sign:
            case ZeroSign.HIDDEN:
                return True
            case ZeroSign.PASSED:
                return self.free[reader]
            case ZeroSign.SEEN:
                return False

    def _pin(self, index: int) -> bool:
        """Whether a step never gives -0, and will not."""
        if not self.positive[index] or self.free[index]:
            return False
        for some in self._grounds(self.body.steps[index]):
            if all(self._pin(o) for o in some):
                self.pinned.add(index)
                return True
        return False

    def _grounds(self, step: Step) -> list[tuple[int, ...]]:
        """Sets of operands: that none of a set gives -0 is enough for the step to give none."""
        match step.op:
            case Constant() as constant:
                value = constant.value(step.type.dtype)
                return [] if value == 0 and np.signbit(value) else [()]
            case _ if isinstance(step.op, Movement):
                return [step.operands]
            case Elementwise("convert"):
                return [step.operands] if self.body.steps[step.operands[0]].type.dtype.is_float else [()]
            case Elementwise("add"):
                return [step.operands[:1], step.operands[1:]]
            case Elementwise("sub"):
                return [step.operands[:1]]
            case Elementwise(function):
                return [()] if FUNCTIONS[function].no_minus_zero else []
            case _:
                return []


# -- 3 -----------------------------------------------------------------------------------------------------


class _Rewriting:
    """`value[i]` is where step i of the body is found among the new steps, and whether it is the negative of that."""

    def __init__(self, body: Body, free: list[bool]) -> None:
        self.body = body
        self.free = free
        self.readers = [len(users) for users in body.users()]
        for output in body.outputs:
            self.readers[output] += 1
        self.steps: list[Step] = []
        self.value: list[tuple[int, bool]] = []
        self.known: dict[tuple[object, tuple[int, ...], TensorType], int] = {}

    def run(self) -> Body:
        for index, step in enumerate(self.body.steps):
            self.value.append(self._rewritten(index, step))
        outputs = tuple(self._plain(o) for o in self.body.outputs)
        return replace(self.body, steps=tuple(self.steps), outputs=outputs)

    def _rewritten(self, index: int, step: Step) -> tuple[int, bool]:
        function = _function(step)
        match function:
            case "neg":
                at, negative = self.value[step.operands[0]]
                return at, not negative
            case "relu" if self.free[index] and self._movable(step.operands[0]):
                at, negative = self.value[step.operands[0]]
                extreme = "at_most" if negative else "at_least"
                return self._add(step, at, self._zero(step), function=extreme), negative
            case "maximum" | "minimum":
                return self._extreme(index, step, function), False
            case "add" | "sub":
                return self._sum(step, function), False
            case _ if function in _EVEN:
                return self._add(step, self.value[step.operands[0]][0]), False
            case _ if function in _ODD and all(self._movable(o) for o in step.operands):
                places, signs = zip(*(self.value[o] for o in step.operands), strict=True)
                return self._add(step, *places), signs[0] != signs[1]
            case _:
                return self._add(step, *(self._plain(o) for o in step.operands)), False

    def _movable(self, operand: int) -> bool:
        return not self.value[operand][1] or self.readers[operand] == 1

    def _extreme(self, index: int, step: Step, function: str) -> int:
        for operand, other in (step.operands, step.operands[::-1]):
            number = _number(self.body, other)
            if number is not None and (number != 0 or self.free[index]):
                return self._add(step, self._plain(operand), self._plain(other), function=_EXTREMES[function])
        return self._add(step, *(self._plain(o) for o in step.operands))

    def _sum(self, step: Step, function: str) -> int:
        (a, a_negative), (b, b_negative) = (self.value[o] for o in step.operands)
        b_negative ^= function == "sub"
        if a_negative and b_negative:  # -a - b
            return self._add(step, self._plain(step.operands[0]), b, function="sub")
        if a_negative:
            return self._add(step, b, a, function="sub")
        return self._add(step, a, b, function="sub" if b_negative else "add")

    def _zero(self, step: Step) -> int:
        """A zero of the step's type."""
        zero = Constant(np.zeros((), step.type.dtype.numpy).tobytes())
        ones = TensorType(step.type.dtype, (ONE,) * len(step.type.dims))
        at = self._append(Step(zero, (), TensorType(step.type.dtype, ()), step.origin))
        for op, type_ in ((Reshape(), ones), (Broadcast(), step.type)):
            if self.steps[at].type != type_:
                at = self._append(Step(op, (at,), type_, step.origin))
        return at

    def _plain(self, operand: int) -> int:
        """The step that holds this value itself; negates it where there is none."""
        at, negative = self.value[operand]
        return self._append(replace(self.body.steps[operand], op=_NEG, operands=(at,))) if negative else at

    def _add(self, step: Step, *operands: int, function: str = "") -> int:
        return self._append(replace(step, op=Elementwise(function) if function else step.op, operands=operands))

    def _append(self, step: Step) -> int:
        """Where the step is; equal steps are one step."""
        key = (step.op, step.operands, step.type)
        if key not in self.known:
            self.known[key] = len(self.steps)
            self.steps.append(step)
        return self.known[key]
