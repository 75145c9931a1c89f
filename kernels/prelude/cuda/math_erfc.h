// erfc, and so the GELU. CUDA's erfcf is within 4 ulps, the CPU prelude's within 6.6.
#ifndef TF_STITCH_CUDA_MATH_ERFC_H_
#define TF_STITCH_CUDA_MATH_ERFC_H_

#include "prelude/cuda/basic.h"

namespace stitch {

STITCH_FROM_LIBM(erfc)

}  // namespace stitch
#endif  // TF_STITCH_CUDA_MATH_ERFC_H_
