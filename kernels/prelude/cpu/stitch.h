// The prelude of every generated CPU kernel. No system header: a kernel compiles in a tenth of a second.
#ifndef TF_STITCH_CPU_STITCH_H_
#define TF_STITCH_CPU_STITCH_H_

#include "convert.h"
#include "divide.h"
#include "math.h"
#include "memory.h"
#include "pack.h"
#include "reduce.h"

#endif  // TF_STITCH_CPU_STITCH_H_
