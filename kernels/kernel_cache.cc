#include "kernel_cache.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

namespace tf_stitch {

void Counters::Reset() {
  calls = 0;
  for (auto& count : fallbacks) count = 0;
  loads = 0;
  load_failures = 0;
  for (auto& flag : logged) flag = false;
}

namespace {

// ---- Entries ----------------------------------------------------------------------------------------------

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<KernelEntry>, std::less<>> entries;
};

Registry& GetRegistry() {
  static Registry* registry = new Registry;  // never destroyed: ops may run while the process exits
  return *registry;
}

// ---- CPU features -----------------------------------------------------------------------------------------

#if defined(__x86_64__)
// Bit `bit` of ECX of a leaf of the CPUID instruction.
bool CpuidBit(unsigned leaf, int bit) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(leaf, &eax, &ebx, &ecx, &edx) != 0 && ((ecx >> bit) & 1) != 0;
}

bool CpuSupports(std::string_view feature) {
  // __builtin_cpu_supports takes literals only.
#define TF_STITCH_FEATURE(name) \
  if (feature == name) return __builtin_cpu_supports(name)
  if (feature == "x86_64") return true;
  TF_STITCH_FEATURE("sse3");
  TF_STITCH_FEATURE("ssse3");
  TF_STITCH_FEATURE("sse4.1");
  TF_STITCH_FEATURE("sse4.2");
  TF_STITCH_FEATURE("popcnt");
  TF_STITCH_FEATURE("avx");
  TF_STITCH_FEATURE("avx2");
  TF_STITCH_FEATURE("fma");
  TF_STITCH_FEATURE("bmi");
  TF_STITCH_FEATURE("bmi2");
  TF_STITCH_FEATURE("avx512f");
  TF_STITCH_FEATURE("avx512bw");
  TF_STITCH_FEATURE("avx512cd");
  TF_STITCH_FEATURE("avx512dq");
  TF_STITCH_FEATURE("avx512vl");
  TF_STITCH_FEATURE("avx512vnni");
  TF_STITCH_FEATURE("avx512bf16");
#undef TF_STITCH_FEATURE
  // Not every compiler that builds this file knows these names.
  if (feature == "f16c") return CpuidBit(1, 29);
  if (feature == "movbe") return CpuidBit(1, 22);
  if (feature == "lzcnt") return CpuidBit(0x80000001, 5);
  return false;  // a feature that we do not know is one that we cannot promise
}
#elif defined(__aarch64__)
bool CpuSupports(std::string_view feature) {
  return feature == "aarch64" || feature == "neon" || feature == "asimd";
}
#else
bool CpuSupports(std::string_view) { return false; }
#endif

// ---- Artefacts --------------------------------------------------------------------------------------------

// An artefact is the magic, the CRC-32 of the library (little endian), and the library.
constexpr std::string_view kArtefactMagic = "STITCH01";
constexpr size_t kArtefactHeader = kArtefactMagic.size() + sizeof(uint32_t);

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0xEDB88320u : 0u);
    table[byte] = crc;
  }
  return table;
}

// The CRC-32 of zlib and of Python's zlib.crc32.
uint32_t Crc32(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = MakeCrcTable();
  uint32_t crc = 0xFFFFFFFFu;
  for (unsigned char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ byte) & 0xFF];
  return ~crc;
}

uint32_t ReadLittleEndian32(std::string_view bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = (value << 8) | static_cast<unsigned char>(bytes[i]);
  return value;
}

// What is wrong with an artefact; empty when nothing is.
std::string ArtefactProblem(std::string_view artefact) {
  if (artefact.size() < kArtefactHeader || artefact.substr(0, kArtefactMagic.size()) != kArtefactMagic) {
    return "the artefact attr does not start with the header of a tf_stitch artefact";
  }
  uint32_t expected = ReadLittleEndian32(artefact.substr(kArtefactMagic.size()));
  if (Crc32(artefact.substr(kArtefactHeader)) != expected) {
    return "the artefact attr is corrupted: its checksum does not match its bytes";
  }
  return "";
}

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(written);
  }
  return true;
}

// A path to the open file `fd` that no earlier call returned. The dynamic loader takes a path that it has seen
// for the library that it has loaded, though the number may since have passed to another file; so we spell a
// serial number into the path, a "//" for each zero bit and a "/." for each one.
std::string UniquePathOfDescriptor(int fd) {
  static std::atomic<uint32_t> serial{0};
  std::string path = "/proc/self/fd";
  for (uint32_t bits = ++serial; bits != 0; bits >>= 1) path += (bits & 1) ? "/." : "//";
  return path + "/" + std::to_string(fd);
}

