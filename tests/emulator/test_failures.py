"""Each kind of mistake is caught, and the report names the line."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.emulated import BadAccess, Deadlock, Divergence, Failure, Race, Scratch, Trap, compile_kernel
from tests.emulator.kernels import global_norm, layer_norm


def line_of(text: str, mark: str = "HERE") -> str:
    return f"kernel.cu:{next(n for n, line in enumerate(text.splitlines(), 1) if mark in line)}"


def failing(text: str, kind: type[Failure], arguments: list, *, grid: int = 1, block: int = 32, **launch) -> Failure:
    """The failure of the kernel `wrong`, which must be of `kind` and name the line that says HERE."""
    sanitizer = launch.pop("sanitizer", None)
    with pytest.raises(kind) as caught:
        compile_kernel(text, sanitizer).launch("wrong", grid, block, launch.pop("shared", 0), arguments, **launch)
    assert line_of(text) in caught.value.lines, str(caught.value)
    assert "wrong" in str(caught.value)
    return caught.value


# ---- Threads that do not meet --------------------------------------------------------------------------------------


def test_a_barrier_that_some_threads_do_not_reach():
    text = """
    extern "C" __global__ void wrong(int* x) {
      if (threadIdx.x < 48) {
        __syncthreads();  // HERE
      }
    }"""
    failure = failing(text, Divergence, [np.zeros(1, np.int32)], block=64)
    assert "thread (48,0,0) of block (0,0,0) returned while thread (0,0,0) of block (0,0,0) waits" in str(failure)


def test_two_barriers_at_once():
    text = """
    extern "C" __global__ void wrong(int* x) {
      if (threadIdx.x < 32) {
        __syncthreads();
      } else {
        __syncthreads();  // HERE
      }
    }"""
    failure = failing(text, Divergence, [np.zeros(1, np.int32)], block=64)
    assert "kernel.cu:6, but thread (0,0,0) of block (0,0,0) waits in __syncthreads at kernel.cu:4" in str(failure)


def test_a_barrier_while_others_wait_for_a_shuffle():
    text = """
    extern "C" __global__ void wrong(int* x) {
      int v = threadIdx.x;
      if (v != 7) v = __shfl_xor_sync(0xffffffffu, v, 1);
      __syncthreads();  // HERE
      x[threadIdx.x] = v;
    }"""
    failing(text.replace("  // HERE", "").replace("1);", "1);  // HERE"), Deadlock, [np.zeros(32, np.int32)])


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("__shfl_sync(0x0000ffffu, x[0], 0)", "lane 16 is not in the mask 0x0000ffff"),
        (
            "__shfl_sync(threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u, x[0], 3)",
            "reads lane 3, which is not in the mask",
        ),
        ("__shfl_sync(threadIdx.x < 16 ? 0x0001ffffu : 0xffff0000u, x[0], 16)", "lanes of it wait with the mask"),
        ("threadIdx.x < 16 ? __shfl_sync(~0u, x[0], 0) : __ballot_sync(~0u, 1)", "other lanes of its mask are in"),
    ],
)
def test_a_shuffle_with_a_wrong_mask(call: str, why: str):
    text = f'extern "C" __global__ void wrong(int* x) {{\n  x[threadIdx.x] = {call};  // HERE\n}}'
    assert why in str(failing(text, Divergence, [np.zeros(32, np.int32)]))


def test_a_mask_of_lanes_that_do_not_exist():
    text = 'extern "C" __global__ void wrong(int* x) {\n  __syncwarp();  // HERE\n}'
    assert "do not exist, alive are 0x00ffffff" in str(failing(text, Divergence, [np.zeros(1, np.int32)], block=24))


def test_a_thread_that_spins_for_what_nobody_does():
    text = """
    extern "C" __global__ void wrong(unsigned* flag) {
      while (*static_cast<volatile unsigned*>(flag) == 0) __nanosleep(20);  // HERE
    }"""
    assert "threads only spin" in str(failing(text, Deadlock, [np.zeros(1, np.uint32)], grid=2))


@pytest.mark.slow
def test_a_thread_that_spins_and_lets_nobody_else_run():
    text = """
    extern "C" __global__ void wrong(unsigned* flag) {
      while (*static_cast<volatile unsigned*>(flag) == 0) {}  // HERE
    }"""
    assert "never lets others run" in str(failing(text, Deadlock, [np.zeros(1, np.uint32)]))


def test_a_grid_barrier_with_more_blocks_than_are_resident():
    case = global_norm(blocks=9, resident_blocks=8)
    with pytest.raises(Deadlock) as caught:
        case.run(compile_kernel(case.text))
    assert "1 blocks of the grid wait for a place, 8 may be resident at once" in str(caught.value)
    assert line_of(case.text, "__nanosleep") in caught.value.lines


# ---- Accesses that go astray ----------------------------------------------------------------------------------------

STORE = 'extern "C" __global__ void wrong(int* x, long long at) {\n  x[at] = 1;  // HERE\n}'
LOAD = 'extern "C" __global__ void wrong(int* x, long long at) {\n  x[0] = x[at];  // HERE\n}'


@pytest.mark.parametrize("text", [STORE, LOAD])
def test_an_access_past_the_end_of_a_buffer(text: str):
    failure = failing(text, BadAccess, [np.zeros(4, np.int32), 4])
    assert "thread (0,0,0) of block (0,0,0) went 0 bytes past the end of a buffer of 16 bytes" in str(failure)


def test_an_access_far_before_a_buffer():
    failure = failing(LOAD, BadAccess, [np.zeros(4, np.int32), -(1 << 20)])
    assert "bytes before the begin of a buffer of 16 bytes" in str(failure)


def test_a_store_into_the_few_bytes_behind_a_buffer():
    with pytest.raises(BadAccess, match="something was written 0 bytes past the end of a buffer of 12 bytes"):
        compile_kernel(STORE).launch("wrong", 1, 1, 0, [np.zeros(3, np.int32), 3])


def test_a_load_from_the_few_bytes_behind_a_buffer_gives_poison():
    x = np.zeros(3, np.int32)
    compile_kernel(LOAD).launch("wrong", 1, 1, 0, [x, 3])
    assert x[0] == -1


@pytest.mark.parametrize(("at", "where"), [(3, "0 bytes past the end"), (-1, "4 bytes before the begin")])
def test_a_load_just_beside_a_buffer_under_the_address_sanitizer(at: int, where: str):
    failure = failing(LOAD, BadAccess, [np.zeros(3, np.int32), at], sanitizer="address")
    assert f"{where} of a buffer of 12 bytes" in str(failure)


SHARED = """
extern "C" __global__ void wrong(int* x, long long at) {
  __shared__ int left[4];
  __shared__ int right[4];
  extern __shared__ int rest[];
  left[0] = right[0] = rest[0] = 1;
  AT[at] = 2;  // HERE
  x[0] = left[0] + right[0] + rest[0];
}"""


@pytest.mark.parametrize("array", ["left", "right", "rest"])
def test_a_store_past_the_end_of_shared_memory(array: str):
    text, arguments = SHARED.replace("AT", array), [np.zeros(1, np.int32), 4]
    name = "the dynamic shared memory" if array == "rest" else array
    with pytest.raises(BadAccess, match=rf"wrote 0 bytes past the end of {name} \(16 bytes of shared memory\)"):
        compile_kernel(text).launch("wrong", 1, 1, 16, arguments)
    failure = failing(text, BadAccess, arguments, shared=16, sanitizer="address")
    assert f"went 0 bytes past the end of {name} (16 bytes of shared memory)" in str(failure)


def test_shared_memory_and_scratch_begin_as_poison():
    text = """
    extern "C" __global__ void poison(float* x, const float* scratch) {
      __shared__ float tile[8];
      x[threadIdx.x] = threadIdx.x < 8 ? tile[threadIdx.x] : scratch[threadIdx.x - 8];
    }"""
    x = np.zeros(16, np.float32)
    compile_kernel(text).launch("poison", 1, 16, 0, [x, Scratch(32)])
    assert np.isnan(x).all()


def test_every_block_has_shared_memory_of_its_own():
    text = """
    extern "C" __global__ void own(int* x) {
      __shared__ int mine;
      if (threadIdx.x == 0) mine = blockIdx.x;
      __syncthreads();
      if (threadIdx.x == 33) x[blockIdx.x] = mine;
    }"""
    x = np.zeros(9, np.int32)
    compile_kernel(text).launch("own", 9, 64, 0, [x], seed=3)
    assert x.tolist() == list(range(9))


# ---- What stops a kernel --------------------------------------------------------------------------------------------


def test_an_integer_division_by_zero():
    text = 'extern "C" __global__ void wrong(int* x, long long by) {\n  x[0] = x[0] / (int)by;  // HERE\n}'
    failing(text, Trap, [np.ones(1, np.int32), 0])


def test_a_trap():
    failing('extern "C" __global__ void wrong(int* x) {\n  __trap();  // HERE\n}', Trap, [np.zeros(1, np.int32)])


def test_the_process_goes_on_after_a_failure():
    case = layer_norm()
    module = compile_kernel(case.text)
    with pytest.raises(BadAccess):
        compile_kernel(STORE).launch("wrong", 1, 1, 0, [np.zeros(4, np.int32), 1 << 20])
    case.run(module)


# ---- Races --------------------------------------------------------------------------------------------------------


def test_a_missing_barrier_is_a_race():
    text = """
    extern "C" __global__ void wrong(int* x) {
      __shared__ int tile[64];
      tile[threadIdx.x] = threadIdx.x;
      x[threadIdx.x] = tile[63 - threadIdx.x];  // HERE
    }"""
    failure = failing(text, Race, [np.zeros(64, np.int32)], block=64, sanitizer="thread")
    assert "read of 4 bytes by thread (" in str(failure)
    assert ") of block (0,0,0)" in str(failure)


def test_a_shuffle_orders_no_memory():
    text = """
    extern "C" __global__ void wrong(int* x) {
      __shared__ int tile[32];
      tile[threadIdx.x] = threadIdx.x;
      __shfl_sync(0xffffffffu, 0, 0);
      x[threadIdx.x] = tile[31 - threadIdx.x];  // HERE
    }"""
    failing(text, Race, [np.zeros(32, np.int32)], sanitizer="thread")
    right = compile_kernel(text.replace("__shfl_sync(0xffffffffu, 0, 0)", "__syncwarp()"), "thread")
    right.launch("wrong", 1, 32, 0, [np.zeros(32, np.int32)])


MESSAGE = """
extern "C" __global__ void wrong(int* x, unsigned* flag) {
  if (blockIdx.x == 0) {
    x[0] = 42;
    FENCE_BEFORE;
    atomicExch(flag, 1u);
  } else {
    while (atomicAdd(flag, 0u) == 0) __nanosleep(20);
    FENCE_AFTER;
    x[1] = x[0];  // HERE
  }
}"""


@pytest.mark.parametrize("missing", ["FENCE_BEFORE", "FENCE_AFTER"])
def test_a_missing_fence_is_a_race(missing: str):
    text = (
        MESSAGE.replace(missing, "")
        .replace("FENCE_BEFORE", "__threadfence()")
        .replace("FENCE_AFTER", "__threadfence()")
    )
    failing(text, Race, [np.zeros(2, np.int32), np.zeros(1, np.uint32)], grid=2, block=1, sanitizer="thread")


def test_a_fence_of_the_block_does_not_reach_another():
    text = MESSAGE.replace("FENCE_BEFORE", "__threadfence_block()").replace("FENCE_AFTER", "__threadfence()")
    failing(text, Race, [np.zeros(2, np.int32), np.zeros(1, np.uint32)], grid=2, block=1, sanitizer="thread")


def test_fences_on_either_side_are_no_race():
    text = MESSAGE.replace("FENCE_BEFORE", "__threadfence()").replace("FENCE_AFTER", "__threadfence()")
    x = np.zeros(2, np.int32)
    compile_kernel(text, "thread").launch("wrong", 2, 1, 0, [x, np.zeros(1, np.uint32)])
    assert x.tolist() == [42, 42]


def test_two_blocks_that_store_to_one_place_are_a_race():
    text = 'extern "C" __global__ void wrong(int* x) {\n  x[0] = 1;  // HERE\n}'
    failing(text, Race, [np.zeros(1, np.int32)], grid=2, block=1, resident_blocks=1, sanitizer="thread")
