"""`tf_stitch.explain`: why each node was stitched, or not."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tf_stitch import pipeline
from tf_stitch.backends import isa_of
from tf_stitch.config import Config, default_config
from tf_stitch.errors import EnvironmentProblem, UsageError
from tf_stitch.report.explanation import Explanation, explained_graph
from tf_stitch.toolchain.artifact import Artifact
from tf_stitch.toolchain.host import HostToolchain
from tf_stitch.tuning.contest import Unraceable, contest_of, nodes_hash
from tf_stitch.tuning.tuner import without_losers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tf_stitch.errors import BuildError
    from tf_stitch.ir.graph import Graph
    from tf_stitch.pipeline import Stitched, StitchedCluster
    from tf_stitch.toolchain.artifact import Source
    from tf_stitch.tuning.race import Outcome
    from tf_stitch.tuning.records import Record, Records


def explain(
    target: str | os.PathLike[str] | Any, *args: Any, config: Config | None = None, **kwargs: Any
) -> Explanation:
    """What would be stitched, how, and why the rest would not. Nothing is run, compiled or written.

    Beside the estimates of a cluster stands what races on this machine gave, if there were any. Under
    `Config(never_slower=True)` the clusters that are known to lose are among the rest.

    target: the directory of a SavedModel, or a function: a tf.function, a `tf_stitch.function`, a concrete
      function, or any Python function of tensors.
    args, kwargs: for a function: arguments or `tf.TensorSpec`s to trace it with.

    Raises:
      UsageError: where there is nothing to explain at `target`.
    """
    from tf_stitch.frontend import engine, explainable

    if isinstance(target, str | os.PathLike):
        path = Path(target)
        found = explainable.of_saved_model(path)
        name = str(path)
    elif callable(target):
        config = config or _config_of(target)
        found = explainable.of_function(target, args, kwargs)
        name = getattr(target, "__name__", None) or type(target).__name__
    else:
        raise UsageError(f"{target!r} cannot be explained; give a SavedModel's directory or a function.")
    config = config or default_config()
    made_for = engine.targets_of(config)
    results = pipeline.stitch_all(found.graphs, config, made_for, NoToolchain())
    races = Races.of(config)
    if config.never_slower:
        results = [races.without_losers(result) for result in results]
    explained = tuple(explained_graph(result, config, races.of_cluster) for result in results)
    return Explanation(name, isa_of(made_for), explained, found.skipped, found.already, config.changed())


def _config_of(function: Any) -> Config:
    """What a `tf_stitch.function` was decorated with."""
    from tf_stitch.frontend.grappler import config_of

    params = getattr(function, "_stitch_params", None)
    return default_config() if params is None else config_of(params)


@dataclass(frozen=True)
class Races:
    """What is known of the times of clusters, whose kernels are not built here.

    toolchain: knows their keys; None where there is no compiler, or nothing known.
    """

    toolchain: HostToolchain | None
    records: Records

    @staticmethod
    def of(config: Config) -> Races:
        from tf_stitch.frontend.engine import engine_for
        from tf_stitch.frontend.tuning import records

        known = records()
        try:
            toolchain = engine_for(config).toolchain if known.exist else None
            return Races(toolchain if isinstance(toolchain, HostToolchain) else None, known)
        except EnvironmentProblem:
            return Races(None, known)

    def of_cluster(self, stitched: Stitched, made: StitchedCluster) -> tuple[Record, ...]:
        if self.toolchain is None:
            return ()
        nodes = nodes_hash(stitched.graph, made.cluster)
        return tuple(self.records.of_kernel(self.toolchain.key(made.source), nodes))

    def without_losers(self, stitched: Stitched) -> Stitched:
        return without_losers(stitched, [self._outcome(stitched.graph, made) for made in stitched.clusters])

    def _outcome(self, graph: Graph, made: StitchedCluster) -> Outcome | None:
        if self.toolchain is None:
            return None
        try:
            return self.records.lookup(contest_of(graph, made, self.toolchain.key(made.source)))
        except Unraceable:
            return None


@dataclass(frozen=True)
class NoToolchain:
    """Stands for a toolchain: an explanation needs the sources of kernels, not what they compile to."""

    requires: str = ""

    def build(self, sources: Sequence[Source]) -> list[Artifact | BuildError]:
        keys = (hashlib.sha256(source.text.encode()).hexdigest() for source in sources)
        return [Artifact(key, Path(os.devnull), self.requires, 0.0) for key in keys]
