// The kernels of this process, by key, and the counters of what became of every StitchOp call.
//
// A kernel comes from one of two places: a shared library that the compiler registered under its key, or the
// bytes that a StitchOp carries in its `artefact` attr. Either way a key is loaded once, and stays loaded until
// the process ends: a running op may hold a pointer into it.
//
// No TensorFlow header: the cache compiles in a second and can be tested alone.
#ifndef TF_STITCH_KERNELS_KERNEL_CACHE_H_
#define TF_STITCH_KERNELS_KERNEL_CACHE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "abi.h"

namespace tf_stitch {

// Why a call ran the fallback function. In the order of kReasonNames.
enum class Reason { kNoKernel, kGuard, kCpu, kAbi, kDevice };
inline constexpr int kReasons = 5;
inline constexpr std::array<const char*, kReasons> kReasonNames = {"NO_KERNEL", "GUARD", "CPU", "ABI", "DEVICE"};

// What happened to one key since the start of the process, or since the last reset.
struct Counters {
  std::atomic<int64_t> calls{0};
  std::array<std::atomic<int64_t>, kReasons> fallbacks{};
  std::atomic<int64_t> loads{0};
  std::atomic<int64_t> load_failures{0};
  std::array<std::atomic<bool>, kReasons> logged{};  // a fallback is logged once for each reason

  void Reset();
};

// A kernel that was loaded and checked, with what the op would otherwise work out on each call.
struct LoadedKernel {
  const StitchKernel* abi;
  const StitchGpuKernel* gpu;                         // null for a CPU's kernel
  int output_dims;                                    // all outputs' ranks together
  std::vector<std::vector<int>> forward_candidates;  // for each output, the inputs whose buffer it may take
  std::string source;                                 // a path, or "artefact"
};

// One key. Entries are never deleted, so that an op can hold on to one, and sees a kernel that is registered
// after the op was made without asking again.
class KernelEntry {
 public:
  explicit KernelEntry(std::string_view key) : key_(key) {}

  const std::string& key() const { return key_; }
  Counters& counters() { return counters_; }

  // The kernel, or null while none is loaded.
  const LoadedKernel* kernel() const { return kernel_.load(std::memory_order_acquire); }

 private:
  friend struct Loader;

  const std::string key_;
  Counters counters_;
  std::mutex loading_;  // held while loading, so that each key is loaded once
  std::atomic<const LoadedKernel*> kernel_{nullptr};
};

// What became of an attempt to load a kernel.
struct LoadResult {
  bool ok = true;
  Reason reason = Reason::kNoKernel;
  std::string detail;  // empty when ok
};

// The entry of `key`, made if there is none.
KernelEntry* FindOrCreateEntry(std::string_view key);

// Loads the shared library at `path`, unless the key has a kernel already.
LoadResult LoadFromFile(KernelEntry* entry, const std::string& path);

// Loads the kernel out of the bytes of an `artefact` attr, unless the key has a kernel already. `requirements`
// lists what the CPU must have, as in "x86_64,avx2,fma".
LoadResult LoadFromArtefact(KernelEntry* entry, std::string_view artefact, std::string_view requirements);

// The first feature in the comma-separated `requirements` that this CPU lacks; empty when it has all.
std::string MissingCpuFeature(std::string_view requirements);

}  // namespace tf_stitch

// For Python, through ctypes. Functions that return text fill at most `size` bytes, always end them with a zero
// byte, and return the size that the whole text would need.
extern "C" {
// 0, or 1 with the reason in `error`.
int tf_stitch_register_kernel(const char* key, const char* so_path, char* error, int error_size);
// {"total": counters, "keys": {key: counters}}
int tf_stitch_counters(char* json, int size);
void tf_stitch_reset_counters();
// [{"key":, "name":, "source":, "gpu": bool, "inputs":, "outputs":, "symbols":, "guards": [texts]}]
int tf_stitch_kernels(char* json, int size);
// The first CPU feature in `requirements` that is missing here, or "".
int tf_stitch_missing_cpu_feature(const char* requirements, char* feature, int size);
}

#endif  // TF_STITCH_KERNELS_KERNEL_CACHE_H_
