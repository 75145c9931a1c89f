// convert<T>(x): TF's Cast between registers. A float out of the integer's range, and NaN, gives the least integer, as
// TF's CPU kernels do on x86 (the hardware here would saturate, and make 0 of NaN): one answer on every device.
#ifndef TF_STITCH_CUDA_CONVERT_H_
#define TF_STITCH_CUDA_CONVERT_H_

#include "prelude/cuda/types.h"

namespace stitch {

template <class T, class S>
STITCH_DEVICE T convert(S x) {
  if constexpr (is_float<S> && !is_float<T>) {
    constexpr S beyond = S(sign_bit<T>);  // a power of two, which every float has
    return x >= -beyond && x < beyond ? T(x) : least<T>;
  } else {
    return T(x);
  }
}

// true where not zero, NaN included
template <class T>
STITCH_DEVICE bool to_mask(T x) {
  return x != T(0);
}

}  // namespace stitch
#endif  // TF_STITCH_CUDA_CONVERT_H_
