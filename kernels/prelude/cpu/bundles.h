// Bundles of neighbouring columns that have one result.
#pragma once
#include "loop.h"

namespace stitch {

// What the totals of a column's bundle combine to, for columns n, n + 1, ...; bundles begin at multiples of `width`.
template <int L, class Reducer, class T>
STITCH_INLINE auto load_bundled(const T* totals, i64 n, i64 width, i64 columns) {
  T combined[L] = {};
  for (i64 lane = 0; lane < L && n + lane < columns;) {
    const i64 begin = (n + lane) / width * width, end = begin + width;
    auto total = load<1>(totals + begin);
    for (i64 column = begin + 1; column < end; ++column) total = Reducer::of(total, load<1>(totals + column));
    for (; lane < L && n + lane < end; ++lane) store(combined + lane, total);
  }
  return load<L>(static_cast<const T*>(combined));
}

// Where what has one value for each bundle, `stride` apart, is found for columns n, n + 1, ...
template <int L>
STITCH_INLINE Pack<i64, L> bundles(i64 n, i64 width, i64 stride) {
  i64 places[L];
  for (i64 lane = 0; lane < L; ++lane) places[lane] = (n + lane) / width * stride;
  return load<L>(static_cast<const i64*>(places));
}

}  // namespace stitch
