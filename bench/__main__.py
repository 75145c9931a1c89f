"""`python -m bench COMMAND`. Each command is a file of its own; TensorFlow is imported only where it runs."""

from __future__ import annotations

import click

from bench.ablation import ablation
from bench.ablation_worker import ablate
from bench.calls import calls
from bench.clusters import clusters
from bench.comparison import compare
from bench.compilation import compilation
from bench.demo import demo
from bench.gpu import gpu
from bench.gpu_bundle import gpu_bundle
from bench.kernel_worker import count_kernels
from bench.kernels import kernels
from bench.models import models
from bench.models_worker import worker as model_worker
from bench.optimality import optimality
from bench.peers import peers
from bench.peers_own import peers_own
from bench.planner import planner
from bench.report import report
from bench.worker import worker


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def bench() -> None:
    """tf_stitch beside TensorFlow and XLA."""


bench.add_command(ablation)
bench.add_command(ablate)
bench.add_command(report)
bench.add_command(clusters)
bench.add_command(demo)
bench.add_command(gpu)
bench.add_command(gpu_bundle)
bench.add_command(optimality)
bench.add_command(peers)
bench.add_command(peers_own)
bench.add_command(planner)
bench.add_command(calls)
bench.add_command(kernels)
bench.add_command(models)
bench.add_command(compare)
bench.add_command(compilation)
bench.add_command(report)
bench.add_command(worker)
bench.add_command(count_kernels)
bench.add_command(model_worker)
bench.add_command(ablate)

if __name__ == "__main__":
    bench(prog_name="python -m bench")
