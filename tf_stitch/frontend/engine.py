"""Engine: the target and the toolchain that a Config asks for. Found once, for finding them takes a while."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tf_stitch import pipeline
from tf_stitch.debug.dump import observer_from_environment
from tf_stitch.debug.logs import configure_from_environment
from tf_stitch.plan.target import Target
from tf_stitch.toolchain.host import HostToolchain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tf_stitch.config import Config
    from tf_stitch.ir.graph import Graph


configure_from_environment()


@dataclass(frozen=True)
class Engine:
    """What stages 3 to 7 need beside a graph."""

    config: Config
    target: Target
    toolchain: HostToolchain

    def stitch(self, graphs: Sequence[Graph], progress: pipeline.Progress | None = None) -> list[pipeline.Stitched]:
        """`pipeline.stitch_all`, one Stitched for each graph."""
        observer = observer_from_environment(self.target)
        return pipeline.stitch_all(graphs, self.config, self.target, self.toolchain, progress, observer)


@functools.lru_cache(maxsize=16)
def engine_for(config: Config) -> Engine:
    """The engine for this machine.

    Raises:
      EnvironmentProblem: where there is no compiler; asked again the next time.
      UsageError: for a baseline that this CPU's family does not have.
    """
    target = Target.baseline(config.cpu_baseline)
    return Engine(config, target, HostToolchain.find(target, timeout=config.compiler_timeout))
