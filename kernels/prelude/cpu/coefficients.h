// Printed by kernels/prelude/minimax.py, lowest power first. Do not edit.
#ifndef TF_STITCH_CPU_COEFFICIENTS_H_
#define TF_STITCH_CPU_COEFFICIENTS_H_

#include "types.h"

namespace stitch {

// (e^r - 1 - r) / r^2, |r| <= ln 2 / 2. Relative error of the function 2^-25.82.
constexpr f32 kExpF32[] = {
    0x1.fffffe0000000p-2f,  // 0.49999997
    0x1.5554b00000000p-3f,  // 0.166665435
    0x1.5556760000000p-5f,  // 0.0416672044
    0x1.1227780000000p-7f,  // 0.00836652145
    0x1.6be9ca0000000p-10f,  // 0.00138821884
};

// (e^r - 1 - r) / r^2, |r| <= ln 2 / 2. Relative error of the function 2^-59.98.
constexpr f64 kExpF64[] = {
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

// (log(1 + f) - f + f^2/2) / f^3, |f| <= 1/3. Relative error of the function 2^-27.26.
constexpr f32 kLogF32[] = {
    0x1.5555060000000p-2f,  // 0.333332151
    -0x1.fffeee0000000p-3f,  // -0.249997959
    0x1.99d0280000000p-3f,  // 0.200104058
    -0x1.559dee0000000p-3f,  // -0.166805133
    0x1.1ed6aa0000000p-3f,  // 0.140057877
    -0x1.f30c820000000p-4f,  // -0.1218381
    0x1.1e690e0000000p-3f,  // 0.139848813
    -0x1.08114c0000000p-3f,  // -0.128939241
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

// tanh(x) / x, 0 < x <= 9.02: powers of x^2, above and below. Relative error of the function 2^-26.34.
constexpr f32 kTanhF32[] = {
    0x1.0001bc0000000p+0f,  // 1.00002646
    0x1.182c040000000p-3f,  // 0.136802703
    0x1.fb0abc0000000p-9f,  // 0.00386842294
    0x1.d5e58a0000000p-16f,  // 2.80080221e-5
    0x1.06bafc0000000p-25f,  // 3.0585845e-8
    -0x1.ad72640000000p-37f,  // -1.22056133e-11
};
constexpr f32 kTanhBelowF32[] = {
    0x1.0001bc0000000p+0f,  // 1.00002646
    0x1.e16da60000000p-2f,  // 0.470144838
    0x1.be683c0000000p-6f,  // 0.0272465311
    0x1.9d01420000000p-12f,  // 0.000393872178
    0x1.5994c40000000p-20f,  // 1.28738998e-6
};

// erf(x) / x, 0 < x <= 3.93: powers of x^2, above and below. Relative error of the function 2^-27.19.
constexpr f32 kErfF32[] = {
    0x1.20de1c0000000p+0f,  // 1.12838912
    0x1.7b2fe40000000p-3f,  // 0.185149938
    0x1.bc754c0000000p-5f,  // 0.0542551503
    0x1.f75c300000000p-9f,  // 0.00384033285
    0x1.8b7c6c0000000p-12f,  // 0.000377164863
    0x1.3609ec0000000p-18f,  // 4.6199375e-6
    -0x1.b9c70e0000000p-27f,  // -1.28574191e-8
};
constexpr f32 kErfBelowF32[] = {
    0x1.0000940000000p+0f,  // 1.00000882
    0x1.fd5bfc0000000p-2f,  // 0.497421205
    0x1.d27c4e0000000p-4f,  // 0.113888077
    0x1.f9c5e40000000p-7f,  // 0.0154349674
    0x1.556b840000000p-10f,  // 0.00130241388
    0x1.0624aa0000000p-14f,  // 6.24998138e-5
};

}  // namespace stitch
#endif  // TF_STITCH_CPU_COEFFICIENTS_H_