// A library in memory that has no name in any directory.
void* OpenFromMemory(std::string_view library, std::string* error) {
  int fd = memfd_create("tf_stitch_kernel", MFD_CLOEXEC);
  if (fd < 0) {
    *error = std::string("memfd_create: ") + strerror(errno);
    return nullptr;
  }
  void* handle = nullptr;
  if (!WriteAll(fd, library)) {
    *error = std::string("writing to a memfd: ") + strerror(errno);
  } else if (handle = dlopen(UniquePathOfDescriptor(fd).c_str(), RTLD_NOW | RTLD_LOCAL); handle == nullptr) {
    *error = dlerror();
  }
  close(fd);  // the loader's mappings keep the file alive
  return handle;
}

// The same through a temporary file, for kernels without memfd or with executable memfds forbidden.
void* OpenFromTemporaryFile(std::string_view library, std::string* error) {
  const char* directory = getenv("TMPDIR");
  std::string path = std::string(directory != nullptr ? directory : "/tmp") + "/tf_stitch_XXXXXX";
  int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) {
    *error = "creating " + path + ": " + strerror(errno);
    return nullptr;
  }
  bool written = WriteAll(fd, library);
  if (!written) *error = "writing " + path + ": " + strerror(errno);
  close(fd);
  void* handle = written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (written && handle == nullptr) *error = dlerror();
  unlink(path.c_str());
  return handle;
}

// ---- From a library to a kernel ---------------------------------------------------------------------------

// What in a GPU module's description breaks the contract of abi.h; empty when nothing does.
std::string ModuleProblem(const StitchKernel& kernel, const StitchModule& module) {
  if (module.image == nullptr || module.launch == nullptr) return "a module without `image` or `launch`";
  for (int i = 0; i < module.parameters; ++i) {
    const StitchParameter& parameter = module.parameter[i];
    const int count = parameter.kind == STITCH_INPUT    ? kernel.inputs
                      : parameter.kind == STITCH_OUTPUT ? kernel.outputs
                      : parameter.kind == STITCH_SYMBOL ? kernel.symbols
                                                        : 1;
    if (parameter.kind < STITCH_INPUT || parameter.kind > STITCH_SYMBOL || parameter.number < 0 ||
        parameter.number >= count) {
      return "a parameter of a module names something that does not exist";
    }
  }
  return "";
}

std::string GpuContractProblem(const StitchKernel& kernel, const StitchGpuKernel& gpu) {
  if (gpu.modules < 1 || gpu.module == nullptr) return "no module";
  if (gpu.alignment < 1) return "no `alignment`";
  for (int i = 0; i < gpu.modules; ++i) {
    if (std::string problem = ModuleProblem(kernel, gpu.module[i]); !problem.empty()) return problem;
  }
  return "";
}

// What in a kernel's own description breaks the contract of abi.h; empty when nothing does.
std::string ContractProblem(const StitchKernel& kernel, const StitchGpuKernel* gpu) {
  if (kernel.inputs < 0 || kernel.outputs < 1 || kernel.symbols < 0 || kernel.guards < 0) {
    return "a negative count, or no output";
  }
  if (kernel.shape == nullptr) return "no `shape`";
  if ((kernel.run == nullptr) != (gpu != nullptr)) return "neither `run` nor tf_stitch_gpu_kernel, or both";
  if (kernel.output_ranks == nullptr) return "no `output_ranks`";
  for (const int* pair = kernel.forwards; pair != nullptr && pair[0] != -1; pair += 2) {
    if (pair[0] < 0 || pair[0] >= kernel.inputs || pair[1] < 0 || pair[1] >= kernel.outputs) {
      return "`forwards` names an input or output that does not exist";
    }
  }
  return gpu == nullptr ? "" : GpuContractProblem(kernel, *gpu);
}

