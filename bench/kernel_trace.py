"""What TensorFlow's profiler has seen of one call."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import tensorflow as tf
from tensorflow.python.framework import op_def_registry
from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

# The tracer's level for kernels of ops and of XLA.
_KERNELS = 2
_OP = re.compile(r"(?P<node>[^:]+):(?P<op>\w+)")


def executed_nodes(call: Callable[[], object]) -> Counter[tuple[str, str]]:
    """(node, op) → how often it ran in a call. Ops that TensorFlow holds to cost nothing are not in it.

    The executor leaves out, too, what it has measured to be cheap; but it measures only while nobody traces.
    So the first call of a function has to be traced as well.
    """
    found = (_OP.fullmatch(name) for name, _ in _events(call))
    return Counter((m["node"], m["op"]) for m in found if m and op_def_registry.get(m["op"]) is not None)


def executed_instructions(call: Callable[[], object]) -> Counter[str]:
    """Name of an HLO instruction → how often XLA's runtime ran it in a call."""
    return Counter(hlo_op for _, hlo_op in _events(call) if hlo_op)


def _events(call: Callable[[], object]) -> Iterator[tuple[str, str]]:
    """(name, the `hlo_op` it stands for) of each event."""
    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=_KERNELS, python_tracer_level=0, device_tracer_level=0
    )
    with tempfile.TemporaryDirectory() as directory:
        with tf.profiler.experimental.Profile(directory, options):
            call()
        spaces = [XSpace.FromString(p.read_bytes()) for p in Path(directory).rglob("*.xplane.pb")]
    for plane in (plane for space in spaces for plane in space.planes):
        stats = plane.stat_metadata
        for event in (event for line in plane.lines for event in line.events):
            hlo_ops = (
                stats[s.ref_value].name or s.str_value for s in event.stats if stats[s.metadata_id].name == "hlo_op"
            )
            yield plane.event_metadata[event.metadata_id].name, next(hlo_ops, "")
