// Modules, functions and launches.
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "emulator/memory.h"
#include "state.h"

namespace stitch_emulator::driver {

bool StreamIsKnown(Stream* stream);

namespace {

template <class F>
void Resolve(const Module& module, const char* name, F** function) {
  *function = reinterpret_cast<F*>(dlsym(module.library, name));
}

// Loads a shared library from its bytes.
Result Open(const void* image, std::size_t bytes, Module* module) {
  const int file = memfd_create("tf_stitch_emulated_module", 0);
  if (file < 0 || write(file, image, bytes) != static_cast<ssize_t>(bytes)) return kOutOfMemory;
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  // The file stays open: the loader takes a path that it has seen for the library that it has loaded.
  module->file = file;
  module->library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module->library == nullptr) {
    Driver().report = dlerror();
    return kInvalidImage;
  }
  Resolve(*module, "stitch_emulator_launch", &module->launch);
  decltype(stitch_emulator_static_shared)* shared;
  Resolve(*module, "stitch_emulator_static_shared", &shared);
  if (module->launch == nullptr || shared == nullptr) {
    Driver().report = "a shared library that was not made for the emulator";
    return kInvalidImage;
  }
  module->static_shared = shared();
  return kSuccess;
}

Result Load(Module** module, const void* image) {
  if (const Result ready = Ready()) return ready;
  if (image == nullptr) return kInvalidValue;
  const auto* header = static_cast<const Elf64_Ehdr*>(image);
  if (std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) {
    Driver().report = "no ELF file: PTX and fat binaries are not for the emulator";
    return kInvalidImage;
  }
  if (header->e_machine != EM_X86_64) {  // a cubin is for machine 190
    Trace("{\"call\":\"module\",\"refused\":\"machine " + std::to_string(header->e_machine) + "\"}");
    return kNoBinaryForGpu;
  }
  const std::size_t bytes = header->e_shoff + std::size_t{header->e_shnum} * header->e_shentsize;
  auto loaded = std::make_unique<Module>();
  if (const Result result = Open(image, bytes, loaded.get())) return result;
  Trace("{\"call\":\"module\",\"bytes\":" + std::to_string(bytes) + "}");
  *module = loaded.get();
  Current()->modules.insert(loaded.release());
  return kSuccess;
}

bool Known(const Function* function) {
  for (const Context* context : Driver().contexts) {
    for (const Module* module : context->modules) {
      for (const auto& [name, known] : module->functions) {
        if (known.get() == function) return true;
      }
    }
  }
  return false;
}

struct Sizes {
  unsigned grid[3], block[3];
  unsigned dynamic_shared;
  std::uint64_t Blocks() const { return std::uint64_t{grid[0]} * grid[1] * grid[2]; }
  std::uint64_t Threads() const { return std::uint64_t{block[0]} * block[1] * block[2]; }
};

Result Checked(const Function& function, const Sizes& sizes, bool cooperative) {
  if (sizes.Blocks() == 0 || sizes.Threads() == 0 || sizes.Threads() > 1024) return kInvalidValue;
  if (sizes.grid[0] > 2147483647u || sizes.grid[1] > 65535 || sizes.grid[2] > 65535) return kInvalidValue;
  if (sizes.block[2] > 64) return kInvalidValue;
  if (sizes.dynamic_shared > static_cast<unsigned>(function.most_dynamic_shared)) return kInvalidValue;
  const int blocks = BlocksOfMultiprocessor(function, static_cast<int>(sizes.Threads()), sizes.dynamic_shared);
  if (blocks == 0) return kLaunchOutOfResources;
  const auto resident = static_cast<std::uint64_t>(blocks) * Setting("TF_STITCH_EMULATED_SMS", 8);
  return cooperative && sizes.Blocks() > resident ? kCooperativeLaunchTooLarge : kSuccess;
}

// Addresses of the values: given as such, or as one buffer in `extra`, whose size must fit.
Result Values(const Function& function, void** parameters, void** extra, std::vector<void*>* values) {
  const KernelEntry& entry = *function.entry;
  if (extra == nullptr) {
    if (parameters == nullptr && entry.count != 0) return kInvalidValue;
    values->assign(parameters, parameters + entry.count);
    return kSuccess;
  }
  char* buffer = nullptr;
  std::size_t bytes = 0;
  for (; *extra != nullptr; extra += 2) {
    if (*extra == reinterpret_cast<void*>(1)) buffer = static_cast<char*>(extra[1]);
    if (*extra == reinterpret_cast<void*>(2)) bytes = *static_cast<std::size_t*>(extra[1]);
  }
  const Parameter* last = entry.count == 0 ? nullptr : &entry.parameters[entry.count - 1];
  if (bytes != (last == nullptr ? 0 : last->offset + last->bytes)) return kInvalidValue;
  for (unsigned n = 0; n < entry.count; ++n) values->push_back(buffer + entry.parameters[n].offset);
  return kSuccess;
}

std::string Field(const std::string& json, const std::string& name) {
  const std::size_t at = json.find("\"" + name + "\":\"");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + name.size() + 4;
  return json.substr(begin, json.find('"', begin) - begin);
}

// The places in the kernel's source where a failure happened, innermost first, as addr2line knows them: " at kernel.cu:3".
std::string Places(const Module& module, const std::string& report) {
  const std::size_t trace = report.find("\"trace\":[");
  if (trace == std::string::npos) return "";
  std::string command = "addr2line -i -e /proc/self/fd/" + std::to_string(module.file);
  std::istringstream offsets(report.substr(trace + 9, report.find(']', trace) - trace - 9));
  for (std::string offset; std::getline(offsets, offset, ',');) {
    char hex[32];
    std::snprintf(hex, sizeof hex, " 0x%llx", std::strtoull(offset.c_str(), nullptr, 10));
    command += hex;
  }
  FILE* lines = popen((command + " 2>/dev/null").c_str(), "r");
  if (lines == nullptr) return "";
  std::string found;
  for (char line[1024]; std::fgets(line, sizeof line, lines) != nullptr;) {
    const std::string place(line, std::strcspn(line, " \n"));
    const bool known = place.find(".cu:") != std::string::npos || place.find(".h:") != std::string::npos;
    if (known && place.find("/emulator/") == std::string::npos && place.find("kernels of") == std::string::npos) {
      found += " at " + place.substr(place.rfind('/') + 1);
    }
  }
  pclose(lines);
  return found;
}

Result Outcome(const Module& module, const std::string& report) {
  if (report.find("\"failure\":null") != std::string::npos) return kSuccess;
  Driver().report = Field(report, "kernel") + ": " + Field(report, "message") + Places(module, report);
  const std::string kind = Field(report, "kind");
  return kind == "access" ? kIllegalAddress : kind == "deadlock" ? kLaunchTimeout : kLaunchFailed;
}

Result Run(Function* function, const Sizes& sizes, Stream* stream, void** parameters, void** extra, bool cooperative) {
  if (const Result ready = Ready()) return ready;
  if (!Known(function) || !StreamIsKnown(stream)) return kInvalidHandle;
  if (const Result wrong = Checked(*function, sizes, cooperative)) return wrong;
  std::vector<void*> values;
  if (const Result wrong = Values(*function, parameters, extra, &values)) return wrong;
  const int blocks = BlocksOfMultiprocessor(*function, static_cast<int>(sizes.Threads()), sizes.dynamic_shared);
  const unsigned resident = static_cast<unsigned>(blocks * Setting("TF_STITCH_EMULATED_SMS", 8));
  const unsigned six[6] = {sizes.grid[0], sizes.grid[1], sizes.grid[2], sizes.block[0], sizes.block[1], sizes.block[2]};
  const std::string report = function->module->launch(function->entry->name, six, sizes.dynamic_shared, values.data(),
                                                      Setting("TF_STITCH_EMULATED_SEED", -1), resident);
  const bool by_default = reinterpret_cast<std::uintptr_t>(stream) <= 2;
  char line[512];
  std::snprintf(line, sizeof line,
                "{\"call\":\"launch\",\"kernel\":\"%s\",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],\"shared\":%u,"
                "\"cooperative\":%s,\"stream\":%llu,\"resident\":%u,",
                function->entry->name, six[0], six[1], six[2], six[3], six[4], six[5], sizes.dynamic_shared,
                cooperative ? "true" : "false", by_default ? 0ull : static_cast<unsigned long long>(stream->id),
                resident);
  Trace(line + report.substr(1));
  Current()->broken = Outcome(*function->module, report);
  if (const std::string damage = Damage(); !damage.empty() && Current()->broken == kSuccess) {
    Driver().report = std::string(function->entry->name) + ": " + damage;
    Current()->broken = kIllegalAddress;
  }
  return Setting("CUDA_LAUNCH_BLOCKING", 0) == 1 ? Current()->broken : kSuccess;
}

int AttributeOf(const Function& function, int attribute) {
  switch (attribute) {
    case 0: return 1024;                                             // threads of a block
    case 1: return static_cast<int>(function.module->static_shared);
    case 4: return 32;                                               // registers: the emulator has none
    case 5: case 6: return Setting("TF_STITCH_EMULATED_CAPABILITY", 80);
    case 8: return function.most_dynamic_shared;
    default: return 0;
  }
}

}  // namespace
}  // namespace stitch_emulator::driver

