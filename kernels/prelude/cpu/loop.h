// The vector loop over a row and the accumulators of its reductions.
#pragma once
#include "memory.h"
#include "reduce.h"

// For lambdas, where an attribute stands after the parameters, and for members.
#define STITCH_LAMBDA __attribute__((always_inline))
#define STITCH_MEMBER inline __attribute__((always_inline))

// A step has several vectors already: unrolling a loop of known length gains nothing and takes long to compile.
#define STITCH_ROLLED _Pragma("GCC unroll 1")

namespace stitch {

template <int L>
struct Width {
  static constexpr int lanes = L;
};
// In the place of a count: all lanes are there.
struct All {};

template <int L, class S>
STITCH_INLINE auto load(const S* p, All) {
  return load<L>(p);
}
template <int L, class S>
STITCH_INLINE auto load_at(const S* p, Pack<i64, L> at, All) {
  return load_at<L>(p, at, L);
}
template <int L, class S, class X>
STITCH_INLINE void store_at(S* p, Pack<i64, L> at, X value, All) {
  store_at(p, at, value, L);
}
template <class S, class T, int L>
STITCH_INLINE void store(S* p, Pack<T, L> value, All) {
  store(p, value);
}
template <int L>
STITCH_INLINE void store(boolean* p, Mask<L> value, All) {
  store(p, value);
}
template <class S, class X>
STITCH_INLINE void stream(S* p, X value, All, bool past) {
  stream(p, value, past);
}
template <class S, class X>
STITCH_INLINE void stream(S* p, X value, i64 count, bool) {
  store(p, value, count);
}
template <int L, class S>
STITCH_INLINE auto load_strided(const S* p, i64 stride, All) {
  return load_strided<L>(p, stride, i64(L));
}

template <class S, class T, int L>
STITCH_INLINE void store_strided(S* p, i64 stride, Pack<T, L> value, All) {
  store_strided(p, stride, value);
}
template <int L>
STITCH_INLINE void store_strided(boolean* p, i64 stride, Mask<L> value, All) {
  store_strided(p, stride, value);
}

// Fills `to` with `period` elements at `from`, again and again; `size` is a multiple of `period`.
template <class S>
STITCH_INLINE void repeat(S* to, const S* from, i64 period, i64 size) {
  for (i64 start = 0; start < size; start += period)
    for (i64 n = 0; n < period; ++n) to[start + n] = from[n];
}

// Calls `body(begin, end)` for blocks of at most B elements that cover [0, length).
template <int B, class Body>
STITCH_INLINE void for_blocks(i64 length, Body body) {
  for (i64 begin = 0; begin < length; begin += B) body(begin, begin + B < length ? begin + B : length);
}

// Calls `body(width, n, count)` for steps that cover [begin, end): wide steps first, then narrow ones, the last of
// which may have fewer than its lanes.
template <int L, int W, class Body>
STITCH_INLINE void for_lanes(i64 begin, i64 end, Body body) {
  i64 n = begin;
  STITCH_ROLLED
  for (; n + L <= end; n += L) body(Width<L>{}, n, All{});
  STITCH_ROLLED
  for (; n < end; n += W) body(Width<W>{}, n, end - n < W ? end - n : i64(W));
}
// The same with a short step first, so that wide steps begin where memory at `p` is aligned.
template <int L, int W, class S, class Body>
STITCH_INLINE void for_aligned_lanes(const S* p, bool align, i64 begin, i64 end, Body body) {
  const i64 ahead = align ? i64(-reinterpret_cast<u64>(p + begin) % 64 / sizeof(S)) : 0;
  i64 n = begin, stop = begin + ahead < end ? begin + ahead : end;
  for (;;) {
    STITCH_ROLLED
    for (; n < stop; n += W) body(Width<W>{}, n, stop - n < W ? stop - n : i64(W));
    n = stop;
    if (n == end) return;
    STITCH_ROLLED
    for (; n + L <= end; n += L) body(Width<L>{}, n, All{});
    stop = end;
  }
}
// The same where the length is a multiple of L.
template <int L, class Body>
STITCH_INLINE void for_wide_lanes(i64 begin, i64 end, Body body) {
  STITCH_ROLLED
  for (i64 n = begin; n < end; n += L) body(Width<L>{}, n, All{});
}
// The same where it is less than W.
template <int W, class Body>
STITCH_INLINE void for_narrow_lanes(i64 begin, i64 end, Body body) {
  STITCH_ROLLED
  for (i64 n = begin; n < end; n += W) body(Width<W>{}, n, end - n < W ? end - n : i64(W));
}

struct Sum {
  template <class P>
  STITCH_INLINE P of(P a, P b) {
    return a + b;
  }
  template <class P>
  STITCH_INLINE auto horizontal(P p) {
    return reduce_add(p);
  }
};
struct Product {
  template <class P>
  STITCH_INLINE P of(P a, P b) {
    return a * b;
  }
  template <class P>
  STITCH_INLINE auto horizontal(P p) {
    return reduce_mul(p);
  }
};
struct Largest {
  template <class P>
  STITCH_INLINE P of(P a, P b) {
    return max(a, b);
  }
  template <class P>
  STITCH_INLINE auto horizontal(P p) {
    return reduce_max(p);
  }
};
struct Smallest {
  template <class P>
  STITCH_INLINE P of(P a, P b) {
    return min(a, b);
  }
  template <class P>
  STITCH_INLINE auto horizontal(P p) {
    return reduce_min(p);
  }
};
struct AllOf {
  template <class P>
  STITCH_INLINE P of(P a, P b) {
    return a & b;
  }
  template <class P>
  STITCH_INLINE auto horizontal(P p) {
    return reduce_and(p);
  }
};
struct AnyOf {
  template <class P>
  STITCH_INLINE P of(P a, P b) {
    return a | b;
  }
  template <class P>
  STITCH_INLINE auto horizontal(P p) {
    return reduce_or(p);
  }
};

// `value` in the first `count` lanes, `other` in the rest.
template <class T, int L>
STITCH_INLINE Pack<T, L> first(Pack<T, L> value, i64 count, Pack<T, 1> other) {
  return select(lanes_below<L>(count), value, splat<L>(other));
}
template <int L>
STITCH_INLINE Mask<L> first(Mask<L> value, i64 count, Mask<1> other) {
  const Mask<L> there = lanes_below<L>(count);
  return (there & value) | (~there & splat<L>(other));
}

// The partial results of one reduction: one lane each of the wide and of the narrow loop. Lane i takes elements
// i, i + L, i + 2L, ... of the row: a tree that depends on nothing but the row's length.
template <class Combine, class Wide, class Narrow, class Neutral>
struct Accumulator {
  Wide wide;
  Narrow narrow;
  Neutral neutral;
  STITCH_MEMBER void add(Wide value, All) { wide = Combine::of(wide, value); }
  STITCH_MEMBER void add(Narrow value, i64 count) {
    narrow = Combine::of(narrow, first(value, count, neutral));
  }
  STITCH_MEMBER Neutral result() const {
    return Combine::of(Combine::horizontal(wide), Combine::horizontal(narrow));
  }
};
// The same where all steps are equally wide: half the lanes to fold, and to compile.
template <class Combine, class Lanes, class Neutral>
struct UniformAccumulator {
  Lanes lanes;
  Neutral neutral;
  STITCH_MEMBER void add(Lanes value, All) { lanes = Combine::of(lanes, value); }
  STITCH_MEMBER void add(Lanes value, i64 count) { lanes = Combine::of(lanes, first(value, count, neutral)); }
  STITCH_MEMBER Neutral result() const { return Combine::horizontal(lanes); }
};
template <class Combine, int L, int W, class Neutral>
STITCH_INLINE auto accumulator(Neutral neutral) {
  typedef decltype(splat<L>(neutral)) Wide;
  if constexpr (L == W) {
    return UniformAccumulator<Combine, Wide, Neutral>{splat<L>(neutral), neutral};
  } else {
    return Accumulator<Combine, Wide, decltype(splat<W>(neutral)), Neutral>{splat<L>(neutral), splat<W>(neutral), neutral};
  }
}

}  // namespace stitch
