// exp log log1p tanh erf sin cos pow floor of one float, written so that the compiler turns a loop
// over them into vector code: no branch, no table, no call.
//
//     exp    x = n ln2 + r, |r| <= ln2 / 2:  2^n (1 + r + r^2 P(r))
//     log    x = 2^n (1 + f), sqrt(1/2) <= 1 + f < sqrt(2):  n ln2 + f - f^2 / 2 + f^3 P(f)
//     log1p  log(u) x / (u - 1) with u = fl(1 + x), where the error of u cancels (W. Kahan)
//     tanh   x + x^3 P(x^2) below 0.625, from there 1 - 2 / (exp(2|x|) + 1)
//     erf    x + x P(x^2) below 0.9375, from there 1 - exp(-P(|x|)) up to 4, where erf rounds to 1
//     sin cos   x = n pi/2 + r in float64, then sin or cos of r in [-pi/4, pi/4]
//     pow    2^(b log2|a|) in float64, with the cases of IEEE 754
//
// Errors stay within 4 units in the last place (measured: tests/test_math.py); sin and cos for |x|
// up to 2^20. Each P is the polynomial of least largest error on its interval (Remez exchange, 40
// digits), rounded to float32. NaN, infinities and -0 are as in IEEE 754; results below the normal
// range keep what bits they have.
#pragma once
#include <cstdint>

#include "vector.h"

namespace shoestring {
namespace SHOESTRING_ISA {

template <class To, class From>
static inline To bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "bits() keeps the size");
    To y;
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}

constexpr float kInfinity = __builtin_inff();
constexpr float kNaN = __builtin_nanf("");
constexpr float kLn2High = 0.693145752f;   // 15 bits: its product with an exponent is exact
constexpr float kLn2Low = 1.42860677e-6f;  // ln 2 - kLn2High
constexpr float kRound = 12582912.0f;      // 1.5 * 2^23: adding it rounds to a whole number

static inline float absolute(float x) { return __builtin_fabsf(x); }
static inline float sqrt(float x) { return __builtin_sqrtf(x); }

static inline float exp(float x) {
    float c = x < -104.0f ? -104.0f : x;  // comparisons keep a NaN
    c = c > 89.0f ? 89.0f : c;
    const float shifted = fma(c, 1.44269504f, kRound);
    const float k = shifted - kRound;
    const float r = fma(k, -kLn2Low, fma(k, -kLn2High, c));
    float p = fma(0.00138144766f, r, 0.00836877991f);
    p = fma(p, r, 0.0416683927f);
    p = fma(p, r, 0.166665196f);
    p = fma(p, r, 0.49999994f);
    p = fma(p, r * r, r) + 1.0f;
    const int32_t n = bits<int32_t>(shifted) - bits<int32_t>(kRound);
    const int32_t half = n >> 1;  // 2^n in two factors, for n from -150 to 128
    return p * bits<float>((half + 127) << 23) * bits<float>((n - half + 127) << 23);
}

static inline float log(float x) {
    const bool small = x < 1.17549435e-38f;  // below the normal range
    const float scaled = small ? x * 8388608.0f : x;
    const int32_t i = bits<int32_t>(scaled) + (0x3f800000 - 0x3f3504f3);
    const float n = static_cast<float>((i >> 23) - 127 - (small ? 23 : 0));
    const float f = bits<float>((i & 0x007fffff) + 0x3f3504f3) - 1.0f;
    float p = fma(0.0674654767f, f, -0.116755739f);
    p = fma(p, f, 0.118881613f);
    p = fma(p, f, -0.124056026f);
    p = fma(p, f, 0.142195538f);
    p = fma(p, f, -0.166679949f);
    p = fma(p, f, 0.200021192f);
    p = fma(p, f, -0.250000089f);
    p = fma(p, f, 0.333333135f);
    const float s = f * f;
    p = fma(n, kLn2Low, fma(-0.5f, s, p * (f * s)));
    const float y = fma(n, kLn2High, f + p);
    const float ordinary = x < kInfinity ? y : x;  // infinity and NaN are their own logarithms
    const float positive = x == 0.0f ? -kInfinity : ordinary;
    return x < 0.0f ? kNaN : positive;
}

static inline float log1p(float x) {
    const float u = 1.0f + x;
    const float y = log(u) * (x / (u - 1.0f));
    const float finite = x < kInfinity ? y : x;
    return u == 1.0f ? x : finite;
}

