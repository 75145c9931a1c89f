"""The invariants of a Body, checked in tests and at debug level. A failure is a bug of ours, not a user's."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

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
from tf_stitch.ir.symbols import Symbols, completed, sources_of
from tf_stitch.ir.types import INTEGERS, NUMBERS, ONE, Dim, DType, product

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tf_stitch.ir.body import Body, Step
    from tf_stitch.ir.types import TensorType


_MOST_SYMBOLS = 3  # of dims that are compared by numbers,
_SMALL = 9  # which are below this


class BrokenInvariant(AssertionError):
    """A Body that no pass may produce."""


def verify_body(body: Body, functions: Mapping[str, Any], reducers: Mapping[str, Any]) -> None:
    """Checks every invariant that the module `ir.body` lists.

    functions, reducers: the tables FUNCTIONS and REDUCERS of `ops`.

    Raises:
      BrokenInvariant: naming the step and the rule.
    """
    for index in range(len(body.steps)):
        _verify_named(body, index, functions, reducers)
    inputs = [s.op.index for s in body.steps if isinstance(s.op, Input)]
    _check(len(set(inputs)) == len(inputs), "an input is read by one step only")
    _check(all(0 <= o < len(body.steps) for o in body.outputs), "an output is a step")
    for within in body.indices:
        type_ = body.inputs[within.input]
        _check(type_ is not None and type_.dtype in INTEGERS, f"{within}: an input of integers")
        _check(0 <= within.first < within.step, f"{within}: the first is one of the first `step`")
    _verify_derivations(body)
    users = body.users()
    dead = [i for i in range(len(body.steps)) if not users[i] and i not in body.outputs]
    _check(not dead, f"steps {dead} are neither read nor returned")


def unbound_symbols(body: Body) -> frozenset[str]:
    """Symbols of the body's dims that follow from no input's: they cannot be computed when the kernel is called."""
    used = {s for step in body.steps for d in step.type.dims for s in d.symbols}
    used |= {s for step in body.steps if isinstance(step.op, Extent) for s in step.op.dim.symbols}
    bound = {s for type_ in body.inputs if type_ is not None for d in type_.dims for s in d.symbols}
    for name, derivation in body.derivations:
        bound |= {name} if derivation.symbols <= bound else set[str]()
    return frozenset(used - bound)


def _verify_derivations(body: Body) -> None:
    names = [name for name, _ in body.derivations]
    _check(len(set(names)) == len(names), "a symbol has one derivation")
    for at, (name, derivation) in enumerate(body.derivations):
        _check(derivation.divisor > 0, f"{name}: a divisor is positive")
        _check(not derivation.symbols & set(names[at:]), f"{name}: what it follows from comes first")


def _check(holds: bool, rule: str) -> None:
    if not holds:
        raise BrokenInvariant(rule)


def _verify_named(body: Body, index: int, functions: Mapping[str, Any], reducers: Mapping[str, Any]) -> None:
    try:
        _verify_step(body, index, functions, reducers)
    except BrokenInvariant as broken:
        step = body.steps[index]
        what = f"{step.op} of {step.operands}, {step.type}"
        raise BrokenInvariant(f"step {index}, {what}: {broken}") from None


def _verify_step(body: Body, index: int, functions: Mapping[str, Any], reducers: Mapping[str, Any]) -> None:
    step = body.steps[index]
    _check(all(0 <= o < index for o in step.operands), "a step reads earlier steps only")
    _check(step.type.shape is not None and step.type.dtype is not DType.OTHER, "a step has a rank and a dtype")
    _check(all(d.coefficient >= 0 for d in step.type.dims), "a dim is not negative")
    operands = [body.steps[o].type for o in step.operands]
    match step.op:
        case Input(number):
            _check(not operands, "an input reads nothing")
            _check(0 <= number < len(body.inputs), "an input exists")
            _check(body.inputs[number] == step.type, "an input has the type that the body declares")
        case Constant(bits):
            _check(not operands and step.type.shape == (), "a constant is a scalar")
            _check(len(bits) == step.type.dtype.size, "a constant has the bytes of its dtype")
        case Extent(dim):
            _check(not operands and step.type.shape == (), "an extent is a scalar")
            _check(not dim.is_static, "an extent that is known is a constant")
            _check(step.type.dtype in NUMBERS, "an extent is a number")
            _check(step.type.dtype.compute is step.type.dtype, "an extent has a compute dtype")
        case Iota():
            _check(not operands and len(step.type.dims) == 1, "an iota has one axis")
            _check(step.type.dtype in INTEGERS, "an iota counts in integers")
        case Elementwise(function):
            _verify_elementwise(step, operands, None if function == "convert" else functions.get(function))
        case Reduce(function, axes):
            _check(function in reducers, f"{function} is in the table of reducers")
            _verify_reduce(step, operands, axes, reducers[function])
        case Concat(axis):
            _verify_concat(body, step, operands, axis)
        case Gather(axes):
            _verify_gather(body, step, axes)
        case Broadcast() | Reshape() | Transpose() | Slice() | Windows():
            _check(len(operands) == 1, "a movement reads one step")
            _check(operands[0].dtype is step.type.dtype, "a movement keeps the dtype")
            _verify_movement(body, step, operands[0])


def _verify_elementwise(step: Step, operands: list[TensorType], function: Any) -> None:
    _check(all(o.shape == step.type.shape for o in operands), "operands have the shape of the step")
    if function is None:
        _check(step.op == Elementwise("convert"), "the function is in the table")
        _check(len(operands) == 1, "a conversion reads one step")
        source, target = operands[0].dtype, step.type.dtype
        _check(source is not target, "a conversion changes the dtype")
        halves = source.compute is not source or target.compute is not target
        _check(not halves or DType.F32 in (source, target), "f16 and bf16 are reached from f32 and left for it")
        return
    _check(len(operands) == function.arity, f"{function.name} has {function.arity} operands")
    selectors, rest = operands[: function.selectors], operands[function.selectors :]
    _check(all(o.dtype is DType.BOOL for o in selectors), "a selector is a bool")
    dtypes = {o.dtype for o in rest}
    _check(len(dtypes) == 1, "operands have one dtype")
    (dtype,) = dtypes
    _check(dtype.compute is dtype, "arithmetic runs in compute dtypes")
    _check(dtype in function.dtypes, f"{function.name} is defined for {dtype.value}")
    _check(step.type.dtype is (DType.BOOL if function.to_bool else dtype), "the result has the function's dtype")


def _verify_reduce(step: Step, operands: list[TensorType], axes: tuple[int, ...], reducer: Any) -> None:
    _check(len(operands) == 1, "a reduction reads one step")
    (operand,) = operands
    _check(operand.dtype is step.type.dtype, "a reduction keeps the dtype")
    _check(operand.dtype in reducer.dtypes, f"{reducer.name} is defined for {operand.dtype.value}")
    _check(operand.dtype.compute is operand.dtype, "arithmetic runs in compute dtypes")
    rank = len(operand.dims)
    _check(axes == tuple(sorted(set(axes))) != (), "axes are sorted, different, and at least one")
    _check(all(0 <= a < rank for a in axes), "axes are within the rank")
    kept = tuple(ONE if a in axes else d for a, d in enumerate(operand.dims))
    _check(step.type.shape == kept, "reduced axes stay as dims of 1")


def _verify_gather(body: Body, step: Step, axes: tuple[int, ...]) -> None:
    table, *indices = (body.steps[o] for o in step.operands)
    _check(isinstance(table.op, Input), "a table is an input")
    _check(table.type.dtype is step.type.dtype, "a gather keeps the dtype")
    _check(len(axes) == len(table.type.dims), "each axis of the table is read somewhere")
    _check(sorted(-a for a in axes if a < 0) == list(range(1, len(indices) + 1)), "each index is of one axis")
    _check(all(i.type.shape == step.type.shape for i in indices), "indices have the shape of the step")
    _check(all(i.type.dtype in INTEGERS for i in indices), "indices are integers")
    kept = [(d, a) for d, a in zip(table.type.dims, axes, strict=True) if a >= 0]
    _check(len({a for _, a in kept}) == len(kept), "no two axes of the table become one")
    _check(all(step.type.dims[a] == d for d, a in kept), "an axis that is not looked up is read whole")
    looked_up = [d for d, a in zip(table.type.dims, axes, strict=True) if a < 0]
    _check(set(looked_up) <= {w.below for w in body.indices}, "indices are guarded")


def _verify_concat(body: Body, step: Step, operands: list[TensorType], axis: int) -> None:
    _check(len(operands) > 1, "a concatenation reads several steps")
    _check(all(o.dtype is step.type.dtype for o in operands), "a concatenation keeps the dtype")
    dims = step.type.dims
    _check(0 <= axis < len(dims), "the axis is within the rank")
    _check(all(len(o.dims) == len(dims) for o in operands), "a concatenation keeps the rank")
    kept = all(o.dims[a] == d for o in operands for a, d in enumerate(dims) if a != axis)
    _check(kept, "a concatenation keeps the other dims")
    known = _symbols(body)
    length = known.derived(o.dims[axis] for o in operands)
    same = known.is_at_most(length, dims[axis]) and known.is_at_most(dims[axis], length)
    _check(same or _agree(length, dims[axis], known), "a concatenation is its operands long")


def _agree(one: Dim, other: Dim, known: Symbols) -> bool:
    """Whether two dims of no common normal form are equal: for all small numbers, which tell remainders apart."""
    derivations = known.derivations_of([one, other])
    names = sorted(sources_of([one, other], derivations))
    if len(names) > _MOST_SYMBOLS or not derivations:
        return False
    for sizes in itertools.product(range(_SMALL), repeat=len(names)):
        symbols = completed(dict(zip(names, sizes, strict=True)), derivations)
        if one.evaluate(symbols) != other.evaluate(symbols):
            return False
    return True


def _symbols(body: Body) -> Symbols:
    known = Symbols()
    known.derivations.update(body.derivations)
    return known


def _verify_movement(body: Body, step: Step, operand: TensorType) -> None:
    have, want = operand.dims, step.type.dims
    match step.op:
        case Broadcast():
            _check(len(have) == len(want), "a broadcast keeps the rank")
            kept = all(h == w or h.is_one for h, w in zip(have, want, strict=True))
            _check(kept, "only dims of 1 are repeated")
        case Reshape():
            _check(product(have) == product(want), "a reshape keeps the number of elements")
        case Transpose(permutation):
            _check(sorted(permutation) == list(range(len(have))), "a permutation has each axis once")
            _check(tuple(have[p] for p in permutation) == want, "a transpose permutes the dims")
        case Slice(begin, steps):
            _check(len(have) == len(want) == len(begin) == len(steps), "a slice keeps the rank")
            for axis in range(len(have)):
                _verify_slice(body, have[axis], want[axis], begin[axis], steps[axis])
        case Windows(axis, by, dilation):
            _check(0 <= axis < len(have), "the axis is within the rank")
            _check(len(want) == len(have) + 1, "windows have one axis more")
            _check(want[:axis] + want[axis + 2 :] == have[:axis] + have[axis + 1 :], "windows keep the other dims")
            _verify_windows(body, have[axis], want[axis], want[axis + 1], by, dilation)
        case _:
            raise BrokenInvariant("no movement")


def _verify_windows(body: Body, have: Dim, count: Dim, size: Dim, step: int, dilation: int) -> None:
    """Every element of every window exists."""
    _check(size.is_static, "how many elements a window has is known")
    _check(step > 0 and dilation > 0, "windows move on")
    reach = (size.coefficient - 1) * dilation
    inside = count == Dim(0) or (reach >= 0 and _fits(body, have, count, step, reach))
    _check(inside, "no window runs over the end")


def _fits(body: Body, have: Dim, count: Dim, step: int, reach: int) -> bool:
    """Whether `have` elements are enough for `count`, one every `step`, and `reach` more behind the last.

    By numbers; or since `count` is at most max(0, floor((have + step - 1 - reach) / step)): as many as are enough.
    """
    if have.is_static and count.is_static:
        return (count.coefficient - 1) * step + reach < have.coefficient
    known = _symbols(body)
    return known.is_at_most(count, known.derived((have, Dim(step - 1 - reach)), step))


def _verify_slice(body: Body, have: Dim, want: Dim, begin: int, step: int) -> None:
    """Every element that the slice reads exists: by static extents, or by what the body requires."""
    _check(begin >= 0 and step != 0, "a slice begins within its axis and moves")
    if have == want and begin == 0 and step == 1:
        return
    if want == Dim(0):
        return
    if not want.is_static:
        _check(step > 0, "a slice of a symbolic extent goes up")
        known = _symbols(body)
        needed = known.derived((Dim(want.coefficient * step, want.symbols), Dim(begin + 1 - step)))
        enough = [have, *(small for small, large in body.requires if large == have)]
        inside = any(known.is_at_most(needed, length) for length in enough)
        _check(inside or _fits(body, have, want, step, begin), "a slice of a symbolic extent stays inside")
        return
    last = begin + step * (want.coefficient - 1)
    needed = Dim(max(begin, last) + 1)
    _check(last >= 0, "a slice does not run over the beginning")
    if have.is_static:
        _check(needed <= have, "a slice does not run over the end")
    else:
        known = [small for small, large in body.requires if large == have and small.is_static]
        _check(any(needed <= small for small in known), "a slice of an unknown extent is guarded")
