// CUDA C++ for g++: the words, types and built-in functions that generated kernels use, and no more.
//
// It is included before the first line of a kernel, and only in tests. It includes no system header, as nvrtc has none
// either: what compiles here needs nothing that is missing there. Functions whose rounding a CPU cannot imitate
// (`__expf`, `__fdividef`, ...) are left out on purpose. `__shared__` is no macro: see tests/emulator/dialect.py.
#ifndef TF_STITCH_EMULATOR_DEVICE_H_
#define TF_STITCH_EMULATOR_DEVICE_H_

#include "emulator/runtime.h"

#define __device__
#define __host__
#define __global__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__
#define __builtin_assume(condition) ((void)0)

using size_t = decltype(sizeof(0));

// ---- Vector types ------------------------------------------------------------------------------------------

#define TF_STITCH_VECTORS(type, name, bytes)                                                                     \
  struct name##1 { type x; };                                                                                    \
  struct alignas(2 * bytes) name##2 { type x, y; };                                                              \
  struct name##3 { type x, y, z; };                                                                              \
  struct alignas(4 * bytes > 16 ? 16 : 4 * bytes) name##4 { type x, y, z, w; };                                  \
  inline name##1 make_##name##1(type x) { return {x}; }                                                          \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                               \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                                    \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

TF_STITCH_VECTORS(signed char, char, 1)
TF_STITCH_VECTORS(unsigned char, uchar, 1)
TF_STITCH_VECTORS(short, short, 2)
TF_STITCH_VECTORS(unsigned short, ushort, 2)
TF_STITCH_VECTORS(int, int, 4)
TF_STITCH_VECTORS(unsigned, uint, 4)
TF_STITCH_VECTORS(long long, longlong, 8)
TF_STITCH_VECTORS(unsigned long long, ulonglong, 8)
TF_STITCH_VECTORS(float, float, 4)
TF_STITCH_VECTORS(double, double, 8)
#undef TF_STITCH_VECTORS

// ---- Where a thread stands ---------------------------------------------------------------------------------

#define threadIdx (::stitch_emulator::stitch_emulator_thread())
#define blockIdx (::stitch_emulator::stitch_emulator_block())
#define blockDim (::stitch_emulator::stitch_emulator_block_size())
#define gridDim (::stitch_emulator::stitch_emulator_grid_size())
constexpr int warpSize = 32;

namespace stitch_emulator {

inline Site site(const char* file, int line) { return {file, line}; }

// Where a `__shared__` variable of type T lies. `Name` is a lambda: a type of its own for every declaration, and in a
// template for every instantiation.
template <class T, class Name>
struct Shared {
  static inline const unsigned long offset = stitch_emulator_reserve(Name{}(), sizeof(T), Name::alignment(alignof(T)));
};

template <size_t Alignment, class Function>
struct Named : Function {
  static constexpr size_t alignment(size_t natural) { return Alignment > natural ? Alignment : natural; }
};

template <class T, size_t Alignment, class Function>
__forceinline__ T& shared(Function) {
  return *static_cast<T*>(stitch_emulator_shared(Shared<T, Named<Alignment, Function>>::offset));
}

template <class T>
inline unsigned long long bits_of(T value) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <class T>
inline T value_of(unsigned long long bits) {
  T value;
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}

template <class To, class From>
inline To bit_cast(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

template <class T>
constexpr int width_of() {
  static_assert(__is_same(T, int) || __is_same(T, unsigned) || __is_same(T, long long) ||
                    __is_same(T, unsigned long long) || __is_same(T, long) || __is_same(T, unsigned long),
                "atomics are for integers: those of floats depend on the order of the threads");
  return T(-1) < T(0) ? -static_cast<int>(sizeof(T)) : static_cast<int>(sizeof(T));
}

template <class T>
inline T atomic(Atomic operation, T* address, T operand, T expected, Site site) {
  return static_cast<T>(stitch_emulator_atomic(operation, address, width_of<T>(),
                                               static_cast<unsigned long long>(operand),
                                               static_cast<unsigned long long>(expected), site));
}

template <class T>
inline T load_acquire(const T* address, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return value_of<T>(stitch_emulator_load_acquire(address, sizeof(T), {file, line}));
}

template <class T>
inline void store_release(T* address, T value, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  stitch_emulator_store_release(address, sizeof(T), bits_of(value), {file, line});
}

template <class T>
struct Plain {
  using type = T;
};
template <class T>
using Same = typename Plain<T>::type;  // keeps an argument out of the deduction of T

}  // namespace stitch_emulator

#define TF_STITCH_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

// ---- Barriers, warps, fences -------------------------------------------------------------------------------

inline void __syncthreads(TF_STITCH_HERE) {
  stitch_emulator::stitch_emulator_meet_block(stitch_emulator::Vote::kBlockSync, 0, {file, line});
}
inline int __syncthreads_count(int predicate, TF_STITCH_HERE) {
  return stitch_emulator::stitch_emulator_meet_block(stitch_emulator::Vote::kBlockCount, predicate, {file, line});
}
inline int __syncthreads_and(int predicate, TF_STITCH_HERE) {
  return stitch_emulator::stitch_emulator_meet_block(stitch_emulator::Vote::kBlockAnd, predicate, {file, line});
}
inline int __syncthreads_or(int predicate, TF_STITCH_HERE) {
  return stitch_emulator::stitch_emulator_meet_block(stitch_emulator::Vote::kBlockOr, predicate, {file, line});
}

inline void __syncwarp(unsigned mask = 0xffffffffu, TF_STITCH_HERE) {
  stitch_emulator::stitch_emulator_meet_warp(stitch_emulator::Vote::kSync, mask, 0, 0, {file, line});
}
inline unsigned __ballot_sync(unsigned mask, int predicate, TF_STITCH_HERE) {
  return stitch_emulator::stitch_emulator_meet_warp(stitch_emulator::Vote::kBallot, mask, predicate, 0, {file, line});
}
inline int __any_sync(unsigned mask, int predicate, TF_STITCH_HERE) {
  return stitch_emulator::stitch_emulator_meet_warp(stitch_emulator::Vote::kAny, mask, predicate, 0, {file, line});
}
inline int __all_sync(unsigned mask, int predicate, TF_STITCH_HERE) {
  return stitch_emulator::stitch_emulator_meet_warp(stitch_emulator::Vote::kAll, mask, predicate, 0, {file, line});
}
inline unsigned __activemask() { return stitch_emulator::stitch_emulator_active_mask(); }

namespace stitch_emulator {
template <class T>
inline T shuffle(unsigned mask, T value, unsigned source, Site site) {
  return value_of<T>(stitch_emulator_meet_warp(Vote::kShuffle, mask, bits_of(value), source, site));
}
}  // namespace stitch_emulator

// A lane whose source lies outside of its segment of `width` lanes keeps its own value.
template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, TF_STITCH_HERE) {
  const int lane = stitch_emulator::stitch_emulator_lane();
  return stitch_emulator::shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)), {file, line});
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, TF_STITCH_HERE) {
  const int lane = stitch_emulator::stitch_emulator_lane();
  const int source = lane - static_cast<int>(delta);
  return stitch_emulator::shuffle(mask, value, source < (lane & ~(width - 1)) ? lane : source, {file, line});
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, TF_STITCH_HERE) {
  const int lane = stitch_emulator::stitch_emulator_lane();
  const int source = lane + static_cast<int>(delta);
  return stitch_emulator::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, {file, line});
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, TF_STITCH_HERE) {
  const int lane = stitch_emulator::stitch_emulator_lane();
  const int source = lane ^ bits;
  return stitch_emulator::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, {file, line});
}