std::unique_ptr<LoadedKernel> Describe(const StitchKernel* kernel, const StitchGpuKernel* gpu, std::string source) {
  auto loaded = std::make_unique<LoadedKernel>();
  loaded->abi = kernel;
  loaded->gpu = gpu;
  loaded->output_dims = 0;
  for (int i = 0; i < kernel->outputs; ++i) loaded->output_dims += kernel->output_ranks[i];
  loaded->forward_candidates.resize(kernel->outputs);
  for (const int* pair = kernel->forwards; pair != nullptr && pair[0] != -1; pair += 2) {
    loaded->forward_candidates[pair[1]].push_back(pair[0]);
  }
  loaded->source = std::move(source);
  return loaded;
}

}  // namespace

// Loading, with the entry's lock held.
struct Loader {
  KernelEntry* entry;

  LoadResult Fail(Reason reason, std::string detail) {
    ++entry->counters_.load_failures;
    return LoadResult{false, reason, std::move(detail)};
  }

  // Takes the kernel out of a library that is open.
  LoadResult Adopt(void* handle, const std::string& source) {
    const void* symbol = dlsym(handle, "tf_stitch_kernel");
    if (symbol == nullptr) return Fail(Reason::kAbi, source + " has no symbol tf_stitch_kernel");
    const auto* kernel = static_cast<const StitchKernel*>(symbol);
    if (kernel->abi != TF_STITCH_ABI_VERSION) {
      return Fail(Reason::kAbi, source + " was built for kernel ABI " + std::to_string(kernel->abi) +
                                    ", and this library has ABI " + std::to_string(TF_STITCH_ABI_VERSION));
    }
    const auto* gpu = static_cast<const StitchGpuKernel*>(dlsym(handle, "tf_stitch_gpu_kernel"));
    if (gpu != nullptr && gpu->abi != TF_STITCH_GPU_ABI_VERSION) {
      return Fail(Reason::kAbi, source + " was built for GPU kernel ABI " + std::to_string(gpu->abi) +
                                    ", and this library has ABI " + std::to_string(TF_STITCH_GPU_ABI_VERSION));
    }
    if (std::string problem = ContractProblem(*kernel, gpu); !problem.empty()) {
      return Fail(Reason::kAbi, source + " breaks the kernel ABI: " + problem);
    }
    entry->kernel_.store(Describe(kernel, gpu, source).release(), std::memory_order_release);  // never freed
    ++entry->counters_.loads;
    return {};
  }

  static std::mutex& LockOf(KernelEntry* entry) { return entry->loading_; }
};

KernelEntry* FindOrCreateEntry(std::string_view key) {
  Registry& registry = GetRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  auto found = registry.entries.find(key);
  if (found == registry.entries.end()) {
    found = registry.entries.emplace(std::string(key), std::make_unique<KernelEntry>(key)).first;
  }
  return found->second.get();
}

LoadResult LoadFromFile(KernelEntry* entry, const std::string& path) {
  std::lock_guard<std::mutex> lock(Loader::LockOf(entry));
  if (entry->kernel() != nullptr) return {};
  Loader loader{entry};
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return loader.Fail(Reason::kNoKernel, dlerror());
  LoadResult result = loader.Adopt(handle, path);
  if (!result.ok) dlclose(handle);
  return result;
}

LoadResult LoadFromArtefact(KernelEntry* entry, std::string_view artefact, std::string_view requirements) {
  std::lock_guard<std::mutex> lock(Loader::LockOf(entry));
  if (entry->kernel() != nullptr) return {};
  Loader loader{entry};
  if (std::string missing = MissingCpuFeature(requirements); !missing.empty()) {
    return loader.Fail(Reason::kCpu, "the kernel was built for a CPU with " + missing + ", which this one lacks");
  }
  if (std::string problem = ArtefactProblem(artefact); !problem.empty()) {
    return loader.Fail(Reason::kNoKernel, problem);
  }
  std::string_view library = artefact.substr(kArtefactHeader);
  std::string memory_error, file_error;
  void* handle = OpenFromMemory(library, &memory_error);
  if (handle == nullptr) handle = OpenFromTemporaryFile(library, &file_error);
  if (handle == nullptr) {
    return loader.Fail(Reason::kNoKernel,
                       "the artefact attr does not load: " + memory_error + "; from a file: " + file_error);
  }
  LoadResult result = loader.Adopt(handle, "artefact");
  if (!result.ok) dlclose(handle);
  return result;
}

std::string MissingCpuFeature(std::string_view requirements) {
  while (!requirements.empty()) {
    size_t comma = requirements.find(',');
    std::string_view feature = requirements.substr(0, comma);
    if (!feature.empty() && !CpuSupports(feature)) return std::string(feature);
    requirements.remove_prefix(comma == std::string_view::npos ? requirements.size() : comma + 1);
  }
  return "";
}

