"""Whatever the machine does, from the decorator and the command line to the disk: the model is right, or a clear
sentence says why it is not there. The same for single parts: tests/toolchain/test_faults.py and others.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_stitch
from tests.cli import models
from tests.cli.conftest import tf_stitch as command
from tests.toolchain.conftest import FakeCompiler, needs_compiler
from tests.toolchain.test_process import is_alive
from tf_stitch.config import Config
from tf_stitch.frontend import grappler
from tf_stitch.frontend.engine import engine_for
from tf_stitch.frontend.protos import SavedModel
from tf_stitch.toolchain import compilers, once
from tf_stitch.toolchain.cache import KernelCache

pytestmark = [needs_compiler, pytest.mark.faults]

X = np.linspace(-3, 3, 5 * 7, dtype=np.float32).reshape(5, 7)


def layer(x: Any) -> Any:
    return tf.nn.softmax(tf.exp(x * 0.5) + 1.0)


EXPECTED = layer(tf.constant(X)).numpy()


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A cold cache in a process that has forgotten what it compiled. A fallback is no error here."""
    root = tmp_path / "cache"
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("TF_STITCH_CACHE_DIR", str(root))
    monkeypatch.setenv("TF_STITCH_STRICT", "0")
    forget()
    yield root
    forget()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCompiler:
    """The only compiler; say what it `does`."""
    compiler = FakeCompiler(tmp_path / "bin")
    monkeypatch.setenv("CXX", str(compiler.path))
    return compiler


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(models.Block(), tmp_path_factory.mktemp("models") / "model")


def forget() -> None:
    """As in a new process, but for the kernels that are loaded."""
    engine_for.cache_clear()
    grappler.install().forget()
    tf_stitch.reset_stats()
    once.forget()


def right(config: Config | None = None) -> dict[str, Any]:
    """Calls a stitched function for the first time, and checks what it computes; the stats."""
    tf_stitch.reset_stats()
    np.testing.assert_allclose(tf_stitch.function(layer, config=config)(X), EXPECTED, rtol=1e-5, atol=1e-6)
    return tf_stitch.stats()


def serve(path: Path) -> np.ndarray[Any, Any]:
    x = tf.constant(np.linspace(-1, 1, 3 * 64, dtype=np.float32).reshape(3, 64))
    return tf.saved_model.load(str(path)).signatures["serving_default"](x=x)["probabilities"].numpy()


# ---- The compiler


