#include "failure.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

#include <vector>

#include "launch_state.h"
#include "memory.h"
#include "shared.h"

namespace stitch_emulator {

namespace {

std::string Name(const Index& index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

std::string AsJson(const Index& index) {
  return "[" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + "]";
}

// Where the frames of `thread`, from `frame` on, return to: offsets in the file of the module, innermost first.
std::string Trace(const Thread& thread, const void* frame, const void* instruction) {
  std::vector<const char*> addresses;
  if (instruction != nullptr) addresses.push_back(static_cast<const char*>(instruction) + 1);
  const char* low = thread.context.stack;
  const char* high = low + thread.context.stack_bytes - 2 * sizeof(void*);
  while (frame >= low && frame < high && reinterpret_cast<std::uintptr_t>(frame) % sizeof(void*) == 0) {
    const auto* words = static_cast<const void* const*>(frame);
    if (words[1] != nullptr) addresses.push_back(static_cast<const char*>(words[1]));
    if (words[0] <= frame) break;  // frames lie higher and higher
    frame = words[0];
  }
  std::string text;
  for (const char* address : addresses) {
    Dl_info module;
    if (dladdr(address, &module) == 0) continue;
    // A return address is that of the next instruction: one less lies in the call.
    text += (text.empty() ? "" : ",") + std::to_string(address - 1 - static_cast<const char*>(module.dli_fbase));
  }
  return "[" + text + "]";
}

}  // namespace

std::string Name(const Thread& thread) {
  return "thread " + Name(thread.index) + " of block " + Name(thread.block->index);
}

std::string Name(const Site& site) {
  const std::string file = site.file;
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(site.line);
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

void Fail(const char* kind, const std::string& message, const Thread* thread, const void* frame,
          const void* instruction) {
  State& now = Now();
  if (now.failure.empty()) {
    std::string report = "{\"kind\":" + Quoted(kind) + ",\"kernel\":" + Quoted(now.launch->kernel) +
                         ",\"message\":" + Quoted(message);
    if (thread != nullptr) {
      if (frame == nullptr) frame = thread == now.running ? __builtin_frame_address(0) : FrameOf(thread->context);
      report += ",\"thread\":" + AsJson(thread->index) + ",\"block\":" + AsJson(thread->block->index) +
                ",\"trace\":" + Trace(*thread, frame, instruction);
      if (thread->site.line != 0) report += ",\"site\":" + Quoted(Name(thread->site));
    }
    now.failure = report + "}";
  }
  if (now.running == nullptr) return;  // this is the program's context
  Thread* me = now.running;
  now.running = nullptr;
  Switch(me->context, now.main);
}

// ---- Faults ------------------------------------------------------------------------------------------------

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGVTALRM};
constexpr int kSeconds = 5;  // of the processor's time that one thread may take without a stop
struct sigaction before[5];
stack_t stack_before;
std::uint64_t switches_before;

void PassOn(int number) {
  for (int n = 0; n < 5; ++n) {
    if (kSignals[n] == number) sigaction(number, &before[n], nullptr);
  }
  // The instruction is tried again, now with the handler of the program.
}

std::string What(int number, const siginfo_t& signal, const Thread& me) {
  if (number == SIGFPE) return Name(me) + " divided an integer by zero, or the least one by -1";
  if (number == SIGILL) return Name(me) + " reached what cannot be reached";
  return DescribeAccess(me, signal.si_addr);
}

}  // namespace

std::string DescribeAccess(const Thread& me, const void* address) {
  const char* at = static_cast<const char*>(address);
  const char* shared = me.block->shared;
  const std::size_t dynamic = Now().launch->dynamic_shared;
  if (at >= me.context.stack - 4096 && at < me.context.stack) return "the stack of " + Name(me) + " overflowed";
  if (at >= shared && at < shared + SharedBytes(dynamic)) {
    return Name(me) + " went " + DescribeShared(at - shared, dynamic);
  }
  return Name(me) + " went " + Describe(at);
}

namespace {

void OnSignal(int number, siginfo_t* signal, void* context) {
  State& now = Now();
  Thread* me = now.running;
  if (me == nullptr) {
    if (number != SIGVTALRM) PassOn(number);
    return;
  }
  const void* frame = nullptr;
  const void* instruction = nullptr;
#if defined(__x86_64__)
  const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  frame = reinterpret_cast<const void*>(registers[REG_RBP]);
  instruction = reinterpret_cast<const void*>(registers[REG_RIP]);
#endif
  if (number == SIGVTALRM) {
    if (Counted().switches != switches_before) {
      switches_before = Counted().switches;
      return;
    }
    Fail("deadlock", Name(*me) + " runs on and on, and never lets others run", me, frame, instruction);
  }
  Fail(number == SIGFPE || number == SIGILL ? "trap" : "access", What(number, *signal, *me), me, frame, instruction);
}

void SetTimer(int seconds) {
  itimerval timer = {};
  timer.it_interval.tv_sec = timer.it_value.tv_sec = seconds;
  setitimer(ITIMER_VIRTUAL, &timer, nullptr);
}

}  // namespace

Watch::Watch() {
#if !defined(TF_STITCH_EMULATOR_THREAD) && !defined(TF_STITCH_EMULATOR_ADDRESS)  // which report faults themselves
  static char* stack = new char[64 << 10];
  stack_t alternate = {};
  alternate.ss_sp = stack;
  alternate.ss_size = 64 << 10;
  sigaltstack(&alternate, &stack_before);
  struct sigaction action = {};
  action.sa_sigaction = OnSignal;
  // A handler that gives the launch up does not return: the signal must not stay blocked.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int n = 0; n < 5; ++n) sigaction(kSignals[n], &action, &before[n]);
  switches_before = Counted().switches;
  SetTimer(kSeconds);
#endif
}

Watch::~Watch() {
#if !defined(TF_STITCH_EMULATOR_THREAD) && !defined(TF_STITCH_EMULATOR_ADDRESS)
  SetTimer(0);
  for (int n = 0; n < 5; ++n) sigaction(kSignals[n], &before[n], nullptr);
  sigaltstack(&stack_before, nullptr);
#endif
}

}  // namespace stitch_emulator
