"""Calls that stay calls: a function that Grappler does not inline is stitched when the node that calls it runs.

    PartitionedCall(f=standard_lstm, config_proto=…)      the body of f is optimized under config_proto

Grappler leaves a function a call where TensorFlow may exchange it for another (`api_implements`: Keras' LSTM), where it
is marked `_noinline`, and in some places more. The node optimizes the body when it first runs, under the ConfigProto
that it was traced with, which does not name us where that was outside of our functions. So we name us there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tf_stitch.frontend.fallback import FALLBACK_PREFIX
from tf_stitch.frontend.options import params_in, stitched_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from tf_stitch.frontend.protos import Proto

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_XLA = ("_XlaMustCompile", "_xla_compile_id")


def stitched_calls(graph_def: Proto, params: str, is_older: Callable[[str, str], bool]) -> dict[str, bytes]:
    """The `config_proto` that each call of the main graph should have and has not, by the node's name.

    Calls that another one of us has configured keep what they have, and what XLA compiles is left to it.

    is_older: whether the first params are the second as they were before a race.
    """
    compiled = {f.signature.name for f in graph_def.library.function if _is_for_xla(f)}
    found: dict[str, bytes] = {}
    for node in graph_def.node:
        if node.op not in _CALLS or _is_for_xla(node) or node.attr["config"].s:  # `config`: as V1 wrote it
            continue
        called = node.attr["f"].func.name
        if called in compiled or called.startswith(FALLBACK_PREFIX):
            continue
        own = node.attr["config_proto"].s
        theirs = params_in(own)
        if theirs is None or is_older(theirs, params):
            found[node.name] = stitched_config(own, params)
    return found


def _is_for_xla(proto: Proto) -> bool:
    return any(mark in proto.attr and (proto.attr[mark].b or proto.attr[mark].s) for mark in _XLA)
