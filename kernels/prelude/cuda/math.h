// All functions of floats.
#ifndef TF_STITCH_CUDA_MATH_H_
#define TF_STITCH_CUDA_MATH_H_

#include "prelude/cuda/math_erfc.h"
#include "prelude/cuda/math_rare.h"

#endif  // TF_STITCH_CUDA_MATH_H_
