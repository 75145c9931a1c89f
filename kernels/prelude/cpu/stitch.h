// The whole prelude. Generated kernels include core.h and what they call beyond it.
#ifndef TF_STITCH_CPU_STITCH_H_
#define TF_STITCH_CPU_STITCH_H_

#include "core.h"
#include "divide.h"
#include "math.h"

#endif  // TF_STITCH_CPU_STITCH_H_