// ---- JSON -------------------------------------------------------------------------------------------------

namespace {

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// Counters as plain numbers, so that they can be summed and printed.
struct Tally {
  int64_t calls = 0, loads = 0, load_failures = 0;
  std::array<int64_t, kReasons> fallbacks{};

  void Add(const Counters& counters) {
    calls += counters.calls;
    loads += counters.loads;
    load_failures += counters.load_failures;
    for (int i = 0; i < kReasons; ++i) fallbacks[i] += counters.fallbacks[i];
  }

  std::string Json() const {
    std::string reasons;
    for (int i = 0; i < kReasons; ++i) {
      reasons += (i > 0 ? ", " : "") + Quoted(kReasonNames[i]) + ": " + std::to_string(fallbacks[i]);
    }
    return "{\"calls\": " + std::to_string(calls) + ", \"fallbacks\": {" + reasons +
           "}, \"loads\": " + std::to_string(loads) + ", \"load_failures\": " + std::to_string(load_failures) + "}";
  }
};

std::string CountersJson() {
  Registry& registry = GetRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  Tally total;
  std::string keys;
  for (const auto& [key, entry] : registry.entries) {
    Tally tally;
    tally.Add(entry->counters());
    total.Add(entry->counters());
    keys += (keys.empty() ? "" : ", ") + Quoted(key) + ": " + tally.Json();
  }
  return "{\"total\": " + total.Json() + ", \"keys\": {" + keys + "}}";
}

std::string KernelJson(const KernelEntry& entry, const LoadedKernel& loaded) {
  const StitchKernel& kernel = *loaded.abi;
  std::string guards;
  for (int i = 0; i < kernel.guards && kernel.guard_texts != nullptr; ++i) {
    guards += (i > 0 ? ", " : "") + Quoted(kernel.guard_texts[i]);
  }
  return "{\"key\": " + Quoted(entry.key()) + ", \"name\": " + Quoted(kernel.name ? kernel.name : "") +
         ", \"source\": " + Quoted(loaded.source) + ", \"gpu\": " + (loaded.gpu != nullptr ? "true" : "false") +
         ", \"inputs\": " + std::to_string(kernel.inputs) +
         ", \"outputs\": " + std::to_string(kernel.outputs) + ", \"symbols\": " + std::to_string(kernel.symbols) +
         ", \"guards\": [" + guards + "]}";
}

std::string KernelsJson() {
  Registry& registry = GetRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  std::string kernels;
  for (const auto& [key, entry] : registry.entries) {
    const LoadedKernel* loaded = entry->kernel();
    if (loaded != nullptr) kernels += (kernels.empty() ? "" : ", ") + KernelJson(*entry, *loaded);
  }
  return "[" + kernels + "]";
}

// Copies what fits of `text`, and returns the size that all of it needs.
int CopyOut(const std::string& text, char* out, int size) {
  if (out != nullptr && size > 0) {
    size_t count = std::min(text.size(), static_cast<size_t>(size) - 1);
    memcpy(out, text.data(), count);
    out[count] = '\0';
  }
  return static_cast<int>(text.size()) + 1;
}

}  // namespace
}  // namespace tf_stitch

extern "C" {

int tf_stitch_register_kernel(const char* key, const char* so_path, char* error, int error_size) {
  tf_stitch::LoadResult result = tf_stitch::LoadFromFile(tf_stitch::FindOrCreateEntry(key), so_path);
  tf_stitch::CopyOut(result.detail, error, error_size);
  return result.ok ? 0 : 1;
}

int tf_stitch_counters(char* json, int size) { return tf_stitch::CopyOut(tf_stitch::CountersJson(), json, size); }

void tf_stitch_reset_counters() {
  tf_stitch::Registry& registry = tf_stitch::GetRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  for (auto& [key, entry] : registry.entries) entry->counters().Reset();
}

int tf_stitch_kernels(char* json, int size) { return tf_stitch::CopyOut(tf_stitch::KernelsJson(), json, size); }

int tf_stitch_missing_cpu_feature(const char* requirements, char* feature, int size) {
  return tf_stitch::CopyOut(tf_stitch::MissingCpuFeature(requirements), feature, size);
}

}  // extern "C"
