// Measures the functions of f32: the largest error in ulps against float64, and nanoseconds an element.
//
//   g++ -std=c++17 -O3 -march=native -ffp-contract=off -fwrapv -fno-math-errno -fno-trapping-math
//     -Ikernels/prelude/cpu kernels/prelude/measure.cc -o measure
//   ./measure 997            every 997th f32, all functions
//   ./measure 1 exp tanh     every f32: a few minutes a function
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "stitch.h"

namespace {

using stitch::f32;
using stitch::i64;

constexpr i64 kCount = 4096;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return x > 40 ? x : std::log1p(std::exp(x)); }
double rsqrt(double x) { return 1 / std::sqrt(x); }

struct Function {
  const char* name;
  void (*of)(const f32*, f32*);
  double (*exact)(double);
  double low, high;  // where it is timed
};

#define FUNCTION(name, exact, low, high)                                                               \
  Function {                                                                                           \
    #name,                                                                                             \
        [](const f32* in, f32* out) {                                                                  \
          for (i64 i = 0; i < kCount; i += stitch::kNative)                                            \
            stitch::store(out + i, stitch::name(stitch::load<stitch::kNative>(in + i)));               \
        },                                                                                             \
        exact, low, high                                                                               \
  }

const Function kFunctions[] = {
    FUNCTION(exp, std::exp, -4, 4),       FUNCTION(expm1, std::expm1, -4, 4),
    FUNCTION(log, std::log, 0.01, 8),     FUNCTION(log1p, std::log1p, 0, 8),
    FUNCTION(tanh, std::tanh, -4, 4),     FUNCTION(sigmoid, sigmoid, -4, 4),
    FUNCTION(softplus, softplus, -4, 4),  FUNCTION(erf, std::erf, -4, 4),
    FUNCTION(erfc, std::erfc, -4, 4),     FUNCTION(rsqrt, rsqrt, 0.01, 8),
    FUNCTION(sin, std::sin, -4, 4),       FUNCTION(cos, std::cos, -4, 4),
    FUNCTION(tan, std::tan, -4, 4),       FUNCTION(asin, std::asin, -1, 1),
    FUNCTION(acos, std::acos, -1, 1),     FUNCTION(atan, std::atan, -4, 4),
    FUNCTION(sinh, std::sinh, -4, 4),     FUNCTION(cosh, std::cosh, -4, 4),
    FUNCTION(asinh, std::asinh, -4, 4),   FUNCTION(acosh, std::acosh, 1, 8),
    FUNCTION(atanh, std::atanh, -1, 1),
};

f32 in[kCount], out[kCount];

struct Worst {
  double ulps = 0;
  f32 at = 0;
  long wrong = 0;  // NaN, infinity or |tanh|, |erf| above 1 where it should not be
  f32 wrong_at = 0;

  // Results that are subnormal, and infinite ones by rounding, are not counted.
  void add(const Function& function) {
    function.of(in, out);
    for (i64 i = 0; i < kCount; ++i) {
      const double exact = function.exact(in[i]);
      if (std::fabs(exact) < 0x1p-126 || (std::fabs(exact) > 3.4028234e38 && std::fabs(exact) < 3.4028236e38)) continue;
      const bool finite = std::fabs(exact) < 3.4028236e38;
      if (finite != bool(std::isfinite(out[i])) || std::isnan(exact) != bool(std::isnan(out[i])) ||
          (std::fabs(exact) <= 1 && std::fabs(out[i]) > 1 + 4e-7)) {
        // a subnormal operand may count as 0
        if (std::fabs(in[i]) >= 0x1p-126f) ++wrong, wrong_at = in[i];
        continue;
      }
      if (!finite) continue;
      int exponent;
      std::frexp(exact, &exponent);
      const double distance = std::fabs(out[i] - exact) / std::ldexp(1.0, exponent - 24);
      if (distance > ulps) ulps = distance, at = in[i];
    }
  }
};

double nanoseconds(const Function& function) {
  for (i64 i = 0; i < kCount; ++i) in[i] = f32(function.low + (function.high - function.low) * ((i * 7919) % kCount) / kCount);
  double best = 1e9;
  for (int attempt = 0; attempt < 100; ++attempt) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; ++i) function.of(in, out);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::fmin(best, took.count() / 20 / kCount * 1e9);
  }
  return best;
}

bool chosen(const Function& function, int count, char** names) {
  bool found = count == 0;
  for (int i = 0; i < count; ++i) found |= !std::strcmp(names[i], function.name);
  return found;
}

}  // namespace

int main(int count, char** arguments) {
  const unsigned long long step = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 997;
  std::printf("| function | max ulp | at | wrong | ns |\n|---|---|---|---|---|\n");
  for (const Function& function : kFunctions) {
    if (!chosen(function, count - 2 > 0 ? count - 2 : 0, arguments + 2)) continue;
    Worst worst;
    i64 filled = 0;
    for (unsigned long long bits = 0; bits < 1ull << 32; bits += step) {
      const unsigned word = unsigned(bits);
      std::memcpy(&in[filled++], &word, 4);
      if (filled == kCount) worst.add(function), filled = 0;
    }
    const double ns = nanoseconds(function);
    std::printf("| %s | %.2f | %.8g | %ld", function.name, worst.ulps, worst.at, worst.wrong);
    if (worst.wrong) std::printf(" (%a)", worst.wrong_at);
    std::printf(" | %.2f |\n", ns);
    std::fflush(stdout);
  }
}
