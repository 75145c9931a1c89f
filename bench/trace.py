"""Which ops a call runs, from TensorFlow's own profiler."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

RULE = (
    "ops executed: kernels in TensorFlow's profile of one call, after Grappler; those that it holds to cost "
    "nothing (Const, Identity, Reshape, …) are not in it"
)


def executed_ops(call: Callable[[], object]) -> Counter[str] | None:
    """Op type → how often its kernel ran in one call. None where the profiler's files cannot be read."""
    try:
        from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace
    except ImportError:
        return None
    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=3, python_tracer_level=0, device_tracer_level=0
    )
    with tempfile.TemporaryDirectory() as directory:
        with tf.profiler.experimental.Profile(directory, options):
            call()
        spaces = [XSpace.FromString(p.read_bytes()) for p in Path(directory).rglob("*.xplane.pb")]
    names = (
        plane.event_metadata[event.metadata_id].name
        for space in spaces
        for plane in space.planes
        for line in plane.lines
        for event in line.events
    )
    return Counter(op for op in map(_op_type, names) if op)


def _op_type(event: str) -> str | None:
    """An executed kernel is traced as `node name:op type`; other events have no op's name after the colon."""
    node, colon, op = event.rpartition(":")
    return op if node and colon and op_def_registry.get(op) is not None else None
