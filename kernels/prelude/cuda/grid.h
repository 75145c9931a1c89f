// A barrier of all blocks of a grid, which have to be on the GPU together.
//
//   block       arrived[0]
//     0            1          waits for 0
//     2            2          waits for 0
//     1            3 -> 0     is the last, and lets them go; the next barrier is at arrived[1]
//
// Barriers take the two words in turn. A block may come to the next one while another still waits at this one; to the one
// after it only when all have left this one. Both words are 0 before the launch, and after it.
#ifndef TF_STITCH_CUDA_GRID_H_
#define TF_STITCH_CUDA_GRID_H_

#include "prelude/cuda/types.h"

namespace stitch {

struct GridBarrier {
  u32 arrived[2];
};

// All that any thread wrote in front of it, every thread sees behind it. turn: 0, 1, 0, 1, ...
STITCH_DEVICE void grid_barrier(GridBarrier* barrier, int turn) {
  u32* const arrived = &barrier->arrived[turn];
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();  // release
    if (atomicAdd(arrived, 1u) == gridDim.x - 1) {
      atomicExch(arrived, 0u);  // reads and writes at once: so it hands on what the others released
    } else {
      while (*static_cast<volatile u32*>(arrived) != 0) __nanosleep(32);
    }
    __threadfence();  // acquire
#ifdef TF_STITCH_EMULATOR
    stitch_emulator::stitch_emulator_grid_barrier();  // for its counters
#endif
  }
  __syncthreads();
}

}  // namespace stitch
#endif  // TF_STITCH_CUDA_GRID_H_