inline void __threadfence() { stitch_emulator::stitch_emulator_fence(stitch_emulator::Scope::kDevice); }
inline void __threadfence_block() { stitch_emulator::stitch_emulator_fence(stitch_emulator::Scope::kBlock); }
inline void __nanosleep(unsigned, TF_STITCH_HERE) { stitch_emulator::stitch_emulator_sleep({file, line}); }
[[noreturn]] inline void __trap(TF_STITCH_HERE) {
  stitch_emulator::stitch_emulator_trap({file, line});
  __builtin_unreachable();
}
inline long long clock64() { return stitch_emulator::stitch_emulator_clock(); }

// ---- Atomics and loads by another path ---------------------------------------------------------------------

#define TF_STITCH_ATOMIC(name, operation)                                                                         \
  template <class T>                                                                                              \
  inline T name(T* address, stitch_emulator::Same<T> value, TF_STITCH_HERE) {                                     \
    return stitch_emulator::atomic(stitch_emulator::Atomic::operation, address, value, T(0), {file, line});       \
  }
TF_STITCH_ATOMIC(atomicAdd, kAdd)
TF_STITCH_ATOMIC(atomicMin, kMin)
TF_STITCH_ATOMIC(atomicMax, kMax)
TF_STITCH_ATOMIC(atomicAnd, kAnd)
TF_STITCH_ATOMIC(atomicOr, kOr)
TF_STITCH_ATOMIC(atomicXor, kXor)
TF_STITCH_ATOMIC(atomicExch, kExchange)
#undef TF_STITCH_ATOMIC
template <class T>
inline T atomicSub(T* address, stitch_emulator::Same<T> value, TF_STITCH_HERE) {
  return stitch_emulator::atomic(stitch_emulator::Atomic::kAdd, address, T(0) - value, T(0), {file, line});
}
template <class T>
inline T atomicCAS(T* address, stitch_emulator::Same<T> expected, stitch_emulator::Same<T> value, TF_STITCH_HERE) {
  return stitch_emulator::atomic(stitch_emulator::Atomic::kCompareExchange, address, value, expected, {file, line});
}
#undef TF_STITCH_HERE

template <class T>
__forceinline__ T __ldg(const T* address) { return *address; }
template <class T>
__forceinline__ T __ldcg(const T* address) { return *address; }
template <class T>
__forceinline__ T __ldcs(const T* address) { return *address; }
template <class T>
__forceinline__ void __stcg(T* address, stitch_emulator::Same<T> value) { *address = value; }
template <class T>
__forceinline__ void __stcs(T* address, stitch_emulator::Same<T> value) { *address = value; }

