// Pieces of rows that are kept in shared memory while what they leave crosses the grid: how many, and how far.
#ifndef TF_STITCH_CUDA_WAVES_H_
#define TF_STITCH_CUDA_WAVES_H_

#include "prelude/cuda/types.h"

namespace stitch {

STITCH_DEVICE i64 smaller(i64 a, i64 b) { return a < b ? a : b; }

// Waves that `rows` of this length take where so many elements are kept together; a wave has one row at least.
STITCH_DEVICE i64 waves_of(i64 rows, i64 length, i64 kept) {
  const i64 fitting = length > 0 ? kept / length : rows, together = fitting > 1 ? fitting : 1;
  return rows > together ? (rows + together - 1) / together : 1;
}

// Where what is kept of a piece ends, if there are `places` for it.
template <class I>
STITCH_DEVICE I kept_end(I begin, I end, I places) {
  if (places <= 0) return begin < end ? begin : end;
  return places < end - begin ? begin + places : end;
}

}  // namespace stitch
#endif  // TF_STITCH_CUDA_WAVES_H_
