// A TEST DOUBLE of NVIDIA's driver, libcuda.so.1, over the emulator. It is never installed and never on the product's
// library path: tests put its folder on LD_LIBRARY_PATH.
//
// The device is one GPU that runs modules made for the emulator: shared libraries for x86-64. Images for real GPUs are
// refused, as a GPU of another architecture would refuse them. Streams run at once: a call is through when it returns.
// But the outcome of a kernel is told as the driver tells it: the launch succeeds, the next call that waits for it
// fails, and then every call fails until the context is gone. With CUDA_LAUNCH_BLOCKING=1 the launch itself fails.
//
//     TF_STITCH_EMULATED_SMS          multiprocessors (8)
//     TF_STITCH_EMULATED_CAPABILITY   such as 80 (80)
//     TF_STITCH_EMULATED_SEED         of the schedules; without it, threads run in order
//     TF_STITCH_EMULATED_TRACE        a file: a line of JSON is added for every module, launch, copy and allocation
#ifndef TF_STITCH_EMULATOR_DRIVER_STATE_H_
#define TF_STITCH_EMULATOR_DRIVER_STATE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "emulator/launch.h"

namespace stitch_emulator::driver {

enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kInvalidSource = 300,
  kFileNotFound = 301,
  kInvalidHandle = 400,
  kNotFound = 500,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kLaunchTimeout = 702,
  kCooperativeLaunchTooLarge = 720,
  kLaunchFailed = 719,
  kNotSupported = 801,
};

struct Function;

struct Module {
  int file = -1;  // that the library was loaded from
  void* library = nullptr;
  decltype(stitch_emulator_launch)* launch = nullptr;
  std::size_t static_shared = 0;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

struct Function {
  Module* module;
  const KernelEntry* entry;
  int most_dynamic_shared = 48 << 10;
};

struct Stream {
  std::uint64_t id;
};

struct Event {
  bool timed = true, recorded = false;
  double milliseconds = 0;
};

struct Context {
  std::uint64_t id = 0;
  bool primary = false;
  std::set<Module*> modules;
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::set<char*> memory;
  Result broken = kSuccess;  // what a kernel did to it
};

// One process, one GPU. Everything is done under `mutex`.
struct State {
  std::recursive_mutex mutex;
  bool initialized = false;
  std::set<Context*> contexts;
  Context* primary = nullptr;
  int primary_uses = 0;
  std::uint64_t ids = 0;
  std::size_t used = 0;  // bytes of device memory
  std::map<void*, std::size_t> host_memory;
  std::string report;    // of the last kernel that failed
};

State& Driver();
std::vector<Context*>& Stack();  // of contexts, of the calling thread
Context* Current();              // null: none

// What every call that needs a context begins with: kSuccess, or why it cannot go on.
Result Ready();

int Setting(const char* name, int otherwise);
void Trace(const std::string& line);
const char* NameOf(Result result);
const char* TextOf(Result result);

std::size_t MemoryBytes();
std::size_t SharedBytesOfBlock();           // what a block may ask for
int BlocksOfMultiprocessor(const Function& function, int threads, std::size_t dynamic_shared);
void Destroy(Context* context);

}  // namespace stitch_emulator::driver

#define TF_STITCH_CALL extern "C" __attribute__((visibility("default"))) int
#define TF_STITCH_LOCKED const std::lock_guard<std::recursive_mutex> lock(Driver().mutex)

#endif  // TF_STITCH_EMULATOR_DRIVER_STATE_H_
