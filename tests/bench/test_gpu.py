"""`bench gpu`: what is read of XLA's texts, the rule, the rows, what must hold of them; the compiler where it is there.

The texts in xla_gpu/ are what jax 0.10.2 makes of two clusters for a V100, without metadata.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf
from click.testing import CliRunner
from rich.console import Console

from bench import gpu, gpu_stitch, gpu_table, gpu_xla, kernel_hlo
from bench.__main__ import bench
from bench.gpu_clusters import BY_NAME, CLUSTERS, GpuCluster
from bench.gpu_stitch import StitchCount
from bench.gpu_xla import Uncounted, XlaCount
from tf_stitch.plan.gpu_target import GpuTarget

SAMPLES = Path(__file__).parent / "xla_gpu"
H100 = GpuTarget.named("h100")
SCORES = 8 * 12 * 128 * 128 * 4  # bytes


def sample(name: str) -> tuple[str, str]:
    hlo, thunks = ((SAMPLES / f"{name}.v100.{suffix}").read_text() for suffix in ("hlo", "thunks"))
    return hlo, thunks


# -- XLA's side ------------------------------------------------------------------------------------------------


def test_each_thunk_of_a_kernel_counts_with_its_buffers():
    found = gpu_xla.count(*sample("softmax_grad"))
    sums = SCORES // 128
    assert (found.kernels, found.bytes) == (2, (2 * SCORES + sums) + (2 * SCORES + sums + SCORES))
    assert found.others == {}


def test_products_do_not_count_nor_do_their_bytes():
    found = gpu_xla.count(*sample("lstm_cell"))
    assert (found.kernels, found.others) == (1, {"COMPUTE": 2})
    assert found.bytes == (64 * 2048 + 64 * 512 + 2 * 64 * 512) * 4  # gates and cell; and two results


def test_a_fusion_that_holds_a_product_does_not_count():
    hlo, thunks = sample("softmax_grad")
    with_product = hlo.replace(" multiply(%param_0.10, %param_1.13)", " dot(%param_0.10, %param_1.13)")
    found = gpu_xla.count(with_product, thunks)
    assert (found.kernels, found.others) == (1, {"COMPUTE": 1})


def test_fills_of_memory_are_named_and_do_not_count():
    hlo, thunks = sample("softmax_grad")
    found = gpu_xla.count(hlo, thunks + "003: kMemzero [source | sink] input_reduce_fusion size: 4\n")
    assert (found.kernels, found.others) == (2, {"Memzero": 1})


def test_a_loop_is_not_counted():
    hlo, thunks = sample("softmax_grad")
    with pytest.raises(Uncounted, match="while_1 is a while"):
        gpu_xla.count(hlo, thunks + "003: kWhile [source | sink] while_1\n")


def test_a_thunk_that_nothing_is_known_of_is_an_error():
    hlo, thunks = sample("softmax_grad")
    with pytest.raises(ValueError, match="loop_unheard_fusion"):
        gpu_xla.count(hlo, thunks.replace("loop_multiply_fusion", "loop_unheard_fusion"))


@pytest.mark.parametrize(
    ("type_", "bytes_"),
    [
        ("f32[2,3]{1,0}", 24),
        ("f16[5]{0}", 10),
        ("bf16[5]{0}", 10),
        ("pred[7]{0}", 7),
        ("f32[]", 4),
        ("s4[3]{0}", 2),
        ("f8e4m3fn[3]{0}", 3),
        ("f64[0,4]{1,0}", 0),
        ("(f32[2]{0}, s64[3]{0})", 32),
    ],
)
def test_bytes_of_a_result(type_: str, bytes_: int):
    hlo = f"ENTRY %main () -> f32[] {{\n  ROOT %made = {type_} custom-call()\n}}\n"
    assert kernel_hlo.moved(hlo) == {"made": bytes_}


def test_an_operand_that_is_given_twice_is_read_once():
    square = "  %x = f32[8]{0} parameter(0)\n  ROOT %y = f32[8]{0} multiply(%x, %x)\n"
    hlo = f"ENTRY %main (x: f32[8]) -> f32[8] {{\n{square}}}\n"
    assert kernel_hlo.moved(hlo)["y"] == 64


def test_what_is_refused_is_told(tmp_path):
    (tmp_path / "norm.t4.error").write_text("XlaRuntimeError: too old\nmore")
    with pytest.raises(Uncounted, match=r"XLA refuses norm for t4: XlaRuntimeError: too old$"):
        gpu_xla.found_in(tmp_path, "norm", "t4")


def test_all_gpus_are_described():
    described = json.loads(gpu_xla.WORKER.with_name("xla_gpus.json").read_text())
    assert tuple(described) == gpu.ARCHS
    for name, facts in described.items():
        target = GpuTarget.named(name)
        assert (facts["multiprocessors"], facts["threads"]) == (target.multiprocessors, target.threads)
        assert (facts["major"], facts["minor"]) == target.capability


# -- tf_stitch's side ------------------------------------------------------------------------------------------


def spec(*shape: int, dtype=tf.float32) -> tf.TensorSpec:
    return tf.TensorSpec(shape, dtype)


def counted(function, *specs: tf.TensorSpec) -> StitchCount:
    return gpu_stitch.counted(gpu_stitch.graph_of(GpuCluster("cluster", function, specs)), H100)


def test_a_cluster_in_one_pass_moves_the_minimum():
    found = counted(lambda x: tf.nn.softmax(x * 2.0), spec(64, 512))
    assert (found.kernels, found.bytes, found.min_bytes) == (1, 2 * 64 * 512 * 4, 2 * 64 * 512 * 4)
    assert found.barriers == 0
    assert found.us > H100.launch_ns / 1000


def test_what_is_read_again_counts_again():
    """More than the GPU keeps on chip; what it does keep is read once."""
    found = counted(lambda x: x / tf.reduce_sum(tf.abs(x)), spec(300_000_000))
    assert found.kernels == 1
    assert found.min_bytes == 2 * 300_000_000 * 4
    assert 1.48 * found.min_bytes <= found.bytes < 1.5 * found.min_bytes
    kept = counted(lambda x: x / tf.reduce_sum(tf.abs(x)), spec(3_000_000))
    assert kept.min_bytes <= kept.bytes < 1.01 * kept.min_bytes
    assert found.barriers >= 1


def test_half_precision_halves_the_minimum():
    single, half = (counted(lambda x: tf.tanh(x) + x, spec(64, 512, dtype=d)) for d in (tf.float32, tf.float16))
    assert single.min_bytes == 2 * half.min_bytes


def test_products_do_not_count_nor_does_what_is_folded_into_them():
    found = counted(lambda x, w, b: tf.nn.bias_add(tf.matmul(x, w), b), spec(64, 64), spec(64, 64), spec(64))
    assert (found.kernels, found.bytes, found.left) == (0, 0, {})


def test_what_is_left_to_tensorflow_counts():
    alone = counted(lambda x: tf.transpose(x, [1, 0]), spec(64, 512))
    assert (alone.kernels, alone.left) == (1, {"Transpose": 1})
    assert alone.bytes == alone.min_bytes
    # With the permutation, which TensorFlow's kernel reads.
    assert alone.bytes == 2 * 64 * 512 * 4 + 2 * 4


def test_every_cluster_that_stands_alone_is_one_kernel_with_the_arguments_and_results_as_minimum():
    for name in ("residual_layernorm", "batchnorm_training", "global_norm"):
        cluster = BY_NAME[name]
        found = gpu_stitch.counted(gpu_stitch.graph_of(cluster), H100)
        results = tf.nest.flatten(tf.function(cluster.function).get_concrete_function(*cluster.specs).outputs)
        sizes = [s.shape.num_elements() * s.dtype.size for s in (*cluster.specs, *results)]
        assert (found.kernels, found.min_bytes) == (1, sum(sizes))


# -- rows ------------------------------------------------------------------------------------------------------

OURS = StitchCount(kernels=1, bytes=100, min_bytes=100, us=5.0, barriers=0, occupancy=0.5)
XLAS = XlaCount(kernels=5, bytes=240)
NORM = GpuCluster("norm", tf.nn.softmax, (spec(4, 8),))


def row(*, cluster: GpuCluster = NORM, ours: StitchCount = OURS, xla: XlaCount | None = XLAS):
    return gpu.row(cluster, "t4", ours, xla, "" if xla else "no jax")


def test_a_row():
    found = row()
    assert [found[key] for key in ("cluster", "shape", "arch")] == ["norm", "4x8", "t4"]
    assert [found[f"{way}_{what}"] for what in ("kernels", "bytes") for way in ("xla", "stitch")] == [5, 1, 240, 100]
    assert (found["min_bytes"], found["stitch_us"], found["short"], found["absent"]) == (100, 5.0, [], {})


def test_without_xla_its_columns_are_empty_and_say_why():
    found = row(xla=None)
    assert (found["xla_kernels"], found["xla_bytes"], found["absent"]) == (None, None, {"xla": "no jax"})
    assert found["short"] == []
    summary = gpu.summary([found], {})
    assert summary["xla_over_stitch_kernels"] is None
    assert summary["stitch_over_min"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("kernels", "xla", "short"),
    [
        (2, 1, ["2 kernels, XLA has 1"]),
        (2, 2, ["2 kernels, as many as XLA"]),
        (1, 1, []),
        (1, 2, []),
    ],
)
def test_no_more_kernels_than_xla_and_fewer_where_it_has_several(kernels, xla, short):
    ours = StitchCount(kernels=kernels, bytes=100, min_bytes=100, us=5.0, barriers=0, occupancy=0.5)
    assert row(ours=ours, xla=XlaCount(xla, 100))["short"] == short


@pytest.mark.parametrize(
    ("again", "bytes_", "short"),
    [
        ("", 115, []),
        ("", 116, ["1.16 × the minimum of bytes, over 1.15"]),
        ("the rows are long", 160, []),
        ("the rows are long", 161, ["1.61 × the minimum of bytes, over 1.6"]),
    ],
)
def test_bytes_are_held_to_the_minimum(again, bytes_, short):
    cluster = GpuCluster("norm", tf.nn.softmax, (spec(4, 8),), again)
    ours = StitchCount(kernels=1, bytes=bytes_, min_bytes=100, us=5.0, barriers=0, occupancy=0.5)
    assert row(cluster=cluster, ours=ours)["short"] == short


def test_a_long_row_is_read_again_where_no_block_holds_it():
    cluster = GpuCluster("norm", tf.nn.softmax, (spec(4, 30_000),), row_bytes=120_000)
    again = {arch: gpu.row(cluster, arch, OURS, XLAS, "")["again"] for arch in gpu.ARCHS}
    assert again == {
        "v100": "a row of 117 KiB is more than the 96 KiB of a block",
        "t4": "a row of 117 KiB is more than the 64 KiB of a block",
        "a100": "",
        "h100": "",
    }


def test_between_products_as_many_kernels_as_xla_are_no_shortfall():
    cluster = GpuCluster("layer", tf.nn.softmax, (spec(4, 8),), products=True)
    ours = StitchCount(kernels=8, bytes=100, min_bytes=100, us=5.0, barriers=0, occupancy=0.5)
    assert row(cluster=cluster, ours=ours, xla=XlaCount(8, 100))["short"] == []


def test_the_table():
    again = GpuCluster("long", tf.nn.softmax, (spec(4, 8),), "the rows are long")
    poor = StitchCount(2, 300, 100, 5.0, 1, 0.5, {"Transpose": 1})
    rows = [row(), row(cluster=again, ours=poor, xla=None)]
    console = Console(width=120, record=True)
    gpu_table.show(console, rows, gpu.summary(rows, {}))
    text = console.export_text()
    assert "long on t4 may pass over memory again: the rows are long" in text
    assert "short: long t4: 3.00 × the minimum of bytes, over 1.6" in text
    assert "long leaves to TensorFlow: 1 Transpose" in text
    assert "not counted, XLA: no jax" in text
    assert "kernels XLA/stitch 5.00" in text


def test_without_jax_the_command_prints_our_figures(tmp_path, monkeypatch):
    monkeypatch.setenv(gpu_xla.ENVIRONMENT, str(tmp_path))
    out = tmp_path / "rows.json"
    outcome = CliRunner().invoke(bench, ["gpu", "rms_norm", "--arch", "t4,h100", "--json", str(out)])
    assert outcome.exit_code == 0, outcome.output
    document = json.loads(out.read_text())
    assert document["schema"] == 1
    assert [(r["cluster"], r["arch"], r["stitch_kernels"], r["xla_kernels"]) for r in document["rows"]] == [
        ("rms_norm", "t4", 1, None),
        ("rms_norm", "h100", 1, None),
    ]
    assert all("make venv-xla-gpu" in r["absent"]["xla"] for r in document["rows"])
    assert {"date", "cpu", "versions", "xla_versions", "short"} <= set(document["summary"])


@pytest.mark.parametrize("arguments", [["--arch", "k80"], ["nonsense"]])
def test_unknown_names_are_usage_errors(arguments):
    assert CliRunner().invoke(bench, ["gpu", *arguments]).exit_code == 2


def test_names_are_unique():
    assert len(BY_NAME) == len(CLUSTERS)


def _jax_is_missing() -> bool:
    try:
        gpu_xla.python()
    except Uncounted:
        return True
    return False


@pytest.mark.skipif(_jax_is_missing(), reason="no jax for GPUs: make venv-xla-gpu")
def test_xla_compiles_for_gpus_that_are_not_there(tmp_path):
    cluster = GpuCluster("norm", BY_NAME["residual_layernorm"].function, BY_NAME["residual_layernorm"].specs)
    module = gpu_xla.stablehlo(cluster.function, cluster.specs)
    versions = gpu_xla.compiled({"norm": module, "broken": b"nothing"}, ["v100", "h100"], tmp_path)
    assert versions["jax"] == "0.10.2"
    old, new = (gpu_xla.found_in(tmp_path, "norm", arch) for arch in ("v100", "h100"))
    assert old.kernels > new.kernels == 1
    assert old.bytes > new.bytes == 3 * 4096 * 1024 * 4 + 2 * 1024 * 4
    with pytest.raises(Uncounted, match="XLA refuses broken for h100"):
        gpu_xla.found_in(tmp_path, "broken", "h100")
