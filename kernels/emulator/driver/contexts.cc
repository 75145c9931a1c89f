// The device, contexts and errors.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "emulator/memory.h"
#include "state.h"

namespace stitch_emulator::driver {

State& Driver() {
  static auto* state = new State;
  return *state;
}

std::vector<Context*>& Stack() {
  static thread_local std::vector<Context*> stack;
  return stack;
}

Context* Current() {
  if (Stack().empty() || Driver().contexts.count(Stack().back()) == 0) return nullptr;
  return Stack().back();
}

Result Ready() {
  if (!Driver().initialized) return kNotInitialized;
  const Context* context = Current();
  return context == nullptr ? kInvalidContext : context->broken;
}

int Setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

void Trace(const std::string& line) {
  const char* path = std::getenv("TF_STITCH_EMULATED_TRACE");
  if (path != nullptr) std::ofstream(path, std::ios::app) << line << std::endl;
}

namespace {

struct Known {
  Result result;
  const char* name;
  const char* text;
};

constexpr Known kKnown[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kNoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {kInvalidSource, "CUDA_ERROR_INVALID_SOURCE", "device kernel image is invalid"},
    {kFileNotFound, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kLaunchOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {kLaunchTimeout, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kCooperativeLaunchTooLarge, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

const Known* Find(Result result) {
  for (const Known& known : kKnown) {
    if (known.result == result) return &known;
  }
  return nullptr;
}

// By compute capability: shared memory of a multiprocessor and of a block, threads and blocks of a multiprocessor.
struct Architecture {
  int capability, shared_kilobytes, block_kilobytes, threads, blocks;
};
constexpr Architecture kArchitectures[] = {
    {70, 96, 96, 2048, 32},    {75, 64, 64, 1024, 16},    {80, 164, 163, 2048, 32},  {86, 100, 99, 1536, 16},
    {89, 100, 99, 1536, 24},   {90, 228, 227, 2048, 32},  {100, 228, 227, 2048, 32}, {120, 100, 99, 1536, 24},
};

int Capability() { return Setting("TF_STITCH_EMULATED_CAPABILITY", 80); }

const Architecture& Arch() {
  const Architecture* best = &kArchitectures[0];
  for (const Architecture& arch : kArchitectures) {
    if (arch.capability <= Capability()) best = &arch;
  }
  return *best;
}

Context* NewContext() {
  auto* context = new Context;
  context->id = ++Driver().ids;
  Driver().contexts.insert(context);
  return context;
}

// The attributes that PyCUDA and launches ask for, by cuda.h's numbers.
int Attribute(int attribute) {
  switch (attribute) {
    case 1: case 2: case 3: return 1024;                            // threads of a block; along x; along y
    case 4: return 64;                                              // along z
    case 5: return 2147483647;                                      // blocks along x
    case 6: case 7: return 65535;
    case 8: return 48 << 10;                                        // shared memory of a block
    case 9: return 64 << 10;                                        // constant memory
    case 10: return 32;                                             // lanes of a warp
    case 12: case 82: return 65536;                                 // registers of a block, of a multiprocessor
    case 13: return 1000000;                                        // kHz
    case 16: return Setting("TF_STITCH_EMULATED_SMS", 8);
    case 31: case 41: case 95: return 1;                            // kernels at once, one address space, cooperative
    case 39: return Arch().threads;                                 // threads of a multiprocessor
    case 75: return Capability() / 10;
    case 76: return Capability() % 10;
    case 81: return Arch().shared_kilobytes << 10;
    case 97: return Arch().block_kilobytes << 10;                   // shared memory that a block can opt in to
    case 106: return Arch().blocks;
    default: return 0;
  }
}

}  // namespace

const char* NameOf(Result result) { return Find(result) == nullptr ? nullptr : Find(result)->name; }
const char* TextOf(Result result) { return Find(result) == nullptr ? nullptr : Find(result)->text; }

std::size_t MemoryBytes() { return std::size_t{4} << 30; }
std::size_t SharedBytesOfBlock() { return static_cast<std::size_t>(Arch().block_kilobytes) << 10; }

int BlocksOfMultiprocessor(const Function& function, int threads, std::size_t dynamic_shared) {
  const int by_threads = Arch().threads / ((threads + 31) / 32 * 32);
  const std::size_t reserved = Capability() >= 80 ? 1024 : 0;
  const std::size_t shared = function.module->static_shared + dynamic_shared + reserved;
  const std::size_t all = static_cast<std::size_t>(Arch().shared_kilobytes) << 10;
  const int by_shared = shared == 0 ? Arch().blocks : static_cast<int>(all / shared);
  return std::min({by_threads, by_shared, Arch().blocks});
}

void Destroy(Context* context) {
  State& driver = Driver();
  for (char* data : context->memory) {
    driver.used -= stitch_emulator::Find(data)->bytes;
    Free(data);
  }
  for (Module* module : context->modules) delete module;
  for (Stream* stream : context->streams) delete stream;
  for (Event* event : context->events) delete event;
  driver.contexts.erase(context);
  std::erase(Stack(), context);
  delete context;
}

}  // namespace stitch_emulator::driver

using namespace stitch_emulator::driver;

TF_STITCH_CALL cuInit(unsigned flags) {
  TF_STITCH_LOCKED;
  if (flags != 0) return kInvalidValue;
  Driver().initialized = true;
  return kSuccess;
}
TF_STITCH_CALL cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
TF_STITCH_CALL cuGetErrorName(int result, const char** text) {
  *text = NameOf(static_cast<Result>(result));
  return *text == nullptr ? kInvalidValue : kSuccess;
}
TF_STITCH_CALL cuGetErrorString(int result, const char** text) {
  TF_STITCH_LOCKED;
  static thread_local std::string told;
  const char* known = TextOf(static_cast<Result>(result));
  if (known == nullptr) return *text = nullptr, kInvalidValue;
  told = known;
  const bool of_kernel = result == kIllegalAddress || result == kLaunchTimeout || result == kLaunchFailed;
  if ((of_kernel || result == kInvalidImage) && !Driver().report.empty()) told += ": " + Driver().report;
  *text = told.c_str();
  return kSuccess;
}

TF_STITCH_CALL cuDeviceGet(int* device, int ordinal) {
  if (!Driver().initialized) return kNotInitialized;
  if (ordinal != 0) return kInvalidDevice;
  *device = 0;
  return kSuccess;
}
TF_STITCH_CALL cuDeviceGetCount(int* count) {
  if (!Driver().initialized) return kNotInitialized;
  *count = 1;
  return kSuccess;
}
TF_STITCH_CALL cuDeviceGetName(char* name, int bytes, int) {
  std::snprintf(name, static_cast<std::size_t>(bytes), "tf_stitch emulator (a CPU, test double)");
  return kSuccess;
}
TF_STITCH_CALL cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = MemoryBytes();
  return kSuccess;
}
TF_STITCH_CALL cuDeviceComputeCapability(int* major, int* minor, int) {
  *major = Capability() / 10;
  *minor = Capability() % 10;
  return kSuccess;
}
TF_STITCH_CALL cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (device != 0) return kInvalidDevice;
  *value = Attribute(attribute);
  return kSuccess;
}

TF_STITCH_CALL cuCtxCreate_v2(Context** context, unsigned, int device) {
  TF_STITCH_LOCKED;
  if (!Driver().initialized) return kNotInitialized;
  if (device != 0) return kInvalidDevice;
  *context = NewContext();
  Stack().push_back(*context);
  return kSuccess;
}
TF_STITCH_CALL cuCtxCreate_v4(Context** context, void*, unsigned flags, int device) {
  return cuCtxCreate_v2(context, flags, device);
}
TF_STITCH_CALL cuCtxDestroy_v2(Context* context) {
  TF_STITCH_LOCKED;
  if (Driver().contexts.count(context) == 0) return kInvalidContext;
  Destroy(context);
  return kSuccess;
}
TF_STITCH_CALL cuCtxDetach(Context* context) { return cuCtxDestroy_v2(context); }
TF_STITCH_CALL cuDevicePrimaryCtxRetain(Context** context, int device) {
  TF_STITCH_LOCKED;
  if (!Driver().initialized) return kNotInitialized;
  if (device != 0) return kInvalidDevice;
  if (Driver().primary == nullptr) {
    Driver().primary = NewContext();
    Driver().primary->primary = true;
  }
  ++Driver().primary_uses;
  *context = Driver().primary;
  return kSuccess;
}
TF_STITCH_CALL cuDevicePrimaryCtxReset_v2(int) {
  TF_STITCH_LOCKED;
  if (Driver().primary != nullptr) Destroy(Driver().primary);
  Driver().primary = nullptr;
  Driver().primary_uses = 0;
  return kSuccess;
}
TF_STITCH_CALL cuDevicePrimaryCtxRelease_v2(int device) {
  TF_STITCH_LOCKED;
  if (Driver().primary == nullptr) return kInvalidContext;
  return --Driver().primary_uses == 0 ? cuDevicePrimaryCtxReset_v2(device) : static_cast<int>(kSuccess);
}
TF_STITCH_CALL cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = Driver().primary != nullptr;
  return kSuccess;
}
TF_STITCH_CALL cuCtxPushCurrent_v2(Context* context) {
  TF_STITCH_LOCKED;
  if (Driver().contexts.count(context) == 0) return kInvalidContext;
  Stack().push_back(context);
  return kSuccess;
}
TF_STITCH_CALL cuCtxPopCurrent_v2(Context** context) {
  if (Stack().empty()) return kInvalidContext;
  if (context != nullptr) *context = Stack().back();
  Stack().pop_back();
  return kSuccess;
}
TF_STITCH_CALL cuCtxGetCurrent(Context** context) {
  TF_STITCH_LOCKED;
  *context = Current();
  return kSuccess;
}
TF_STITCH_CALL cuCtxSetCurrent(Context* context) {
  TF_STITCH_LOCKED;
  if (!Stack().empty()) Stack().pop_back();
  return context == nullptr ? static_cast<int>(kSuccess) : cuCtxPushCurrent_v2(context);
}
TF_STITCH_CALL cuCtxGetDevice(int* device) {
  TF_STITCH_LOCKED;
  *device = 0;
  return Current() == nullptr ? kInvalidContext : kSuccess;
}
TF_STITCH_CALL cuCtxGetId(Context* context, unsigned long long* id) {
  TF_STITCH_LOCKED;
  if (context == nullptr) context = Current();
  if (Driver().contexts.count(context) == 0) return kInvalidContext;
  *id = context->id;
  return kSuccess;
}
TF_STITCH_CALL cuCtxGetApiVersion(Context*, unsigned* version) {
  *version = 3020;
  return kSuccess;
}
TF_STITCH_CALL cuCtxSynchronize() {
  TF_STITCH_LOCKED;
  return Ready();
}