using namespace stitch_emulator::driver;
using stitch_emulator::driver::Function;
using stitch_emulator::driver::Module;
using stitch_emulator::driver::Stream;

TF_STITCH_CALL cuModuleLoadDataEx(Module** module, const void* image, unsigned count, int* option, void** value) {
  TF_STITCH_LOCKED;
  for (unsigned n = 0; n < count; ++n) {  // there is no log, which its reader has to be told
    if (option[n] == 3 || option[n] == 5) *static_cast<char*>(value[n]) = '\0';
    if (option[n] == 4 || option[n] == 6) value[n] = nullptr;
  }
  return Load(module, image);
}
TF_STITCH_CALL cuModuleLoadData(Module** module, const void* image) {
  return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
TF_STITCH_CALL cuModuleLoad(Module** module, const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return kFileNotFound;
  const std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return cuModuleLoadData(module, image.data());
}
TF_STITCH_CALL cuModuleUnload(Module* module) {
  TF_STITCH_LOCKED;
  if (!Driver().initialized) return kNotInitialized;
  for (Context* context : Driver().contexts) {
    if (context->modules.erase(module) == 0) continue;
    delete module;  // its library stays: kernels of it may be named in reports
    return kSuccess;
  }
  return kInvalidHandle;
}
TF_STITCH_CALL cuModuleGetFunction(Function** function, Module* module, const char* name) {
  TF_STITCH_LOCKED;
  if (const Result ready = Ready()) return ready;
  if (Current()->modules.count(module) == 0) return kInvalidHandle;
  decltype(stitch_emulator::stitch_emulator_kernel)* find;
  Resolve(*module, "stitch_emulator_kernel", &find);
  const auto* entry = find(name);
  if (entry == nullptr) return kNotFound;
  std::unique_ptr<Function>& known = module->functions[name];
  if (known == nullptr) known.reset(new Function{module, entry});
  *function = known.get();
  return kSuccess;
}

TF_STITCH_CALL cuFuncGetAttribute(int* value, int attribute, Function* function) {
  TF_STITCH_LOCKED;
  if (!Known(function)) return kInvalidHandle;
  *value = AttributeOf(*function, attribute);
  return kSuccess;
}
TF_STITCH_CALL cuFuncSetAttribute(Function* function, int attribute, int value) {
  TF_STITCH_LOCKED;
  if (!Known(function)) return kInvalidHandle;
  if (attribute == 8) {
    if (value < 0 || value + function->module->static_shared > SharedBytesOfBlock()) return kInvalidValue;
    function->most_dynamic_shared = value;
  }
  return kSuccess;
}
TF_STITCH_CALL cuFuncSetBlockShape(Function*, int, int, int) { return kSuccess; }
TF_STITCH_CALL cuFuncSetCacheConfig(Function*, int) { return kSuccess; }
TF_STITCH_CALL cuFuncSetSharedSize(Function*, unsigned) { return kSuccess; }

TF_STITCH_CALL cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function* function, int threads,
                                                           std::size_t dynamic_shared) {
  TF_STITCH_LOCKED;
  if (const Result ready = Ready()) return ready;
  if (!Known(function)) return kInvalidHandle;
  if (threads <= 0 || threads > 1024) return kInvalidValue;
  *blocks = BlocksOfMultiprocessor(*function, threads, dynamic_shared);
  return kSuccess;
}
TF_STITCH_CALL cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, Function* function, int threads,
                                                                    std::size_t dynamic_shared, unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, dynamic_shared);
}

TF_STITCH_CALL cuLaunchKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                              unsigned bz, unsigned shared, Stream* stream, void** parameters, void** extra) {
  TF_STITCH_LOCKED;
  return Run(function, {{gx, gy, gz}, {bx, by, bz}, shared}, stream, parameters, extra, false);
}
TF_STITCH_CALL cuLaunchCooperativeKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                         unsigned by, unsigned bz, unsigned shared, Stream* stream, void** parameters) {
  TF_STITCH_LOCKED;
  return Run(function, {{gx, gy, gz}, {bx, by, bz}, shared}, stream, parameters, nullptr, true);
}
