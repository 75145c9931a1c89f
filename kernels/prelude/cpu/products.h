// Sums of products of a few rows with a step of columns: the innermost loop of a small matrix product or convolution.
#pragma once
#include "loop.h"

namespace stitch {

// a * b + c with one rounding where the machine has that, lane by lane: for sums of products, which TensorFlow fuses, too.
template <class T, int L>
STITCH_INLINE Pack<T, L> fused(Pack<T, L> a, Pack<T, L> b, Pack<T, L> c) {
  if constexpr (is_node<T, L>) return {fused(a.lo, b.lo, c.lo), fused(a.hi, b.hi, c.hi)};
  else if constexpr (L == 1) return {vec::madd(in_vector(a.v), in_vector(b.v), in_vector(c.v))[0]};
  else return {vec::madd(a.v, b.v, c.v)};
}

// The sums of R rows, for the L columns of a step.
template <class T, int R, int L>
struct Sums {
  Pack<T, L> sum[R];

  STITCH_MEMBER void clear() {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sum[r] = splat<T, L>(T(0));
  }
  // stride: elements between neighbouring rows.
  template <class Count>
  STITCH_MEMBER void take(const T* from, i64 stride, Count count) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sum[r] = load<L>(from + r * stride, count);
  }
  template <class Count>
  STITCH_MEMBER void give(T* to, i64 stride, Count count) const {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) store(to + r * stride, sum[r], count);
  }

  // sum[r][n] += sum over k < length of x[r, k] * w[k, n].
  // *_row, *_step: elements between neighbouring rows, and between neighbours along k.
  template <class Count>
  STITCH_MEMBER void multiply(const T* x, i64 x_row, i64 x_step, const T* w, i64 w_step, i64 length, Count count) {
    STITCH_ROLLED
    for (i64 k = 0; k < length; ++k) {
      const Pack<T, L> column = load<L>(w + k * w_step, count);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sum[r] = fused(splat<T, L>(x[r * x_row + k * x_step]), column, sum[r]);
    }
  }
  // The same where each column has numbers of its own: x[r, k, n].
  template <class Count>
  STITCH_MEMBER void multiply_columns(const T* x, i64 x_row, i64 x_step, const T* w, i64 w_step, i64 length,
                                      Count count) {
    STITCH_ROLLED
    for (i64 k = 0; k < length; ++k) {
      const Pack<T, L> column = load<L>(w + k * w_step, count);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sum[r] = fused(load<L>(x + r * x_row + k * x_step, count), column, sum[r]);
    }
  }
};

// Few rows leave the caches no second use of w: it is read a few of its rows at a time, end to end, while the sums wait in
// L1. Where there are more, sums stay in registers all along k.
constexpr i64 kDepthOfFewRows = 8;

// Columns of which a task makes the sums at a time. Those of few rows are shared by all threads, in pieces as long as can
// be: whoever reads a row of w end to end is soonest through.
constexpr i64 kColumnsOfTask = 256;
STITCH_INLINE i64 columns_of_task(i64 columns, bool few_rows, i64 threads) {
  const i64 share = ((columns + threads - 1) / threads + 63) / 64 * 64;
  return few_rows && share > kColumnsOfTask ? share : kColumnsOfTask;
}

// Calls `body(k, length, first)` for all of [0, length).
template <class Body>
STITCH_INLINE void for_depths(i64 length, i64 depth, Body body) {
  i64 k = 0;
  do {
    body(k, length - k < depth ? length - k : depth, k == 0);
    k += depth;
  } while (k < length);
}

// Calls `body(rows, first)` for groups of rows that cover [0, count), count being R or less: all R at a time, fewer in
// powers of two. Left: those of them that are ever needed, added up.
template <int R, int Left, class Body>
STITCH_INLINE void for_groups(i64 count, Body body) {
  if (count == R) return body(Width<R>{}, i64(0));
  i64 first = 0;
  if constexpr (Left & 4) {
    if (count & 4) body(Width<4>{}, first), first += 4;
  }
  if constexpr (Left & 2) {
    if (count & 2) body(Width<2>{}, first), first += 2;
  }
  if constexpr (Left & 1) {
    if (count & 1) body(Width<1>{}, first);
  }
}

}  // namespace stitch
