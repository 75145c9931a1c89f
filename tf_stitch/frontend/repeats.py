"""Calls of a tf.function that repeat an earlier one, less what TensorFlow works out for each anew.

Which trace answers a call depends on the types of its arguments and on a few things about the thread. TensorFlow
binds the arguments to the signature twice, describes their types, hashes the description, looks it up, binds once
more: some 150 to 250 us in Python, where the runtime needs 60 to 80. For a model that runs in a millisecond that is
more than all of its kernels save.

    call ──> key: structure of the arguments, dtype and shape of each tensor, value of each literal
               │ known, and nothing else that TensorFlow would look at has changed
               ├──> Repeat: the trace, and the order in which it takes the tensors ──> the trace's own flat call
               │ not known
               └──> TensorFlow's call; from the second time on it is remembered

The invariants:
  - A key is made of eager tensors and of literals alone, nested in lists, tuples and dicts. All that TensorFlow's
    types of those depend on (`tf.types.experimental.TraceType`) is in it. For anything else (variables, NumPy
    arrays, floats, whose -0 equals 0, objects) there is no key.
  - The trace is the one that TensorFlow's own lookup gave for equal arguments; it is forgotten as soon as the
    function has another trace, which might answer better.
  - Only where the thread executes eagerly, outside of distribution strategies and of the saving of a model: there
    the rest of TensorFlow's key, its function context, is always the same (eager/polymorphic_function/
    function_context.py).
  - What is called is `ConcreteFunction._call_flat`, so gradients, cancellation and errors are TensorFlow's.
"""

# ruff: noqa: SLF001  how functions keep their traces is TensorFlow's own affair: see pyproject.toml for its version

from __future__ import annotations

import operator
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import (
    eager_function_run,
    function_type_utils,
    tracing_compilation,
)
from tensorflow.python.framework import ops
from tensorflow.python.saved_model import save_context

Key = tuple[Any, ...]

_MOST = 64  # keys of one function: one whose shapes never come again keeps no more than this
_HANDLES = frozenset({int(tf.resource.as_datatype_enum), int(tf.variant.as_datatype_enum)})  # typed by what they hold
_LITERALS = frozenset({type(None), bool, int, str})
_EagerTensor: Any = ops.EagerTensor


class _NoKeyError(Exception):
    """An argument whose type TensorFlow has to work out."""


def key_of(args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Any]) -> Key | None:
    """What decides which trace answers a call, None where this cannot tell. Adds the tensors to `tensors`, in order."""
    try:
        return (*(_part(a, tensors) for a in args), *((n, _part(a, tensors)) for n, a in kwargs.items()))
    except _NoKeyError:
        return None


def _part(value: Any, tensors: list[Any]) -> Any:
    kind = type(value)
    if kind is _EagerTensor:
        dtype = value._datatype_enum()  # `dtype` and `shape` make objects of these
        if dtype in _HANDLES:
            raise _NoKeyError
        tensors.append(value)
        return dtype, value._shape_tuple()
    if kind in _LITERALS:
        return kind, value
    if kind is tuple or kind is list:
        return kind, *(_part(v, tensors) for v in value)
    if kind is dict:
        return kind, *((type(n), n, _part(v, tensors)) for n, v in value.items())
    raise _NoKeyError


def in_plain_context() -> bool:
    """Whether the thread is in the one state that repeats are for."""
    return (
        context.executing_eagerly()
        and not eager_function_run.RUN_FUNCTIONS_EAGERLY
        and not save_context.in_save_context()
        and not ops.get_default_graph()._distribution_strategy_stack
    )


class Repeat:
    """A call that was seen before.

    concrete: TensorFlow's ConcreteFunction for it.
    order: of the tensors it takes, each one's position among those of the arguments.
    """

    __slots__ = ("_captured", "_flat", "concrete", "order")

    def __init__(self, concrete: Any, order: tuple[int, ...]) -> None:
        self.concrete = concrete
        self.order = order
        self._captured: tuple[Any, ...] = ()  # the captures that _flat was made of
        self._flat: list[Any] = []

    def __call__(self, tensors: list[Any]) -> Any:
        return self.concrete._call_flat([tensors[i] for i in self.order], self._captures())

    def _captures(self) -> list[Any]:
        captured = self.concrete._captured_inputs
        known = self._captured
        if len(known) != len(captured) or not all(map(operator.is_, known, captured)):
            if any(map(callable, captured)):  # by reference: each call may find another
                return self.concrete.captured_inputs
            self._captured, self._flat = tuple(captured), self.concrete.captured_inputs
        return self._flat


class Repeats:
    """The repeats of one tf.function. It is handed over with each call: a cycle would keep its traces alive."""

    def __init__(self) -> None:
        self._traces = 0  # how many the function had when these were found
        self._known: dict[Key, Repeat | None] = {}  # None: cannot be repeated
        self._seen: set[Key] = set()

    def find(self, function: Any, key: Key) -> Repeat | None:
        """What a call of this key repeats, if that is known."""
        return self._known.get(key) if self._traces == _traces_of(function) else None

    def note(self, function: Any, key: Key, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Any]) -> None:
        """Notes that TensorFlow has answered a call of this key, in a plain context."""
        traces = _traces_of(function)
        if traces != self._traces or len(self._seen) >= _MOST:
            self._known, self._seen, self._traces = {}, set(), traces
        if key not in self._seen:
            self._seen.add(key)
        elif key not in self._known and len({id(t) for t in tensors}) == len(tensors):  # told apart
            repeat = _learned(function, args, kwargs, tensors)
            if traces == _traces_of(function):
                self._known[key] = repeat


def _learned(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Any]) -> Repeat | None:
    created = function._created_variables
    options = function._no_variable_creation_config if created else function._variable_creation_config
    if options is None or options.function_captures.by_ref_tracetype:
        return None
    bound = function_type_utils.canonicalize_function_inputs(
        args, kwargs, function.function_type, function._default_values, function._is_pure
    )
    concrete = tracing_compilation.trace_function(bound.args, bound.kwargs, options)
    taken = concrete.function_type.unpack_inputs(concrete.function_type.bind(*bound.args, **bound.kwargs))
    places = {id(t): i for i, t in enumerate(tensors)}
    if any(id(t) not in places for t in taken):  # converted on the way, or a default
        return None
    return Repeat(concrete, tuple(places[id(t)] for t in taken))


def _traces_of(function: Any) -> int:
    return len(function._function_cache)
