// lstm: f32[d0, 33], f32[d0, 33]
#include "prelude/cpu/core.h"
#include "prelude/cpu/launch.h"
#include "prelude/cpu/loop.h"
#include "prelude/cpu/math_tanh.h"
#include "abi.h"
using namespace stitch;
namespace {

struct Call0 {
  const f32* add_in;
  const f32* add_in_2;
  const f32* mul_in;
  f32* add_out;
  f32* mul_out;
  i64 d0;
  bool streams;
  const StitchHost* host;
};

STITCH_INLINE void sweep_0_0(const Call0& call, [[maybe_unused]] i64 row, i64 begin, i64 end) {
  const f32* add_in_at = call.add_in + row * 132;
  const f32* add_in_2_at = call.add_in_2;
  const f32* add_in_at_ = call.add_in + row * 132 + 33;
  const f32* add_in_2_at_ = call.add_in_2 + 33;
  const f32* add_in_at__ = call.add_in + row * 132 + 99;
  const f32* add_in_2_at__ = call.add_in_2 + 99;
  const f32* mul_in_at = call.mul_in + row * 33;
  const f32* add_in_at___ = call.add_in + row * 132 + 66;
  const f32* add_in_2_at___ = call.add_in_2 + 66;
  f32* add_out_at = call.add_out + row * 33;
  f32* mul_out_at = call.mul_out + row * 33;
  const auto add_5 = splat<f32, 1>(1.0f);
  for_aligned_lanes<16, 8>(add_out_at, call.streams, begin, end, [&](auto width, [[maybe_unused]] i64 n, [[maybe_unused]] auto count) STITCH_LAMBDA {
    constexpr int L = decltype(width)::lanes;
    const auto add_in_4 = load<L>(add_in_at + n, count);
    const auto add_in_2_5 = load<L>(add_in_2_at + n, count);
    const auto add_4 = add_in_4 + add_in_2_5;
    const auto sigmoid_2 = sigmoid(add_4);
    const auto add_in_3 = load<L>(add_in_at_ + n, count);
    const auto add_in_2_4 = load<L>(add_in_2_at_ + n, count);
    const auto add_3 = add_in_3 + add_in_2_4;
    const auto tanh_2 = tanh(add_3);
    const auto mul = sigmoid_2 * tanh_2;
    const auto add_in_2 = load<L>(add_in_at__ + n, count);
    const auto add_in_2_3 = load<L>(add_in_2_at__ + n, count);
    const auto add_2 = add_in_2 + add_in_2_3;
    const auto add_6 = splat<L>(add_5) + add_2;
    const auto sigmoid_3 = sigmoid(add_6);
    const auto mul_in = load<L>(mul_in_at + n, count);
    const auto mul_2 = sigmoid_3 * mul_in;
    const auto add_7 = mul + mul_2;
    const auto tanh_3 = tanh(add_7);
    const auto add_in = load<L>(add_in_at___ + n, count);
    const auto add_in_2_2 = load<L>(add_in_2_at___ + n, count);
    const auto add = add_in + add_in_2_2;
    const auto sigmoid_4 = sigmoid(add);
    const auto mul_3 = tanh_3 * sigmoid_4;
    stream(add_out_at + n, add_7, count, call.streams);
    stream(mul_out_at + n, mul_3, count, call.streams);
  });
}

void blocks_0(void* task, i64 begin_unit, i64 end_unit) {
  const Call0 call = *static_cast<const Call0*>(task);
  const i64 length = 33, blocks = (length + 4095) / 4096;
  for (i64 unit = begin_unit; unit < end_unit; ++unit) {
    const i64 row = blocks == 1 ? unit : unit / blocks;
    const i64 begin = blocks == 1 ? 0 : unit % blocks * 4096;
    const i64 end = begin + 4096 < length ? begin + 4096 : length;
    sweep_0_0(call, row, begin, end);
  }
  if (call.streams) settle();
}

__attribute__((noinline)) Loop loop_0(Call0& call) {
  const i64 length = 33, blocks = (length + 4095) / 4096;
  const i64 unit = length < 4096 ? length : 4096;
  const i64 cost = i64(1.98 * f64(unit)) + 2;
  return {call.d0 * blocks, cost, blocks_0, &call};
}

void run(const StitchTensor* inputs, void* const* outputs, const i64* symbols, const StitchHost* host) {
  [[maybe_unused]] const i64 d0 = symbols[0];
  const bool streams = 4 * (132 * d0) + 4 * 132 + 12 * (33 * d0) > host->cache_bytes;
  Call0 call_0 = {static_cast<const f32*>(inputs[0].data), static_cast<const f32*>(inputs[1].data), static_cast<const f32*>(inputs[2].data), static_cast<f32*>(outputs[1]), static_cast<f32*>(outputs[0]), d0, streams, host};
  const Loop loops_0[] = {loop_0(call_0)};
  launch(host, loops_0);
}

int shape(const StitchTensor* inputs, i64* symbols, i64* dims) {
  if (inputs[0].rank != 2 || inputs[1].rank != 1 || inputs[2].rank != 2) return 1;
  const i64 d0 = inputs[0].dims[0];
  symbols[0] = d0;
  if (inputs[0].dims[1] != 132) return 2;
  if (inputs[1].dims[0] != 132) return 3;
  if (inputs[2].dims[0] != d0) return 4;
  if (inputs[2].dims[1] != 33) return 5;
  dims[0] = d0;
  dims[1] = 33;
  dims[2] = d0;
  dims[3] = 33;
  (void)inputs, (void)symbols, (void)dims;
  return 0;
}

const int ranks[] = {2, 2};
const int forwards[] = {2, 1, 2, 0, -1};
const char* const guards[] = {"the inputs have the ranks that were planned for", "dim 1 of input 0 is 132", "dim 0 of input 1 is 132", "dim 0 of input 2 is d0", "dim 1 of input 2 is 33"};
}  // namespace

extern "C" __attribute__((visibility("default"))) const StitchKernel tf_stitch_kernel = {
    TF_STITCH_ABI_VERSION, 3, 2, 1, 5,
    ranks, forwards, "lstm", guards, shape, run};
