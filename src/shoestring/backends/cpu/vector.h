// Vectors of W floats for kernels, one definition per instruction set.
//
//     vf, vi           W floats, W int32; + - * / and comparisons are the compiler's own, lane by
//     lane.
//                      A comparison gives a vi of 0 or -1; select(c, a, b) takes a where c is set
//     load store       any address; with a Mask only lanes [lo, hi) touch memory, the others read
//     as 0 fma(a, b, c)     a*b + c, rounded once where the machine can (everywhere but baseline)
//     max min          b where either is NaN, as the x86 instructions do; maximum minimum: NaN if
//     either is sum_lanes        halves are added to each other until one is left: an order that
//     depends on W alone transpose(r)     r[W] is a W x W tile: r[i] lane l becomes r[l] lane i
//
// avx512: W = 16; avx2: 8; neon and baseline (SSE2, or any machine through the compiler's generic
// vectors): 4. Everything has internal linkage, so that no instruction set's code can stand in for
// another's.
#pragma once
#include <cstdint>

#if defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "kernel.h"

namespace shoestring {
namespace SHOESTRING_ISA {

#if defined(__AVX512F__)
constexpr int W = 16;
#elif defined(__AVX2__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif

typedef float vf __attribute__((vector_size(W * 4)));
typedef int32_t vi __attribute__((vector_size(W * 4)));
typedef float vf_anywhere __attribute__((vector_size(W * 4), aligned(4), may_alias));
typedef int32_t vi_anywhere __attribute__((vector_size(W * 4), aligned(4), may_alias));

static inline vf load(const float* p) { return *reinterpret_cast<const vf_anywhere*>(p); }
static inline void store(float* p, vf v) { *reinterpret_cast<vf_anywhere*>(p) = v; }
static inline vi load(const int32_t* p) { return *reinterpret_cast<const vi_anywhere*>(p); }
static inline void store(int32_t* p, vi v) { *reinterpret_cast<vi_anywhere*>(p) = v; }
static inline vf splat(float x) { return x - vf{}; }
static inline vi splat(int32_t x) { return x - vi{}; }
static inline vf select(vi c, vf a, vf b) { return c ? a : b; }
static inline vi select(vi c, vi a, vi b) { return c ? a : b; }
static inline vf maximum(vf a, vf b) { return select(a != a, a, select(a > b, a, b)); }
static inline vf minimum(vf a, vf b) { return select(a != a, a, select(a < b, a, b)); }

#if defined(__AVX512F__)
typedef __mmask16 Mask;
static inline Mask mask(int lo, int hi) {
    return hi <= lo ? 0 : static_cast<Mask>(((1u << hi) - 1) & ~((1u << lo) - 1));
}
static inline vf load(const float* p, Mask m) { return (vf)_mm512_maskz_loadu_ps(m, p); }
static inline void store(float* p, vf v, Mask m) { _mm512_mask_storeu_ps(p, m, (__m512)v); }
static inline vf fma(vf a, vf b, vf c) {
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
static inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline vf max(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
static inline vf min(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
#elif defined(__AVX2__)
typedef __m256i Mask;
static inline Mask mask(int lo, int hi) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_and_si256(_mm256_cmpgt_epi32(lane, _mm256_set1_epi32(lo - 1)),
                            _mm256_cmpgt_epi32(_mm256_set1_epi32(hi), lane));
}
static inline vf load(const float* p, Mask m) { return (vf)_mm256_maskload_ps(p, m); }
static inline void store(float* p, vf v,
                         Mask m) {  // masked stores are slow on AMD: test for the full mask
    if (_mm256_movemask_ps(_mm256_castsi256_ps(m)) == 255) store(p, v);
    else _mm256_maskstore_ps(p, m, (__m256)v);
}
static inline vf fma(vf a, vf b, vf c) {
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
static inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline vf max(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
static inline vf min(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
#else
struct Mask {
    int lo, hi;
};
static inline Mask mask(int lo, int hi) { return {lo, hi}; }
static inline vf load(const float* p, Mask m) {
    vf v = {};
    for (int l = m.lo; l < m.hi; ++l) v[l] = p[l];
    return v;
}
static inline void store(float* p, vf v, Mask m) {
    for (int l = m.lo; l < m.hi; ++l) p[l] = v[l];
}
#if defined(__ARM_NEON)
static inline vf fma(vf a, vf b, vf c) {
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
static inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
static inline vf fma(vf a, vf b, vf c) { return a * b + c; }
static inline float fma(float a, float b, float c) { return a * b + c; }
#endif
#if defined(__SSE2__)
static inline vf max(vf a, vf b) { return (vf)_mm_max_ps((__m128)a, (__m128)b); }
static inline vf min(vf a, vf b) { return (vf)_mm_min_ps((__m128)a, (__m128)b); }
#else
static inline vf max(vf a, vf b) { return select(a > b, a, b); }
static inline vf min(vf a, vf b) { return select(a < b, a, b); }
#endif
#endif

static inline float sum_lanes(vf v) {
#if defined(__AVX512F__)
    const __m256 h =
        _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
    const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
#elif defined(__AVX2__)
    const __m128 q =
        _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
#else
    const vf q = v;
#endif
    return (q[0] + q[2]) + (q[1] + q[3]);
}

// Lanes 0, 2, 4, ... of a, then of b.
static inline vf evens(vf a, vf b) {
#if defined(__AVX512F__)
    const __m512i lanes =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return (vf)_mm512_permutex2var_ps((__m512)a, lanes, (__m512)b);
#elif defined(__AVX2__)
    const __m256d halves = _mm256_castps_pd(_mm256_shuffle_ps((__m256)a, (__m256)b, 0x88));
    return (vf)_mm256_castpd_ps(_mm256_permute4x64_pd(halves, 0xd8));
#else
    return vf{a[0], a[2], b[0], b[2]};
#endif
}

static inline float max_lanes(vf v) {  // NaN if any lane is
    float found = v[0];
    for (int l = 1; l < W; ++l) found = found != found || found > v[l] ? found : v[l];
    return found;
}

#if defined(__AVX512F__)
static inline void transpose(vf (&r)[16]) {
    __m512 a[16], b[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_ps((__m512)r[i], (__m512)r[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps((__m512)r[i], (__m512)r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)  // b[i + j]: column j of each 128-bit lane, rows i to i + 3
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
            const __m512d x = _mm512_castps_pd(a[i + j]), y = _mm512_castps_pd(a[i + 2 + j]);
            b[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            b[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        const __m512 even_low = _mm512_shuffle_f32x4(b[j], b[4 + j], 0x88);
        const __m512 even_high = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0x88);
        const __m512 odd_low = _mm512_shuffle_f32x4(b[j], b[4 + j], 0xdd);
        const __m512 odd_high = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0xdd);
        r[j] = (vf)_mm512_shuffle_f32x4(even_low, even_high, 0x88);
        r[4 + j] = (vf)_mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
        r[8 + j] = (vf)_mm512_shuffle_f32x4(even_low, even_high, 0xdd);
        r[12 + j] = (vf)_mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
    }
}
#elif defined(__AVX2__)
static inline void transpose(vf (&r)[8]) {
    __m256 a[8], b[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps((__m256)r[i], (__m256)r[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps((__m256)r[i], (__m256)r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
            const __m256d x = _mm256_castps_pd(a[i + j]), y = _mm256_castps_pd(a[i + 2 + j]);
            b[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(x, y));
            b[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(x, y));
        }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        r[j] = (vf)_mm256_permute2f128_ps(b[j], b[4 + j], 0x20);
        r[4 + j] = (vf)_mm256_permute2f128_ps(b[j], b[4 + j], 0x31);
    }
}
#elif defined(__SSE2__)
static inline void transpose(vf (&r)[4]) {
    const __m128 a = _mm_unpacklo_ps((__m128)r[0], (__m128)r[1]),
                 b = _mm_unpackhi_ps((__m128)r[0], (__m128)r[1]);
    const __m128 c = _mm_unpacklo_ps((__m128)r[2], (__m128)r[3]),
                 d = _mm_unpackhi_ps((__m128)r[2], (__m128)r[3]);
    r[0] = (vf)_mm_movelh_ps(a, c);
    r[1] = (vf)_mm_movehl_ps(c, a);
    r[2] = (vf)_mm_movelh_ps(b, d);
    r[3] = (vf)_mm_movehl_ps(d, b);
}
#else
static inline void transpose(vf (&r)[4]) {
    const vf a = r[0], b = r[1], c = r[2], d = r[3];
    r[0] = vf{a[0], b[0], c[0], d[0]};
    r[1] = vf{a[1], b[1], c[1], d[1]};
    r[2] = vf{a[2], b[2], c[2], d[2]};
    r[3] = vf{a[3], b[3], c[3], d[3]};
}
#endif

}  // namespace SHOESTRING_ISA
}  // namespace shoestring
