"""StitchOp with hand-written kernels: values, buffers, threads, fallbacks, artefacts and gradients."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest
import tensorflow as tf

from tests.runtime import handmade
from tests.runtime.handmade import Handmade
from tf_stitch.errors import BuildError, EnvironmentProblem
from tf_stitch.runtime import artefact, stitch_op

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def fresh_counters():
    stitch_op.reset_counters()


@pytest.fixture
def key(request):
    """A key that no other test uses: kernels stay loaded for the life of the process."""
    return f"{request.node.name}-{os.getpid()}"


@pytest.fixture
def register(tmp_path, key):
    def build_and_register(kernel: Handmade) -> str:
        stitch_op.register_kernel(key, str(kernel.build(tmp_path)))
        return key

    return build_and_register


@pytest.fixture
def lenient(monkeypatch):
    """Allows fallbacks."""
    monkeypatch.delenv("TF_STITCH_STRICT")


def stitched(inputs, key, dtypes=(tf.float32,), **attributes):
    outputs = stitch_op.ops().stitch_op(inputs=inputs, Tout=list(dtypes), key=key, **attributes)
    return outputs[0] if len(outputs) == 1 else outputs


def fallbacks(key, reason):
    return stitch_op.counters()["keys"][key]["fallbacks"][reason]


def concrete(function, *specs):
    """The function as what the `fallback` attr takes."""
    return tf.function(function, autograph=False).get_concrete_function(*specs)


VECTOR = tf.TensorSpec([None], tf.float32)


def plus_one_fallback():
    return concrete(lambda x: x + 1.0, VECTOR)


# ---- Values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
def test_one_output(register, graph):
    key = register(handmade.plus(1.5))

    def call(x):
        return stitched([x], key)

    y = (tf.function(call) if graph else call)(tf.constant([1.0, 2.0]))
    np.testing.assert_array_equal(y, [2.5, 3.5])
    assert stitch_op.counters()["keys"][key] == {
        "calls": 1,
        "fallbacks": {"NO_KERNEL": 0, "GUARD": 0, "CPU": 0, "ABI": 0, "DEVICE": 0},
        "loads": 1,
        "load_failures": 0,
    }
    assert stitch_op.counters()["total"]["calls"] == 1


def test_two_outputs(register):
    key = register(handmade.ROW_SUM_AND_DOUBLE)
    x = np.random.default_rng(0).integers(-9, 9, (301, 17)).astype(np.float32)
    rows, twice = tf.function(lambda x: stitched([x], key, [tf.float32] * 2))(x)
    np.testing.assert_array_equal(rows, x.sum(axis=1))
    np.testing.assert_array_equal(twice, 2 * x)


def test_more_inputs_and_dims_than_fit_on_the_stack(register):
    inputs = 20
    key = register(
        Handmade(
            inputs=inputs,
            ranks=(0,),
            shape="symbols[0] = 0; for (int i = 0; i < 20; ++i) for (int d = 0; d < in[i].rank; ++d)"
            "symbols[0] += (i + 1) * (d + 1) * in[i].dims[d];",
            run="*(long long*)out[0] = symbols[0];",
        )
    )
    xs = [tf.zeros([1 + (i + d) % 3 for d in range(i % 7)]) for i in range(inputs)]
    expected = sum((i + 1) * (d + 1) * n for i, x in enumerate(xs) for d, n in enumerate(x.shape))
    assert stitched(xs, key, [tf.int64]).numpy() == expected


def test_no_inputs(register):
    key = register(
        Handmade(
            inputs=0,
            shape="dims[0] = 2; symbols[0] = 0;",
            run="((float*)out[0])[0] = 1; ((float*)out[0])[1] = 2;",
        )
    )
    np.testing.assert_array_equal(stitched([], key), [1, 2])


def test_empty_output_does_not_run_the_kernel(register):
    key = register(Handmade(shape="dims[0] = in[0].dims[0]; symbols[0] = 0;", run="__builtin_trap();"))
    assert stitched([tf.zeros([0])], key).shape == [0]


def test_reduction_of_nothing_runs_the_kernel(register):
    key = register(handmade.ROW_SUM_AND_DOUBLE)
    rows, twice = stitched([tf.zeros([3, 0])], key, [tf.float32] * 2)
    np.testing.assert_array_equal(rows, [0, 0, 0])
    assert twice.shape == [3, 0]


def test_output_shapes_give_the_static_shape(register):
    key = register(handmade.plus(1))

    @tf.function(input_signature=[VECTOR])
    def call(x):
        known = stitched([x], key, output_shapes=[tf.TensorShape([None])])
        unknown = stitched([x], key)
        assert known.shape.as_list() == [None]
        assert unknown.shape.rank is None
        return known + unknown

    np.testing.assert_array_equal(call([1.0]), [4])


def test_in_a_while_loop(register):
    key = register(handmade.plus(1))

    @tf.function
    def count(x, n):
        for _ in tf.range(n):
            x = stitched([x], key, output_shapes=[tf.TensorShape([None])])
            x = tf.ensure_shape(x, [3])
        return x

    np.testing.assert_array_equal(count(tf.zeros([3]), tf.constant(1000)), [1000] * 3)
    assert stitch_op.counters()["keys"][key]["calls"] == 1000


def test_in_a_session(register):
    key = register(handmade.plus(1))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None])
        y = stitched([x], key, fallback="")
        np.testing.assert_array_equal(session.run(y, {x: [1, 2]}), [2, 3])


# ---- Buffers -----------------------------------------------------------------------------------------------


def test_a_dead_input_gives_its_buffer(register):
    key = register(handmade.ADD_AND_TELL)
    x = tf.constant([1.0, 2.0])
    y, buffer = tf.function(lambda x: stitched([x * 2, x], key, [tf.float32, tf.int64]))(x)
    assert buffer.numpy() == 1
    y2, buffer = tf.function(lambda x: stitched([x, x * 2], key, [tf.float32, tf.int64]))(x)
    assert buffer.numpy() == 2
    for result in (y, y2):
        np.testing.assert_array_equal(result, [3, 6])
    np.testing.assert_array_equal(x, [1, 2])


def test_a_live_input_keeps_its_buffer(register):
    key = register(handmade.ADD_AND_TELL)

    @tf.function
    def call(x):
        a, b = x * 2, x * 3
        y, buffer = stitched([a, b], key, [tf.float32, tf.int64])
        return y, buffer, a, b

    y, buffer, a, b = call(tf.constant([1.0, 2.0]))
    assert buffer.numpy() == 0
    np.testing.assert_array_equal(y, [5, 10])
    np.testing.assert_array_equal(a, [2, 4])
    np.testing.assert_array_equal(b, [3, 6])


def test_one_tensor_twice_keeps_its_buffer(register):
    key = register(handmade.ADD_AND_TELL)

    @tf.function
    def call(x):
        a = x * 2
        return stitched([a, a], key, [tf.float32, tf.int64])

    y, buffer = call(tf.constant([1.0, 2.0]))
    assert buffer.numpy() == 0
    np.testing.assert_array_equal(y, [4, 8])


def test_a_variable_and_a_constant_are_not_overwritten(register):
    key = register(handmade.ADD_AND_TELL)
    variable = tf.Variable([1.0, 2.0])

    @tf.function
    def call():
        return stitched([variable.read_value(), tf.constant([10.0, 20.0])], key, [tf.float32, tf.int64])

    for _ in range(3):
        y, buffer = call()
        np.testing.assert_array_equal(y, [11, 22])
        assert buffer.numpy() == 0
    np.testing.assert_array_equal(variable, [1, 2])


def test_a_buffer_goes_to_one_output_only(register):
    key = register(
        Handmade(
            ranks=(1, 1),
            forwards=((0, 0), (0, 1)),
            shape="dims[0] = dims[1] = symbols[0] = in[0].dims[0];",
            run="""
              const float* x = (const float*)in[0].data;
              float* y = (float*)out[0]; float* z = (float*)out[1];
              for (long long i = 0; i < symbols[0]; ++i) { float v = x[i]; y[i] = v + 1; z[i] = v + 2; }""",
        )
    )
    y, z = tf.function(lambda x: stitched([x * 2], key, [tf.float32] * 2))(tf.constant([1.0, 2.0]))
    np.testing.assert_array_equal(y, [3, 5])
    np.testing.assert_array_equal(z, [4, 6])


def test_scratch(register):
    key = register(handmade.SCRATCH)
    for _ in range(2):
        np.testing.assert_array_equal(stitched([tf.zeros([1])], key, [tf.int64]), [0, 1, 1])


def test_large_scratch_is_given_back(register):
    key = register(
        Handmade(
            shape="dims[0] = 1; symbols[0] = 0;",
            run="""char* p = (char*)host->scratch(0, 300 << 20);
              for (long long i = 0; i < 300 << 20; i += 4096) p[i] = 1;
              ((float*)out[0])[0] = 1;""",
        )
    )
    process = psutil.Process()
    before = process.memory_info().rss
    stitched([tf.zeros([1])], key)
    assert process.memory_info().rss - before < 150 << 20


# ---- Threads -----------------------------------------------------------------------------------------------

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="reads an x86 register")


@on_x86
@pytest.mark.parametrize("elements", [1, 2, 7, 64, 1000, 4099])
def test_parallel_loop_visits_each_element_once(register, elements):
    count, _, _ = stitched([tf.zeros([elements])], register(handmade.VISITS), [tf.int32] * 3)
    np.testing.assert_array_equal(count, np.ones(elements))


@on_x86
def test_parallel_loops_of_many_threads_at_a_time(register):
    key = register(handmade.VISITS)
    counts = []

    def work():
        counts.extend(stitched([tf.zeros([500])], key, [tf.int32] * 3)[0].numpy() for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(counts, np.ones([80, 500]))


@on_x86
@pytest.mark.skipif(os.cpu_count() == 1, reason="one core")
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
def test_large_loop_uses_several_threads(register, graph):
    key = register(handmade.VISITS)

    def call(x):
        return stitched([x], key, [tf.int32] * 3)

    call = tf.function(call) if graph else call
    # A busy machine may give all chunks of a loop to one thread, but not time after time.
    assert any(len(np.unique(call(tf.zeros([2000]))[1])) > 1 for _ in range(50))


@on_x86
def test_small_loop_stays_on_the_calling_thread(register):
    _, thread, _ = stitched([tf.zeros([2])], register(handmade.VISITS), [tf.int32] * 3)
    assert set(thread.numpy()) == {threading.get_native_id()}


@on_x86
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
def test_tasks_flush_denormals_as_tensorflow_does(register, graph):
    key = register(handmade.VISITS)

    def call(x, denormal, one):
        return stitched([x], key, [tf.int32] * 3)[2], denormal * one

    call = tf.function(call) if graph else call
    mxcsr, product = call(tf.zeros([2000]), tf.fill([4], 1e-40), tf.ones([4]))
    flush_to_zero_and_denormals_are_zero = 0x8040
    np.testing.assert_array_equal(product, np.zeros(4))  # TensorFlow's own kernels flush
    assert {value & flush_to_zero_and_denormals_are_zero for value in mxcsr.numpy()} == {0x8040}


def test_32_threads_at_the_first_call(tmp_path, key):
    packed = artefact.pack(handmade.plus(1).build(tmp_path).read_bytes())
    barrier = threading.Barrier(32)
    wrong = []

    def work(number):
        barrier.wait()
        for _ in range(20):
            y = stitched([tf.fill([5], float(number))], key, artefact=packed).numpy()
            if not np.array_equal(y, [number + 1] * 5):
                wrong.append((number, y))

    threads = [threading.Thread(target=work, args=[number]) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    counts = stitch_op.counters()["keys"][key]
    assert (counts["calls"], counts["loads"], counts["load_failures"]) == (640, 1, 0)


# ---- Fallbacks ---------------------------------------------------------------------------------------------


def test_guard_falls_back(register, lenient):
    key = register(handmade.plus(1))
    fallback = plus_one_fallback()
    small, large = tf.zeros([3]), tf.zeros([1_000_001])
    call = tf.function(lambda x: stitched([x], key, fallback=fallback), reduce_retracing=True)
    np.testing.assert_array_equal(call(small), [1] * 3)
    assert fallbacks(key, "GUARD") == 0
    np.testing.assert_array_equal(call(large), np.ones(1_000_001))
    assert fallbacks(key, "GUARD") == 1
    assert stitch_op.counters()["keys"][key]["calls"] == 2


def test_strict_makes_a_fallback_an_error(register):
    key = register(handmade.plus(1))
    call = tf.function(lambda x: stitched([x], key, fallback=plus_one_fallback(), name="my_cluster"))
    with pytest.raises(tf.errors.FailedPreconditionError) as caught:
        call(tf.zeros([1_000_001]))
    text = str(caught.value)
    assert "StitchOp 'my_cluster'" in text
    assert f"key {key}" in text
    assert "GUARD: the kernel assumes that x has at most a million elements." in text
    assert "Stitch the model again with input shapes that allow this call." in text
    assert "unset TF_STITCH_STRICT" in text
    assert fallbacks(key, "GUARD") == 1


def test_strict_is_read_at_each_call(key, monkeypatch):
    call = tf.function(lambda x: stitched([x], key, fallback=plus_one_fallback()))
    with pytest.raises(tf.errors.FailedPreconditionError, match="NO_KERNEL"):
        call(tf.zeros([2]))
    monkeypatch.setenv("TF_STITCH_STRICT", "0")
    np.testing.assert_array_equal(call(tf.zeros([2])), [1, 1])


def test_no_kernel_falls_back_until_one_is_registered(key, tmp_path, lenient):
    fallback = plus_one_fallback()
    call = tf.function(lambda x: stitched([x], key, fallback=fallback))
    for _ in range(2):
        np.testing.assert_array_equal(call(tf.zeros([2])), [1, 1])
    assert fallbacks(key, "NO_KERNEL") == 2
    stitch_op.register_kernel(key, str(handmade.plus(100).build(tmp_path)))
    np.testing.assert_array_equal(call(tf.zeros([2])), [100, 100])
    assert fallbacks(key, "NO_KERNEL") == 2


def test_fallback_in_a_while_loop_and_from_many_threads(key, lenient):
    fallback = plus_one_fallback()

    @tf.function
    def count(x, n):
        for _ in tf.range(n):
            x = tf.ensure_shape(stitched([x], key, fallback=fallback), [3])
        return x

    results = []
    threads = [
        threading.Thread(target=lambda: results.append(count(tf.zeros([3]), tf.constant(200)).numpy()))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(results, np.full([8, 3], 200))
    assert fallbacks(key, "NO_KERNEL") == 1600


def test_an_error_in_the_fallback_is_raised(key, lenient):
    fallback = concrete(lambda x: tf.reshape(x, [7]), VECTOR)
    with pytest.raises(tf.errors.InvalidArgumentError, match="reshape"):
        stitched([tf.zeros([3])], key, fallback=fallback)


def test_neither_kernel_nor_fallback(key, lenient):
    with pytest.raises(tf.errors.NotFoundError, match="neither a kernel nor a fallback"):
        stitched([tf.zeros([3])], key)


def test_a_kernel_for_another_number_of_inputs_falls_back(register, lenient):
    key = register(handmade.ADD_AND_TELL)
    np.testing.assert_array_equal(stitched([tf.zeros([2])], key, fallback=plus_one_fallback()), [1, 1])
    assert fallbacks(key, "ABI") == 1


# ---- Registering and artefacts -----------------------------------------------------------------------------


def test_registering_twice_keeps_the_first(tmp_path, key):
    stitch_op.register_kernel(key, str(handmade.plus(1).build(tmp_path)))
    stitch_op.register_kernel(key, str(handmade.plus(2).build(tmp_path)))
    np.testing.assert_array_equal(stitched([tf.zeros([1])], key), [1])
    assert stitch_op.counters()["keys"][key]["loads"] == 1


def test_loaded_kernels_are_listed(register):
    key = register(handmade.plus(4))
    (kernel,) = [kernel for kernel in stitch_op.loaded_kernels() if kernel["key"] == key]
    assert kernel["name"] == "plus_4"
    assert kernel["source"].endswith(".so")
    assert (kernel["inputs"], kernel["outputs"], kernel["symbols"]) == (1, 1, 1)
    assert kernel["guards"] == ["x has at most a million elements"]


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Handmade(shape="", run="", abi="999"), "kernel ABI 999"),
        (Handmade(shape="", run="", forwards=((1, 0),)), "`forwards` names an input"),
        (Handmade(shape="", run="missing();", support="void missing();"), "undefined symbol"),
    ],
)
def test_a_bad_library_is_refused(tmp_path, key, kernel, message):
    with pytest.raises(BuildError, match=message):
        stitch_op.register_kernel(key, str(kernel.build(tmp_path)))
    assert stitch_op.counters()["keys"][key]["load_failures"] == 1


def test_a_missing_library_is_refused(key):
    with pytest.raises(BuildError, match="cannot open shared object file"):
        stitch_op.register_kernel(key, "/nowhere/kernel.so")


def test_artefacts_do_not_get_mixed_up(tmp_path, key):
    # Descriptors are reused, and the dynamic loader takes a path that it has seen for what it loaded then.
    for constant in range(8):
        packed = artefact.pack(handmade.plus(constant).build(tmp_path).read_bytes())
        y = stitched([tf.zeros([1])], f"{key}-{constant}", artefact=packed)
        np.testing.assert_array_equal(y, [constant])


def corrupted(packed):
    return packed[:-100] + bytes([packed[-100] ^ 1]) + packed[-99:]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (corrupted, "checksum does not match"),
        (lambda packed: packed[:-1], "checksum does not match"),
        (lambda packed: packed[:5], "does not start with the header"),
        (artefact.unpack, "does not start with the header"),
        (lambda _: artefact.pack(b"not a library"), "does not load"),
    ],
    ids=["flipped bit", "truncated", "tiny", "no header", "no library"],
)
def test_a_damaged_artefact_falls_back(tmp_path, key, monkeypatch, damage, message):
    packed = damage(artefact.pack(handmade.plus(1).build(tmp_path).read_bytes()))
    with pytest.raises(tf.errors.FailedPreconditionError, match=message):
        stitched([tf.zeros([2])], key, artefact=packed)
    monkeypatch.delenv("TF_STITCH_STRICT")
    y = stitched([tf.zeros([2])], key, artefact=packed, fallback=plus_one_fallback())
    np.testing.assert_array_equal(y, [1, 1])
    assert fallbacks(key, "NO_KERNEL") == 2
    assert stitch_op.counters()["keys"][key]["load_failures"] > 0


def test_a_cpu_without_a_feature_falls_back(tmp_path, key, monkeypatch):
    packed = artefact.pack(handmade.plus(1).build(tmp_path).read_bytes())
    requires = f"{platform.machine()},avx9000"
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"CPU: .* built for a CPU with avx9000"):
        stitched([tf.zeros([2])], key, artefact=packed, requires=requires)
    monkeypatch.delenv("TF_STITCH_STRICT")
    y = stitched([tf.zeros([2])], key, artefact=packed, requires=requires, fallback=plus_one_fallback())
    np.testing.assert_array_equal(y, [1, 1])
    assert fallbacks(key, "CPU") == 2
    # Another graph may bring a kernel of the same key that this CPU can run.
    y = stitched([tf.zeros([2])], key, artefact=packed, requires=platform.machine())
    np.testing.assert_array_equal(y, [1, 1])
    assert fallbacks(key, "CPU") == 2


def test_missing_cpu_feature():
    assert stitch_op.missing_cpu_feature("") == ""
    assert stitch_op.missing_cpu_feature(platform.machine()) == ""
    assert stitch_op.missing_cpu_feature(f"{platform.machine()},nope,neither") == "nope"


def test_artefact_round_trip():
    assert artefact.unpack(artefact.pack(b"library")) == b"library"
    with pytest.raises(ValueError, match="corrupted"):
        artefact.unpack(corrupted(artefact.pack(b"library" * 100)))


def test_environment_check():
    stitch_op.check_environment("2.21.3", "2.21.0")
    with pytest.raises(EnvironmentProblem, match=r"works with TensorFlow 2\.21, and 2\.20\.0 is installed; run `pip"):
        stitch_op.check_environment("2.20.0", "2.21.0")
    with pytest.raises(EnvironmentProblem, match=r"was built for TensorFlow 2\.20\.0"):
        stitch_op.check_environment("2.21.0", "2.20.0")


# ---- In a process of its own -------------------------------------------------------------------------------


def run_python(script, *arguments, **environment):
    """Runs a script where fallbacks are allowed and logs are shown, and returns what it printed."""
    clean = {k: v for k, v in os.environ.items() if k not in ("TF_STITCH_STRICT", "TF_CPP_MIN_LOG_LEVEL")}
    completed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        env=clean | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout, completed.stderr


CALL_ARTEFACT_TWICE = """
    import sys, pathlib, tensorflow as tf
    from tf_stitch.runtime import artefact, stitch_op
    f = tf.function(lambda x: x + 1.0).get_concrete_function(tf.TensorSpec([None]))
    packed = artefact.pack(pathlib.Path(sys.argv[1]).read_bytes())
    if sys.argv[2] == "corrupt":
        packed = packed[:-9] + b"corrupted"
    for _ in range(2):
        (y,) = stitch_op.ops().stitch_op(
            inputs=[tf.zeros([2])], Tout=[tf.float32], key="the_key", artefact=packed, fallback=f)
    print(y.numpy(), stitch_op.counters()["total"]["loads"])
