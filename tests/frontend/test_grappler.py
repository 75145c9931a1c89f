"""The optimizer in the process: what it remembers, and what happens when it fails."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from tf_stitch.config import Config
from tf_stitch.errors import EnvironmentProblem, StrictError
from tf_stitch.frontend import grappler
from tf_stitch.frontend.engine import Engine
from tf_stitch.frontend.function import disable, enable, function, stitching

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def optimizer() -> Iterator[grappler.Optimizer]:
    found = grappler.install()
    found.forget()
    found.reset()
    yield found
    found.forget()


def gelu(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * x * (1.0 + tf.math.erf(x / 2.0**0.5))


X = np.linspace(-4, 4, 24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config(max_cluster_size=3, exclude=frozenset({"Tanh", "Exp"})),
        Config(cpu_baseline="x86-64-v2", compiler_timeout=2.5),
    ],
)
def test_the_config_survives_its_journey_through_a_string(config: Config) -> None:
    assert grappler.config_of(grappler.params_of(config)) == config


def test_the_default_config_is_an_empty_string() -> None:
    assert grappler.params_of(Config()) == ""


def test_counts(optimizer: grappler.Optimizer) -> None:
    with stitching():
        tf.function(gelu)(X)
    counts = optimizer.counts()
    assert (counts.stitched, counts.kernels, counts.failed) == (1, 1, 0)
    assert counts.graphs == 2  # TensorFlow optimizes twice; the second time there is nothing left
    assert counts.seconds > 0


def test_the_same_graph_is_answered_from_memory(optimizer: grappler.Optimizer) -> None:
    function_ = tf.function(gelu)
    with stitching():
        expected = function_(X)
    with tf.device("/CPU:0"), stitching():
        again = tf.function(gelu)
        found = again(X)
    np.testing.assert_array_equal(found, expected)
    counts = optimizer.counts()
    assert counts.kernels <= counts.stitched  # no graph was compiled twice


def test_another_config_is_another_answer(optimizer: grappler.Optimizer) -> None:
    function_ = tf.function(gelu)
    with stitching():
        function_(X)
    with stitching(Config(exclude=frozenset({"Erf"}))):
        function_(X)
    assert optimizer.counts().rejections.get("EXCLUDED") == 1


def test_fifty_batch_sizes_are_one_compile(optimizer: grappler.Optimizer) -> None:
    stitched = function(gelu, input_signature=[tf.TensorSpec([None, 6])])
    for size in range(50):
        x = np.linspace(-3, 3, size * 6, dtype=np.float32).reshape(size, 6)
        np.testing.assert_allclose(stitched(x), gelu(tf.constant(x)), rtol=1e-6, atol=1e-6)
    assert optimizer.counts().kernels == 1
    assert optimizer.counts().compiled <= 1


def test_many_threads_make_the_first_call(optimizer: grappler.Optimizer) -> None:
    stitched = function(gelu)
    expected = gelu(tf.constant(X)).numpy()
    results: list[Any] = []
    barrier = threading.Barrier(16)

    def call() -> None:
        barrier.wait()
        results.append(stitched(X).numpy())

    threads = [threading.Thread(target=call) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 16
    for result in results:
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)
    assert optimizer.counts().kernels == 1


class Broken:
    """An engine that fails."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, _: Config) -> Engine:
        raise self.error


def test_an_exception_leaves_the_model_as_it_was(
    optimizer: grappler.Optimizer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TF_STITCH_STRICT", "0")
    monkeypatch.setattr(grappler, "engine_for", Broken(RuntimeError("no luck")))
    with stitching(), caplog.at_level(logging.ERROR, "tf_stitch"):
        np.testing.assert_allclose(tf.function(gelu)(X), gelu(tf.constant(X)), rtol=1e-5, atol=1e-6)
    assert optimizer.counts().failed == 2
    assert "no luck" in caplog.text


def test_no_compiler_is_said_once(
    optimizer: grappler.Optimizer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TF_STITCH_STRICT", "0")
    monkeypatch.setattr(grappler, "engine_for", Broken(EnvironmentProblem("there is no compiler")))
    with stitching(), caplog.at_level(logging.WARNING, "tf_stitch"):
        for _ in range(3):
            tf.function(gelu)(X)
    ours = [r.message for r in caplog.records if r.name.startswith("tf_stitch")]  # TensorFlow warns of retracing
    assert ours == ["functions run unstitched: there is no compiler"]


def _call_and_wait(called: Any) -> None:
    called(X)
    time.sleep(30)


@pytest.mark.usefixtures("optimizer")
def test_an_interrupt_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    stitched = function(gelu)
    with monkeypatch.context() as patch:
        patch.setattr(grappler, "engine_for", Broken(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            stitched(X)
        with pytest.raises(KeyboardInterrupt), stitching():
            tf.function(gelu)(X)
        enable()
        try:
            with pytest.raises(KeyboardInterrupt):
                _call_and_wait(tf.function(gelu))
        finally:
            disable()
    np.testing.assert_allclose(stitched(X), gelu(tf.constant(X)), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("optimizer")
def test_strict_raises_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_STITCH_STRICT", "1")
    monkeypatch.setattr(grappler, "engine_for", Broken(EnvironmentProblem("there is no compiler")))
    with pytest.raises(StrictError, match="there is no compiler"):
        function(gelu)(X)
    with pytest.raises(StrictError, match="there is no compiler"), stitching():
        tf.function(gelu)(X)
    monkeypatch.undo()
    function(gelu)(X)


@pytest.mark.usefixtures("optimizer")
def test_switched_off_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_STITCH", "0")
    function(gelu)(X)
    with stitching():
        tf.function(gelu)(X)
    assert grappler.install().counts().graphs == 0


def test_tf1_sessions(optimizer: grappler.Optimizer) -> None:
    """With the function library optimized too: a fallback is never stitched in its turn."""
    from tf_stitch.frontend.options import add_optimizer

    config = tf.compat.v1.ConfigProto()
    add_optimizer(config, "")
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 6])
        y = tf.compat.v1.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, gelu(y) + x), [0, x])[1]
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        found = session.run(y, {x: X})
    expected = tf.constant(X)
    for _ in range(3):
        expected = gelu(expected) + X
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert optimizer.counts().kernels == 1
    assert optimizer.counts().failed == 0
