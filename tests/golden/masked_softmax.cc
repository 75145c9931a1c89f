// masked_softmax: f32[d0, 3, d2, d1]
#include "prelude/cpu/core.h"
#include "prelude/cpu/launch.h"
#include "prelude/cpu/loop.h"
#include "prelude/cpu/math_exp.h"
#include "abi.h"
using namespace stitch;
namespace {

struct Call0 {
  const f32* sub_in;
  const f32* mul_in;
  f32* softmax_out;
  i64 d0;
  i64 d2;
  i64 d1;
  bool streams;
  const StitchHost* host;
};

struct Row0 {
  Pack<f32, 1> softmax = splat<f32, 1>(-__builtin_inff());
  Pack<f64, 1> softmax_4 = splat<f64, 1>(0.0);
};

STITCH_INLINE void sweep_0_0(const Call0& call, [[maybe_unused]] i64 row, i64 begin, i64 end, f32* add_tile, f32* softmax_3_tile, Row0& state) {
  [[maybe_unused]] const i64 o1 = row % ((3 * call.d2));
  [[maybe_unused]] const i64 r1 = row / ((3 * call.d2));
  [[maybe_unused]] const i64 o0 = r1;
  const f32* sub_in_at = call.sub_in + o0 * call.d1;
  const f32* mul_in_at = call.mul_in + o0 * (3 * call.d1 * call.d2) + o1 * call.d1;
  f32* add_tile_at = add_tile;
  const auto mul = splat<f32, 1>(-10000.0f);
  const auto sub = splat<f32, 1>(1.0f);
  const auto mul_3 = splat<f32, 1>(0.125f);
  auto partial0 = accumulator<Largest, 16, 8>(splat<f32, 1>(-__builtin_inff()));
  for_lanes<16, 8>(begin, end, [&](auto width, [[maybe_unused]] i64 n, [[maybe_unused]] auto count) STITCH_LAMBDA {
    constexpr int L = decltype(width)::lanes;
    const auto sub_in = load<L>(sub_in_at + n, count);
    const auto sub_2 = splat<L>(sub) - sub_in;
    const auto mul_2 = splat<L>(mul) * sub_2;
    const auto mul_in = load<L>(mul_in_at + n, count);
    const auto mul_4 = splat<L>(mul_3) * mul_in;
    const auto add = mul_2 + mul_4;
    store(add_tile_at + n, add, count);
    partial0.add(add, count);
  });
  state.softmax = Largest::of(state.softmax, partial0.result());
}

STITCH_INLINE void sweep_0_1(const Call0& call, [[maybe_unused]] i64 row, i64 begin, i64 end, f32* add_tile, f32* softmax_3_tile, Row0& state) {
  [[maybe_unused]] const i64 o1 = row % ((3 * call.d2));
  [[maybe_unused]] const i64 r1 = row / ((3 * call.d2));
  [[maybe_unused]] const i64 o0 = r1;
  f32* add_tile_at = add_tile;
  f32* softmax_3_tile_at = softmax_3_tile;
  const auto softmax = state.softmax;
  auto partial1 = accumulator<Sum, 16, 8>(splat<f32, 1>(0.0f));
  for_lanes<16, 8>(begin, end, [&](auto width, [[maybe_unused]] i64 n, [[maybe_unused]] auto count) STITCH_LAMBDA {
    constexpr int L = decltype(width)::lanes;
    const auto add = load<L>(add_tile_at + n, count);
    const auto softmax_2 = add - splat<L>(softmax);
    const auto softmax_3 = exp(softmax_2);
    store(softmax_3_tile_at + n, softmax_3, count);
    partial1.add(softmax_3, count);
  });
  state.softmax_4 = Sum::of(state.softmax_4, convert<f64>(partial1.result()));
}

STITCH_INLINE void sweep_0_2(const Call0& call, [[maybe_unused]] i64 row, i64 begin, i64 end, f32* add_tile, f32* softmax_3_tile, Row0& state) {
  [[maybe_unused]] const i64 o1 = row % ((3 * call.d2));
  [[maybe_unused]] const i64 r1 = row / ((3 * call.d2));
  [[maybe_unused]] const i64 o0 = r1;
  f32* softmax_3_tile_at = softmax_3_tile;
  f32* softmax_out_at = call.softmax_out + o0 * (3 * call.d1 * call.d2) + o1 * call.d1;
  const auto softmax_4 = convert<f32>(state.softmax_4);
  for_aligned_lanes<16, 8>(softmax_out_at, call.streams, begin, end, [&](auto width, [[maybe_unused]] i64 n, [[maybe_unused]] auto count) STITCH_LAMBDA {
    constexpr int L = decltype(width)::lanes;
    const auto softmax_3 = load<L>(softmax_3_tile_at + n, count);
    const auto softmax_5 = softmax_3 / splat<L>(softmax_4);
    stream(softmax_out_at + n, softmax_5, count, call.streams);
  });
}

void rows_0(void* task, i64 begin_row, i64 end_row) {
  const Call0 call = *static_cast<const Call0*>(task);
  char* tiles = static_cast<char*>(call.host->scratch(1, (call.d1 * 4 + 63) / 64 * 64));
  f32* add_tile = reinterpret_cast<f32*>(tiles + 0);
  f32* softmax_3_tile = reinterpret_cast<f32*>(tiles + 0);
  for (i64 row = begin_row; row < end_row; ++row) {
    Row0 state;
    for_blocks<4096>(call.d1, [&](i64 begin, i64 end) STITCH_LAMBDA { sweep_0_0(call, row, begin, end, add_tile, softmax_3_tile, state); });
    for_blocks<4096>(call.d1, [&](i64 begin, i64 end) STITCH_LAMBDA { sweep_0_1(call, row, begin, end, add_tile, softmax_3_tile, state); });
    for_blocks<4096>(call.d1, [&](i64 begin, i64 end) STITCH_LAMBDA { sweep_0_2(call, row, begin, end, add_tile, softmax_3_tile, state); });
  }
  if (call.streams) settle();
}

struct Split0_0 { Call0* call; i64 blocks; Row0* rows; Row0* parts; char* tiles; };
void split_0_0(void* task, i64 begin_unit, i64 end_unit) {
  const auto& split = *static_cast<const Split0_0*>(task);
  const Call0 call = *split.call;
  char* tiles = split.tiles;
  const i64 tile_bytes = (call.d1 * 4 + 63) / 64 * 64;
  const i64 length = call.d1;
  for (i64 unit = begin_unit; unit < end_unit; ++unit) {
    const i64 row = unit / split.blocks;
    const i64 begin = unit % split.blocks * 4096;
    const i64 end = begin + 4096 < length ? begin + 4096 : length;
    Row0 state = split.rows[row];
    state.softmax = Row0{}.softmax;
    f32* add_tile = reinterpret_cast<f32*>(tiles + row * tile_bytes + 0);
    f32* softmax_3_tile = reinterpret_cast<f32*>(tiles + row * tile_bytes + 0);
    sweep_0_0(call, row, begin, end, add_tile, softmax_3_tile, state);
    split.parts[unit] = state;
  }
  if (call.streams) settle();
}

struct Split0_1 { Call0* call; i64 blocks; Row0* rows; Row0* parts; char* tiles; };
void split_0_1(void* task, i64 begin_unit, i64 end_unit) {
  const auto& split = *static_cast<const Split0_1*>(task);
  const Call0 call = *split.call;
  char* tiles = split.tiles;
  const i64 tile_bytes = (call.d1 * 4 + 63) / 64 * 64;
  const i64 length = call.d1;
  for (i64 unit = begin_unit; unit < end_unit; ++unit) {
    const i64 row = unit / split.blocks;
    const i64 begin = unit % split.blocks * 4096;
    const i64 end = begin + 4096 < length ? begin + 4096 : length;
    Row0 state = split.rows[row];
    state.softmax_4 = Row0{}.softmax_4;
    f32* add_tile = reinterpret_cast<f32*>(tiles + row * tile_bytes + 0);
    f32* softmax_3_tile = reinterpret_cast<f32*>(tiles + row * tile_bytes + 0);
    sweep_0_1(call, row, begin, end, add_tile, softmax_3_tile, state);
    split.parts[unit] = state;
  }
  if (call.streams) settle();
}

struct Split0_2 { Call0* call; i64 blocks; Row0* rows; Row0* parts; char* tiles; };
void split_0_2(void* task, i64 begin_unit, i64 end_unit) {
  const auto& split = *static_cast<const Split0_2*>(task);
  const Call0 call = *split.call;
  char* tiles = split.tiles;
  const i64 tile_bytes = (call.d1 * 4 + 63) / 64 * 64;
  const i64 length = call.d1;
  for (i64 unit = begin_unit; unit < end_unit; ++unit) {
    const i64 row = unit / split.blocks;
    const i64 begin = unit % split.blocks * 4096;
    const i64 end = begin + 4096 < length ? begin + 4096 : length;
    Row0 state = split.rows[row];
    f32* add_tile = reinterpret_cast<f32*>(tiles + row * tile_bytes + 0);
    f32* softmax_3_tile = reinterpret_cast<f32*>(tiles + row * tile_bytes + 0);
    sweep_0_2(call, row, begin, end, add_tile, softmax_3_tile, state);
    split.parts[unit] = state;
  }
  if (call.streams) settle();
}

bool splits_0(const Call0& call) {
  const i64 threads = call.host->threads;
  return threads > 1 && call.d0 * (3 * call.d2) < 2 * threads && call.d1 > 4096;
}

i64 bytes_0(const Call0& call) {
  if (!splits_0(call)) return 0;
  const i64 blocks = (call.d1 + 4095) / 4096;
  const i64 results = ((1 + blocks) * i64(sizeof(Row0)) + 63) / 64 * 64;
  return call.d0 * (3 * call.d2) * (results + (call.d1 * 4 + 63) / 64 * 64);
}

void launch_0(Call0& call, char* own) {
  const StitchHost* host = call.host;
  if (!splits_0(call)) {
    host->parallel_for(host->context, call.d0 * (3 * call.d2), i64(0.95 * f64(call.d1)) + 5, rows_0, &call);
    return;
  }
  const i64 count = call.d0 * (3 * call.d2), blocks = (call.d1 + 4095) / 4096;
  auto* rows = reinterpret_cast<Row0*>(own);
  auto* parts = rows + count;
  for (i64 row = 0; row < count; ++row) rows[row] = Row0{};
  char* tiles = own + count * (((1 + blocks) * i64(sizeof(Row0)) + 63) / 64 * 64);
  const i64 tile_bytes = (call.d1 * 4 + 63) / 64 * 64;
  Split0_0 task_0 = {&call, blocks, rows, parts, tiles};
  host->parallel_for(host->context, count * blocks, i64(1297), split_0_0, &task_0);
  for (i64 unit = 0; unit < count * blocks; ++unit) {
    Row0& state = rows[unit / blocks];
    state.softmax = Largest::of(state.softmax, parts[unit].softmax);
  }
  Split0_1 task_1 = {&call, blocks, rows, parts, tiles};
  host->parallel_for(host->context, count * blocks, i64(1297), split_0_1, &task_1);
  for (i64 unit = 0; unit < count * blocks; ++unit) {
    Row0& state = rows[unit / blocks];
    state.softmax_4 = Sum::of(state.softmax_4, parts[unit].softmax_4);
  }
  Split0_2 task_2 = {&call, blocks, rows, parts, tiles};
  host->parallel_for(host->context, count * blocks, i64(1297), split_0_2, &task_2);
}

void run(const StitchTensor* inputs, void* const* outputs, const i64* symbols, const StitchHost* host) {
  [[maybe_unused]] const i64 d0 = symbols[0];
  [[maybe_unused]] const i64 d1 = symbols[1];
  [[maybe_unused]] const i64 d2 = symbols[2];
  const bool streams = 4 * (d0 * d1) + 8 * (3 * d0 * d1 * d2) > host->cache_bytes;
  Call0 call_0 = {static_cast<const f32*>(inputs[0].data), static_cast<const f32*>(inputs[1].data), static_cast<f32*>(outputs[0]), d0, d2, d1, streams, host};
  i64 bytes = 0;
  const i64 own_0_offset = bytes;
  bytes += bytes_0(call_0);
  char* shared = bytes ? static_cast<char*>(host->scratch(0, bytes)) : nullptr;
  launch_0(call_0, shared + own_0_offset);
}

int shape(const StitchTensor* inputs, i64* symbols, i64* dims) {
  if (inputs[0].rank != 4 || inputs[1].rank != 4) return 1;
  const i64 d0 = inputs[0].dims[0];
  symbols[0] = d0;
  const i64 d1 = inputs[0].dims[3];
  symbols[1] = d1;
  const i64 d2 = inputs[1].dims[2];
  symbols[2] = d2;
  if (inputs[0].dims[1] != 1) return 2;
  if (inputs[0].dims[2] != 1) return 3;
  if (inputs[1].dims[0] != d0) return 4;
  if (inputs[1].dims[1] != 3) return 5;
  if (inputs[1].dims[3] != d1) return 6;
  dims[0] = d0;
  dims[1] = 3;
  dims[2] = d2;
  dims[3] = d1;
  (void)inputs, (void)symbols, (void)dims;
  return 0;
}

const int ranks[] = {4};
const int forwards[] = {1, 0, -1};
const char* const guards[] = {"the inputs have the ranks that were planned for", "dim 1 of input 0 is 1", "dim 2 of input 0 is 1", "dim 0 of input 1 is d0", "dim 1 of input 1 is 3", "dim 3 of input 1 is d1"};
}  // namespace

extern "C" __attribute__((visibility("default"))) const StitchKernel tf_stitch_kernel = {
    TF_STITCH_ABI_VERSION, 2, 1, 3, 6,
    ranks, forwards, "masked_softmax", guards, shape, run};
