"""One step of training as a SavedModel.

    signature(batch)  → {"loss": f32[], "gradient/0": …, "gradient/1": …}, and the variables are updated
    loaded.variables  all of them, the optimizer's included

Gradients are numbered in the order of the trainable variables, less those that the loss does not depend on. They are
dense, whatever the optimizer makes of them: those of an embedding come as rows and where they belong, and are added up
only for the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Adam's, of BERT's pre-training (Devlin et al., 2018). Three steps change a weight of 0.02 by up to 1.5 %. A gradient
# that is 0 but for rounding, as of a bias that a softmax ignores, is far below EPSILON and hardly moves its variable.
LEARNING_RATE = 1e-4
EPSILON = 1e-6


def save_step(
    destination: Path,
    loss: Callable[..., Any],
    batch: Sequence[Any],
    variables: Sequence[Any],
    optimizer: Any = None,
) -> None:
    """Writes a SavedModel whose signature minimises a loss by one step.

    loss: of tensors like the specs in `batch`, f32[]. variables: all of the model's, which are there already.
    optimizer: tf_keras's; None for Adam.
    """
    import tensorflow as tf

    learned = _learned(loss, batch, variables)
    optimizer = optimizer or adam()
    optimizer.build(learned)

    @tf.function(input_signature=batch)
    def step(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            value = loss(*tensors)
        gradients = tape.gradient(value, learned)
        optimizer.apply_gradients(zip(gradients, learned, strict=True))
        return outputs(value, gradients)

    gradients_of = {id(variable) for variable in learned}
    rest = [v for v in (*variables, *optimizer.variables, optimizer.learning_rate) if id(v) not in gradients_of]
    module: Any = tf.train.Checkpoint(variables=[*learned, *rest], step=step)
    tf.saved_model.save(module, str(destination), signatures=step)


def adam(learning_rate: float = LEARNING_RATE) -> Any:
    import tf_keras  # pyright: ignore[reportMissingImports]

    return tf_keras.optimizers.Adam(learning_rate, epsilon=EPSILON, jit_compile=False)


def outputs(loss: Any, gradients: Sequence[Any]) -> dict[str, Any]:
    """Of a step, by name."""
    import tensorflow as tf

    return {"loss": loss, **{f"gradient/{n}": tf.convert_to_tensor(g) for n, g in enumerate(gradients)}}


def _learned(loss: Callable[..., Any], batch: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """The variables that are trainable and have a gradient."""
    import tensorflow as tf

    trainable = [v for v in variables if v.trainable]
    found: list[Any] = []

    @tf.function(input_signature=batch)
    def traced(*tensors: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            value = loss(*tensors)
        gradients = tape.gradient(value, trainable)
        found.extend(v for v, g in zip(trainable, gradients, strict=True) if g is not None)

    traced.get_concrete_function()
    return found
