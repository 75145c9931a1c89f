"""The ways to run functions stitched: a decorator, a context manager, a switch for the whole process.

All three do one thing: the thread that calls a function has TensorFlow's options of function calls set so
that Grappler runs "tf_stitch" (see `options`). The function itself, its traces and its variables are
TensorFlow's own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import concrete_function, polymorphic_function
from tensorflow.python.profiler import trace
from tensorflow.python.util import traceback_utils

from tf_stitch.config import Config, default_config, enabled
from tf_stitch.frontend import grappler
from tf_stitch.frontend.options import FunctionCallOptions, is_stitched, stitched_config, stitched_options
from tf_stitch.frontend.repeats import Repeat, Repeats, in_plain_context, key_of
from tf_stitch.frontend.tuning import deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _context() -> Any:
    return context.context()


class _Stitching:
    """Mixed into TensorFlow's classes of functions: a call of them is stitched, whoever makes it.

    An instance of TensorFlow's class becomes one of ours by assigning its `__class__`, for tf.function does
    more than to construct it; what is not set then is as the class says.
    """

    _stitch_params = ""
    _stitch_options: tuple[Any, Any] = (None, None)  # the thread's own options, and the same stitched

    def _stitched_call(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        tf_context = _context()
        thread = tf_context._thread_local_data  # noqa: SLF001  the property costs more than the rest of this
        own = thread.function_call_options
        base, options = self._stitch_options
        if own is None or own is not base:
            own = tf_context.function_call_options
            options = stitched_options(own, self._stitch_params) if enabled() else own
            self._stitch_options = (own, options)
        thread.function_call_options = options
        try:
            result = call(*args, **kwargs)
        finally:
            thread.function_call_options = own
        if _optimizer.has_pending:
            _optimizer.raise_pending()
        if _races.has_noted and _races.race():
            self._stitch_params = grappler.params_of(grappler.config_of(self._stitch_params))
            self._stitch_options = (None, None)
        return result


class StitchedFunction(_Stitching, polymorphic_function.Function):
    """A tf.function, in everything but that its calls are stitched, and that those that repeat take less time."""

    _stitch_repeats: Repeats | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._stitched_call(self._repeated_call, args, kwargs)

    def _repeated_call(self, *args: Any, **kwargs: Any) -> Any:
        """TensorFlow's call, by the short way if there is one; see `repeats`."""
        repeats = self._stitch_repeats
        if repeats is None:
            repeats = self._stitch_repeats = Repeats()
        tensors: list[Any] = []
        key = key_of(args, kwargs, tensors) if enabled() else None
        if key is None or not in_plain_context():
            return super().__call__(*args, **kwargs)
        repeat = repeats.find(self, key)
        if repeat is not None:
            return self._repeat(repeat, tensors)
        result = super().__call__(*args, **kwargs)
        repeats.note(self, key, args, kwargs, tensors)
        return result

    @traceback_utils.filter_traceback
    def _repeat(self, repeat: Repeat, tensors: list[Any]) -> Any:
        """What the call of TensorFlow's class does around the trace's: it is shown to the profiler, and counted."""
        with trace.Trace(self._name) as event:
            result = repeat(tensors)
            event.set_metadata(tf_function_call="notTraced-nonXla", tracing_count=self.experimental_get_tracing_count())
        _call_counts.called_without_tracing(self._key_for_call_stats)
        return result

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_stitch_repeats", None)  # a copy has traces of its own
        return state

    def __get__(self, instance: Any, owner: Any) -> Any:
        bound = super().__get__(instance, owner)
        if isinstance(bound, StitchedFunction):
            bound._stitch_params = self._stitch_params  # noqa: SLF001
        return bound

    def _clone(self, python_function: Any) -> StitchedFunction:
        return _as_stitched(super()._clone(python_function), self._stitch_params)

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Any:
        concrete = super().get_concrete_function(*args, **kwargs)
        if type(concrete) is concrete_function.ConcreteFunction:
            stitched: Any = concrete
            stitched.__class__ = StitchedConcreteFunction
            stitched._stitch_params = self._stitch_params  # noqa: SLF001
        return concrete

    get_concrete_function.__doc__ = polymorphic_function.Function.get_concrete_function.__doc__


