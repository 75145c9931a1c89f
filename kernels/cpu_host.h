// What a kernel asks of its host (StitchHost in abi.h), on a CPU: parallel loops on TensorFlow's intra-op pool,
// and scratch memory.
#ifndef TF_STITCH_KERNELS_CPU_HOST_H_
#define TF_STITCH_KERNELS_CPU_HOST_H_

#include "abi.h"

namespace tsl::thread {
class ThreadPool;
}

namespace tf_stitch {

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
