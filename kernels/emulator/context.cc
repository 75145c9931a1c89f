#include "context.h"

#include <cstdint>

#include "sanitizer.h"

namespace stitch_emulator {

#if !defined(TF_STITCH_EMULATOR_PORTABLE)

// Pushes what the System V ABI says a call preserves, changes stacks, and pops it again. rbp lies on top of the six,
// next to the return address, so that a stopped fiber's frames can be walked.
extern "C" void stitch_emulator_switch(void** from, void* to) __attribute__((visibility("hidden")));
asm(R"(
  .text
  .hidden stitch_emulator_switch
  .globl stitch_emulator_switch
  .type stitch_emulator_switch, @function
stitch_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size stitch_emulator_switch, .-stitch_emulator_switch
)");

#endif

void Prepare(Context& context, Entry entry, [[maybe_unused]] const char* name) {
#if defined(TF_STITCH_EMULATOR_PORTABLE)
  getcontext(&context.registers);
  context.registers.uc_stack.ss_sp = context.stack;
  context.registers.uc_stack.ss_size = context.stack_bytes;
  context.registers.uc_link = nullptr;
  makecontext(&context.registers, entry, 0);
#else
  // A function is entered with the stack pointer 8 bytes off a multiple of 16. Zeros end the chain of frames.
  auto** top = reinterpret_cast<void**>(context.stack + context.stack_bytes - 64);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int n = 0; n < 6; ++n) *--top = nullptr;
  context.stack_pointer = top;
#endif
#if defined(TF_STITCH_EMULATOR_THREAD)
  context.fiber = __tsan_create_fiber(0);
  __tsan_set_fiber_name(context.fiber, name);
#endif
}

void Forget(Context& context) {
#if defined(TF_STITCH_EMULATOR_THREAD)
  if (context.fiber != nullptr) __tsan_destroy_fiber(context.fiber);
#endif
  Allow(context.stack, context.stack_bytes);
  context.fiber = nullptr;
}

void Begin([[maybe_unused]] Context& main) {
#if defined(TF_STITCH_EMULATOR_THREAD)
  main.fiber = __tsan_get_current_fiber();
#endif
}

namespace {
Context* came_from = nullptr;  // who switched last, for AddressSanitizer
Context* running = nullptr;
}  // namespace

void Entered() {
#if defined(TF_STITCH_EMULATOR_ADDRESS)
  const void* stack;
  size_t bytes;
  __sanitizer_finish_switch_fiber(running->fake_stack, &stack, &bytes);
  if (came_from->stack == nullptr) {  // the program's: its bounds are known now
    came_from->stack = static_cast<char*>(const_cast<void*>(stack));
    came_from->stack_bytes = bytes;
  }
#endif
}

void Switch(Context& from, Context& to, [[maybe_unused]] bool leaving) {
  came_from = &from;
  running = &to;
#if defined(TF_STITCH_EMULATOR_THREAD)
  __tsan_switch_to_fiber(to.fiber, __tsan_switch_to_fiber_no_sync);
#elif defined(TF_STITCH_EMULATOR_ADDRESS)
  __sanitizer_start_switch_fiber(leaving ? nullptr : &from.fake_stack, to.stack, to.stack_bytes);
#endif
#if defined(TF_STITCH_EMULATOR_PORTABLE)
  swapcontext(&from.registers, &to.registers);
#else
  stitch_emulator_switch(&from.stack_pointer, to.stack_pointer);
#endif
  Entered();
}

const void* FrameOf([[maybe_unused]] const Context& context) {
#if defined(TF_STITCH_EMULATOR_PORTABLE)
  return nullptr;
#else
  return context.stack_pointer == nullptr ? nullptr : static_cast<void* const*>(context.stack_pointer) + 5;
#endif
}

}  // namespace stitch_emulator
