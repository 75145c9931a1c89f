// max_and_softmax: f32[d0], f32[d0, d1]
#include "prelude/cpu/core.h"
#include "prelude/cpu/loop.h"
#include "prelude/cpu/math_exp.h"
#include "abi.h"
using namespace stitch;
namespace {

struct Call {
  const f32* mul_in;
  f32* max_out;
  f32* softmax_out;
  i64 d0;
  i64 d1;
  const StitchHost* host;
};

struct Row0 {
  Pack<f32, 1> max_2 = splat<f32, 1>(-__builtin_inff());
  Pack<f64, 1> softmax_3 = splat<f64, 1>(0.0);
};

STITCH_INLINE void sweep_0_0(const Call& call, [[maybe_unused]] i64 row, i64 begin, i64 end, f32* softmax_2_tile, Row0& state) {
  const f32* mul_in_at = call.mul_in + row * call.d1;
  const auto mul = splat<f32, 1>(2.0f);
  auto partial0 = accumulator<Largest, 16, 8>(splat<f32, 1>(-__builtin_inff()));
  for_lanes<16, 8>(begin, end, [&](auto width, [[maybe_unused]] i64 n, [[maybe_unused]] auto count) STITCH_LAMBDA {
    constexpr int L = decltype(width)::lanes;
    const auto mul_in = load<L>(mul_in_at + n, count);
    const auto mul_2 = splat<L>(mul) * mul_in;
    partial0.add(mul_2, count);
  });
  state.max_2 = Largest::of(state.max_2, partial0.result());
}

STITCH_INLINE void sweep_0_1(const Call& call, [[maybe_unused]] i64 row, i64 begin, i64 end, f32* softmax_2_tile, Row0& state) {
  const f32* mul_in_at = call.mul_in + row * call.d1;
  f32* softmax_2_tile_at = softmax_2_tile;
  const auto mul = splat<f32, 1>(2.0f);
  const auto max_2 = state.max_2;
  auto partial1 = accumulator<Sum, 16, 8>(splat<f32, 1>(0.0f));
  for_lanes<16, 8>(begin, end, [&](auto width, [[maybe_unused]] i64 n, [[maybe_unused]] auto count) STITCH_LAMBDA {
    constexpr int L = decltype(width)::lanes;
    const auto mul_in = load<L>(mul_in_at + n, count);
    const auto mul_2 = splat<L>(mul) * mul_in;
    const auto softmax = mul_2 - splat<L>(max_2);
    const auto softmax_2 = exp(softmax);
    store(softmax_2_tile_at + n, softmax_2, count);
    partial1.add(softmax_2, count);
  });
  state.softmax_3 = Sum::of(state.softmax_3, convert<f64>(partial1.result()));
}

STITCH_INLINE void sweep_0_2(const Call& call, [[maybe_unused]] i64 row, i64 begin, i64 end, f32* softmax_2_tile, Row0& state) {
  f32* softmax_2_tile_at = softmax_2_tile;
  f32* softmax_out_at = call.softmax_out + row * call.d1;
  const auto softmax_3 = convert<f32>(state.softmax_3);
  for_lanes<16, 8>(begin, end, [&](auto width, [[maybe_unused]] i64 n, [[maybe_unused]] auto count) STITCH_LAMBDA {
    constexpr int L = decltype(width)::lanes;
    const auto softmax_2 = load<L>(softmax_2_tile_at + n, count);
    const auto softmax_4 = softmax_2 / splat<L>(softmax_3);
    store(softmax_out_at + n, softmax_4, count);
  });
}

STITCH_INLINE void finish_0(const Call& call, [[maybe_unused]] i64 row, f32* softmax_2_tile, Row0& state) {
  f32* max_out_at = call.max_out + row;
  const auto max_2 = state.max_2;
  store(max_out_at, max_2);
}

void rows_0(void* task, i64 begin_row, i64 end_row) {
  const Call call = *static_cast<const Call*>(task);
  char* tiles = static_cast<char*>(call.host->scratch(1, (call.d1 * 4 + 63) / 64 * 64));
  f32* softmax_2_tile = reinterpret_cast<f32*>(tiles + 0);
  for (i64 row = begin_row; row < end_row; ++row) {
    Row0 state;
    for_blocks<4096>(call.d1, [&](i64 begin, i64 end) STITCH_LAMBDA { sweep_0_0(call, row, begin, end, softmax_2_tile, state); });
    for_blocks<4096>(call.d1, [&](i64 begin, i64 end) STITCH_LAMBDA { sweep_0_1(call, row, begin, end, softmax_2_tile, state); });
    for_blocks<4096>(call.d1, [&](i64 begin, i64 end) STITCH_LAMBDA { sweep_0_2(call, row, begin, end, softmax_2_tile, state); });
    finish_0(call, row, softmax_2_tile, state);
  }
}

struct Split0_0 { const Call* call; i64 blocks; Row0* rows; Row0* parts; char* tiles; };
void split_0_0(void* task, i64 begin_unit, i64 end_unit) {
  const auto& split = *static_cast<const Split0_0*>(task);
  const Call call = *split.call;
  char* tiles = split.tiles;
  const i64 tile_bytes = (call.d1 * 4 + 63) / 64 * 64;
  const i64 length = call.d1;
  for (i64 unit = begin_unit; unit < end_unit; ++unit) {
    const i64 row = unit / split.blocks;
    const i64 begin = unit % split.blocks * 4096;
    const i64 end = begin + 4096 < length ? begin + 4096 : length;
    Row0 state = split.rows[row];
    state.max_2 = Row0{}.max_2;
    f32* softmax_2_tile = reinterpret_cast<f32*>(tiles + row * tile_bytes + 0);
    sweep_0_0(call, row, begin, end, softmax_2_tile, state);
    split.parts[unit] = state;
  }
}

struct Split0_1 { const Call* call; i64 blocks; Row0* rows; Row0* parts; char* tiles; };
void split_0_1(void* task, i64 begin_unit, i64 end_unit) {
  const auto& split = *static_cast<const Split0_1*>(task);
  const Call call = *split.call;
  char* tiles = split.tiles;
  const i64 tile_bytes = (call.d1 * 4 + 63) / 64 * 64;
  const i64 length = call.d1;
  for (i64 unit = begin_unit; unit < end_unit; ++unit) {
    const i64 row = unit / split.blocks;
    const i64 begin = unit % split.blocks * 4096;
    const i64 end = begin + 4096 < length ? begin + 4096 : length;
    Row0 state = split.rows[row];
    state.softmax_3 = Row0{}.softmax_3;
    f32* softmax_2_tile = reinterpret_cast<f32*>(tiles + row * tile_bytes + 0);
    sweep_0_1(call, row, begin, end, softmax_2_tile, state);
    split.parts[unit] = state;
  }
}

struct Split0_2 { const Call* call; i64 blocks; Row0* rows; Row0* parts; char* tiles; };
void split_0_2(void* task, i64 begin_unit, i64 end_unit) {
  const auto& split = *static_cast<const Split0_2*>(task);
  const Call call = *split.call;
  char* tiles = split.tiles;
  const i64 tile_bytes = (call.d1 * 4 + 63) / 64 * 64;
  const i64 length = call.d1;
  for (i64 unit = begin_unit; unit < end_unit; ++unit) {
    const i64 row = unit / split.blocks;
    const i64 begin = unit % split.blocks * 4096;
    const i64 end = begin + 4096 < length ? begin + 4096 : length;
    Row0 state = split.rows[row];
    f32* softmax_2_tile = reinterpret_cast<f32*>(tiles + row * tile_bytes + 0);
    sweep_0_2(call, row, begin, end, softmax_2_tile, state);
    split.parts[unit] = state;
  }
}

void run(const StitchTensor* inputs, void* const* outputs, const i64* symbols, const StitchHost* host) {
  Call call = {};
  call.host = host;
  call.d0 = symbols[0];
  call.d1 = symbols[1];
  call.mul_in = static_cast<const f32*>(inputs[0].data);
  call.max_out = static_cast<f32*>(outputs[0]);
  call.softmax_out = static_cast<f32*>(outputs[1]);
  i64 bytes = 0;
  char* shared = nullptr;
  const i64 rows_0_count = call.d0, length_0 = call.d1;
  const i64 blocks_0 = (length_0 + 4095) / 4096;
  const bool split_0 = host->threads > 1 && rows_0_count < 2 * host->threads && blocks_0 > 1;
  const i64 tile_bytes_0 = (call.d1 * 4 + 63) / 64 * 64;
  const i64 tiles_0_offset = bytes;
  if (split_0) bytes += rows_0_count * tile_bytes_0;
  const i64 state_0_offset = bytes;
  if (split_0) bytes += (rows_0_count * (1 + blocks_0) * i64(sizeof(Row0)) + 63) / 64 * 64;
  if (bytes) shared = static_cast<char*>(host->scratch(0, bytes));
  if (!split_0) {
    host->parallel_for(host->context, call.d0, i64(0.81 * f64(call.d1)) + 5, rows_0, &call);
  } else {
    auto* rows = reinterpret_cast<Row0*>(shared + state_0_offset);
    auto* parts = rows + rows_0_count;
    char* tiles = shared + tiles_0_offset;
    for (i64 row = 0; row < rows_0_count; ++row) rows[row] = Row0{};
    Split0_0 task_0 = {&call, blocks_0, rows, parts, tiles};
    host->parallel_for(host->context, rows_0_count * blocks_0, i64(1106), split_0_0, &task_0);
    for (i64 unit = 0; unit < rows_0_count * blocks_0; ++unit) {
      Row0& state = rows[unit / blocks_0];
      state.max_2 = Largest::of(state.max_2, parts[unit].max_2);
    }
    Split0_1 task_1 = {&call, blocks_0, rows, parts, tiles};
    host->parallel_for(host->context, rows_0_count * blocks_0, i64(1106), split_0_1, &task_1);
    for (i64 unit = 0; unit < rows_0_count * blocks_0; ++unit) {
      Row0& state = rows[unit / blocks_0];
      state.softmax_3 = Sum::of(state.softmax_3, parts[unit].softmax_3);
    }
    Split0_2 task_2 = {&call, blocks_0, rows, parts, tiles};
    host->parallel_for(host->context, rows_0_count * blocks_0, i64(1106), split_0_2, &task_2);
    for (i64 row = 0; row < rows_0_count; ++row) {
      Row0& state = rows[row];
      const i64 tile_bytes = tile_bytes_0;
      f32* softmax_2_tile = reinterpret_cast<f32*>(tiles + row * tile_bytes + 0);
      finish_0(call, row, softmax_2_tile, state);
    }
  }
}

int shape(const StitchTensor* inputs, i64* symbols, i64* dims) {
  if (inputs[0].rank != 2) return 1;
  const i64 d0 = inputs[0].dims[0];
  symbols[0] = d0;
  const i64 d1 = inputs[0].dims[1];
  symbols[1] = d1;
  dims[0] = d0;
  dims[1] = d0;
  dims[2] = d1;
  (void)inputs, (void)symbols, (void)dims;
  return 0;
}

const int ranks[] = {1, 2};
const int forwards[] = {0, 1, -1};
const char* const guards[] = {"the inputs have the ranks that were planned for"};
}  // namespace

extern "C" __attribute__((visibility("default"))) const StitchKernel tf_stitch_kernel = {
    TF_STITCH_ABI_VERSION, 1, 2, 2, 1,
    ranks, forwards, "max_and_softmax", guards, shape, run};
