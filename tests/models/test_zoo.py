"""Fetching and building, without a network: what is in the cache is whole, and errors name the package."""

from __future__ import annotations

import base64
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bench.workloads.models import ALL, MODELS, FetchError, Model, fetch, pins
from bench.workloads.models.signals import eye, face, image, music, portrait

REQUIREMENT = "tiny==1.0"


@pytest.fixture(autouse=True)
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TF_STITCH_ZOO", str(tmp_path / "zoo"))
    return tmp_path / "zoo"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A pip and npm that put one small wheel where they are told to; the packages asked for, in order."""
    asked: list[str] = []
    archive = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w") as contents:
        contents.writestr("tiny/__init__.py", "VALUE = 7\n")

    def run(package: str, command: list[str]) -> None:
        asked.append(package)
        destination = Path(command[command.index("--dest" if "--dest" in command else "--pack-destination") + 1])
        (destination / archive.name).write_bytes(archive.read_bytes())

    monkeypatch.setattr(fetch, "_run", run)
    monkeypatch.setattr(fetch.shutil, "which", lambda _name: "npm")
    monkeypatch.setitem(pins.WHEELS, REQUIREMENT, (fetch.sha256(archive),))
    monkeypatch.setitem(pins.NPM, "@scope/tiny@1.0.0", fetch.sha256(archive))
    return asked


def test_a_wheel_is_fetched_once_and_unpacked(registry: list[str], zoo: Path):
    directory = fetch.wheel(REQUIREMENT)
    assert (directory / "tiny" / "__init__.py").read_text() == "VALUE = 7\n"
    assert fetch.wheel(REQUIREMENT) == directory
    assert registry == [REQUIREMENT]
    assert fetch.fetched(REQUIREMENT)


def test_an_interrupted_unpacking_goes_on_with_the_download(
    registry: list[str], zoo: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(zipfile.ZipFile, "extractall", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch.wheel(REQUIREMENT)
    assert not list((zoo / "wheels").iterdir())
    assert fetch.wheel(REQUIREMENT).exists()
    assert registry == [REQUIREMENT]


def test_an_npm_archive_is_fetched_once(registry: list[str], zoo: Path):
    archive = fetch.npm_archive("@scope/tiny@1.0.0")
    assert archive == zoo / "archives" / "scope-tiny-1.0.0.tgz"
    assert fetch.fetch("@scope/tiny@1.0.0") == archive
    assert registry == ["@scope/tiny@1.0.0"]


def test_a_damaged_archive_is_fetched_again(registry: list[str]):
    archive = fetch.npm_archive("@scope/tiny@1.0.0")
    archive.write_bytes(b"half")
    assert fetch.sha256(fetch.npm_archive("@scope/tiny@1.0.0")) == pins.NPM["@scope/tiny@1.0.0"]


def test_another_file_than_the_pinned_one_is_refused(registry: list[str], zoo: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(pins.WHEELS, REQUIREMENT, ("0" * 64,))
    with pytest.raises(FetchError, match=r"tiny==1.0: .* not the pinned one"):
        fetch.wheel(REQUIREMENT)
    assert not list((zoo / "archives").iterdir())


def test_what_is_not_pinned_is_refused():
    with pytest.raises(FetchError, match=r"other==2 is not in .*pins.py"):
        fetch.wheel("other==2")


def test_a_failing_client_is_an_error_that_says_why(monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(1, "pip", stderr="WARNING: slow\nERROR: no route to host\n")

    monkeypatch.setattr(subprocess, "run", fails)
    with pytest.raises(FetchError, match=r"basic-pitch==0.4.0 cannot be fetched: ERROR: no route to host"):
        MODELS["basic-pitch"].path()


def test_a_missing_npm_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fetch.shutil, "which", lambda _name: None)
    with pytest.raises(FetchError, match="needs npm"):
        MODELS["movenet-multipose"].path()


@pytest.mark.parametrize("model", ALL.values(), ids=list(ALL))
def test_inputs_are_the_same_for_the_same_seed(model: Model):
    size = model.sizes[-1]
    first, second, other = model.inputs(1, size), model.inputs(1, size), model.inputs(2, size)
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])
    assert any(not np.array_equal(array, other[name]) for name, array in first.items())
    assert all(package in {**pins.WHEELS, **pins.NPM} for package in model.packages)


def test_pictures_and_sounds_are_in_range():
    random = np.random.default_rng(0)
    for drawn in (eye, face, image, portrait):
        picture = drawn(random, 2, 20, 30)
        assert picture.shape == (2, 20, 30, 3)
        assert 0 <= picture.min() < picture.max() <= 255
    sound = music(random, 2, 5000)
    assert sound.shape == (2, 5000)
    assert 0.01 < np.abs(sound).max() <= 1


def test_importing_the_models_needs_no_tensorflow():
    code = "import sys, bench.workloads.models; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_fused_tfjs_convolutions_come_apart():
    import tensorflow as tf

    from bench.workloads.models.tfjs_graph import graph_def

    def encoded(text: str) -> dict[str, str]:
        return {"s": base64.b64encode(text.encode()).decode()}

    def node(op: str, name: str, *inputs: str, **attr: object) -> dict[str, object]:
        return {"op": op, "name": name, "input": list(inputs), "attr": attr}

    ones = {"list": {"i": ["1"] * 4}}
    fused = {"list": {"s": [encoded(op)["s"] for op in ("BiasAdd", "Prelu")]}}
    options = {"strides": ones, "dilations": ones, "padding": encoded("SAME"), "data_format": encoded("NHWC")}
    constants = [node("Const", name, dtype={"type": "DT_FLOAT"}) for name in ("kernel", "bias", "alpha")]
    convolution = node("_FusedConv2D", "y", "x", *("kernel", "bias", "alpha"), fused_ops=fused, **options)
    placeholder = node("Placeholder", "x", dtype={"type": "DT_FLOAT"})
    half = {"dtype": "float16", "original_dtype": "float32"}
    manifest = [
        {"name": "kernel", "shape": [1, 1, 2, 2], "dtype": "float32", "quantization": half},
        {"name": "bias", "shape": [2], "dtype": "float32"},
        {"name": "alpha", "shape": [2], "dtype": "float32"},
    ]
    kernel, bias, alpha = (
        np.array([[1, -2], [0.5, 3]], np.float16),
        *np.array([[0.1, -0.2], [0.25, 0.5]], np.float32),
    )
    graph = graph_def(
        {
            "modelTopology": {"node": [placeholder, *constants, convolution], "versions": {}},
            "weightsManifest": [{"weights": manifest}],
        },
        kernel.tobytes() + bias.tobytes() + alpha.tobytes(),
    )
    x = np.random.default_rng(0).standard_normal((1, 3, 3, 2)).astype(np.float32)
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        tf.graph_util.import_graph_def(graph, name="")
        found = session.run("y:0", {"x:0": x})
    right = x @ kernel.astype(np.float32) + bias
    np.testing.assert_allclose(found, np.where(right < 0, alpha * right, right), rtol=1e-5, atol=1e-6)


def test_tfjs_constants_in_steps_of_a_scale():
    from tensorflow.python.framework import tensor_util

    from bench.workloads.models.tfjs_graph import graph_def

    steps = {"dtype": "uint8", "scale": 0.1, "min": -3.0}
    wide_steps = {"dtype": "uint16", "scale": 1.5, "min": -7.0}
    model = {
        "modelTopology": {"node": [{"op": "Const", "name": name} for name in ("x", "y")], "versions": {}},
        "weightsManifest": [
            {
                "weights": [
                    {"name": "x", "shape": [2, 2], "dtype": "float32", "quantization": steps},
                    {"name": "y", "shape": [2], "dtype": "int32", "quantization": wide_steps},
                ]
            }
        ],
    }
    weights = np.array([0, 1, 30, 255], np.uint8).tobytes() + np.array([5, 60000], np.uint16).tobytes()
    x, y = (tensor_util.MakeNdarray(node.attr["value"].tensor) for node in graph_def(model, weights).node)
    np.testing.assert_array_equal(x, np.array([[-3, 0.1 - 3], [0, 22.5]], np.float32))
    np.testing.assert_array_equal(y, np.array([1, 89993], np.int32))
