// All functions of floats.
#ifndef TF_STITCH_CPU_MATH_H_
#define TF_STITCH_CPU_MATH_H_

#include "math_erfc.h"
#include "math_rare.h"

#endif  // TF_STITCH_CPU_MATH_H_
