"""TF_STITCH_DUMP=dir: every stage of every graph as a file.

    dir/001_serve/01_graph.txt            what came in
                  02_clusters.txt         clusters, and rejections with their reasons
                  add_1/03_body.txt       one directory a cluster
                        04_plan.txt
                        05_kernel.txt
                        06_source.cpp
                        07_artifact.txt   its key and path, or what the compiler said
                        repro.py          builds the kernel and runs it against TensorFlow's ops
                  08_rewritten.txt        what goes out

A file is written as soon as its stage is done: what a crash leaves behind is what led to it.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tf_stitch.debug.graph_text import print_clustering, print_graph, print_rewritten
from tf_stitch.debug.repro import repro_script
from tf_stitch.errors import BuildError
from tf_stitch.ir.graph import Graph
from tf_stitch.ir.printer import print_body
from tf_stitch.lower.kernel import Kernel
from tf_stitch.lower.printer import print_kernel, print_schedules
from tf_stitch.passes.clustering import Cluster, Clustering
from tf_stitch.plan.plan import StitchPlan
from tf_stitch.plan.printer import print_plan
from tf_stitch.toolchain.artifact import Artifact, CudaSource, Source

if TYPE_CHECKING:
    from collections.abc import Callable

    Observer = Callable[[str, object], None]

_LOG = logging.getLogger("tf_stitch.dump")


def observer_from_environment(isa: str) -> Observer | None:
    """An observer for one run of the pipeline, where TF_STITCH_DUMP names a directory."""
    directory = os.environ.get("TF_STITCH_DUMP")
    return Dump(Path(directory), isa) if directory else None


class Dump:
    """Writes what it is shown: called with each stage's name and what it made, in the pipeline's order."""

    def __init__(self, directory: Path, isa: str) -> None:
        """isa: what is generated for; see `backends.isa_of`."""
        self.directory = directory
        self.isa = isa
        self._graph: Graph | None = None
        self._graphs: dict[int, Path] = {}  # by id of the graph: they live as long as the run
        self._cluster: Cluster | None = None
        self._home = directory
        self._unbuilt: list[Path] = []
        self._failed = False

    def __call__(self, stage: str, made: Any) -> None:
        """Never raises: a model must run, whether or not the disk is full."""
        if self._failed:
            return
        try:
            self._write(stage, made)
        except OSError as error:
            self._failed = True
            _LOG.warning("TF_STITCH_DUMP=%s: nothing more is dumped: %s", self.directory, error)

    def _write(self, stage: str, made: Any) -> None:
        match stage, made:
            case "graph", Graph():
                self._graph = made
                self._graphs[id(made)] = self._new_directory(made.name)
                self._put(self._of_graph() / "01_graph.txt", print_graph(made))
            case "clustering", Clustering():
                assert self._graph is not None
                self._put(self._of_graph() / "02_clusters.txt", print_clustering(self._graph, made))
            case "cluster", Cluster():
                self._cluster = made
                self._home = self._of_graph() / made.name
                self._home.mkdir(exist_ok=True)
                self._put(self._home / "03_body.txt", print_body(made.body))
            case "plan", StitchPlan():
                self._put(self._home / "04_plan.txt", print_plan(made))
            case "kernel", (Kernel() as kernel, schedules):
                self._put(self._home / "05_kernel.txt", f"{print_kernel(kernel)}\n{print_schedules(schedules)}")
            case "source", Source():
                self._put(self._home / ("06_source.cu" if isinstance(made, CudaSource) else "06_source.cpp"), made.text)
                assert self._graph is not None
                assert self._cluster is not None
                script = repro_script(self._graph, self._cluster, made.name, self.isa)
                self._put(self._home / "repro.py", script)
                self._unbuilt.append(self._home)
            case "artifact", Artifact() | BuildError():
                self._put(self._unbuilt.pop(0) / "07_artifact.txt", _artifact(made))
            case "stitched", stitched:
                self._put(self._graphs[id(stitched.graph)] / "08_rewritten.txt", print_rewritten(stitched))
            case _:
                raise AssertionError(f"stage {stage} with a {type(made).__name__}")

    def _of_graph(self) -> Path:
        return self._graphs[id(self._graph)]

    def _new_directory(self, name: str) -> Path:
        """Numbered on; of two processes or threads that dump at a time, each gets one of its own."""
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:60] or "main"
        self.directory.mkdir(parents=True, exist_ok=True)
        number = 1 + len(list(self.directory.iterdir()))
        while True:
            path = self.directory / f"{number:03}_{stem}"
            if not list(self.directory.glob(f"{number:03}_*")):
                try:
                    path.mkdir()
                except FileExistsError:
                    pass
                else:
                    return path
            number += 1

    def _put(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")


def _artifact(made: Artifact | BuildError) -> str:
    if isinstance(made, BuildError):
        report = getattr(made, "report", None)
        return f"{report() if report else made}\n"
    compiled = f"{made.compile_seconds:.3f} CPU seconds" if made.compile_seconds else "from the cache"
    return f"key:      {made.key}\npath:     {made.path}\nrequires: {made.requires}\ncompiled: {compiled}\n"
