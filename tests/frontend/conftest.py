"""A cluster stitched by hand: `t = -x * x` of a vector, its kernel compiled from the C++ below."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tf_stitch.ir.body import Body
from tf_stitch.ir.graph import Graph, Value
from tf_stitch.passes.clustering import Cluster
from tf_stitch.pipeline import Stitched, StitchedCluster
from tf_stitch.plan.plan import StitchPlan
from tf_stitch.runtime import paths, stitch_op
from tf_stitch.toolchain.artifact import Artifact, Source

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KERNEL = r"""
#include "abi.h"
static int Shape(const StitchTensor* inputs, long long* symbols, long long* output_dims) {
  symbols[0] = output_dims[0] = inputs[0].dims[0];
  return symbols[0] == 7 ? 1 : 0;  // 7 elements: a guard that fails
}
static void Run(const StitchTensor* inputs, void* const* outputs, const long long* symbols,
                const StitchHost*) {
  const float* x = static_cast<const float*>(inputs[0].data);
  float* y = static_cast<float*>(outputs[0]);
  for (long long i = 0; i < symbols[0]; ++i) y[i] = -x[i] * x[i];
}
static const int ranks[] = {1};
static const int forwards[] = {-1};
static const char* const guards[] = {"the vector does not have 7 elements"};
extern "C" const StitchKernel tf_stitch_kernel = {
    TF_STITCH_ABI_VERSION, 1, 1, 1, 1, ranks, forwards, "minus_square", guards, Shape, Run};
"""


@dataclass(frozen=True)
class ByHand:
    """Makes a Stitched of nodes that compute -x * x."""

    artifact: Artifact

    def __call__(
        self,
        graph: Graph,
        nodes: Sequence[str],
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        **more: Any,
    ) -> Stitched:
        constants, controls = more.pop("constants", ()), more.pop("controls", ())
        plan = StitchPlan(Body((), tuple(map(graph.type_of, inputs)), ()), (), (), {})
        name = more.pop("name", "minus_square")
        cluster = Cluster(name, tuple(nodes), constants, tuple(inputs), tuple(outputs), controls, plan)
        none: Any = None  # the rewrite does not read the kernel
        made = StitchedCluster(cluster, none, Source("minus_square", KERNEL), self.artifact)
        return Stitched(graph, (made,), ())


@pytest.fixture(scope="session")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> ByHand:
    directory: Path = tmp_path_factory.mktemp("kernel")
    (directory / "kernel.cc").write_text(KERNEL)
    library = directory / "kernel.so"
    command = [
        "g++",
        "-O1",
        "-shared",
        "-fPIC",
        "-I",
        str(paths.include_root()),
        "kernel.cc",
        "-o",
        "kernel.so",
    ]
    subprocess.run(command, cwd=directory, check=True)
    key = hashlib.sha256(KERNEL.encode()).hexdigest()
    stitch_op.register_kernel(key, str(library))
    return ByHand(Artifact(key, library, "x86_64", 0.0))
