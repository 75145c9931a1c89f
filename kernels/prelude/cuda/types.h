// Types of the CUDA prelude, and what makes it compile three times over: with nvcc, with NVRTC (which has no header at
// all), and with g++ for the emulator, where TF_STITCH_EMULATOR is defined.
//
//   in memory (storage)    f16  bf16  f32  f64  i32  i64  boolean
//   in a register          f32  f32   f32  f64  i32  i64  bool
//
// A thread computes on scalars. The functions have the names that the CPU prelude gives them over packs, so that one
// expression of the op table means the same in both. Generated code lies in namespace stitch: a function of the prelude
// then hides CUDA's own of the same name (`exp`, `max`), whose values may differ.
#ifndef TF_STITCH_CUDA_TYPES_H_
#define TF_STITCH_CUDA_TYPES_H_

#ifdef TF_STITCH_EMULATOR
#ifndef __device__  // the emulator may have given them a meaning of its own
#define __device__
#endif
#ifndef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))
#endif
#define STITCH_ON_DEVICE 0
#define STITCH_UNROLLED
#else
#define STITCH_ON_DEVICE 1
#define STITCH_UNROLLED _Pragma("unroll")
#endif

#define STITCH_DEVICE __device__ __forceinline__

namespace stitch {

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;
typedef double f64;

// What lies in memory and is never computed on.
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct boolean {
  u8 bits;
};

template <class A, class B>
constexpr bool same = false;
template <class A>
constexpr bool same<A, A> = true;

template <class T>
constexpr bool is_float = same<T, f32> || same<T, f64>;

// What an element of memory is computed on as.
template <class S>
struct RegisterOf {
  typedef S type;
};
template <>
struct RegisterOf<f16> {
  typedef f32 type;
};
template <>
struct RegisterOf<bf16> {
  typedef f32 type;
};
template <>
struct RegisterOf<boolean> {
  typedef bool type;
};
template <class S>
using Register = typename RegisterOf<S>::type;

// The integers as wide as T.
template <class T>
struct BitsOf {
  typedef u32 type;
};
template <>
struct BitsOf<f64> {
  typedef u64 type;
};
template <>
struct BitsOf<i64> {
  typedef u64 type;
};
template <class T>
using Bits = typename BitsOf<T>::type;

template <class T>
STITCH_DEVICE Bits<T> bits_of(T x) {
  return __builtin_bit_cast(Bits<T>, x);
}
template <class T>
STITCH_DEVICE T from_bits(Bits<T> bits) {
  return __builtin_bit_cast(T, bits);
}

template <class T>
constexpr Bits<T> sign_bit = Bits<T>(1) << (8 * sizeof(T) - 1);

template <class T>
constexpr T infinity = __builtin_bit_cast(T, same<T, f32> ? Bits<T>(0x7f800000u) : Bits<T>(0x7ff0000000000000u));

// The most negative integer.
template <class T>
constexpr T least = T(sign_bit<T>);

}  // namespace stitch

#ifdef __CUDACC_RTC__
// The spellings of a literal that other compilers have built in.
STITCH_DEVICE float __builtin_inff() { return stitch::infinity<float>; }
STITCH_DEVICE double __builtin_inf() { return stitch::infinity<double>; }
STITCH_DEVICE float __builtin_nanf(const char*) { return __builtin_bit_cast(float, 0x7fc00000u); }
STITCH_DEVICE double __builtin_nan(const char*) { return __builtin_bit_cast(double, 0x7ff8000000000000ull); }
#endif

#endif  // TF_STITCH_CUDA_TYPES_H_
