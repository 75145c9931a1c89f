// Functions of f32 that are computed in f64 vectors, half a vector at a time, and so are rounded almost exactly.
// Of f64 they go through libm.
#ifndef TF_STITCH_CPU_WIDE_H_
#define TF_STITCH_CPU_WIDE_H_

#include "cast.h"
#include "exp_log.h"
#include "libm.h"

namespace stitch {
namespace vec {

// function(x...) in f64, for f32 vectors x
template <class Function, class V, class... More>
STITCH_INLINE V in_f64(V x, More... more) {
  if constexpr (lanes<V> * 8 <= kNative) {
    return cast<f32>(Function::of(cast<f64>(x), cast<f64>(more)...));
  } else {
    constexpr int L = lanes<V>;
    if constexpr (L == 4) {  // two f64 a vector, no f32 vector of that size
      typedef Vec<f64, 2> D;
      D low = Function::of(D{x[0], x[1]}, D{more[0], more[1]}...);
      D high = Function::of(D{x[2], x[3]}, D{more[2], more[3]}...);
      return V{f32(low[0]), f32(low[1]), f32(high[0]), f32(high[1])};
    } else {
      typedef Vec<f32, L / 2> H;
      H low = in_f64<Function>(low_half<f32, L>(x), low_half<f32, L>(more)...);
      H high = in_f64<Function>(high_half<f32, L>(x), high_half<f32, L>(more)...);
      return from_halves<f32, L>(low, high);
    }
  }
}

struct Sinh {
  template <class V>
  static STITCH_MEMBER V of(V x) {
    V t = expm1(min2(fill<V>(100), abs(x)));
    return copysign((t + t / (t + 1)) * 0.5, x);
  }
};
struct Cosh {
  template <class V>
  static STITCH_MEMBER V of(V x) {
    V e = exp(min2(fill<V>(100), abs(x)));
    return (e + 1 / e) * 0.5;
  }
};
struct Asinh {
  template <class V>
  static STITCH_MEMBER V of(V x) {
    V a = abs(x);
    V y = log1p(a + a * a / (1 + sqrt(1 + a * a)));
    return copysign(a < 1e100 ? y : a, x);
  }
};
struct Acosh {
  template <class V>
  static STITCH_MEMBER V of(V x) {
    V t = x - 1;
    return t < 0 ? fill<V>(__builtin_nan("")) : log1p(t + sqrt(t * (t + 2)));
  }
};
struct Atanh {
  template <class V>
  static STITCH_MEMBER V of(V x) {
    V a = abs(x);
    return copysign(0.5 * log1p(2 * a / (1 - a)), x);
  }
};
struct Pow {
  template <class V>
  static STITCH_MEMBER V of(V x, V y) {
    V a = abs(x), r = exp(y * log(a)), half = y * 0.5;
    Bits<V> whole = (Bits<V>)(rint(y) == y), even = (Bits<V>)(rint(half) == half);
    r = (whole & ~even) ? copysign(r, x) : r;
    r = ((x < 0) & ~whole & (a < __builtin_inf())) ? fill<V>(__builtin_nan("")) : r;
    return ((x == 1) | (y == 0) | ((a == 1) & (abs(y) == __builtin_inf()))) ? fill<V>(1) : r;
  }
};

#define STITCH_WIDE(name, Name)                   \
  template <class V>                              \
  STITCH_INLINE V name(V x) {                     \
    if constexpr (is_f32<V>) return in_f64<Name>(x); \
    else return libm::name(x);                    \
  }
STITCH_WIDE(sinh, Sinh)
STITCH_WIDE(cosh, Cosh)
STITCH_WIDE(asinh, Asinh)
STITCH_WIDE(acosh, Acosh)
STITCH_WIDE(atanh, Atanh)
#undef STITCH_WIDE

template <class V>
STITCH_INLINE V pow(V x, V y) {
  if constexpr (is_f32<V>) return in_f64<Pow>(x, y);
  else return libm::pow(x, y);
}

}  // namespace vec
}  // namespace stitch
#endif  // TF_STITCH_CPU_WIDE_H_
