// What every generated kernel needs. Functions beyond it are in headers of their own (math_exp.h, math_tanh.h,
// math_erfc.h, math_rare.h, divide.h), named as in the CPU prelude, which a kernel includes if it calls them.
#ifndef TF_STITCH_CUDA_CORE_H_
#define TF_STITCH_CUDA_CORE_H_

#include "prelude/cuda/basic.h"
#include "prelude/cuda/convert.h"
#include "prelude/cuda/memory.h"
#include "prelude/cuda/reduce.h"

#endif  // TF_STITCH_CUDA_CORE_H_
