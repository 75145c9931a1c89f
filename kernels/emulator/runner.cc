// Runs one launch in a process of its own, for the sanitizers: `runner MODULE REQUEST`.
//
// The request is a file of lines:
//     kernel NAME
//     sizes GX GY GZ BX BY BZ SHARED_BYTES
//     schedule SEED RESIDENT
//     buffer ALIGNMENT BYTES PATH     in the order of the parameters; the file is read before, and written after
//     integer VALUE
//     real VALUE
// What `stitch_emulator_launch` returns is printed on standard output. AddressSanitizer's report is preceded by a line
// that tells which CUDA thread it is about.
#include <dlfcn.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "launch.h"

namespace {

using stitch_emulator::KernelEntry;

struct Module {
  explicit Module(const char* path) : handle(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (handle == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(2);
    }
  }
  template <class F>
  F* Get(const char* name) const {
    return reinterpret_cast<F*>(dlsym(handle, name));
  }
  void* handle;
};

union Value {
  void* pointer;
  long long integer;
  float real32;
  double real64;
};

struct File {
  std::string path;
  char* data;
  unsigned long bytes;
};

struct Request {
  std::string kernel;
  unsigned sizes[6];
  unsigned long shared_bytes = 0;
  long long seed = -1;
  unsigned resident = 0;
  std::vector<Value> values;
  std::vector<File> files;
};

Value ReadBuffer(std::istringstream& words, const Module& module, Request& request) {
  unsigned long alignment;
  File file;
  words >> alignment >> file.bytes >> file.path;
  auto* allocate = module.Get<decltype(stitch_emulator::stitch_emulator_allocate)>("stitch_emulator_allocate");
  file.data = static_cast<char*>(allocate(file.bytes, alignment));
  std::ifstream(file.path, std::ios::binary).read(file.data, static_cast<std::streamsize>(file.bytes));
  request.files.push_back(file);
  return {.pointer = file.data};
}

Value ReadReal(std::istringstream& words, const KernelEntry& entry, std::size_t number) {
  double value;
  words >> value;
  if (number < entry.count && entry.parameters[number].bytes == 4) return {.real32 = static_cast<float>(value)};
  return {.real64 = value};
}

Request Read(const char* path, const Module& module) {
  Request request;
  std::ifstream file(path);
  for (std::string line, word; std::getline(file, line);) {
    std::istringstream words(line);
    words >> word;
    if (word == "kernel") {
      words >> request.kernel;
    } else if (word == "sizes") {
      for (unsigned& size : request.sizes) words >> size;
      words >> request.shared_bytes;
    } else if (word == "schedule") {
      words >> request.seed >> request.resident;
    } else if (word == "buffer") {
      request.values.push_back(ReadBuffer(words, module, request));
    } else if (word == "integer") {
      Value value = {.integer = 0};
      words >> value.integer;
      request.values.push_back(value);
    } else if (word == "real") {
      auto* find = module.Get<decltype(stitch_emulator::stitch_emulator_kernel)>("stitch_emulator_kernel");
      request.values.push_back(ReadReal(words, *find(request.kernel.c_str()), request.values.size()));
    }
  }
  return request;
}

#if defined(__SANITIZE_ADDRESS__)
decltype(stitch_emulator::stitch_emulator_describe)* describe = nullptr;
#endif

}  // namespace

#if defined(__SANITIZE_ADDRESS__)
extern "C" __attribute__((visibility("default"))) void __asan_on_error() {
  const char* where = describe == nullptr ? nullptr : describe(__asan_get_report_address());
  if (where != nullptr) std::fprintf(stderr, "in the kernel: %s\n", where);
}
#endif

int main(int, char** arguments) {
  const Module module(arguments[1]);
#if defined(__SANITIZE_ADDRESS__)
  describe = module.Get<decltype(stitch_emulator::stitch_emulator_describe)>("stitch_emulator_describe");
#endif
  Request request = Read(arguments[2], module);
  std::vector<void*> parameters;
  for (Value& value : request.values) parameters.push_back(&value);
  auto* launch = module.Get<decltype(stitch_emulator::stitch_emulator_launch)>("stitch_emulator_launch");
  const char* report = launch(request.kernel.c_str(), request.sizes, request.shared_bytes, parameters.data(),
                              request.seed, request.resident);
  for (const File& file : request.files) {
    std::ofstream(file.path, std::ios::binary).write(file.data, static_cast<std::streamsize>(file.bytes));
  }
  std::cout << report << std::endl;
  return 0;
}
