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

template <int L>
STITCH_INLINE i64 lanes_of(All) {
  return L;
}
template <int L>
STITCH_INLINE i64 lanes_of(i64 count) {
  return count < L ? count : L;
}

// What has one value for each bundle, `stride` apart, for columns n, n + 1, ...
template <int L, class S, class Count>
STITCH_INLINE auto load_each(const S* p, i64 n, i64 width, i64 stride, Count count) {
  S elements[L] = {};
  for (i64 lane = 0; lane < lanes_of<L>(count); ++lane) elements[lane] = p[(n + lane) / width * stride];
  return load<L>(static_cast<const S*>(elements));
}
// The columns of a bundle all have the same value.
template <int L, class S, class X, class Count>
STITCH_INLINE void store_each(S* p, i64 n, i64 width, i64 stride, X value, Count count) {
  S elements[L];
  store(elements, value);
  for (i64 lane = 0; lane < lanes_of<L>(count); ++lane) p[(n + lane) / width * stride] = elements[lane];
}

}  // namespace stitch