// ---- Mathematics -------------------------------------------------------------------------------------------

#define TF_STITCH_UNARY(name) \
  extern "C" double name(double) noexcept; \
  extern "C" float name##f(float) noexcept;
#define TF_STITCH_BINARY(name) \
  extern "C" double name(double, double) noexcept; \
  extern "C" float name##f(float, float) noexcept;
TF_STITCH_UNARY(acos) TF_STITCH_UNARY(acosh) TF_STITCH_UNARY(asin) TF_STITCH_UNARY(asinh) TF_STITCH_UNARY(atan)
TF_STITCH_UNARY(atanh) TF_STITCH_UNARY(cbrt) TF_STITCH_UNARY(ceil) TF_STITCH_UNARY(cos) TF_STITCH_UNARY(cosh)
TF_STITCH_UNARY(erf) TF_STITCH_UNARY(erfc) TF_STITCH_UNARY(exp) TF_STITCH_UNARY(exp2) TF_STITCH_UNARY(expm1)
TF_STITCH_UNARY(fabs) TF_STITCH_UNARY(floor) TF_STITCH_UNARY(lgamma) TF_STITCH_UNARY(log) TF_STITCH_UNARY(log10)
TF_STITCH_UNARY(log1p) TF_STITCH_UNARY(log2) TF_STITCH_UNARY(nearbyint) TF_STITCH_UNARY(rint) TF_STITCH_UNARY(round)
TF_STITCH_UNARY(sin) TF_STITCH_UNARY(sinh) TF_STITCH_UNARY(sqrt) TF_STITCH_UNARY(tan) TF_STITCH_UNARY(tanh)
TF_STITCH_UNARY(tgamma) TF_STITCH_UNARY(trunc)
TF_STITCH_BINARY(atan2) TF_STITCH_BINARY(copysign) TF_STITCH_BINARY(fmax) TF_STITCH_BINARY(fmin)
TF_STITCH_BINARY(fmod) TF_STITCH_BINARY(hypot) TF_STITCH_BINARY(nextafter) TF_STITCH_BINARY(pow)
TF_STITCH_BINARY(remainder)
#undef TF_STITCH_UNARY
#undef TF_STITCH_BINARY
extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
extern "C" double ldexp(double, int) noexcept;
extern "C" float ldexpf(float, int) noexcept;

inline float rsqrtf(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }

inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

inline int __float_as_int(float x) { return stitch_emulator::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return stitch_emulator::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return stitch_emulator::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return stitch_emulator::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return stitch_emulator::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return stitch_emulator::bit_cast<double>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __mulhi(int x, int y) { return static_cast<int>((static_cast<long long>(x) * y) >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) { return (static_cast<unsigned long long>(x) * y) >> 32; }
inline long long __mul64hi(long long x, long long y) { return (static_cast<__int128>(x) * y) >> 64; }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (static_cast<unsigned __int128>(x) * y) >> 64;
}

#define TF_STITCH_MIN_MAX(type)                             \
  inline type min(type x, type y) { return y < x ? y : x; } \
  inline type max(type x, type y) { return x < y ? y : x; }
TF_STITCH_MIN_MAX(int)
TF_STITCH_MIN_MAX(unsigned)
TF_STITCH_MIN_MAX(long)
TF_STITCH_MIN_MAX(unsigned long)
TF_STITCH_MIN_MAX(long long)
TF_STITCH_MIN_MAX(unsigned long long)
#undef TF_STITCH_MIN_MAX
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }
inline double min(double x, double y) { return fmin(x, y); }
inline double max(double x, double y) { return fmax(x, y); }

// ---- Kernels -----------------------------------------------------------------------------------------------

namespace stitch_emulator {

template <unsigned...>
struct Numbers {};

template <auto kernel>
struct Kernel;

// A kernel as the runtime sees it: its parameters' kinds and places, and a call that takes the addresses of their
// values.
template <class... P, void (*kernel)(P...)>
struct Kernel<kernel> {
  static void run(void** values) { run(values, Numbers<__integer_pack(sizeof...(P))...>{}); }

  static int add(const char* name) {
    static Parameter parameters[sizeof...(P) + 1];
    unsigned at = 0, n = 0;
    ((at = (at + alignof(P) - 1) / alignof(P) * alignof(P), parameters[n++] = {kind<P>(), sizeof(P), at},
      at += sizeof(P)), ...);
    stitch_emulator_register(name, &run, parameters, n);
    return 0;
  }

 private:
  template <unsigned... n>
  static void run(void** values, Numbers<n...>) {
    kernel(*static_cast<P*>(values[n])...);
  }

  template <class T>
  static constexpr char kind() {
    if constexpr (requires(T value) { *value; }) {
      return 'p';
    } else {
      return T(1) / T(2) == T(0) ? 'i' : 'f';
    }
  }
};

}  // namespace stitch_emulator

#endif  // TF_STITCH_EMULATOR_DEVICE_H_
