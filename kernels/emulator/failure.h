// What went wrong, and where: a report that names the kernel, the threads and the source lines.
#ifndef TF_STITCH_EMULATOR_FAILURE_H_
#define TF_STITCH_EMULATOR_FAILURE_H_

#include <string>

#include "scheduler.h"

namespace stitch_emulator {

std::string Name(const Thread& thread);  // "thread (3,0,0) of block (0,0,0)"
std::string Name(const Site& site);      // "kernel.cu:15"
std::string DescribeAccess(const Thread& thread, const void* address);  // where it went wrong, in words
std::string Quoted(const std::string& text);  // for JSON

// Notes a failure of `kind` (deadlock, divergence, access, trap) and gives up the launch. Does not return to a thread.
void Fail(const char* kind, const std::string& message, const Thread* thread = nullptr, const void* frame = nullptr,
          const void* instruction = nullptr);

// While one lives, faults of the machine and threads that run for too long without a stop are failures of the kernel.
class Watch {
 public:
  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
};

}  // namespace stitch_emulator

#endif  // TF_STITCH_EMULATOR_FAILURE_H_
