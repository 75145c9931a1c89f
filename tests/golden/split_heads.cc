// split_heads: f32[d0, 4, 16, 8]
#include "prelude/cpu/core.h"
#include "prelude/cpu/launch.h"
#include "prelude/cpu/loop.h"
#include "abi.h"
using namespace stitch;
namespace {

struct Call0 {
  const f32* add_in;
  const f32* add_in_2;
  f32* mul_out;
  i64 d0;
  bool streams;
  const StitchHost* host;
};

STITCH_INLINE void sweep_0_0(const Call0& call, [[maybe_unused]] i64 row, i64 begin, i64 end) {
  [[maybe_unused]] const i64 o2 = row % (16);
  [[maybe_unused]] const i64 r2 = row / (16);
  [[maybe_unused]] const i64 o1 = r2 % (4);
  [[maybe_unused]] const i64 r1 = r2 / (4);
  [[maybe_unused]] const i64 o0 = r1;
  const f32* add_in_at = call.add_in + o0 * 512 + o1 * 8 + o2 * 32;
  const f32* add_in_2_at = call.add_in_2 + o1 * 8;
  f32* mul_out_at = call.mul_out + o0 * 512 + o1 * 128 + o2 * 8;
  const auto mul = splat<f32, 1>(0.5f);
  for_wide_lanes<8>(begin, end, [&](auto width, [[maybe_unused]] i64 n, [[maybe_unused]] auto count) STITCH_LAMBDA {
    constexpr int L = decltype(width)::lanes;
    const auto add_in = load<L>(add_in_at + n, count);
    const auto add_in_2 = load<L>(add_in_2_at + n, count);
    const auto add = add_in + add_in_2;
    const auto mul_2 = add * splat<L>(mul);
    stream(mul_out_at + n, mul_2, count, call.streams);
  });
}

void blocks_0(void* task, i64 begin_unit, i64 end_unit) {
  const Call0 call = *static_cast<const Call0*>(task);
  const i64 length = 8, blocks = (length + 4095) / 4096;
  for (i64 unit = begin_unit; unit < end_unit; ++unit) {
    const i64 row = blocks == 1 ? unit : unit / blocks;
    const i64 begin = blocks == 1 ? 0 : unit % blocks * 4096;
    const i64 end = begin + 4096 < length ? begin + 4096 : length;
    sweep_0_0(call, row, begin, end);
  }
  if (call.streams) settle();
}

__attribute__((noinline)) Loop loop_0(Call0& call) {
  const i64 length = 8, blocks = (length + 4095) / 4096;
  const i64 unit = length < 4096 ? length : 4096;
  const i64 cost = i64(0.19 * f64(unit)) + 2;
  return {call.d0 * 4 * 16 * blocks, cost, blocks_0, &call};
}

void run(const StitchTensor* inputs, void* const* outputs, const i64* symbols, const StitchHost* host) {
  [[maybe_unused]] const i64 d0 = symbols[0];
  const bool streams = 8 * (512 * d0) + 4 * 32 > host->cache_bytes;
  Call0 call_0 = {static_cast<const f32*>(inputs[0].data), static_cast<const f32*>(inputs[1].data), static_cast<f32*>(outputs[0]), d0, streams, host};
  const Loop loops_0[] = {loop_0(call_0)};
  launch(host, loops_0);
}

int shape(const StitchTensor* inputs, i64* symbols, i64* dims) {
  if (inputs[0].rank != 2 || inputs[1].rank != 1) return 1;
  if (16 == 0 || inputs[0].dims[0] % 16 != 0) return 1;
  const i64 d0 = inputs[0].dims[0] / 16;
  symbols[0] = d0;
  if (inputs[0].dims[0] != (16 * d0)) return 2;
  if (inputs[0].dims[1] != 32) return 3;
  if (inputs[1].dims[0] != 32) return 4;
  dims[0] = d0;
  dims[1] = 4;
  dims[2] = 16;
  dims[3] = 8;
  (void)inputs, (void)symbols, (void)dims;
  return 0;
}

const int ranks[] = {4};
const int forwards[] = {-1};
const char* const guards[] = {"the inputs have the ranks that were planned for", "dim 0 of input 0 is 16*d0", "dim 1 of input 0 is 32", "dim 0 of input 1 is 32"};
}  // namespace

extern "C" __attribute__((visibility("default"))) const StitchKernel tf_stitch_kernel = {
    TF_STITCH_ABI_VERSION, 2, 1, 1, 4,
    ranks, forwards, "split_heads", guards, shape, run};
