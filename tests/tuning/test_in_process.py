"""never_slower of functions: raced after the first call, obeyed from the second on."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.tuning import models
from tf_stitch import Config, api
from tf_stitch.frontend import function as function_module
from tf_stitch.frontend import grappler, tuning
from tf_stitch.frontend.tuning import Deferred
from tf_stitch.runtime import stitch_op
from tf_stitch.tuning.tuner import Tuner


@pytest.fixture(autouse=True)
def deferred(own_cache, monkeypatch):
    """Nothing known, of this process or of others."""
    fresh = Deferred(Tuner(tuning.records()))
    monkeypatch.setattr(function_module, "_races", fresh)
    monkeypatch.setattr(grappler, "deferred", lambda: fresh)
    grappler.install().forget()
    return fresh


def calls_in(call) -> int:
    before = stitch_op.counters()["total"]["calls"]
    call()
    return stitch_op.counters()["total"]["calls"] - before


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


X = tf.constant(np.linspace(-4, 4, 8 * 48, dtype=np.float32).reshape(8, 48))


def test_a_winner_stays(monkeypatch):
    raced = models.rig(monkeypatch, lambda contest: False)
    f = api.function(models.gelu, never_slower=True)
    close(f(X), models.gelu(X))
    assert len(raced) == 1
    assert calls_in(lambda: close(f(X), models.gelu(X))) == 1
    assert len(raced) == 1
    other = api.function(models.gelu, config=Config(never_slower=True))
    other(X)
    assert len(raced) == 1  # the same contest


def test_a_loser_is_left_out_from_the_next_call_on(monkeypatch, deferred):
    raced = models.rig(monkeypatch, lambda contest: True)
    f = api.function(models.gelu, never_slower=True)
    close(f(X), models.gelu(X))
    assert len(raced) == deferred.epoch == 1
    for _ in range(2):
        assert calls_in(lambda: close(f(X), models.gelu(X))) == 0
    assert f.experimental_get_tracing_count() == 1
    assert api.stats()["rejections"]["SLOWER"] > 0
    other = api.function(models.gelu, never_slower=True)
    assert calls_in(lambda: other(X)) == 0  # known by now
    assert calls_in(lambda: api.function(models.gelu)(X)) == 1  # who does not ask gets its kernel
    assert len(raced) == 1


def test_gradients_stay_right(monkeypatch):
    models.rig(monkeypatch, lambda contest: True)
    f = api.function(models.gelu, never_slower=True)

    def gradient(function):
        with tf.GradientTape() as tape:
            tape.watch(X)
            y = function(X)
        return tape.gradient(y, X)

    for _ in range(3):
        close(gradient(f), gradient(models.gelu))


def test_stitching_races_at_the_end(monkeypatch):
    raced = models.rig(monkeypatch, lambda contest: True)
    f = tf.function(models.gelu)
    with api.stitching(never_slower=True):
        assert calls_in(lambda: f(X)) == 1
        assert calls_in(lambda: f(X)) == 1
        assert raced == []
    assert len(raced) == 1
    with api.stitching(never_slower=True):
        assert calls_in(lambda: close(f(X), models.gelu(X))) == 0


def test_enable_obeys_what_is_known_and_races_nothing(monkeypatch):
    raced = models.rig(monkeypatch, lambda contest: True)
    api.enable(Config(never_slower=True))
    try:
        f = tf.function(models.gelu)
        assert calls_in(lambda: f(X)) == 1
        assert raced == []
    finally:
        api.disable()


def test_a_real_race_under_a_real_function():
    """No rig: TensorFlow runs the race, and whatever it gives, the answer is right."""
    f = api.function(models.gelu, never_slower=True)
    for _ in range(3):
        close(f(X), models.gelu(X))
    (known,) = tuning.records()._root.joinpath("races").rglob("*.json")
    assert known.stat().st_size > 0


def test_inside_another_function_nothing_is_raced_while_it_is_traced(monkeypatch):
    raced = models.rig(monkeypatch, lambda contest: True)
    inner = api.function(models.gelu, never_slower=True)
    outer = api.function(lambda x: inner(x) * 2.0, never_slower=True)
    for _ in range(2):
        close(outer(X), models.gelu(X) * 2.0)
    assert len(raced) == 1


def test_params_round_trip(deferred):
    config = Config(never_slower=True, max_cluster_size=7)
    first = grappler.params_of(config)
    deferred.epoch += 1
    assert grappler.params_of(config) != first
    assert grappler.config_of(first) == config
    assert grappler.params_of(Config()) == ""
