// What `measure` compiles and runs: the arithmetic of three usual kernels, written as the renderer writes them.
#include "stitch.h"
using namespace stitch;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
constexpr int L = kNative;  // four native vectors of f32

template <class Body>
STITCH_INLINE void for_row(i64 n, Body body) {
  i64 i = 0;
  for (; i + L <= n; i += L) body(i, i64(L));
  if (i < n) body(i, n - i);
}

STITCH_INLINE Pack<f32, L> get(const f32* p, i64 count) { return count == L ? load<L>(p) : load<L>(p, count); }
STITCH_INLINE void put(f32* p, Pack<f32, L> x, i64 count) {
  if (count == L) store(p, x);
  else store(p, x, count);
}

STITCH_INLINE Pack<f32, L> gelu(Pack<f32, L> x) {
  return splat<f32, L>(.5f) * x * (splat<f32, L>(1) + erf(x * splat<f32, L>(0.70710678f)));
}
}  // namespace

// Layer norm of each row, then GELU.
EXPORT void layer_norm_gelu(const f32* x, f32* y, i64 rows, i64 n) {
  for (i64 r = 0; r < rows; ++r, x += n, y += n) {
    Pack<f32, L> sum = splat<f32, L>(0), squares = splat<f32, L>(0);
    for_row(n, [&](i64 i, i64 count) { sum = sum + get(x + i, count); });
    const Pack<f32, L> mean = splat<L>(reduce_add(sum) / splat<f32, 1>(f32(n)));
    for_row(n, [&](i64 i, i64 count) {
      Pack<f32, L> d = get(x + i, count) - mean;
      squares = squares + select(lanes_below<L>(count), d * d, splat<f32, L>(0));
    });
    const Pack<f32, 1> variance = reduce_add(squares) / splat<f32, 1>(f32(n));
    const Pack<f32, L> scale = splat<L>(rsqrt(variance + splat<f32, 1>(1e-5f)));
    for_row(n, [&](i64 i, i64 count) { put(y + i, gelu((get(x + i, count) - mean) * scale), count); });
  }
}

EXPORT void softmax(const f32* x, f32* y, i64 rows, i64 n) {
  const f32 lowest = -3.4028235e38f;
  for (i64 r = 0; r < rows; ++r, x += n, y += n) {
    Pack<f32, L> top = splat<f32, L>(lowest), sum = splat<f32, L>(0);
    for_row(n, [&](i64 i, i64 count) {
      top = max(top, select(lanes_below<L>(count), get(x + i, count), splat<f32, L>(lowest)));
    });
    const Pack<f32, L> shift = splat<L>(reduce_max(top));
    for_row(n, [&](i64 i, i64 count) {
      Pack<f32, L> e = exp(get(x + i, count) - shift);
      put(y + i, e, count);
      sum = sum + select(lanes_below<L>(count), e, splat<f32, L>(0));
    });
    const Pack<f32, L> scale = splat<L>(splat<f32, 1>(1) / reduce_add(sum));
    for_row(n, [&](i64 i, i64 count) { put(y + i, get(y + i, count) * scale, count); });
  }
}

// The point-wise part of an LSTM step, on rows of four gates.
EXPORT void lstm(const f32* gates, f32* state, i64 rows, i64 n) {
  const i64 w = n / 4;
  for (i64 r = 0; r < rows; ++r, gates += n, state += n) {
    for_row(w, [&](i64 i, i64 count) {
      Pack<f32, L> c = sigmoid(get(gates + w + i, count)) * get(gates + 2 * w + i, count) +
                       sigmoid(get(gates + i, count)) * tanh(get(gates + 3 * w + i, count));
      put(state + i, c, count);
      put(state + w + i, sigmoid(get(gates + 2 * w + i, count)) * tanh(c), count);
    });
  }
}
