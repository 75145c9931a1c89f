#include "cpu_host.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <string>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "xla/tsl/platform/threadpool.h"
#include "tsl/platform/denormal.h"

namespace tf_stitch {
namespace {

// ---- Parallel loops ---------------------------------------------------------------------------------------
//
// A loop is cut into about eight chunks for each thread, and the threads take chunks from one counter, so that
// a thread whose core is busy elsewhere takes fewer. The caller works too, and waits only for chunks that
// have been taken: a helper that wakes up late finds nothing left, and nobody waited for it. So a loop cannot
// deadlock, even when it starts on a pool thread while all other pool threads are waiting.

constexpr int kChunksPerThread = 8;
constexpr double kWakeNanoseconds = 18e3;    // what the caller loses by waking helpers and waiting for the last
constexpr double kHelperNanoseconds = 10e3;  // the least work that is worth one more thread
constexpr int kSpins = 2000;                 // some 20 us; to sleep and be woken costs as much

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class Loop {
 public:
  Loop(int64_t total, int64_t chunks, StitchTask task, void* argument)
      : total_(total), chunks_(chunks), task_(task), argument_(argument), unfinished_(chunks) {}

  // Takes chunks and runs them until none is left.
  void Work() {
    int64_t finished = 0;
    for (int64_t chunk; (chunk = next_.fetch_add(1, std::memory_order_relaxed)) < chunks_; ++finished) {
      task_(argument_, Begin(chunk), Begin(chunk + 1));
    }
    if (finished > 0 && unfinished_.fetch_sub(finished, std::memory_order_acq_rel) == finished) {
      std::lock_guard<std::mutex> lock(mutex_);  // or the waiter could miss the signal
      all_finished_.notify_one();
    }
  }

  // Returns when every chunk has run.
  void Wait() {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (Finished()) return;
      Pause();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    all_finished_.wait(lock, [this] { return Finished(); });
  }

 private:
  int64_t Begin(int64_t chunk) const {
    return chunk * (total_ / chunks_) + std::min(chunk, total_ % chunks_);
  }
  bool Finished() const { return unfinished_.load(std::memory_order_acquire) == 0; }

  const int64_t total_, chunks_;
  const StitchTask task_;
  void* const argument_;
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> unfinished_;
  std::mutex mutex_;
  std::condition_variable all_finished_;
};

// TensorFlow flushes denormals to zero on the threads that run kernels. A helper takes over the caller's
// setting, whatever it is, so that a result never depends on which thread computed it.
class ScopedDenormalState {
 public:
  explicit ScopedDenormalState(const tsl::port::DenormalState& state) { tsl::port::SetDenormalState(state); }

 private:
  tsl::port::ScopedRestoreFlushDenormalState restore_;  // constructed, thus saved, before the body above
};

// ---- Huge pages -------------------------------------------------------------------------------------------

constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
constexpr size_t kManyBytes = size_t{4} << 20;  // below, the C library keeps what was freed

// ---- Scratch ----------------------------------------------------------------------------------------------

constexpr int kScratchSlots = 2;
constexpr int64_t kScratchAlignment = 64;
constexpr int64_t kLargeScratch = int64_t{64} << 20;

class Arena {
 public:
  ~Arena() { free(data_); }

  void* AtLeast(int64_t bytes) {
    if (bytes > size_) Grow(bytes);
    return data_;
  }

  void Trim() {
    if (size_ > kLargeScratch) Release();
  }

 private:
  void Release() {
    free(data_);
    data_ = nullptr;
    size_ = 0;
  }

  void Grow(int64_t bytes) {
    int64_t size = std::max(bytes, size_ + size_ / 2);  // kernels of slowly rising needs must not free each time
    Release();
    size = (size + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
    data_ = aligned_alloc(kScratchAlignment, size);
    if (data_ == nullptr) {
      fprintf(stderr, "tf_stitch: out of memory: %lld bytes of scratch\n", static_cast<long long>(size));
      abort();  // a kernel has no way to fail half-way, as TensorFlow's CHECKs have none
    }
    size_ = size;
    WriteInHugePages(data_, static_cast<size_t>(size));
  }

  void* data_ = nullptr;
  int64_t size_ = 0;
};

thread_local Arena arenas[kScratchSlots];

// Of this machine's last level of caches. Where it does not say, nothing is too much for it. The C library's answer
// (sysconf) is that of all sockets on some virtual machines, ten times what one core can use.
long long CacheBytes() {
  static const long long bytes = [] {
    long long last = 0;
    for (int index = 0; index < 8; ++index) {
      std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
      long long size = 0;
      char unit = 0;
      if (!(file >> size)) continue;
      file >> unit;
      last = std::max(last, unit == 'K' ? size << 10 : unit == 'M' ? size << 20 : size);
    }
    return last > 0 ? last : std::numeric_limits<long long>::max();
  }();
  return bytes;
}

void* Scratch(int slot, long long bytes) { return arenas[slot].AtLeast(bytes); }

}  // namespace

void WriteInHugePages([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) {
#ifdef MADV_HUGEPAGE
  if (bytes < kManyBytes) return;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kHugePage - 1) & ~(kHugePage - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) & ~(kHugePage - 1);
  // It may fail, where there are no huge pages: then small ones it is.
  if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

CpuHost::CpuHost(tsl::thread::ThreadPool* pool, int threads)
    : pool_(pool), host_{this, std::max(threads, 1), &CpuHost::ParallelFor, &Scratch, CacheBytes()} {}

CpuHost::~CpuHost() { arenas[0].Trim(); }

void CpuHost::ParallelFor(void* context, long long total, long long cost, StitchTask task, void* argument) {
  if (total <= 0) return;
  const auto* host = static_cast<const CpuHost*>(context);
  const double nanoseconds = static_cast<double>(total) * static_cast<double>(cost);
  const auto worthwhile = static_cast<int64_t>(std::min(1 + nanoseconds / kHelperNanoseconds, 1e6));
  const int64_t threads = std::min({static_cast<int64_t>(host->host_.threads), worthwhile, int64_t{total}});
  const double saved = nanoseconds - nanoseconds / static_cast<double>(threads);
  if (saved < kWakeNanoseconds) {
    task(argument, 0, total);
    return;
  }
  const int64_t chunks = std::min<int64_t>(total, threads * kChunksPerThread);
  auto loop = std::make_shared<Loop>(total, chunks, task, argument);
  const tsl::port::DenormalState denormals = tsl::port::GetDenormalState();
  for (int64_t helper = 1; helper < threads; ++helper) {
    host->pool_->Schedule([loop, denormals] {
      ScopedDenormalState scope(denormals);
      loop->Work();
    });
  }
  loop->Work();
  loop->Wait();
}

}  // namespace tf_stitch