def test_no_compiler_at_all(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(compilers, "bundled_zig", lambda: None)
    found = command("convert", model, tmp_path / "out")
    assert found.code == 5
    assert found.stderr.startswith("tf-stitch: no C++ compiler was found: ")
    assert "Install one: `pip install tf-stitch[compiler]`" in found.stderr
    assert found.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
    for _ in range(2):
        assert right()["failed"] > 0
    assert caplog.text.count("functions run unstitched: no C++ compiler was found") == 1


def test_a_compiler_that_fails(
    model: Path, tmp_path: Path, fake: FakeCompiler, caplog: pytest.LogCaptureFixture
) -> None:
    fake.does("echo 'error: no luck' >&2; exit 1")
    stats = right()
    assert stats["rejections"]["BUILD_FAILED"] > 0
    assert stats["kernels"] == stats["calls"] == 0
    assert caplog.text.count("error: no luck") == 1
    found = command("convert", model, tmp_path / "out")
    assert found.code == 3
    assert "a kernel could not be built: kernel " in found.stderr
    assert "error: no luck" in found.stderr
    assert not (tmp_path / "out").exists()


def test_a_compiler_that_hangs(fake: FakeCompiler, caplog: pytest.LogCaptureFixture) -> None:
    fake.does("sleep 60")
    start = time.monotonic()
    assert right(Config(compiler_timeout=1.0))["rejections"]["BUILD_FAILED"] > 0
    assert time.monotonic() - start < 15
    assert caplog.text.count("was stopped after 1 seconds") == 1
    assert not any(map(is_alive, fake.pids))


# ---- The cache


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC], ids=errno.errorcode.get)
def test_a_cache_that_takes_nothing(
    number: int, model: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    cache.mkdir(mode=0o700)
    mkdir = Path.mkdir

    def refused(self: Path, *args: Any, **kwargs: Any) -> None:
        if self.is_relative_to(cache) and not self.exists():
            raise OSError(number, os.strerror(number))
        mkdir(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", refused)
    assert right()["calls"] == 1
    assert right(Config(max_cluster_size=398))["calls"] == 1  # another toolchain
    assert command("convert", model, tmp_path / "out").code == 0
    np.testing.assert_allclose(serve(tmp_path / "out"), serve(model), rtol=1e-5, atol=1e-6)
    assert caplog.text.count("is not written: " + os.strerror(number)) == 1
    assert list(cache.iterdir()) == []


def test_a_corrupt_entry(model: Path, tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert command("convert", model, tmp_path / "a").code == 0
    built = {path: path.read_bytes() for path in cache.glob("??/*.so")}
    assert len(built) == 2
    for path, content in built.items():
        path.write_bytes(content[::-1])
    forget()
    assert command("convert", model, tmp_path / "b").code == 0
    assert caplog.text.count("building it again") == 2
    assert {path: path.read_bytes() for path in built} == built
    assert (tmp_path / "a" / "saved_model.pb").read_bytes() == (tmp_path / "b" / "saved_model.pb").read_bytes()


# ---- Threads and processes

FIRST_CALL = """
import numpy as np
import tf_stitch
from tests.faults.test_faults import layer, X
print(tf_stitch.function(layer)(X).numpy().tobytes().hex(), tf_stitch.stats()["calls"])
"""


def start_first_call() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", FIRST_CALL],
        env={**os.environ, "PYTHONPATH": "."},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_processes_on_one_cold_cache(fake: FakeCompiler) -> None:
    fake.compiles()
    processes = [start_first_call() for _ in range(2)]
    outputs = {process.communicate(timeout=60)[0] for process in processes}
    (output,) = outputs  # bit for bit
    assert output.endswith(" 1\n")
    assert len(fake.pids) == 1
    assert KernelCache().verify().problems == ()


def test_32_threads_make_the_first_call(fake: FakeCompiler) -> None:
    fake.compiles()
    stitched = tf_stitch.function(layer)
    barrier = threading.Barrier(32)
    results: list[bytes] = []

    def call() -> None:
        barrier.wait()
        results.append(stitched(X).numpy().tobytes())

    threads = [threading.Thread(target=call) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 32
    assert len(set(results)) == 1
    np.testing.assert_allclose(np.frombuffer(results[0], np.float32).reshape(X.shape), EXPECTED, rtol=1e-5)
    stats = tf_stitch.stats()
    assert (stats["calls"], stats["fallbacks"], stats["compiles"], len(fake.pids)) == (32, {}, 1, 1)


def test_an_interrupted_first_call(fake: FakeCompiler, cache: Path) -> None:
    fake.does("sleep 60")
    process = start_first_call()
    deadline = time.monotonic() + 50
    while not fake.pids and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert output == ""
    assert errors.endswith("KeyboardInterrupt\n")
    assert "the compiler" not in errors
    assert not any(map(is_alive, fake.pids))
    assert [p for p in cache.rglob("*") if p.is_file()] == []


# ---- Models


def test_a_model_that_cannot_be_read(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: Path) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "read_bytes", denied)
    found = command("convert", model, tmp_path / "out")
    assert found.code == 2
    assert "cannot be read: [Errno 13] Permission denied" in found.stderr
    assert found.stderr.count("\n") == 1


def test_a_model_for_a_newer_cpu(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert command("convert", model, out).code == 0
    proto = SavedModel.FromString((out / "saved_model.pb").read_bytes())
    for function in proto.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            if node.op == "StitchOp":
                node.attr["requires"].s += b",avx9000"
                node.attr["key"].s = b"f" * 63 + node.attr["key"].s[-1:]  # the right one is loaded already
    (out / "saved_model.pb").write_bytes(proto.SerializeToString())
    tf_stitch.reset_stats()
    np.testing.assert_allclose(serve(out), serve(model), rtol=1e-5, atol=1e-6)
    stats = tf_stitch.stats()
    assert stats["fallbacks"] == {"CPU": stats["calls"]}
    assert stats["calls"] == 2


WITHOUT_US = """
import sys
import tensorflow as tf
try:
    tf.saved_model.load(sys.argv[1])
except Exception as error:
    print(error)
import tf_stitch  # what the README says
tf_stitch.load_op_library()
print(*tf.saved_model.load(sys.argv[1]).signatures)
"""


def test_a_stitched_model_where_nobody_imports_tf_stitch(model: Path, tmp_path: Path) -> None:
    assert command("convert", model, tmp_path / "out").code == 0
    told, loaded = subprocess.run(
        [sys.executable, "-c", WITHOUT_US, tmp_path / "out"], capture_output=True, text=True, check=True, timeout=60
    ).stdout.splitlines()
    assert told.startswith("Op type not registered 'StitchOp'")
    assert loaded == "serving_default"


def test_a_warning_is_one_line(fake: FakeCompiler, caplog: pytest.LogCaptureFixture) -> None:
    fake.does("echo one; echo 'error: two' >&2; echo three; exit 1")
    right()
    messages = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(messages) == 1
    assert "\n" not in messages[0]
