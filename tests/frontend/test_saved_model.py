"""SavedModels in and out: what is changed, what is not, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from tf_stitch.config import Config
from tf_stitch.errors import BuildError, StitchError, UsageError
from tf_stitch.frontend import saved_model as module
from tf_stitch.frontend.convertible import refusals
from tf_stitch.frontend.fallback import FALLBACK_PREFIX
from tf_stitch.frontend.function import function as stitched_function
from tf_stitch.frontend.protos import SavedModel
from tf_stitch.frontend.saved_model import convert_saved_model
from tf_stitch.runtime import stitch_op
from tf_stitch.toolchain.host import HostToolchain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def gelu(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * x * (1.0 + tf.math.erf(x / 2.0**0.5))


X = np.linspace(-4, 4, 24, dtype=np.float32).reshape(4, 6)


class Model(tf.Module):
    """Two signatures, variables, a table with an asset, If and While, state."""

    def __init__(self, vocabulary: Path) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.ones([6]) * 0.5)
        self.calls = tf.Variable(0)
        self.asset = tf.saved_model.Asset(str(vocabulary))
        initializer = tf.lookup.TextFileInitializer(
            self.asset.asset_path,
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        self.table = tf.lookup.StaticHashTable(initializer, -1)

    @tf.function(input_signature=[tf.TensorSpec([None, 6], name="x")])
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        self.calls.assign_add(1)
        y = gelu(x) * self.weight
        if tf.reduce_sum(y) > 0.0:
            y = tf.nn.softmax(tf.exp(-y) * self.weight)
        for _ in tf.range(3):
            y = tf.tanh(y) * 2.0 + 0.5
        return {"z_out": y, "a_out": tf.reduce_mean(y * y, -1)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
    def look_up(self, words: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"ids": self.table.lookup(words)}


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("models")
    (directory / "vocabulary.txt").write_text("a\nb\nc\n")
    model = Model(directory / "vocabulary.txt")
    signatures = {"serving_default": model.serve, "look_up": model.look_up}
    tf.saved_model.save(model, str(directory / "model"), signatures=signatures)
    return directory / "model"


@pytest.fixture(scope="session")
def converted(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    destination: Path = tmp_path_factory.mktemp("converted") / "model"
    convert_saved_model(source, destination)
    return destination


def digests(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def read(directory: Path) -> Any:
    return SavedModel.FromString((directory / "saved_model.pb").read_bytes())


def close(found: Any, expected: Any) -> None:
    for a, b in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


class TestTheResult:
    def test_computes_the_same(self, source: Path, converted: Path) -> None:
        before, after = tf.saved_model.load(str(source)), tf.saved_model.load(str(converted))
        stitch_op.reset_counters()
        for x in (X, -X - 9.0, X[:0], X[:1]):
            expected, found = (m.signatures["serving_default"](tf.constant(x)) for m in (before, after))
            assert list(found) == list(expected)
            close(found, expected)
        words = tf.constant(["b", "nobody"])
        assert after.signatures["look_up"](words)["ids"].numpy().tolist() == [1, -1]
        assert after.calls.numpy() == before.calls.numpy() == 4
        assert stitch_op.counters()["total"]["calls"] > 4
        after.weight.assign(tf.ones([6]) * 2.0)
        before.weight.assign(tf.ones([6]) * 2.0)
        close(after.serve(tf.constant(X)), before.serve(tf.constant(X)))

    def test_can_be_trained(self, source: Path, converted: Path) -> None:
        def gradients(model: Any) -> Any:
            x = tf.constant(X)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.reduce_sum(model.serve(x)["z_out"] ** 2)
            return tape.gradient(y, [x, model.weight])

        close(*(gradients(tf.saved_model.load(str(path))) for path in (converted, source)))

    def test_serves_a_v1_session(self, source: Path, converted: Path) -> None:
        def run(path: Path) -> Any:
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
                signature = meta_graph.signature_def["serving_default"]
                fetches = {name: info.name for name, info in signature.outputs.items()}
                return session.run(fetches, {signature.inputs["x"].name: X})

        close(run(converted), run(source))

    def test_two_of_them_in_one_process(self, converted: Path) -> None:
        one, two = (tf.saved_model.load(str(converted)) for _ in range(2))
        one.weight.assign(tf.zeros([6]))
        first = one.serve(tf.constant(X))["z_out"].numpy()
        second = two.serve(tf.constant(X))["z_out"].numpy()
        assert not np.allclose(first, second)
        np.testing.assert_array_equal(one.serve(tf.constant(X))["z_out"], first)

    def test_can_be_loaded_and_saved_again(self, converted: Path, tmp_path: Path) -> None:
        model = tf.saved_model.load(str(converted))
        tf.saved_model.save(model, str(tmp_path / "again"), signatures=dict(model.signatures))
        again = tf.saved_model.load(str(tmp_path / "again"))
        close(again.serve(tf.constant(X)), model.serve(tf.constant(X)))

    def test_loads_in_a_fresh_process_that_compiles_nothing(self, converted: Path, tmp_path: Path) -> None:
        program = (
            "import sys, numpy as np, tensorflow as tf, tf_stitch\n"
            "tf_stitch.load_op_library()\n"
            "model = tf.saved_model.load(sys.argv[1])\n"
            "y = model.serve(tf.zeros([3, 6]))['a_out']\n"
            "print(y.shape, tf_stitch.stats()['calls'] > 0, tf_stitch.stats()['fallbacks'])\n"
        )
        environment = os.environ | {
            "TF_STITCH_CACHE_DIR": str(tmp_path),
            "PATH": "/nowhere",
            "CXX": "/nowhere/g++",
        }
        command = [sys.executable, "-c", program, str(converted)]
        output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        assert output.splitlines()[-1] == "(3,) True {}"
        assert not list(tmp_path.rglob("*.so"))


class TestTheFiles:
    def test_only_the_graph_and_the_fingerprint_differ(self, source: Path, converted: Path) -> None:
        before, after = digests(source), digests(converted)
        assert before.keys() == after.keys()
        assert {name for name in before if before[name] != after[name]} == {
            "saved_model.pb",
            "fingerprint.pb",
        }

    def test_the_fingerprint_is_that_of_the_new_graph(self, source: Path, converted: Path) -> None:
        old, new = (tf.saved_model.experimental.read_fingerprint(str(path)) for path in (source, converted))
        assert old.saved_model_checksum != new.saved_model_checksum
        assert old.singleprint() == new.singleprint()  # it leaves function bodies out

    def test_outside_the_functions_the_proto_is_the_same(self, source: Path, converted: Path) -> None:
        (before,), (after,) = read(source).meta_graphs, read(converted).meta_graphs
        assert before.object_graph_def == after.object_graph_def
        assert before.signature_def == after.signature_def
        assert before.saver_def == after.saver_def
        assert [n.name for n in before.graph_def.node] == [n.name for n in after.graph_def.node]
        old = [f.signature for f in before.graph_def.library.function]
        new = [f.signature for f in after.graph_def.library.function]
        assert new[: len(old)] == old
        assert all(s.name.startswith(FALLBACK_PREFIX) for s in new[len(old) :])
        assert "StitchOp" in [op.name for op in after.meta_info_def.stripped_op_list.op]

    def test_it_is_deterministic(self, source: Path, converted: Path, tmp_path: Path) -> None:
        convert_saved_model(source, tmp_path / "again")
        again, before = digests(tmp_path / "again"), digests(converted)
        assert again.pop("fingerprint.pb") != before.pop("fingerprint.pb")  # it holds a random id
        assert again == before

    def test_all_graphs_are_still_graphs(self, converted: Path) -> None:
        (meta_graph,) = read(converted).meta_graphs
        for function in meta_graph.graph_def.library.function:
            names = {n.name for n in function.node_def} | {a.name for a in function.signature.input_arg}
            texts = [t for n in function.node_def for t in n.input] + list(function.ret.values())
            assert {t.lstrip("^").partition(":")[0] for t in texts} <= names


class TestTheConversion:
    def test_says_what_it_did(self, source: Path, tmp_path: Path) -> None:
        stages: list[tuple[str, int, int]] = []
        conversion = convert_saved_model(
            source, tmp_path / "out", progress=lambda stage, done, of: stages.append((stage, done, of))
        )
        found = json.loads(json.dumps(conversion.to_json()))
        assert found["destination"] == str(tmp_path / "out")
        assert found["stitch_ops"] == len(found["clusters"]) > 3
        assert found["nodes_after"] < found["nodes_before"]
        assert found["rejections"]["UNSUPPORTED_OP"] > 0
        assert found["kernels"] <= found["stitch_ops"]
        assert found["warnings"] == []
        functions = read(tmp_path / "out").meta_graphs[0].graph_def.library.function
        ops = {(f.signature.name, n.name) for f in functions for n in f.node_def if n.op == "StitchOp"}
        assert {(c["function"], c["id"]) for c in found["clusters"]} == ops
        cluster = max(found["clusters"], key=lambda c: len(c["nodes"]))
        assert {"name", "op"} == set(cluster["nodes"][0])
        assert cluster["bytes_before"] > cluster["bytes_after"] > 0
        assert cluster["dynamic"] is True
        assert set(cluster["schemes"]) <= {"INDEPENDENT", "LOCAL", "REGIONAL", "GLOBAL"}
        assert stages[0][0] == "import"
        assert stages[-1] == ("write", 1, 1)
        assert all(0 <= done <= of for _, done, of in stages)

    def test_of_a_converted_model_is_nothing(self, converted: Path, tmp_path: Path) -> None:
        conversion = convert_saved_model(converted, tmp_path / "out")
        assert conversion.already_stitched
        assert conversion.destination is None
        assert conversion.stitch_ops == 0
        assert not (tmp_path / "out").exists()

    def test_of_a_model_without_work_is_nothing(self, tmp_path: Path) -> None:
        model = tf.Module()
        model.f = tf.function(lambda x: tf.matmul(x, x), input_signature=[tf.TensorSpec([2, 2])])
        tf.saved_model.save(model, str(tmp_path / "model"))
        conversion = convert_saved_model(tmp_path / "model", tmp_path / "out")
        assert not conversion.already_stitched
        assert conversion.destination is None
        assert not (tmp_path / "out").exists()

    def test_obeys_the_config(self, source: Path, tmp_path: Path) -> None:
        conversion = convert_saved_model(
            source, tmp_path / "out", config=Config(cpu_baseline="x86-64-v2", exclude=frozenset({"Erf"}))
        )
        assert conversion.rejections["EXCLUDED"] > 0
        functions = read(tmp_path / "out").meta_graphs[0].graph_def.library.function
        ops = [n for f in functions for n in f.node_def if n.op == "StitchOp"]
        (requires,) = {n.attr["requires"].s.decode() for n in ops}
        assert "avx" not in requires


class TestRefusals:
    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("missing", "does not exist"),
            ("empty", r"has no saved_model\.pb"),
            ("file.txt", "is a file"),
            ("model.keras", r"model\.export"),
            ("chunked", "in chunks"),
            ("damaged", "damaged"),
            ("hollow", "holds no graph"),
        ],
    )
    def test_what_is_no_saved_model(self, tmp_path: Path, path: str, message: str) -> None:
        for name in ("empty", "chunked", "damaged", "hollow"):
            (tmp_path / name).mkdir()
        (tmp_path / "file.txt").touch()
        (tmp_path / "model.keras").touch()
        (tmp_path / "chunked" / "saved_model.cpb").touch()
        (tmp_path / "damaged" / "saved_model.pb").write_bytes(b"\x0a\xff\xff")
        (tmp_path / "hollow" / "saved_model.pb").touch()
        with pytest.raises(UsageError, match=message):
            convert_saved_model(tmp_path / path, tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_a_destination_that_exists(self, source: Path, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "saved_model.pb").write_text("old")
        (tmp_path / "out" / "old.txt").touch()
        with pytest.raises(UsageError, match="--force"):
            convert_saved_model(source, tmp_path / "out")
        assert (tmp_path / "out" / "old.txt").exists()
        convert_saved_model(source, tmp_path / "out", force=True)
        assert digests(tmp_path / "out").keys() == digests(source).keys()
        assert [p.name for p in tmp_path.iterdir()] == ["out"]

    def test_a_destination_that_is_no_model_even_by_force(self, source: Path, tmp_path: Path) -> None:
        (tmp_path / "letters.txt").touch()
        with pytest.raises(UsageError, match="not a SavedModel"):
            convert_saved_model(source, tmp_path, force=True)
        assert (tmp_path / "letters.txt").exists()

    def test_in_place_and_inside(self, source: Path, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="in place"):
            convert_saved_model(source, source, force=True)
        with pytest.raises(UsageError, match="in place"):
            convert_saved_model(source, source / ".." / source.name, force=True)
        with pytest.raises(UsageError, match="inside"):
            convert_saved_model(source, source / "out")
        with pytest.raises(UsageError, match="inside"):
            convert_saved_model(source, source.parent, force=True)
        (tmp_path / "link").symlink_to(source)
        with pytest.raises(UsageError, match="inside"):
            convert_saved_model(source, tmp_path / "link" / "out")


@pytest.mark.faults
class TestFaults:
    @pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left"), MemoryError()])
    @pytest.mark.parametrize("where", ["copytree", "write_fingerprint", "replace"])
    def test_nothing_is_left_of_what_was_interrupted(
        self, source: Path, tmp_path: Path, error: BaseException, where: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise error

        old = tmp_path / "out"
        shutil.copytree(source, old)
        before = digests(old)
        match where:
            case "copytree":
                monkeypatch.setattr(module.shutil, "copytree", fail)
            case "write_fingerprint":
                monkeypatch.setattr(module.fingerprinting_utils, "write_fingerprint", fail)
            case _:
                monkeypatch.setattr(type(tmp_path), "replace", fail)
        expected = UsageError if isinstance(error, OSError) else type(error)
        with pytest.raises(expected):
            convert_saved_model(source, old, force=True)
        assert [p.name for p in tmp_path.iterdir()] == ["out"]
        assert digests(old) == before

    def test_what_a_killed_conversion_moved_away_comes_back(self, source: Path, tmp_path: Path) -> None:
        shutil.copytree(source, tmp_path / ".out.12345678.partial" / "old")
        before = digests(source)
        with pytest.raises(UsageError, match="--force"):
            convert_saved_model(source, tmp_path / "out")
        assert digests(tmp_path / "out") == before
        assert [p.name for p in tmp_path.iterdir()] == ["out"]

    def test_a_directory_that_cannot_be_made(self, source: Path, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(UsageError, match="cannot be written"):
            convert_saved_model(source, tmp_path / "file" / "out")

    def test_a_compiler_that_fails_leaves_the_model_whole(
        self, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def build(self: HostToolchain, sources: list[Any]) -> list[BuildError]:
            return [BuildError("no luck")] * len(sources)

        monkeypatch.setattr(HostToolchain, "build", build)
        conversion = convert_saved_model(source, tmp_path / "out")
        assert conversion.destination is None
        assert conversion.rejections["BUILD_FAILED"] > 0
        assert conversion.warnings == ("a kernel could not be built: no luck",)

    def test_a_model_that_grows_over_two_gigabytes(self, source: Path, tmp_path: Path) -> None:
        class Huge:
            def SerializeToString(self, **_: Any) -> bytes:  # noqa: N802
                raise ValueError("exceeds maximum protobuf size of 2GB")

        with pytest.raises(StitchError, match="2GB"):
            module._write(Huge(), source, tmp_path / "out")


class TestWhatIsLeftAlone:
    @staticmethod
    def convert(tmp_path: Path, model: Any) -> tuple[Any, Any, Any]:
        tf.saved_model.save(model, str(tmp_path / "model"))
        conversion = convert_saved_model(tmp_path / "model", tmp_path / "out")
        return (
            conversion,
            tf.saved_model.load(str(tmp_path / "model")),
            tf.saved_model.load(str(tmp_path / "out")),
        )

    def test_functions_for_xla_and_what_they_call(self, tmp_path: Path) -> None:
        inner = tf.function(gelu)
        model = tf.Module()
        model.plain = tf.function(gelu, input_signature=[tf.TensorSpec([None, 6])])
        model.xla = tf.function(lambda x: inner(x) + gelu(x), [tf.TensorSpec([None, 6])], jit_compile=True)
        conversion, before, after = self.convert(tmp_path, model)
        assert set(conversion.skipped.values()) == {"compiled by XLA"}
        assert len(conversion.skipped) == 2
        assert conversion.stitch_ops == 1
        close(after.xla(tf.constant(X)), before.xla(tf.constant(X)))
        close(after.plain(tf.constant(X)), before.plain(tf.constant(X)))

    def test_functions_of_tf_data(self, tmp_path: Path) -> None:
        model = tf.Module()

        @tf.function(input_signature=[tf.TensorSpec([None, 6])])
        def total(x: tf.Tensor) -> tf.Tensor:
            result = tf.zeros([6])
            for row in tf.data.Dataset.from_tensor_slices(x).map(gelu):
                result += row
            return gelu(result) + 1.0

        model.total = total
        conversion, before, after = self.convert(tmp_path, model)
        assert "run by tf.data" in conversion.skipped.values()
        close(after.total(tf.constant(X)), before.total(tf.constant(X)))

    @pytest.mark.parametrize("mark", ["_noinline", "_XlaMustCompile"])
    def test_marked_functions(self, mark: str) -> None:
        library = SavedModel().meta_graphs.add().graph_def.library
        for name in ("plain", "marked"):
            library.function.add().signature.name = name
        library.function[1].attr[mark].b = True
        assert list(refusals(library, [])) == ["marked"]

    @pytest.mark.parametrize("mark", ["_implements", "api_implements"])
    def test_functions_that_may_be_exchanged_are_stitched(self, tmp_path: Path, mark: str) -> None:
        inner = tf.function(gelu, experimental_attributes={mark: "my_gelu"})
        model = tf.Module()
        model.f = tf.function(lambda x: tf.matmul(inner(x), x, transpose_b=True), [tf.TensorSpec([None, 6])])
        conversion, before, after = self.convert(tmp_path, model)
        assert (conversion.stitch_ops, conversion.skipped) == (1, {})
        x = tf.constant(X)
        close(after.f(x), before.f(x))
        gradients: list[Any] = []
        for loaded in (after, before):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = loaded.f(x)
            gradients.append(tape.gradient(y, x))
        close(*gradients)

    def test_custom_gradients_still_work(self, tmp_path: Path) -> None:
        @tf.custom_gradient
        def odd(x: tf.Tensor) -> Any:
            return tf.tanh(x) * 2.0 + 1.0, lambda dy: dy * 42.0

        model = tf.Module()
        model.f = tf.function(lambda x: gelu(odd(gelu(x))), input_signature=[tf.TensorSpec([None, 6])])
        save = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
        tf.saved_model.save(model, str(tmp_path / "model"), options=save)
        convert_saved_model(tmp_path / "model", tmp_path / "out")

        def gradient(path: Path) -> Any:
            x = tf.constant(X)
            loaded = tf.saved_model.load(str(path))
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = loaded.f(x)
            return tape.gradient(y, x)

        close(gradient(tmp_path / "out"), gradient(tmp_path / "model"))


class TestV1:
    @staticmethod
    def save(path: Path, build: Callable[[tf.Tensor], tf.Tensor]) -> None:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            x = tf.compat.v1.placeholder(tf.float32, [None, 6], name="x")
            half = np.full([6], 0.5, np.float32)
            weight = tf.compat.v1.get_variable("weight", initializer=half, use_resource=True)
            y = tf.identity(build(x * weight), name="y")
            session.run(tf.compat.v1.global_variables_initializer())
            tf.compat.v1.saved_model.simple_save(session, str(path), {"x": x}, {"y": y})

    @pytest.mark.parametrize("control_flow", [1, 2])
    def test_graphs_with_control_flow(self, tmp_path: Path, control_flow: int) -> None:
        def build(x: tf.Tensor) -> tf.Tensor:
            y = tf.cond(tf.reduce_sum(x) > 0.0, lambda: gelu(x) * 2.0, lambda: tf.tanh(x) + 1.0)
            _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, gelu(y) + x), [0, y])
            return tf.nn.softmax(y) * 2.0

        if control_flow == 1:
            tf.compat.v1.disable_control_flow_v2()
        try:
            self.save(tmp_path / "model", build)
        finally:
            tf.compat.v1.enable_control_flow_v2()
        conversion = convert_saved_model(tmp_path / "model", tmp_path / "out")
        assert conversion.stitch_ops > 2

        def run(path: Path, x: np.ndarray) -> Any:
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                tf.compat.v1.saved_model.load(session, ["serve"], str(path))
                return session.run("y:0", {"x:0": x})

        for x in (X + 1.0, X - 9.0):
            close(run(tmp_path / "out", x), run(tmp_path / "model", x))
        loaded = tf.saved_model.load(str(tmp_path / "out"))
        x = X + 1.0
        close(loaded.signatures["serving_default"](tf.constant(x))["y"], run(tmp_path / "model", x))

    def test_functions_with_control_flow_of_tensorflow_1(self, tmp_path: Path) -> None:
        """As TensorFlow.js and frozen graphs bring it: Switch, Merge and Enter in a function of the library."""

        def rows(x: tf.Tensor) -> tf.Tensor:
            array = tf.TensorArray(tf.float32, tf.shape(x)[0], element_shape=[6])

            def turn(i: tf.Tensor, array: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
                y = tf.while_loop(lambda j, _: j < i, lambda j, y: (j + 1, gelu(y) + x[i]), [0, x[i]])[1]
                y = tf.cond(tf.reduce_sum(y) > 0.0, lambda: tf.exp(-y) * 2.0 + y, lambda: tf.tanh(y) + 1.0)
                return i + 1, array.write(i, tf.nn.softmax(y) * 2.0)

            return tf.while_loop(lambda i, _: i < tf.shape(x)[0], turn, [0, array])[1].stack()

        tf.compat.v1.disable_control_flow_v2()
        try:
            with tf.Graph().as_default() as graph:
                x = tf.compat.v1.placeholder(tf.float32, [None, 6], name="x")
                tf.identity(rows(gelu(x) * 3.0), name="y")
        finally:
            tf.compat.v1.enable_control_flow_v2()
        assert {"Enter", "Switch", "Merge", "Exit"} <= {op.type for op in graph.get_operations()}
        whole = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph.as_graph_def(), name=""), [])
        pruned = whole.prune(["x:0"], "y:0")
        serve = tf.function(
            lambda x: {"y": pruned(x)}, autograph=False, input_signature=[tf.TensorSpec([None, 6], name="x")]
        )
        tf.saved_model.save(tf.Module(), str(tmp_path / "model"), signatures=serve)
        assert convert_saved_model(tmp_path / "model", tmp_path / "out").stitch_ops > 2
        loaded = [tf.saved_model.load(str(tmp_path / name)) for name in ("model", "out")]
        for x in (X, X[:1] - 9.0, X[:0]):
            wanted, found = (model.signatures["serving_default"](x=tf.constant(x))["y"] for model in loaded)
            close(found, wanted)
            stitched = stitched_function(loaded[0].signatures["serving_default"])
            close(stitched(x=tf.constant(x))["y"], wanted)
