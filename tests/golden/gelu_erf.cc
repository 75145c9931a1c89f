// gelu_erf: f32[d0, d1]
#include "prelude/cpu/core.h"
#include "prelude/cpu/launch.h"
#include "prelude/cpu/loop.h"
#include "prelude/cpu/math_tanh.h"
#include "abi.h"
using namespace stitch;
namespace {

struct Call0 {
  const f32* biasadd_in;
  const f32* biasadd_in_2;
  f32* mul_out;
  i64 d0;
  i64 d1;
  bool streams;
  const StitchHost* host;
};

STITCH_INLINE void sweep_0_0(const Call0& call, [[maybe_unused]] i64 row, i64 begin, i64 end) {
  const f32* biasadd_in_at = call.biasadd_in + row * call.d1;
  const f32* biasadd_in_2_at = call.biasadd_in_2;
  f32* mul_out_at = call.mul_out + row * call.d1;
  const auto mul = splat<f32, 1>(0.5f);
  const auto add = splat<f32, 1>(1.0f);
  const auto cast = splat<f32, 1>(1.4142135f);
  for_aligned_lanes<16, 8>(mul_out_at, call.streams, begin, end, [&](auto width, [[maybe_unused]] i64 n, [[maybe_unused]] auto count) STITCH_LAMBDA {
    constexpr int L = decltype(width)::lanes;
    const auto biasadd_in = load<L>(biasadd_in_at + n, count);
    const auto biasadd_in_2 = load<L>(biasadd_in_2_at + n, count);
    const auto biasadd = biasadd_in + biasadd_in_2;
    const auto mul_2 = splat<L>(mul) * biasadd;
    const auto truediv = biasadd / splat<L>(cast);
    const auto erf_2 = erf(truediv);
    const auto add_2 = splat<L>(add) + erf_2;
    const auto mul_3 = mul_2 * add_2;
    stream(mul_out_at + n, mul_3, count, call.streams);
  });
}

void blocks_0(void* task, i64 begin_unit, i64 end_unit) {
  const Call0 call = *static_cast<const Call0*>(task);
  const i64 length = call.d1, blocks = (length + 4095) / 4096;
  for (i64 unit = begin_unit; unit < end_unit; ++unit) {
    const i64 row = blocks == 1 ? unit : unit / blocks;
    const i64 begin = blocks == 1 ? 0 : unit % blocks * 4096;
    const i64 end = begin + 4096 < length ? begin + 4096 : length;
    sweep_0_0(call, row, begin, end);
  }
  if (call.streams) settle();
}

__attribute__((noinline)) Loop loop_0(Call0& call) {
  const i64 length = call.d1, blocks = (length + 4095) / 4096;
  const i64 unit = length < 4096 ? length : 4096;
  const i64 cost = i64(0.73 * f64(unit)) + 2;
  return {call.d0 * blocks, cost, blocks_0, &call};
}

void run(const StitchTensor* inputs, void* const* outputs, const i64* symbols, const StitchHost* host) {
  [[maybe_unused]] const i64 d0 = symbols[0];
  [[maybe_unused]] const i64 d1 = symbols[1];
  const bool streams = 8 * (d0 * d1) + 4 * d1 > host->cache_bytes;
  Call0 call_0 = {static_cast<const f32*>(inputs[0].data), static_cast<const f32*>(inputs[1].data), static_cast<f32*>(outputs[0]), d0, d1, streams, host};
  const Loop loops_0[] = {loop_0(call_0)};
  launch(host, loops_0);
}

int shape(const StitchTensor* inputs, i64* symbols, i64* dims) {
  if (inputs[0].rank != 2 || inputs[1].rank != 1) return 1;
  const i64 d0 = inputs[0].dims[0];
  symbols[0] = d0;
  const i64 d1 = inputs[0].dims[1];
  symbols[1] = d1;
  if (inputs[1].dims[0] != d1) return 2;
  dims[0] = d0;
  dims[1] = d1;
  (void)inputs, (void)symbols, (void)dims;
  return 0;
}

const int ranks[] = {2};
const int forwards[] = {0, 0, -1};
const char* const guards[] = {"the inputs have the ranks that were planned for", "dim 0 of input 1 is d1"};
}  // namespace

extern "C" __attribute__((visibility("default"))) const StitchKernel tf_stitch_kernel = {
    TF_STITCH_ABI_VERSION, 2, 1, 2, 2,
    ranks, forwards, "gelu_erf", guards, shape, run};
