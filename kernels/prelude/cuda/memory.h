// Loads and stores: one element, or N neighbours at once where the address is a multiple of their size.
//
//   load(p)            load<N>(p)              memory that this block writes, too
//   load_constant(p)   load_constant<N>(p)     an input that nothing writes during the launch: the read-only cache
//   load_fresh(p)      load_fresh<N>(p)        what other blocks wrote before a grid barrier: from L2, past the L1
//   store(p, x)        store(p, Pack<T, N>)
//   within(i, n)       whether a table of n elements has one of number i
//
// f16 and bf16 are computed on as f32, boolean as bool, everything else as itself.
#ifndef TF_STITCH_CUDA_MEMORY_H_
#define TF_STITCH_CUDA_MEMORY_H_

#include "prelude/cuda/half.h"

namespace stitch {

// N registers.
template <class T, int N>
struct Pack {
  T v[N];
};

// ---- words: what one instruction moves

typedef u8 Word1;
typedef u16 Word2;
typedef u32 Word4;
#if STITCH_ON_DEVICE
typedef ::uint2 Word8;
typedef ::uint4 Word16;
#else  // scalars and vectors of g++: the emulator counts what is moved as one access
typedef u64 Word8;
typedef u32 __attribute__((vector_size(16))) Word16;
#endif

template <int bytes>
struct WordOf;
template <>
struct WordOf<1> {
  typedef Word1 type;
};
template <>
struct WordOf<2> {
  typedef Word2 type;
};
template <>
struct WordOf<4> {
  typedef Word4 type;
};
template <>
struct WordOf<8> {
  typedef Word8 type;
};
template <>
struct WordOf<16> {
  typedef Word16 type;
};

enum class Path { ANY, CONSTANT, FRESH };

template <Path path, class W>
STITCH_DEVICE W read(const W* p) {
#if STITCH_ON_DEVICE
  if constexpr (path == Path::CONSTANT) return __ldg(p);
  else if constexpr (path == Path::FRESH) return __ldcg(p);
  else
#endif
  return *p;
}

// ---- one element

template <Path path, class S>
STITCH_DEVICE Register<S> read_element(const S* p) {
  if constexpr (same<S, boolean>) return read<path>(&p->bits) != 0;
  else if constexpr (same<S, f16> || same<S, bf16>) return widen(S{read<path>(&p->bits)});
  else return read<path>(p);
}

STITCH_DEVICE void store(f32* p, f32 x) { *p = x; }
STITCH_DEVICE void store(f64* p, f64 x) { *p = x; }
STITCH_DEVICE void store(i32* p, i32 x) { *p = x; }
STITCH_DEVICE void store(i64* p, i64 x) { *p = x; }
STITCH_DEVICE void store(f16* p, f32 x) { p->bits = to_f16(x).bits; }
STITCH_DEVICE void store(bf16* p, f32 x) { p->bits = to_bf16(x).bits; }
STITCH_DEVICE void store(boolean* p, bool x) { p->bits = u8(x); }

// ---- N neighbours

template <class S, int N>
struct Elements {
  S v[N];
};

template <Path path, int N, class S>
STITCH_DEVICE Pack<Register<S>, N> read_elements(const S* p) {
  constexpr int bytes = N * int(sizeof(S));
  Pack<Register<S>, N> result;
  if constexpr (bytes > 16) {
    const auto low = read_elements<path, N / 2>(p), high = read_elements<path, N / 2>(p + N / 2);
    STITCH_UNROLLED
    for (int i = 0; i < N / 2; ++i) {
      result.v[i] = low.v[i];
      result.v[i + N / 2] = high.v[i];
    }
  } else {
    typedef typename WordOf<bytes>::type Word;
    typedef Elements<S, N> All;
    const auto elements = __builtin_bit_cast(All, read<path>(reinterpret_cast<const Word*>(p)));
    STITCH_UNROLLED
    for (int i = 0; i < N; ++i) {
      if constexpr (same<S, boolean>) result.v[i] = elements.v[i].bits != 0;
      else if constexpr (same<S, f16> || same<S, bf16>) result.v[i] = widen(elements.v[i]);
      else result.v[i] = elements.v[i];
    }
  }
  return result;
}

template <class S, int N>
STITCH_DEVICE void store(S* p, const Pack<Register<S>, N>& x) {
  constexpr int bytes = N * int(sizeof(S));
  if constexpr (bytes > 16) {
    Pack<Register<S>, N / 2> low, high;
    STITCH_UNROLLED
    for (int i = 0; i < N / 2; ++i) {
      low.v[i] = x.v[i];
      high.v[i] = x.v[i + N / 2];
    }
    store(p, low);
    store(p + N / 2, high);
  } else {
    typedef typename WordOf<bytes>::type Word;
    if constexpr ((same<S, f16> || same<S, bf16>) && N > 1) {
      Elements<u32, N / 2> pairs;
      STITCH_UNROLLED
      for (int i = 0; i < N; i += 2) {
        if constexpr (same<S, f16>) pairs.v[i / 2] = pair_of_f16(x.v[i], x.v[i + 1]);
        else pairs.v[i / 2] = pair_of_bf16(x.v[i], x.v[i + 1]);
      }
      *reinterpret_cast<Word*>(p) = __builtin_bit_cast(Word, pairs);
    } else {
      Elements<S, N> elements;
      STITCH_UNROLLED
      for (int i = 0; i < N; ++i) {
        if constexpr (same<S, boolean>) elements.v[i] = {u8(x.v[i])};
        else elements.v[i] = x.v[i];
      }
      *reinterpret_cast<Word*>(p) = __builtin_bit_cast(Word, elements);
    }
  }
}

#define STITCH_LOADS(name, path)                            \
  template <class S>                                        \
  STITCH_DEVICE Register<S> name(const S* p) {              \
    return read_element<path>(p);                           \
  }                                                         \
  template <int N, class S>                                 \
  STITCH_DEVICE Pack<Register<S>, N> name(const S* p) {     \
    return read_elements<path, N>(p);                       \
  }
STITCH_LOADS(load, Path::ANY)
STITCH_LOADS(load_constant, Path::CONSTANT)
STITCH_LOADS(load_fresh, Path::FRESH)
#undef STITCH_LOADS

// Whether there is an element of this number among `count`.
template <class I>
STITCH_DEVICE bool within(I index, i64 count) {
  return index >= 0 && index < count;
}

}  // namespace stitch
#endif  // TF_STITCH_CUDA_MEMORY_H_
