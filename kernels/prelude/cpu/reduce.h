// The lanes of a Pack folded into one: first with the other half of the Pack, then of the vector, down to one lane.
// The tree depends on L alone, so every machine adds in the same order.
#ifndef TF_STITCH_CPU_REDUCE_H_
#define TF_STITCH_CPU_REDUCE_H_

#include "pack.h"

namespace stitch {

#define STITCH_REDUCE(name, expression)                  \
  template <class T, int L>                              \
  STITCH_INLINE Pack<T, 1> name(Pack<T, L> x) {          \
    if constexpr (L == 1) {                              \
      return x;                                          \
    } else {                                             \
      Pack<T, L / 2> a = lo(x), b = hi(x);               \
      return name(expression);                           \
    }                                                    \
  }
STITCH_REDUCE(reduce_add, a + b)
STITCH_REDUCE(reduce_mul, a* b)
STITCH_REDUCE(reduce_max, max(a, b))
STITCH_REDUCE(reduce_min, min(a, b))
#undef STITCH_REDUCE

template <int L>
STITCH_INLINE Mask<1> reduce_and(Mask<L> x) {
  if constexpr (L == 1) return x;
  else return reduce_and(lo(x) & hi(x));
}
template <int L>
STITCH_INLINE Mask<1> reduce_or(Mask<L> x) {
  if constexpr (L == 1) return x;
  else return reduce_or(lo(x) | hi(x));
}

}  // namespace stitch
#endif  // TF_STITCH_CPU_REDUCE_H_
