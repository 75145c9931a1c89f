// What a kernel asks of its host (StitchHost in abi.h), on a CPU: parallel loops on TensorFlow's intra-op pool,
// and scratch memory.
#ifndef TF_STITCH_KERNELS_CPU_HOST_H_
#define TF_STITCH_KERNELS_CPU_HOST_H_

#include <cstddef>

#include "abi.h"

namespace tsl::thread {
class ThreadPool;
}

namespace tf_stitch {

// Asks for huge pages where `bytes` at `data` are many and about to be written. The C library maps a large tensor
// afresh each time, and to be given it in pages of 4 KiB, each on its first touch, takes longer than to compute it.
void WriteInHugePages(void* data, size_t bytes);

// The services for one call. Must outlive the call; `host()` points into it.
class CpuHost {
 public:
  // `threads` is how many may work at a time, the calling one included.
  CpuHost(tsl::thread::ThreadPool* pool, int threads);
  // Gives large scratch back, so that a thread that once ran a large call does not keep its memory for ever.
  ~CpuHost();

  CpuHost(const CpuHost&) = delete;
  CpuHost& operator=(const CpuHost&) = delete;

  const StitchHost* host() const { return &host_; }

 private:
  static void ParallelFor(void* context, long long total, long long cost, StitchTask task, void* argument);

  tsl::thread::ThreadPool* pool_;
  StitchHost host_;
};

}  // namespace tf_stitch

#endif  // TF_STITCH_KERNELS_CPU_HOST_H_
