// The sanitizers' calls about fibers and memory; nothing at all in a runtime that is built for none.
//
// The runtime itself is never instrumented: its own accesses are no business of a race detector.
#ifndef TF_STITCH_EMULATOR_SANITIZER_H_
#define TF_STITCH_EMULATOR_SANITIZER_H_

#include <cstddef>

#if defined(TF_STITCH_EMULATOR_THREAD)
#include <sanitizer/tsan_interface.h>
extern "C" {
// In no header that g++ brings. The order 0 is `relaxed`.
unsigned __tsan_atomic32_load(const volatile unsigned* address, int order);
void __tsan_atomic32_store(volatile unsigned* address, unsigned value, int order);
unsigned long __tsan_atomic64_load(const volatile unsigned long* address, int order);
void __tsan_atomic64_store(volatile unsigned long* address, unsigned long value, int order);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#elif defined(TF_STITCH_EMULATOR_ADDRESS)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace stitch_emulator {

// `tag` stands for an event: who acquires it comes after all who released it before.
inline void Release([[maybe_unused]] void* tag) {
#if defined(TF_STITCH_EMULATOR_THREAD)
  __tsan_release(tag);
#endif
}

inline void Acquire([[maybe_unused]] void* tag) {
#if defined(TF_STITCH_EMULATOR_THREAD)
  __tsan_acquire(tag);
#endif
}

// While one lives, the race detector does not see what malloc, free and memcpy do here.
class Unseen {
 public:
  Unseen() {
#if defined(TF_STITCH_EMULATOR_THREAD)
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
  }
  ~Unseen() {
#if defined(TF_STITCH_EMULATOR_THREAD)
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
  }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
};

inline void Forbid([[maybe_unused]] const void* at, [[maybe_unused]] std::size_t bytes) {
#if defined(TF_STITCH_EMULATOR_ADDRESS)
  __asan_poison_memory_region(at, bytes);
#endif
}

inline void Allow([[maybe_unused]] const void* at, [[maybe_unused]] std::size_t bytes) {
#if defined(TF_STITCH_EMULATOR_ADDRESS)
  __asan_unpoison_memory_region(at, bytes);
#endif
}

#if defined(TF_STITCH_EMULATOR_THREAD) || defined(TF_STITCH_EMULATOR_ADDRESS)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

#if defined(TF_STITCH_EMULATOR_THREAD)
inline constexpr bool kDetectsRaces = true;
#else
inline constexpr bool kDetectsRaces = false;
#endif

}  // namespace stitch_emulator

#endif  // TF_STITCH_EMULATOR_SANITIZER_H_
