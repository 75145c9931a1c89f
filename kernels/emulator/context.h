// A fiber's stack and registers, and the switch between two of them.
#ifndef TF_STITCH_EMULATOR_CONTEXT_H_
#define TF_STITCH_EMULATOR_CONTEXT_H_

#include <cstddef>

#if !defined(__x86_64__) && !defined(TF_STITCH_EMULATOR_PORTABLE)
#define TF_STITCH_EMULATOR_PORTABLE
#endif
#if defined(TF_STITCH_EMULATOR_PORTABLE)
#include <ucontext.h>
#endif

namespace stitch_emulator {

struct Context {
#if defined(TF_STITCH_EMULATOR_PORTABLE)
  ucontext_t registers;
#else
  void* stack_pointer = nullptr;  // what a call must preserve lies on the stack
#endif
  char* stack = nullptr;  // lowest byte; null: the stack of the program
  std::size_t stack_bytes = 0;
  void* fiber = nullptr;       // ThreadSanitizer's
  void* fake_stack = nullptr;  // AddressSanitizer's
};

using Entry = void (*)();  // must not return

// Prepares `context`, whose stack is set, to begin in `entry`. The first thing `entry` does is to call `Entered`.
void Prepare(Context& context, Entry entry, const char* name);
void Forget(Context& context);  // of a fiber that will not run again

// The program's own context, before the first switch away from it.
void Begin(Context& main);

// Stops the running `from` and goes on with `to`. `leaving`: `from` will not run again.
void Switch(Context& from, Context& to, bool leaving = false);
void Entered();

// The frame pointer where a stopped context stands, or null where it is not known: for traces.
const void* FrameOf(const Context& context);

}  // namespace stitch_emulator

#endif  // TF_STITCH_EMULATOR_CONTEXT_H_
