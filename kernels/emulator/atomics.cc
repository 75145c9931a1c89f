// Atomic operations, fences and spinning.
//
// What orders two threads, as the memory model of CUDA has it: a fence, then an atomic store; an atomic load that reads
// it, then a fence. For the race detector every thread has a tag per scope, which it releases at its fences. An atomic
// store publishes the fences of its thread at the address; a load remembers what it finds there, and the next fence
// acquires it.
#include <cstring>
#include <type_traits>

#include "failure.h"
#include "launch_state.h"
#include "sanitizer.h"

namespace stitch_emulator {

namespace {

// Of 4 or 8 bytes. The race detector sees them as atomic accesses that order nothing.
template <class T>
T Load(const void* address) {
#if defined(TF_STITCH_EMULATOR_THREAD)
  constexpr int relaxed = 0;
  if constexpr (sizeof(T) == 4) {
    return static_cast<T>(__tsan_atomic32_load(static_cast<const unsigned*>(address), relaxed));
  } else {
    return static_cast<T>(__tsan_atomic64_load(static_cast<const unsigned long*>(address), relaxed));
  }
#else
  return *static_cast<const volatile T*>(address);
#endif
}

template <class T>
void Store(void* address, T value) {
#if defined(TF_STITCH_EMULATOR_THREAD)
  constexpr int relaxed = 0;
  if constexpr (sizeof(T) == 4) {
    __tsan_atomic32_store(static_cast<unsigned*>(address), static_cast<unsigned>(value), relaxed);
  } else {
    __tsan_atomic64_store(static_cast<unsigned long*>(address), static_cast<unsigned long>(value), relaxed);
  }
#else
  *static_cast<volatile T*>(address) = value;
#endif
}

template <class T>
T Combined(Atomic operation, T old, T operand, T expected) {
  using Unsigned = std::make_unsigned_t<T>;
  switch (operation) {
    case Atomic::kAdd: return static_cast<T>(static_cast<Unsigned>(old) + static_cast<Unsigned>(operand));
    case Atomic::kMin: return operand < old ? operand : old;
    case Atomic::kMax: return operand > old ? operand : old;
    case Atomic::kAnd: return old & operand;
    case Atomic::kOr: return old | operand;
    case Atomic::kXor: return old ^ operand;
    case Atomic::kExchange: return operand;
    case Atomic::kCompareExchange: return old == expected ? operand : old;
  }
  return old;
}

bool Reaches(const Fences& fences, Scope scope, const Thread& reader) {
  const Index &of = fences.block, &to = reader.block->index;
  return scope == Scope::kDevice || (of.x == to.x && of.y == to.y && of.z == to.z);
}

void AcquireSeen(Thread& me) {
  for (Fences* fences : me.seen) {
    for (const Scope scope : {Scope::kBlock, Scope::kDevice}) {
      const int n = static_cast<int>(scope);
      if (fences->passed[n] && Reaches(*fences, scope, me)) Acquire(&fences->tags[n]);
    }
  }
  me.seen.clear();
}

void ReleaseFence(Thread& me, Scope scope) {
  me.fences->passed[static_cast<int>(scope)] = true;
  Release(&me.fences->tags[static_cast<int>(scope)]);
}

void See(Thread& me, const void* address) {
  if (!kDetectsRaces) return;
  const Unseen unseen;
  const auto found = Now().published.find(address);
  if (found == Now().published.end()) return;
  me.seen.insert(me.seen.end(), found->second.begin(), found->second.end());
}

// `replaces`: a plain atomic store; one that also reads continues what others have published.
void Publish(Thread& me, const void* address, bool replaces) {
  if (!kDetectsRaces) return;
  const Unseen unseen;
  std::vector<Fences*>& published = Now().published[address];
  if (replaces) published.clear();
  for (const Fences* fences : published) {
    if (fences == me.fences) return;
  }
  if (me.fences->passed[0] || me.fences->passed[1]) published.push_back(me.fences);
}

template <class T>
unsigned long long Apply(Atomic operation, void* address, T operand, T expected, Site site) {
  Thread& me = *Now().running;
  ++Counted().atomics;
  Preempt();
  const T old = Load<T>(address);
  const T value = Combined(operation, old, operand, expected);
  See(me, address);
  if (operation != Atomic::kCompareExchange || old == expected) {
    Store<T>(address, value);
    Publish(me, address, false);
  }
  if (value == old) {
    Spin("an atomic operation", site);
  } else {
    Now().Progress();
  }
  return static_cast<unsigned long long>(old);
}

}  // namespace

extern "C" unsigned long long stitch_emulator_atomic(Atomic operation, void* address, int width,
                                                     unsigned long long operand, unsigned long long expected,
                                                     Site site) {
  switch (width) {
    case 4: return Apply<std::uint32_t>(operation, address, operand, expected, site);
    case -4: return Apply<std::int32_t>(operation, address, operand, expected, site);
    case 8: return Apply<std::uint64_t>(operation, address, operand, expected, site);
    default: return Apply<std::int64_t>(operation, address, operand, expected, site);
  }
}

extern "C" void stitch_emulator_fence(Scope scope) {
  Thread& me = *Now().running;
  ++Counted().fences;
  if (kDetectsRaces) {
    const Unseen unseen;
    AcquireSeen(me);
    ReleaseFence(me, scope);
  }
  Preempt();
}

extern "C" unsigned long long stitch_emulator_load_acquire(const void* address, int bytes, Site site) {
  Thread& me = *Now().running;
  ++Counted().atomics;
  Spin("a spin loop", site);
  const unsigned long long value = bytes == 4 ? Load<std::uint32_t>(address) : Load<std::uint64_t>(address);
  if (kDetectsRaces) {
    See(me, address);
    const Unseen unseen;
    AcquireSeen(me);
  }
  return value;
}

extern "C" void stitch_emulator_store_release(void* address, int bytes, unsigned long long value, Site) {
  Thread& me = *Now().running;
  ++Counted().atomics;
  if (kDetectsRaces) {
    const Unseen unseen;
    ReleaseFence(me, Scope::kDevice);
  }
  if (bytes == 4) {
    Store<std::uint32_t>(address, static_cast<std::uint32_t>(value));
  } else {
    Store<std::uint64_t>(address, value);
  }
  Publish(me, address, true);
  Now().Progress();
  Preempt();
}

extern "C" void stitch_emulator_sleep(Site site) { Spin("__nanosleep", site); }

extern "C" void stitch_emulator_trap(Site site) {
  Thread& me = *Now().running;
  Fail("trap", Name(me) + " called __trap at " + Name(site), &me);
}

#if defined(TF_STITCH_EMULATOR_THREAD)
// What g++ puts in front of accesses that are volatile, with --param=tsan-distinguish-volatile=1. In CUDA they are
// relaxed atomic ones: a barrier that spins on a volatile word is no race, and sees what others have published.
extern "C" {
#define TF_STITCH_VOLATILE(bytes, type)                                                                          \
  void __tsan_volatile_read##bytes(void* at) {                                                                   \
    Load<type>(at);                                                                                              \
    See(*Now().running, at);                                                                                     \
  }                                                                                                              \
  void __tsan_volatile_write##bytes(void* at) {                                                                  \
    Store<type>(at, Load<type>(at)); /* the access that follows stores the new value */                          \
    Publish(*Now().running, at, true);                                                                           \
  }
TF_STITCH_VOLATILE(4, std::uint32_t)
TF_STITCH_VOLATILE(8, std::uint64_t)
#undef TF_STITCH_VOLATILE
}
#endif

}  // namespace stitch_emulator