"""


@pytest.mark.slow
def test_a_fallback_is_logged_once_with_its_reason(tmp_path):
    out, err = run_python(CALL_ARTEFACT_TWICE, handmade.plus(1).build(tmp_path), "corrupt")
    assert out == "[1. 1.] 0\n"
    assert err.count("(key the_key) cannot run its kernel: NO_KERNEL: the artefact attr is corrupted") == 1


@pytest.mark.slow
@pytest.mark.faults
def test_artefact_without_memfd(tmp_path):
    source = tmp_path / "no_memfd.cc"
    source.write_text("""
        #include <errno.h>
        extern "C" int memfd_create(const char*, unsigned) { errno = ENOSYS; return -1; }
    """)
    preload = tmp_path / "no_memfd.so"
    subprocess.run(["g++", "-shared", "-fPIC", str(source), "-o", str(preload)], check=True)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    out, _ = run_python(
        CALL_ARTEFACT_TWICE,
        handmade.plus(1).build(tmp_path),
        "sound",
        LD_PRELOAD=str(preload),
        TMPDIR=str(temporary),
    )
    assert out == "[1. 1.] 1\n"
    assert not list(temporary.iterdir())


@pytest.mark.slow
def test_a_saved_model_brings_its_kernel(tmp_path, key):
    packed = artefact.pack(handmade.plus(1).build(tmp_path).read_bytes())
    fallback = concrete(lambda x: x + 3.0, VECTOR)  # unlike the kernel, so that one can tell who ran
    module = tf.Module()
    module.scale = tf.Variable(2.0)
    module.call = tf.function(
        lambda x: stitched([x], key, artefact=packed, fallback=fallback, output_shapes=[[None]]) * module.scale,
        input_signature=[VECTOR],
    )
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.call)
    out, _ = run_python(
        """
        import sys, tensorflow as tf
        import tf_stitch.runtime.stitch_op
        model = tf.saved_model.load(sys.argv[1])
        x = tf.constant([1.0, 2.0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = model.call(x)
        print(y.numpy(), tape.gradient(y, [x, model.scale])[0].numpy())
        print(next(iter(model.signatures["serving_default"](x).values())).numpy())
        """,
        tmp_path / "model",
        TF_STITCH_STRICT="1",
    )
    assert out == "[4. 6.] [2. 2.]\n[4. 6.]\n"


# ---- Gradients ---------------------------------------------------------------------------------------------
#
# The kernel and the fallback both compute x * x + y, so that a gradient can be compared with TensorFlow's.

SQUARE_PLUS = Handmade(
    inputs=2,
    shape="dims[0] = symbols[0] = in[0].dims[0];",
    run="""
      const float* x = (const float*)in[0].data; const float* y = (const float*)in[1].data;
      float* z = (float*)out[0];
      for (long long i = 0; i < symbols[0]; ++i) z[i] = x[i] * x[i] + y[i];""",
)


def square_plus(x, y):
    return x * x + y


@pytest.fixture
def stitched_square_plus(register):
    key = register(SQUARE_PLUS)
    fallback = concrete(square_plus, VECTOR, VECTOR)

    def call(x, y):
        return tf.ensure_shape(stitched([x, y], key, fallback=fallback), x.shape)

    return call


X, Y = tf.constant([1.0, -2.0, 3.0]), tf.constant([0.5, 4.0, -1.0])


def gradients(function, *inputs):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        result = function(*inputs)
    return tape.gradient(result, inputs)


def second_order(function, *inputs):
    return gradients(lambda *xs: tf.reduce_sum(gradients(function, *xs)[0] ** 3), *inputs)[0]


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("order", [gradients, second_order])
def test_gradient(stitched_square_plus, graph, order):
    def ours(x, y):
        return order(stitched_square_plus, x, y)

    result = (tf.function(ours) if graph else ours)(X, Y)
    for got, expected in zip(result, order(square_plus, X, Y), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_gradient_of_an_input_used_twice(stitched_square_plus):
    (got,) = gradients(lambda x: stitched_square_plus(x, tf.sin(x)), X)
    np.testing.assert_allclose(got, 2 * X + tf.cos(X), rtol=1e-6)


@pytest.mark.parametrize("order", [gradients, second_order])
def test_gradient_through_a_while_loop(stitched_square_plus, order):
    def loop(step):
        @tf.function
        def run(x, y):
            for _ in tf.range(3):
                x = step(x * 0.5, y)
            return x

        return run

    got = order(loop(stitched_square_plus), X, Y)
    for a, b in zip(got, order(loop(square_plus), X, Y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_gradient_with_integers_and_unused_outputs(key, lenient):
    def body(x, i):
        return tf.gather(x, i), i + 1, x * 3.0

    fallback = concrete(body, VECTOR, tf.TensorSpec([None], tf.int32))

    def call(x):
        dtypes = [tf.float32, tf.int32, tf.float32]
        first, _, _ = stitched([x, tf.constant([0, 0, 2])], key, dtypes, fallback=fallback)
        return first

    for function in (call, tf.function(call)):
        np.testing.assert_array_equal(gradients(function, X)[0], [2, 0, 1])


def test_gradient_needs_a_fallback(register):
    key = register(handmade.plus(1))
    with pytest.raises(EnvironmentProblem, match="no fallback function, and so no gradient"):
        gradients(lambda x: stitched([x], key), X)
