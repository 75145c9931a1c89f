"""How TensorFlow is told to run the optimizer "tf_stitch": the options of a function call, with it in them.

A function is optimized under the options of the thread that calls it, which are part of the key of its
instance:
the same function called elsewhere is untouched. Stitching has to see the graph after inlining and before
`arithmetic` and `remap` replace ops by fused ones, so all of Grappler's optimizers are listed by name, ours
among them. The list is TensorFlow's own order (tensorflow/core/grappler/optimizers/meta_optimizer.cc), and
honours what the user switched on or off with tf.config.optimizer.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tensorflow.python.eager import context

from tf_stitch.frontend.protos import ConfigProto, RewriterConfig
from tf_stitch.runtime.stitch_op import OPTIMIZER_NAME

if TYPE_CHECKING:
    from tf_stitch.frontend.protos import Proto

FunctionCallOptions = context.FunctionCallOptions

_SWITCHES = (
    # name, the field that switches it, whether it is on by default
    ("function", "function_optimization", True),
    ("common_subgraph_elimination", "common_subgraph_elimination", True),
    ("debug_stripper", "debug_stripper", False),
    ("constfold", "constant_folding", True),
    ("shape", "shape_optimization", True),
    ("auto_mixed_precision", "auto_mixed_precision", False),
    ("auto_mixed_precision_cpu", "auto_mixed_precision_cpu", False),
    ("auto_mixed_precision_onednn_bfloat16", "auto_mixed_precision_onednn_bfloat16", False),
    ("pin_to_host", "pin_to_host_optimization", False),
    (OPTIMIZER_NAME, "", True),
    ("arithmetic", "arithmetic_optimization", True),
    ("layout", "layout_optimizer", True),
    ("remap", "remapping", True),
    ("loop", "loop_optimization", True),
    ("dependency", "dependency_optimization", True),
    ("memory", "memory_optimization", True),
    ("scoped_allocator", "scoped_allocator_optimization", False),
)


def optimizer_names(rewrite_options: Proto) -> list[str]:
    """Grappler's optimizers in order, "tf_stitch" among them; what the user switched off is left out."""
    if rewrite_options.optimizers:
        names = [n for n in rewrite_options.optimizers if n != OPTIMIZER_NAME]
        place = next((i for i, n in enumerate(names) if n in ("arithmetic", "layout", "remap")), len(names))
        return [*names[:place], OPTIMIZER_NAME, *names[place:]]
    if rewrite_options.disable_meta_optimizer:
        return ["function", OPTIMIZER_NAME]
    names = [] if rewrite_options.disable_model_pruning else ["pruning"]
    for name, field, default in _SWITCHES:
        if not field or _is_on(rewrite_options, field, default=default):
            names.append(name)
    return names


def _is_on(rewrite_options: Proto, field: str, *, default: bool) -> bool:
    value = getattr(rewrite_options, field)
    if field == "memory_optimization":
        return value != RewriterConfig.NO_MEM_OPT
    return default if value == RewriterConfig.DEFAULT else value != RewriterConfig.OFF


def add_optimizer(config_proto: Proto, params: str) -> None:
    """Enables "tf_stitch" in a ConfigProto. One that has it already gets the new parameters."""
    rewrite_options = config_proto.graph_options.rewrite_options
    names = optimizer_names(rewrite_options)
    rewrite_options.optimizers[:] = names
    rewrite_options.disable_meta_optimizer = False
    rewrite_options.min_graph_nodes = -1  # of any size: a function of three nodes may be one kernel
    others = [o for o in rewrite_options.custom_optimizers if o.name != OPTIMIZER_NAME]
    del rewrite_options.custom_optimizers[:]
    rewrite_options.custom_optimizers.extend(others)
    ours = rewrite_options.custom_optimizers.add(name=OPTIMIZER_NAME)
    ours.parameter_map["params"].s = params.encode()


def stitched_options(options: FunctionCallOptions, params: str) -> FunctionCallOptions:
    """The same options of a call, with "tf_stitch" enabled. A new object: TensorFlow edits them in place."""
    serialized = stitched_config(options.config_proto_serialized, params)
    stitched = FunctionCallOptions(executor_type=options.executor_type)
    stitched._config_proto_serialized = serialized  # noqa: SLF001  the setter takes no bytes
    return stitched


def raced_options(options: FunctionCallOptions) -> FunctionCallOptions:
    """The same options of a call, less the optimizers that would see through a race; see `frontend/tuning`."""
    config = ConfigProto.FromString(options.config_proto_serialized)
    rewrite_options = config.graph_options.rewrite_options
    left = [n for n in rewrite_options.optimizers if n not in (OPTIMIZER_NAME, "pruning", "dependency")]
    rewrite_options.optimizers[:] = left
    rewrite_options.disable_model_pruning = True
    rewrite_options.dependency_optimization = RewriterConfig.OFF
    raced = FunctionCallOptions(executor_type=options.executor_type)
    raced._config_proto_serialized = config.SerializeToString(deterministic=True)  # noqa: SLF001  as above
    return raced


@functools.lru_cache(maxsize=128)
def stitched_config(serialized: bytes, params: str) -> bytes:
    """A serialized ConfigProto with "tf_stitch" enabled."""
    config = ConfigProto.FromString(serialized)
    add_optimizer(config, params)
    return config.SerializeToString(deterministic=True)


def is_stitched(serialized: bytes) -> bool:
    """Whether a serialized ConfigProto enables "tf_stitch"."""
    return params_in(serialized) is not None


@functools.lru_cache(maxsize=128)
def params_in(serialized: bytes) -> str | None:
    """The parameters that a serialized ConfigProto gives "tf_stitch"; None where it does not enable it."""
    config = ConfigProto.FromString(serialized)
    for optimizer in config.graph_options.rewrite_options.custom_optimizers:
        if optimizer.name == OPTIMIZER_NAME:
            return optimizer.parameter_map["params"].s.decode()
    return None
