// convert<T>(pack or mask): the C++ cast, lane by lane, as TF's Cast does it. A float out of the integer's range
// gives what this machine's conversion gives, as in TF: on x86 the smallest integer, NaN too.
#ifndef TF_STITCH_CPU_CONVERT_H_
#define TF_STITCH_CPU_CONVERT_H_

#include "pack.h"

namespace stitch {

template <class T, class S, int L>
STITCH_INLINE Pack<T, L> convert(Pack<S, L> a) {
  if constexpr (same<T, S>) return a;
  else if constexpr (is_node<T, L> || is_node<S, L>) return join(convert<T>(lo(a)), convert<T>(hi(a)));
  else if constexpr (L == 1) return {T(a.v)};
  else return {vec::cast<T>(a.v)};
}

// 0 and 1
template <class T, int L>
STITCH_INLINE Pack<T, L> convert(Mask<L> a) {
  return select(a, splat<T, L>(1), splat<T, L>(0));
}

// true where not zero, NaN included
template <class T, int L>
STITCH_INLINE Mask<L> to_mask(Pack<T, L> a) {
  return a != splat<T, L>(0);
}

}  // namespace stitch
#endif  // TF_STITCH_CPU_CONVERT_H_
