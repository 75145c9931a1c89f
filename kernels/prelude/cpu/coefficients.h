// Printed by kernels/prelude/minimax.py, lowest power first. Do not edit.
#ifndef TF_STITCH_CPU_COEFFICIENTS_H_
#define TF_STITCH_CPU_COEFFICIENTS_H_

#include "types.h"

namespace stitch {

// (e^r - 1 - r) / r^2, |r| <= ln 2 / 2, for exp. Relative error of the function 2^-27.99.
constexpr f32 kExpF32[] = {
    0x1.fffffc0000000p-2f,  // 0.49999994
    0x1.5554920000000p-3f,  // 0.166665211
    0x1.5558f20000000p-5f,  // 0.041668389
    0x1.1239f20000000p-7f,  // 0.00836872403
    0x1.6a243a0000000p-10f,  // 0.00138146023
};

// (e^r - 1 - r) / r^2, |r| <= ln 2 / 2, for expm1. Relative error of the function 2^-25.82.
constexpr f32 kExpm1F32[] = {
    0x1.fffffe0000000p-2f,  // 0.49999997
    0x1.5554b00000000p-3f,  // 0.166665435
    0x1.5556760000000p-5f,  // 0.0416672044
    0x1.1227780000000p-7f,  // 0.00836652145
    0x1.6be9ca0000000p-10f,  // 0.00138821884
};

// (e^r - 1 - r) / r^2, |r| <= ln 2 / 2, for exp. Relative error of the function 2^-56.4.
constexpr f64 kExpF64[] = {
    0x1.000000000000ap-1,  // 0.5
    0x1.55555555554fap-3,  // 0.166666667
    0x1.5555555550864p-5,  // 0.0416666667
    0x1.1111111127bc8p-7,  // 0.00833333333
    0x1.6c16c1842f440p-10,  // 0.00138888889
    0x1.a01a012a70d30p-13,  // 0.000198412695
    0x1.a01999fe89a37p-16,  // 2.4801493e-5
    0x1.71df250159115p-19,  // 2.7557586e-6
    0x1.28ad7fc0ec64cp-22,  // 2.76302668e-7
    0x1.ad800b4635344p-26,  // 2.50002004e-8
};

// (e^r - 1 - r) / r^2, |r| <= ln 2 / 2, for expm1. Relative error of the function 2^-59.98.
constexpr f64 kExpm1F64[] = {
    0x1.0000000000000p-1,  // 0.5
    0x1.5555555555559p-3,  // 0.166666667
    0x1.555555555553fp-5,  // 0.0416666667
    0x1.111111110f6d5p-7,  // 0.00833333333
    0x1.6c16c16c1f0bcp-10,  // 0.00138888889
    0x1.a01a01afd603bp-13,  // 0.000198412699
    0x1.a01a017bb0be6p-16,  // 2.48015872e-5
    0x1.71ddf878a0321p-19,  // 2.75572443e-6
    0x1.27e5365762e22p-22,  // 2.75574029e-7
    0x1.af5e80d1e5fd3p-26,  // 2.51089894e-8
    0x1.1ee84b5d75bd0p-29,  // 2.08752608e-9
};

// (log(1 + f) - f + f^2/2) / f^3, -1/4 <= f <= 1/2. Relative error of the function 2^-26.84.
constexpr f32 kLogF32[] = {
    0x1.5555a20000000p-2f,  // 0.333334476
    -0x1.0000400000000p-2f,  // -0.250000954
    0x1.9969aa0000000p-3f,  // 0.199908569
    -0x1.54efb20000000p-3f,  // -0.166472808
    0x1.2884700000000p-3f,  // 0.144783854
    -0x1.0d8c480000000p-3f,  // -0.131615222
    0x1.ac99780000000p-4f,  // 0.104638547
    -0x1.714d9e0000000p-5f,  // -0.0450809561
};

// (2 atanh(s) - 2 s) / s^3, |s| <= 1/5: powers of s^2. Relative error of the function 2^-60.87.
constexpr f64 kLogF64[] = {
    0x1.555555555554fp-1,  // 0.666666667
    0x1.999999999c0c2p-2,  // 0.4
    0x1.24924921ee9a1p-2,  // 0.285714286
    0x1.c71c7486d99a1p-3,  // 0.222222243
    0x1.745c4ce739ecbp-3,  // 0.181816674
    0x1.3b357f0eb17f4p-3,  // 0.15391063
    0x1.0dcfd6fb8cd38p-3,  // 0.131744079
    0x1.1b65250de2326p-3,  // 0.138376512
};

// (sin(r) - r) / r^3, |r| <= pi / 4: powers of r^2. Relative error of the function 2^-26.83.
constexpr f32 kSinF32[] = {
    -0x1.5555460000000p-3f,  // -0.166666552
    0x1.1107360000000p-7f,  // 0.00833215844
    -0x1.9942220000000p-13f,  // -0.00019514958
};

// (cos(r) - 1 + r^2/2) / r^4, |r| <= pi / 4: powers of r^2. Relative error of the function 2^-32.76.
constexpr f32 kCosF32[] = {
    0x1.55554a0000000p-5f,  // 0.0416666456
    -0x1.6c0c2e0000000p-10f,  // -0.0013887313
    0x1.99ea140000000p-16f,  // 2.44328003e-5
};

// (asin(s) - s) / s^3, |s| <= 1/2: powers of s^2. Relative error of the function 2^-27.38.
constexpr f32 kAsinF32[] = {
    0x1.5555c80000000p-3f,  // 0.166667521
    0x1.3301e60000000p-4f,  // 0.0749529824
    0x1.747e280000000p-5f,  // 0.0454703122
    0x1.8c29680000000p-6f,  // 0.0241797939
    0x1.596c440000000p-5f,  // 0.0421658829
};

// atan(s) / s, |s| <= 1: powers of s^2, above and below. Relative error of the function 2^-26.01.
constexpr f32 kAtanF32[] = {
    0x1.0000000000000p+0f,  // 1.0
    0x1.21099c0000000p+0f,  // 1.12905288
    0x1.2504c40000000p-2f,  // 0.286150992
    0x1.2380680000000p-7f,  // 0.00889592245
};
constexpr f32 kAtanBelowF32[] = {
    0x1.0000000000000p+0f,  // 1.0
    0x1.765ef00000000p+0f,  // 1.46238613
    0x1.25b0f60000000p-1f,  // 0.57361573
    0x1.9d59e00000000p-5f,  // 0.0504578948
};

// e^(x^2) erfc(x), 0 <= x <= 10.1: above and below. Relative error of the function 2^-25.53.
constexpr f32 kErfcF32[] = {
    0x1.0000000000000p+0f,  // 1.0
    0x1.3d0aec0000000p+0f,  // 1.2384479
    0x1.7699fe0000000p-1f,  // 0.731643617
    0x1.d57a9a0000000p-3f,  // 0.22923775
    0x1.0cb3ae0000000p-5f,  // 0.0328005217
};
constexpr f32 kErfcBelowF32[] = {
    0x1.0000000000000p+0f,  // 1.0
    0x1.2ef4360000000p+1f,  // 2.36682773
    0x1.337f000000000p+1f,  // 2.40231323
    0x1.5350320000000p+0f,  // 1.32544243
    0x1.a017840000000p-2f,  // 0.406339705
    0x1.dc41860000000p-5f,  // 0.0581367128
};

// t(x) / x with tanh(x) = 2 t / (1 + t^2), 0 < x <= 9.02: powers of x^2, above and below. Relative error of the function 2^-26.35.
constexpr f32 kTanhF32[] = {
    0x1.b398c00000000p-1f,  // 0.850774765
    0x1.9ef4ee0000000p-6f,  // 0.0253269505
    0x1.9763040000000p-14f,  // 9.71285772e-5
};
constexpr f32 kTanhBelowF32[] = {
    0x1.b398c00000000p+0f,  // 1.70154953
    0x1.8a23060000000p-3f,  // 0.192449614
    0x1.0cfd000000000p-9f,  // 0.00205221772
    0x1.184cf60000000p-19f,  // 2.08840243e-6
};

// t(x) / x with erf(x) = 2 t / (1 + t^2), 0 < x <= 3.93: powers of x^2, above and below. Relative error of the function 2^-24.18.
constexpr f32 kErfF32[] = {
    0x1.eb35380000000p-1f,  // 0.959390402
    0x1.18e4a20000000p-3f,  // 0.137154832
    0x1.1678480000000p-6f,  // 0.0169964507
    0x1.1c978a0000000p-11f,  // 0.000542816066
    -0x1.8527b80000000p-18f,  // -5.79886364e-6
};
constexpr f32 kErfBelowF32[] = {
    0x1.b352580000000p+0f,  // 1.70047522
    0x1.1318420000000p-2f,  // 0.268647224
    0x1.f217e60000000p-5f,  // 0.0608024113
    0x1.fafe160000000p-9f,  // 0.00386804598
};

}  // namespace stitch
#endif  // TF_STITCH_CPU_COEFFICIENTS_H_
