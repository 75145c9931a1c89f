// What reductions start from and combine with, in registers. The order is the schedule's business: these are not
// associative in floats, and every thread that has the same operands has the same bits.
#ifndef TF_STITCH_CUDA_REDUCE_H_
#define TF_STITCH_CUDA_REDUCE_H_

#include "prelude/cuda/arithmetic.h"

namespace stitch {

#define STITCH_REDUCER(Name, neutral_element, expression) \
  struct Name {                                           \
    template <class T>                                    \
    static STITCH_DEVICE T neutral() {                    \
      return neutral_element;                             \
    }                                                     \
    template <class T>                                    \
    static STITCH_DEVICE T of(T a, T b) {                 \
      return expression;                                  \
    }                                                     \
  };

template <class T>
STITCH_DEVICE T smallest_of_all() {
  if constexpr (is_float<T>) return -infinity<T>;
  else return least<T>;
}
template <class T>
STITCH_DEVICE T largest_of_all() {
  if constexpr (is_float<T>) return infinity<T>;
  else return T(~sign_bit<T>);
}

STITCH_REDUCER(Sum, T(0), plus(a, b))
STITCH_REDUCER(Product, T(1), times(a, b))
STITCH_REDUCER(Largest, smallest_of_all<T>(), max(a, b))  // NaN if any element is
STITCH_REDUCER(Smallest, largest_of_all<T>(), min(a, b))
STITCH_REDUCER(AllOf, true, bool(a & b))
STITCH_REDUCER(AnyOf, false, bool(a | b))
#undef STITCH_REDUCER

}  // namespace stitch
#endif  // TF_STITCH_CUDA_REDUCE_H_
