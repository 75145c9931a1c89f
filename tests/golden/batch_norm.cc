// batch_norm: f32[d0, d1, 7, 24]
#include "prelude/cpu/core.h"
#include "prelude/cpu/launch.h"
#include "prelude/cpu/loop.h"
#include "abi.h"
using namespace stitch;
namespace {

struct Call0 {
  const f32* fusedbatchnormv3_in;
  const f32* fusedbatchnormv3_in_2;
  f32* fusedbatchnormv3_scratch;
  const StitchHost* host;
};

STITCH_INLINE void sweep_0_0(const Call0& call, [[maybe_unused]] i64 row, i64 begin, i64 end) {
  const f32* fusedbatchnormv3_in_at = call.fusedbatchnormv3_in;
  const f32* fusedbatchnormv3_in_2_at = call.fusedbatchnormv3_in_2;
  f32* fusedbatchnormv3_scratch_at = call.fusedbatchnormv3_scratch;
  const auto fusedbatchnormv3 = splat<f32, 1>(1e-04f);
  for_wide_lanes<8>(begin, end, [&](auto width, [[maybe_unused]] i64 n, [[maybe_unused]] auto count) STITCH_LAMBDA {
    constexpr int L = decltype(width)::lanes;
    const auto fusedbatchnormv3_in = load<L>(fusedbatchnormv3_in_at + n, count);
    const auto fusedbatchnormv3_2 = fusedbatchnormv3_in + splat<L>(fusedbatchnormv3);
    const auto fusedbatchnormv3_3 = rsqrt(fusedbatchnormv3_2);
    const auto fusedbatchnormv3_in_2 = load<L>(fusedbatchnormv3_in_2_at + n, count);
    const auto fusedbatchnormv3_4 = fusedbatchnormv3_3 * fusedbatchnormv3_in_2;
    store(fusedbatchnormv3_scratch_at + n, fusedbatchnormv3_4, count);
  });
}

void blocks_0(void* task, i64 begin_unit, i64 end_unit) {
  const Call0 call = *static_cast<const Call0*>(task);
  const i64 length = 24;
  for (i64 unit = begin_unit; unit < end_unit; ++unit) {
    constexpr i64 row = 0;
    const i64 begin = unit * 4096;
    const i64 end = begin + 4096 < length ? begin + 4096 : length;
    sweep_0_0(call, row, begin, end);
  }
}

__attribute__((noinline)) Loop loop_0(Call0& call) {
  const i64 length = 24, blocks = (length + 4095) / 4096;
  const i64 unit = length < 4096 ? length : 4096;
  const i64 cost = i64(0.44 * f64(unit)) + 2;
  return {1 * blocks, cost, blocks_0, &call};
}

struct Call1 {
  f32* fusedbatchnormv3_scratch;
  const f32* fusedbatchnormv3_in_3;
  const f32* fusedbatchnormv3_in_4;
  const f32* fusedbatchnormv3_in_5;
  f32* mul_out;
  i64 d0;
  i64 d1;
  bool streams;
  const StitchHost* host;
};

STITCH_INLINE void sweep_1_0(const Call1& call, i64 begin_row, i64 end_row) {
  constexpr int L = 8;
  constexpr All count;
  f32* fusedbatchnormv3_scratch_at = call.fusedbatchnormv3_scratch;
  const f32* fusedbatchnormv3_in_4_at = call.fusedbatchnormv3_in_4;
  const f32* fusedbatchnormv3_in_5_at = call.fusedbatchnormv3_in_5;
  const auto mul = splat<f32, 1>(2.0f);
  for (i64 row = begin_row; row < end_row; ++row) {
    const f32* fusedbatchnormv3_in_3_at = call.fusedbatchnormv3_in_3 + row * 24;
    f32* mul_out_at = call.mul_out + row * 24;
    for (i64 n = 0; n < 24; n += 8) {
      const auto fusedbatchnormv3_scratch = load<L>(fusedbatchnormv3_scratch_at + n, count);
      const auto fusedbatchnormv3_in_4 = load<L>(fusedbatchnormv3_in_4_at + n, count);
      const auto fusedbatchnormv3_in_5 = load<L>(fusedbatchnormv3_in_5_at + n, count);
      const auto fusedbatchnormv3_in_3 = load<L>(fusedbatchnormv3_in_3_at + n, count);
      const auto fusedbatchnormv3 = fusedbatchnormv3_in_3 - fusedbatchnormv3_in_4;
      const auto fusedbatchnormv3_2 = fusedbatchnormv3_scratch * fusedbatchnormv3;
      const auto fusedbatchnormv3_3 = fusedbatchnormv3_2 + fusedbatchnormv3_in_5;
      const auto relu_2 = relu(fusedbatchnormv3_3);
      const auto mul_2 = splat<L>(mul) * relu_2;
      stream(mul_out_at + n, mul_2, count, call.streams);
    }
  }
}

void blocks_1(void* task, i64 begin_unit, i64 end_unit) {
  const Call1 call = *static_cast<const Call1*>(task);
  const i64 rows = (7 * call.d0 * call.d1);
  for (i64 unit = begin_unit; unit < end_unit; ++unit) {
    const i64 begin = unit * 170, end = begin + 170 < rows ? begin + 170 : rows;
    sweep_1_0(call, begin, end);
  }
  if (call.streams) settle();
}

__attribute__((noinline)) Loop loop_1(Call1& call) {
  return {((7 * call.d0 * call.d1) + 169) / 170, 1430, blocks_1, &call};
}

void run(const StitchTensor* inputs, void* const* outputs, const i64* symbols, const StitchHost* host) {
  [[maybe_unused]] const i64 d0 = symbols[0];
  [[maybe_unused]] const i64 d1 = symbols[1];
  const bool streams = 20 * 24 + 8 * (168 * d0 * d1) > host->cache_bytes;
  Call0 call_0 = {static_cast<const f32*>(inputs[0].data), static_cast<const f32*>(inputs[1].data), nullptr, host};
  Call1 call_1 = {nullptr, static_cast<const f32*>(inputs[2].data), static_cast<const f32*>(inputs[3].data), static_cast<const f32*>(inputs[4].data), static_cast<f32*>(outputs[0]), d0, d1, streams, host};
  i64 bytes = 0;
  const i64 scratch_0 = bytes;
  bytes += (96 + 63) / 64 * 64;
  char* shared = bytes ? static_cast<char*>(host->scratch(0, bytes)) : nullptr;
  call_0.fusedbatchnormv3_scratch = reinterpret_cast<f32*>(shared + scratch_0);
  call_1.fusedbatchnormv3_scratch = reinterpret_cast<f32*>(shared + scratch_0);
  const Loop loops_0[] = {loop_0(call_0)};
  launch(host, loops_0);
  const Loop loops_1[] = {loop_1(call_1)};
  launch(host, loops_1);
}

int shape(const StitchTensor* inputs, i64* symbols, i64* dims) {
  if (inputs[0].rank != 1 || inputs[1].rank != 1 || inputs[2].rank != 4 || inputs[3].rank != 1 || inputs[4].rank != 1) return 1;
  const i64 d0 = inputs[2].dims[0];
  symbols[0] = d0;
  const i64 d1 = inputs[2].dims[1];
  symbols[1] = d1;
  if (inputs[0].dims[0] != 24) return 2;
  if (inputs[1].dims[0] != 24) return 3;
  if (inputs[2].dims[2] != 7) return 4;
  if (inputs[2].dims[3] != 24) return 5;
  if (inputs[3].dims[0] != 24) return 6;
  if (inputs[4].dims[0] != 24) return 7;
  dims[0] = d0;
  dims[1] = d1;
  dims[2] = 7;
  dims[3] = 24;
  (void)inputs, (void)symbols, (void)dims;
  return 0;
}

const int ranks[] = {4};
const int forwards[] = {2, 0, -1};
const char* const guards[] = {"the inputs have the ranks that were planned for", "dim 0 of input 0 is 24", "dim 0 of input 1 is 24", "dim 2 of input 2 is 7", "dim 3 of input 2 is 24", "dim 0 of input 3 is 24", "dim 0 of input 4 is 24"};
}  // namespace

extern "C" __attribute__((visibility("default"))) const StitchKernel tf_stitch_kernel = {
    TF_STITCH_ABI_VERSION, 5, 1, 2, 7,
    ranks, forwards, "batch_norm", guards, shape, run};
