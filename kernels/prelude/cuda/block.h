// How the threads of a warp and of a block combine what each of them has. The trees are fixed, and every thread that asks
// gets the same bits.
//
//   across<Sum, 32>(x)                    lanes of a warp, by shuffles           ((0+1)+(2+3))+... by halves
//   leave(slots, x); barrier; collect     warps of a block, by shared memory     the same tree over the warps
//   collect_down                          rows of threads of a block             one after another
#ifndef TF_STITCH_CUDA_BLOCK_H_
#define TF_STITCH_CUDA_BLOCK_H_

#include "prelude/cuda/reduce.h"

namespace stitch {

constexpr u32 whole_warp = 0xffffffffu;

template <class T>
STITCH_DEVICE T of_lane_across(u32 together, T x, int distance) {
  if constexpr (same<T, bool>) return __shfl_xor_sync(together, int(x), distance) != 0;
  else return __shfl_xor_sync(together, x, distance);
}

// `x` of `lanes` neighbours, a power of two, combined. together: the lanes that take part, whole groups of neighbours.
template <class Op, int lanes, class T>
STITCH_DEVICE T across(T x, u32 together = whole_warp) {
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2) x = Op::of(x, of_lane_across(together, x, distance));
  // The larger of two zeros is the second: lanes may have zeros of different sign.
  constexpr bool ordered = is_float<T> && (same<Op, Largest> || same<Op, Smallest>);
  if constexpr (ordered && lanes > 1) x = __shfl_sync(together, x, 0, lanes);
  return x;
}

// Leaves what a warp has combined for the others of its block.
template <class T>
STITCH_DEVICE void leave(T* slots, T x) {
  if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = x;
}

// What all warps have left, combined. Between the two is a barrier.
template <class Op, int warps, class T>
STITCH_DEVICE T collect(const T* slots) {
  return across<Op, warps>(slots[threadIdx.x % warps]);
}

// What the threads of this one's column have left, combined; `columns` stand side by side.
template <class Op, int columns, int threads, class T>
STITCH_DEVICE T collect_down(const T* slots) {
  T x = slots[threadIdx.x % columns];
#pragma unroll
  for (int n = columns; n < threads; n += columns) x = Op::of(x, slots[n + threadIdx.x % columns]);
  return x;
}

// The memory behind `count` elements, at the next multiple of `unit` bytes.
template <class T, int unit, class S>
STITCH_DEVICE T* behind(S* p, i64 count) {
  return reinterpret_cast<T*>(reinterpret_cast<char*>(p) + (count * i64(sizeof(S)) + unit - 1) / unit * unit);
}

}  // namespace stitch
#endif  // TF_STITCH_CUDA_BLOCK_H_
