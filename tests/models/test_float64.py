"""The float64 oracle: equal to the same function written in float64, whatever ops lie between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bench import float64

Body = Callable[..., Any]
RANDOM = np.random.default_rng(0)
IMAGE = RANDOM.standard_normal((2, 7, 9, 3)).astype(np.float32)
ROWS = RANDOM.standard_normal((5, 8)).astype(np.float32)


def oracle_of(body: Body, *arrays: np.ndarray) -> float64.Float64Model:
    specs = [tf.TensorSpec([None] * a.ndim, a.dtype, f"x{i}") for i, a in enumerate(arrays)]
    return float64.from_concrete_function(tf.function(body).get_concrete_function(*specs))


def outputs(model: float64.Float64Model, *arrays: np.ndarray) -> list[np.ndarray]:
    results = model({f"x{i}": a for i, a in enumerate(arrays)})
    return [results[f"output_{i}"] for i in range(len(results))]


def assert_same_in_float64(body: Body, *arrays: np.ndarray) -> None:
    """The body takes its dtype from its arguments, so TensorFlow itself can run it in float64."""
    wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]
    expected = [t.numpy() for t in tf.nest.flatten(tf.function(body)(*map(tf.constant, wide)))]
    model = oracle_of(body, *arrays)
    for found, right in zip(outputs(model, *arrays), expected, strict=True):
        assert found.dtype == right.dtype
        np.testing.assert_allclose(found, right, rtol=1e-13, atol=1e-14)
    assert not model.kept


def soft_max(x: Any) -> Any:
    return tf.nn.softmax(x / tf.cast(3, x.dtype)) + tf.constant(0.125, x.dtype)


def branch(x: Any) -> Any:
    return tf.cond(tf.reduce_sum(x) > 1e9, lambda: x, lambda: tf.exp(x) - 1)


def loop(x: Any) -> Any:
    return tf.while_loop(lambda i, _: i < 20, lambda i, y: (i + 1, tf.sin(y) + x), (0, x))[1]


def tensor_list(x: Any) -> Any:
    rows = tf.TensorArray(x.dtype, size=5, element_shape=[8])
    for i in tf.range(5):
        rows = rows.write(i, tf.tanh(x[i]))
    return rows.stack()


def pieces(x: Any) -> Any:
    a, b = tf.split(x, 2, axis=1)
    return tf.stack([a, b]), tf.math.top_k(x, 3).values, tf.argmax(x, 1), tf.cast(x, tf.int32)


@pytest.mark.parametrize("body", [soft_max, branch, loop, tensor_list, pieces])
def test_equals_tensorflow_in_float64(body: Body):
    assert_same_in_float64(body, ROWS)


def test_convolution_of_float64_weights():
    kernel = RANDOM.standard_normal((3, 3, 3, 4)).astype(np.float32)
    assert_same_in_float64(lambda x: tf.nn.conv2d(x, tf.cast(kernel, x.dtype), 2, "SAME"), IMAGE)


def test_constants_keep_their_float32_value():
    (found,) = outputs(oracle_of(lambda x: x * 0.1, ROWS), ROWS)
    np.testing.assert_array_equal(found, ROWS.astype(np.float64) * np.float64(np.float32(0.1)))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_batch_norm(layout: str):
    scale, offset, mean = RANDOM.standard_normal((3, 3)).astype(np.float32)
    variance = np.array([0.5, 1e-4, 20], np.float32)
    image = IMAGE if layout == "NHWC" else np.moveaxis(IMAGE, 3, 1)

    def body(x: Any) -> Any:
        return tf.compat.v1.nn.fused_batch_norm(x, scale, offset, mean, variance, 0.001, layout, is_training=False)[0]

    (found,) = outputs(oracle_of(body, image), image)
    right = (IMAGE.astype(np.float64) - mean) * scale / np.sqrt(variance + np.float64(np.float32(0.001))) + offset
    np.testing.assert_allclose(np.moveaxis(found, 1, 3) if layout == "NCHW" else found, right, rtol=1e-12)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("newest", [1.0, 0.25])
def test_batch_norm_in_training_and_its_gradient(layout: str, newest: float):
    scale, offset, mean, weights = RANDOM.standard_normal((4, 3)).astype(np.float32)
    variance = np.array([0.5, 1e-4, 20], np.float32)

    def outputs_and_gradients(norm: Body, x: Any) -> Any:
        with tf.GradientTape() as tape:
            given = [x, *(tf.cast(p, x.dtype) for p in (scale, offset))]
            tape.watch(given)
            y, new_mean, new_variance = norm(*given)
            loss = tf.reduce_sum(tf.sin(y) * tf.cast(weights, x.dtype))
        return y, new_mean, new_variance, *tape.gradient(loss, given)

    def fused(x: Any, scale: Any, offset: Any) -> Any:
        x = tf.transpose(x, [0, 3, 1, 2]) if layout == "NCHW" else x
        y, *moments = tf.compat.v1.nn.fused_batch_norm(
            x, scale, offset, mean, variance, 0.001, layout, is_training=True, exponential_avg_factor=newest
        )
        return tf.transpose(y, [0, 2, 3, 1]) if layout == "NCHW" else y, *moments

    def by_hand(x: Any, scale: Any, offset: Any) -> Any:
        m, v = tf.nn.moments(x, [0, 1, 2])
        count = IMAGE.size // 3
        y = (x - m) * scale / tf.sqrt(v + np.float64(np.float32(0.001))) + offset
        pairs = (mean, m), (variance, v * count / (count - 1))
        return y, *((1 - newest) * tf.cast(old, x.dtype) + newest * new for old, new in pairs)

    model = oracle_of(lambda x: outputs_and_gradients(fused, x), IMAGE)
    right = outputs_and_gradients(by_hand, tf.constant(IMAGE.astype(np.float64)))
    for found, wanted in zip(outputs(model, IMAGE), right, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-12)
    assert not model.kept


@pytest.mark.parametrize("size", [(7, 9), (14, 27), (4, 5), (1, 1), (23, 3)])
@pytest.mark.parametrize("mode", ["plain", "half_pixel_centers", "align_corners"])
def test_bilinear_resizing_differs_from_float32_by_rounding_only(mode: str, size: tuple[int, int]):
    options = {} if mode == "plain" else {mode: True}

    def body(x: Any) -> Any:
        return tf.raw_ops.ResizeBilinear(images=x, size=size, **options)

    model = oracle_of(body, IMAGE)
    (found,) = outputs(model, IMAGE)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, body(IMAGE), atol=3e-6)
    assert not model.kept


def test_bilinear_resizing_of_integers():
    image = (IMAGE * 50).astype(np.int32)
    (found,) = outputs(oracle_of(lambda x: tf.compat.v1.image.resize_bilinear(x, (5, 5)), image), image)
    assert found.dtype == np.float64


def test_what_has_no_float64_kernel_is_kept_and_named():
    def body(x: Any) -> Any:
        boxes = tf.constant([[0.1, 0.2, 0.7, 0.9]])
        return tf.exp(tf.raw_ops.CropAndResize(image=x, boxes=boxes, box_ind=[0], crop_size=[4, 4]))

    model = oracle_of(body, IMAGE)
    (found,) = outputs(model, IMAGE)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, body(IMAGE), rtol=1e-5)
    assert dict(model.kept) == {"CropAndResize": 1}


def test_bits_and_random_numbers_keep_their_width():
    def body(x: Any) -> Any:
        return tf.bitcast(x, tf.int32), tf.random.stateless_uniform([3], (1, 2))

    bits, numbers = outputs(oracle_of(body, ROWS), ROWS)
    np.testing.assert_array_equal(bits, ROWS.view(np.int32))
    np.testing.assert_array_equal(numbers, tf.random.stateless_uniform([3], (1, 2)).numpy())


def test_kept_ops_of_unreached_functions_are_not_counted():
    def body(x: Any) -> Any:
        unused = tf.bitcast(x, tf.int32)  # noqa: F841
        return x + 1

    assert not oracle_of(body, ROWS).kept


def test_variables_tables_and_assets_of_a_saved_model(tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("one\ntwo\n")

    class Module(tf.Module):
        def __init__(self) -> None:
            self.scale = tf.Variable(tf.constant(0.1))
            lines = tf.lookup.TextFileIndex.LINE_NUMBER
            words = tf.lookup.TextFileIndex.WHOLE_LINE
            initializer = tf.lookup.TextFileInitializer(str(names), tf.string, words, tf.int64, lines)
            self.table = tf.lookup.StaticHashTable(initializer, -1)

        @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None], tf.string)])
        def serve(self, x: Any, words: Any) -> Any:
            return {"y": x * self.scale, "z": self.table.lookup(words)}

    module = Module()
    tf.saved_model.save(module, str(tmp_path / "saved"), signatures=module.serve)
    names.unlink()
    model = float64.from_saved_model(tmp_path / "saved")
    found = model({"x": np.array([1, 3], np.float32), "words": np.array([b"two", b"six"])})
    np.testing.assert_array_equal(found["y"], np.array([1.0, 3.0]) * np.float32(0.1).astype(np.float64))
    np.testing.assert_array_equal(found["z"], [1, -1])
    model.close()