static inline float tanh(float x) {
    const float t = absolute(x), s = x * x;
    float p = fma(-0.0057049864f, s, 0.0206390861f);
    p = fma(p, s, -0.0537397154f);
    p = fma(p, s, 0.133314416f);
    p = fma(p, s, -0.333332807f);
    const float near = fma(p, s * t, t);
    const float far = 1.0f - 2.0f / (exp(2.0f * t) + 1.0f);
    return __builtin_copysignf(t < 0.625f ? near : far, x);
}

static inline float erf(float x) {
    const float t = absolute(x), s = x * x;
    float p = fma(8.26746691e-05f, s, -0.000811807695f);
    p = fma(p, s, 0.00519882981f);
    p = fma(p, s, -0.0268584974f);
    p = fma(p, s, 0.112836793f);
    p = fma(p, s, -0.376126319f);
    p = fma(p, s, 0.128379166f);
    const float near = fma(p, x, x);
    const float u = t > 4.0f ? 4.0f : t;
    float q = fma(-0.000194944834f, u, 0.00303367432f);
    q = fma(q, u, -0.0221897084f);
    q = fma(q, u, 0.103856236f);
    q = fma(q, u, 0.637265921f);
    q = fma(q, u, 1.12762737f);
    q = fma(q, u, 0.000207027595f);
    const float far = __builtin_copysignf(1.0f - exp(-q), x);
    return t < 0.9375f ? near : far;
}

// sin(x + quarters * pi/2)
static inline float sine(float x, int32_t quarters) {
    const double shifted = x * 0.63661977236758134 + 6755399441055744.0;  // 1.5 * 2^52 rounds
    const double k = shifted - 6755399441055744.0;
    // pi/2 in three parts, the first two of 25 bits: their products with k are exact
    const double d = x - k * 1.5707963109016418 - k * 1.5893254712295857e-08;
    const float r = static_cast<float>(d - k * 6.123233995736766e-17);
    const int32_t q = static_cast<int32_t>(bits<int64_t>(shifted)) + quarters;
    const float s = r * r;
    float a = fma(-0.00019514632f, s, 0.00833215564f);
    a = fma(a, s, -0.166666552f);
    a = fma(a, s * r, r);
    float b = fma(2.44324128e-5f, s, -0.00138873095f);
    b = fma(b, s, 0.0416666456f);
    b = fma(b, s * s, fma(-0.5f, s, 1.0f));
    const float y = q & 1 ? b : a;
    return q & 2 ? -y : y;
}

static inline float sin(float x) { return x == 0.0f ? x : sine(x, 0); }
static inline float cos(float x) { return sine(x, 1); }

static inline float floor(float x) { return __builtin_floorf(x); }

static inline float pow(float a, float b) {
    const float t = absolute(a);
    // log2(t) = e + log2(m), sqrt(1/2) <= m < sqrt(2), ln m = 2 atanh((m - 1) / (m + 1))
    const int64_t i = bits<int64_t>(static_cast<double>(t)) + 0x00095f619980c433;
    const double e = static_cast<double>(static_cast<int32_t>(i >> 52) - 1023);
    const double m = bits<double>((i & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 1.0 / 13 * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    p = (p * z + 1.0) * s * 2.8853900817779268;  // 2 / ln 2
    double w = b * (e + p);                      // NaN only where a rule below decides
    w = w < -160.0 ? -160.0 : w;
    w = w > 160.0 ? 160.0 : w;
    const double shifted = w + 6755399441055744.0;
    const double g = (w - (shifted - 6755399441055744.0)) * 0.69314718055994531;
    double q = g / 40320 + 1.0 / 5040;
    q = q * g + 1.0 / 720;
    q = q * g + 1.0 / 120;
    q = q * g + 1.0 / 24;
    q = q * g + 1.0 / 6;
    q = q * g + 0.5;
    q = q * g + 1.0;
    q = q * g + 1.0;
    const double power = bits<double>(bits<uint64_t>(q) + (bits<uint64_t>(shifted) << 52));
    const float zero_or_infinity = (t < 1.0f) == (b > 0.0f) ? 0.0f : kInfinity;
    float y = ((t == 0.0f) | (t == kInfinity)) ? zero_or_infinity : static_cast<float>(power);
    y = t == 1.0f ? 1.0f : y;
    // a negative base: an odd whole exponent keeps the sign, a fraction has no real result
    const bool fraction = floor(b) != b, odd = floor(0.5f * b) != 0.5f * b;
    const float with_sign = __builtin_copysignf(y, a);
    y = (odd & !fraction) ? with_sign : y;
    y = ((a < 0.0f) & (t < kInfinity) & fraction) ? kNaN : y;
    y = ((a != a) | (b != b)) ? a + b : y;
    return ((a == 1.0f) | (b == 0.0f)) ? 1.0f : y;
}

}  // namespace SHOESTRING_ISA
}  // namespace shoestring
