// A driver for tests of the launch code: it notes each call that matters, answers what it is told to, and runs nothing.
// Its memory is the host's.
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace {

std::string log;
std::map<std::string, int> answers;  // by name: a fact of the GPU, or the result of a function
int modules = 0;

int Answer(const std::string& name, int otherwise = 0) {
  auto found = answers.find(name);
  return found == answers.end() ? otherwise : found->second;
}

void Note(const std::string& line) { log += line + "\n"; }

std::string Number(unsigned long long value) { return std::to_string(value); }

// A launch, with its parameters as numbers; how many there are nobody but the kernel knows.
int Launch(const char* function, void* entry, unsigned grid, unsigned block, unsigned shared, void* stream,
           void** parameters) {
  std::string line = std::string(function) + " " + *static_cast<std::string*>(entry) + " grid " + Number(grid) +
                     " block " + Number(block) + " shared " + Number(shared) + " stream " +
                     Number(reinterpret_cast<size_t>(stream)) + ":";
  for (int i = 0; i < Answer("parameters"); ++i) {
    line += " " + Number(*static_cast<unsigned long long*>(parameters[i]));
  }
  Note(line);
  return Answer(function);
}

}  // namespace

extern "C" {

// ---- for the test

void recording_answer(const char* name, int value) { answers[name] = value; }
void recording_reset() {
  answers.clear();
  log.clear();
}
const char* recording_log() { return log.c_str(); }

// ---- the driver

int cuGetErrorName(int result, const char** name) {
  static std::string text;
  text = "CUDA_ERROR_" + std::to_string(result);
  *name = text.c_str();
  return 0;
}
int cuCtxGetCurrent(void** context) {
  *context = reinterpret_cast<void*>(static_cast<size_t>(Answer("context", 1)));
  return 0;
}
int cuCtxGetId(void* context, unsigned long long* id) {
  *id = reinterpret_cast<size_t>(context);
  return 0;
}
int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 75:
      *value = Answer("capability", 80) / 10;
      break;
    case 76:
      *value = Answer("capability", 80) % 10;
      break;
    case 16:
      *value = Answer("multiprocessors", 10);
      break;
    default:
      *value = Answer("cooperative", 1);
  }
  return 0;
}
int cuModuleLoadDataEx(void** module, const void* image, unsigned options, int* option, void** values) {
  Note("load " + std::string(static_cast<const char*>(image)));
  const int result = Answer("cuModuleLoadDataEx");
  for (unsigned i = 0; i < options && result != 0; ++i) {
    if (option[i] == 5) strcpy(static_cast<char*>(values[i]), "ptxas has something to say");
  }
  *module = reinterpret_cast<void*>(static_cast<size_t>(++modules));
  return result;
}
int cuModuleGetFunction(void** function, void*, const char* name) {
  Note(std::string("function ") + name);
  *function = new std::string(name);
  return Answer("cuModuleGetFunction");
}
int cuFuncSetAttribute(void*, int attribute, int value) {
  Note("attribute " + std::to_string(attribute) + " = " + std::to_string(value));
  return Answer("cuFuncSetAttribute");
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, size_t) {
  *blocks = Answer("occupancy", 2);
  return 0;
}
int cuLaunchKernel(void* function, unsigned x, unsigned, unsigned, unsigned block, unsigned, unsigned, unsigned shared,
                   void* stream, void** parameters, void**) {
  return Launch("cuLaunchKernel", function, x, block, shared, stream, parameters);
}
int cuLaunchCooperativeKernel(void* function, unsigned x, unsigned, unsigned, unsigned block, unsigned, unsigned,
                              unsigned shared, void* stream, void** parameters) {
  return Launch("cuLaunchCooperativeKernel", function, x, block, shared, stream, parameters);
}
int cuMemAlloc_v2(unsigned long long* address, size_t bytes) {
  Note("allocate " + Number(bytes));
  *address = reinterpret_cast<size_t>(aligned_alloc(256, (bytes + 255) / 256 * 256));
  return Answer("cuMemAlloc_v2");
}
int cuMemsetD8Async(unsigned long long address, unsigned char value, size_t bytes, void*) {
  memset(reinterpret_cast<void*>(address), value, bytes);
  return 0;
}
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes, void*) {
  memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  return 0;
}

}  // extern "C"
