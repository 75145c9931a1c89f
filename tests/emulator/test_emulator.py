"""Right kernels run right: under every schedule, with every sanitizer, whatever the residency."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator import building
from tests.emulator.dialect import kernels, with_shared_memory
from tests.emulator.emulated import Module, Traffic, compile_kernel
from tests.emulator.kernels import Case, column_sums, every_case, global_norm, layer_norm, softmax

SEEDS = (None, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("case", every_case(), ids=lambda case: case.name)
def test_right_kernels_under_every_schedule(case: Case):
    module = compile_kernel(case.text)
    for seed in SEEDS:
        case.run(module, seed)


@pytest.mark.parametrize("sanitizer", building.SANITIZERS)
@pytest.mark.parametrize("case", every_case(), ids=lambda case: case.name)
def test_right_kernels_are_clean_under_the_sanitizers(case: Case, sanitizer: str):
    module = compile_kernel(case.text, sanitizer)
    for seed in (None, 1):
        case.run(module, seed)


@pytest.mark.parametrize("n", [1, 31, 33, 1023, 4097])
def test_odd_sizes(n: int):
    for case in (layer_norm(2, n), softmax(5, n), global_norm(n), column_sums(7, n)):
        case.run(compile_kernel(case.text), seed=n)


def test_the_portable_switch_runs_the_same():
    case = layer_norm()
    plain, portable = (Module(building.build(case.text, flavour), flavour) for flavour in ("plain", "portable"))
    assert case.run(plain, seed=3) == case.run(portable, seed=3)


def test_a_seed_gives_the_same_schedule_each_time():
    case = global_norm()
    module = compile_kernel(case.text)
    switches = {seed: case.run(module, seed).switches for seed in range(5)}
    assert switches == {seed: case.run(module, seed).switches for seed in range(5)}
    assert len(set(switches.values())) > 1


def test_no_more_blocks_live_than_are_resident():
    text = """
    extern "C" __global__ void turns(unsigned* now, unsigned* most) {
      if (threadIdx.x == 0) atomicMax(most, atomicAdd(now, 1u) + 1);
      __syncthreads();
      if (threadIdx.x == 0) atomicSub(now, 1u);
    }"""
    for resident in (1, 3):
        most = np.zeros(1, np.uint32)
        arguments = [np.zeros(1, np.uint32), most]
        compile_kernel(text).launch("turns", 20, 64, 0, arguments, seed=1, resident_blocks=resident)
        assert most[0] == resident


def test_grids_and_blocks_of_three_dimensions():
    text = """
    extern "C" __global__ void where(int* x) {
      const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
      const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
      x[block * 24 + thread] = block * 24 + thread;
    }"""
    x = np.zeros(24 * 30, np.int32)
    compile_kernel(text).launch("where", (2, 3, 5), (4, 3, 2), 0, [x], seed=1)
    assert (x == np.arange(x.size)).all()


def test_what_lanes_do_together():
    text = """
    extern "C" __global__ void lanes(int* x) {
      const int lane = threadIdx.x;
      int* at = x + lane;
      at[0 * 32] = __shfl_sync(~0u, lane, 5);
      at[1 * 32] = __shfl_sync(~0u, lane, 5, 8);
      at[2 * 32] = __shfl_up_sync(~0u, lane, 3);
      at[3 * 32] = __shfl_down_sync(~0u, lane, 3, 16);
      at[4 * 32] = __shfl_xor_sync(~0u, lane, 9);
      at[5 * 32] = __shfl_xor_sync(~0u, lane, 9, 8);
      at[6 * 32] = __ballot_sync(~0u, lane % 3 == 0);
      at[7 * 32] = __any_sync(~0u, lane == 40) + 2 * __any_sync(~0u, lane == 4);
      at[8 * 32] = __all_sync(~0u, lane < 32) + 2 * __all_sync(~0u, lane < 31);
      at[9 * 32] = __syncthreads_count(lane > 20);
    }"""
    x = np.zeros((10, 32), np.int32)
    compile_kernel(text).launch("lanes", 1, 32, 0, [x], seed=2)
    lane = np.arange(32)
    assert (x[0] == 5).all()
    assert (x[1] == lane // 8 * 8 + 5).all()
    assert (x[2] == np.where(lane < 3, lane, lane - 3)).all()
    assert (x[3] == np.where(lane % 16 + 3 > 15, lane, lane + 3)).all()
    assert (x[4] == lane ^ 9).all()
    assert (x[5] == np.where((lane ^ 9) > (lane | 7), lane, lane ^ 9)).all()
    assert (x[6] == sum(1 << n for n in range(0, 32, 3))).all()
    assert (x[7] == 2).all()
    assert (x[8] == 1).all()
    assert (x[9] == 11).all()


def test_atomics():
    text = """
    extern "C" __global__ void atomics(int* x, unsigned long long* y) {
      atomicAdd(x + 0, 2);
      atomicMin(x + 1, -int(threadIdx.x));
      atomicMax(x + 2, int(threadIdx.x));
      atomicOr(x + 3, 1 << threadIdx.x % 31);
      int old = x[4], seen;
      do {
        seen = old;
        old = atomicCAS(x + 4, seen, seen + 3);
      } while (old != seen);
      atomicAdd(y, 1ull << 40);
    }"""
    x, y = np.zeros(5, np.int32), np.zeros(1, np.uint64)
    compile_kernel(text).launch("atomics", 4, 32, 0, [x, y], seed=4)
    assert x.tolist() == [256, -31, 31, 0x7FFFFFFF, 384]
    assert y[0] == 128 << 40


def test_instances_of_a_template_have_shared_memory_of_their_own():
    text = """
    template <int n> __device__ int* tile() {
      __shared__ __align__(32) int values[4];
      return values;
    }
    extern "C" __global__ void instances(int* x) {
      x[0] = tile<1>() == tile<2>();
      x[1] = tile<1>() == tile<1>();
      x[2] = reinterpret_cast<unsigned long long>(tile<2>()) % 32;
    }"""
    x = np.full(3, 7, np.int32)
    module = compile_kernel(text)
    module.launch("instances", 1, 1, 0, [x])
    assert x.tolist() == [0, 1, 0]
    assert module.static_shared_bytes == 32


def test_float_atomics_are_refused():
    with pytest.raises(building.CompilationFailed, match="atomics are for integers"):
        compile_kernel('extern "C" __global__ void wrong(float* x) { atomicAdd(x, 1.0f); }')


def test_arguments_are_checked_against_the_parameters():
    case = softmax()
    with pytest.raises(ValueError, match="softmax: the parameters are ppii, the arguments ppi"):
        compile_kernel(case.text).launch("softmax", 1, 32, 0, case.arguments()[:-1])


# ---- Counters ------------------------------------------------------------------------------------------------------

COPY = """
extern "C" __global__ void copy(const float* x, float* y, long long step) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  y[i] = x[i * step];
}"""


@pytest.mark.parametrize(("step", "sectors"), [(1, 4), (2, 8), (8, 32)])
def test_sectors_are_counted_for_a_warp(step: int, sectors: int):
    module = compile_kernel(COPY, counting=True)
    counters = module.launch("copy", 2, 64, 0, [np.zeros(128 * step, np.float32), np.zeros(128, np.float32), step])
    assert (counters.load_bytes, counters.store_bytes) == (512, 512)
    assert (counters.load_sectors, counters.store_sectors) == (4 * sectors, 4 * 4)


def test_traffic_of_each_argument():
    text = """
    extern "C" __global__ void twice(const float* x, float* y, long long n) {
      for (int pass = 0; pass < 2; ++pass) {
        if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] + pass;
        __syncthreads();
      }
    }"""
    module = compile_kernel(text, counting=True)
    counters = module.launch("twice", 1, 64, 0, [np.zeros(48, np.float32), np.zeros(48, np.float32), 48])
    assert counters.buffers == (Traffic(384, 0, 12, 0, 6, 0), Traffic(0, 384, 0, 12, 0, 6), None)


def test_a_vector_is_one_access():
    text = """
    extern "C" __global__ void copy(const float4* x, float4* y) {
      const float4 value = x[threadIdx.x];
      y[threadIdx.x] = make_float4(value.y, value.x, value.w, value.z);
    }"""
    counters = compile_kernel(text, counting=True).launch(
        "copy", 1, 64, 0, [np.zeros(256, np.float32), np.zeros(256, np.float32)]
    )
    assert (counters.load_bytes, counters.load_sectors) == (1024, 32)
    assert (counters.store_bytes, counters.store_sectors) == (1024, 32)


@pytest.mark.parametrize(("stride", "conflicts"), [(1, 0), (2, 1), (4, 3), (32, 31), (33, 0), (0, 0)])
def test_bank_conflicts(stride: int, conflicts: int):
    text = """
    extern "C" __global__ void banks(float* y, long long stride) {
      __shared__ float tile[33 * 32];
      y[threadIdx.x] = tile[threadIdx.x * stride];
    }"""
    counters = compile_kernel(text, counting=True).launch("banks", 1, 32, 0, [np.zeros(32, np.float32), stride])
    assert (counters.shared_loads, counters.bank_conflicts) == (1, conflicts)


def test_barriers_are_counted():
    case = global_norm(blocks=3)
    counters = case.run(compile_kernel(case.text, counting=True))
    assert counters.grid_barriers == 1
    assert counters.block_barriers == 3 * 3
    assert counters.fences == 3 * 2
    assert counters.load_bytes == 2 * 1023 * 4 + 3 * 3 * 64 * 4  # x twice, and all parts by each block


# ---- The dialect ---------------------------------------------------------------------------------------------------


def test_shared_variables_keep_their_lines():
    text = "a;\n__shared__ float\n  tile[4][33];\nextern __shared__ __align__(16) char rest[];\nb;"
    rewritten = with_shared_memory(text)
    assert rewritten.count("\n") == text.count("\n")
    assert "float (&tile)[4][33] = ::stitch_emulator::shared<float[4][33], 0>" in rewritten
    assert rewritten.splitlines()[3].startswith("char* const rest = ")


def test_two_variables_in_one_declaration_are_refused():
    with pytest.raises(ValueError, match="no declaration of one variable"):
        with_shared_memory("__shared__ float a[2], b[3];")


def test_kernels_are_found_by_name():
    text = """
    // __global__ void none() {}
    extern "C" __global__ void __launch_bounds__(128, 4) first(int* x) {}
    extern "C" __global__ __launch_bounds__(64) void second(int* x) {}"""
    assert kernels(text) == ("first", "second")