class StitchedConcreteFunction(_Stitching, concrete_function.ConcreteFunction):
    """A ConcreteFunction whose calls are stitched."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._stitched_call(super().__call__, args, kwargs)


def function(
    func: Any = None, *args: Any, config: Config | None = None, never_slower: bool = False, **kwargs: Any
) -> Any:
    """`tf.function`, stitched: takes its arguments and offers its methods.

    A function with `jit_compile=True` belongs to XLA, and is left to it. One that is called from another
    tf.function becomes part of it, and is stitched where that one is.

    config: how to stitch; the default is `Config()`, less what TF_STITCH_ABLATE names.
    never_slower: after the first call of each instance, race its kernels against the nodes that they replace (50 ms
      each, 30 s in a process), and run those that lose unstitched from the next call on. Outcomes are kept on disk.
      Short for `Config(never_slower=True)`.
    """
    if func is None:
        return lambda func: function(func, *args, config=config, never_slower=never_slower, **kwargs)
    made = tf.function(func, *args, **kwargs)
    if kwargs.get("jit_compile"):
        return made
    return _as_stitched(made, grappler.params_of(_configured(config, never_slower=never_slower)))


def _configured(config: Config | None, *, never_slower: bool) -> Config:
    config = config or default_config()
    return dataclasses.replace(config, never_slower=True) if never_slower else config


def _as_stitched(made: Any, params: str) -> StitchedFunction:
    made.__class__ = StitchedFunction
    made._stitch_params = params  # noqa: SLF001
    return made


@contextlib.contextmanager
def stitching(config: Config | None = None, *, never_slower: bool = False) -> Iterator[None]:
    """Every tf.function that this thread calls inside is stitched, its gradients included.

    never_slower: at the end, race the kernels against the nodes that they replace. Those that lose are left out the
      next time; see `function`.

    Raises:
      StrictError: at the end, under TF_STITCH_STRICT=1, when a graph could not be stitched.
    """
    if not enabled():
        yield
        return
    tf_context = _context()
    own = tf_context.function_call_options
    params = grappler.params_of(_configured(config, never_slower=never_slower))
    tf_context.function_call_options = stitched_options(own, params)
    try:
        yield
    finally:
        tf_context.function_call_options = own
    _optimizer.raise_pending()
    if _races.has_noted:
        _races.race()


class _Everywhere:
    """`enable` and `disable`: the options of every thread, those that exist and those to come.

    Threads keep options of their own, out of reach of one another. What they all go through is the property
    of the context that reads them; we put ours in its place, which stitches the options, or undoes it, when
    next asked.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._property: Any = None
        self._params: str | None = None

    def switch(self, params: str | None) -> None:
        with self._lock:
            self._params = params
            if self._property is None and params is not None:
                self._property = context.Context.function_call_options
                context.Context.function_call_options = property(self._get, self._property.fset)

    def _get(self, tf_context: Any) -> Any:
        options = self._property.fget(tf_context)
        serialized = options.config_proto_serialized
        base = options.base if isinstance(options, _EnabledOptions) else serialized
        if self._params is None:
            wanted = base
        elif base is serialized and is_stitched(serialized):
            wanted = serialized  # by `stitching`, which knows better
        else:
            wanted = stitched_config(base, self._params)
        if wanted == serialized:
            return options
        options = _EnabledOptions(wanted, base, options.executor_type)
        self._property.fset(tf_context, options)
        return options


class _EnabledOptions(FunctionCallOptions):
    """What `enable` made of the options that hold `base`."""

    __slots__ = ("base",)

    def __init__(self, serialized: bytes, base: bytes, executor_type: str | None) -> None:
        super().__init__(executor_type)
        self._config_proto_serialized = serialized  # the setter takes no bytes
        self.base = base


_call_counts: Any = polymorphic_function._frequent_tracing_detector_manager  # noqa: SLF001
_optimizer = grappler.install()
_everywhere = _Everywhere()
_races = deferred()


def enable(config: Config | None = None) -> None:
    """From now on every tf.function that is called in this process, in any thread, is stitched.

    Under `Config(never_slower=True)` it runs no race, as no call is ours to run it after: kernels that are known to
    lose, from `function`, `stitching` or a conversion, are left out.
    """
    if enabled():
        _everywhere.switch(grappler.params_of(config or default_config()))


def disable() -> None:
    """Undoes `enable`. Functions that were decorated, or run inside `stitching`, are stitched as before."""
    _everywhere.switch(None)
