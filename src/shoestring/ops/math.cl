/* math.cl -- functions that the C expressions of elementwise.py call, for cards.
 *
 *     exp log log1p tanh erf    as on the CPU (backends/cpu/math.h): the same polynomials, the same bits
 *     sin cos                   x = n pi/2 + r with pi/2 in three parts, |x| up to 10^5; beyond it r
 *                               loses bits in proportion to x
 *     power(a, b)               2^(b log2 |a|), log2 in two parts; the cases of IEEE 754
 *
 * Why not the compiler's own: their errors differ between drivers (OpenCL allows 16 units in the last
 * place for erf and pow), and CUDA's sin and cos need a stack. sqrt, floor, fabs and division are the
 * compiler's. Errors stay within 4 units in the last place, 16 for power.
 */
#define LN2_HIGH 0.693145752f
#define LN2_LOW 1.42860677e-6f
#define ROUND 12582912.0f /* 1.5 * 2^23: adding it rounds to a whole number */

DEVICE float sign_from(float x, float y)
{
    return AS_FLOAT((AS_UINT32(x) & 0x7fffffffu) | (AS_UINT32(y) & 0x80000000u));
}

DEVICE float exponential(float x)
{
    float c = x < -104.0f ? -104.0f : x; /* comparisons keep a NaN */
    c = c > 89.0f ? 89.0f : c;
    const float shifted = fma(c, 1.44269504f, ROUND);
    const float k = shifted - ROUND;
    const float r = fma(k, -LN2_LOW, fma(k, -LN2_HIGH, c));
    float p = fma(0.00138144766f, r, 0.00836877991f);
    p = fma(p, r, 0.0416683927f);
    p = fma(p, r, 0.166665196f);
    p = fma(p, r, 0.49999994f);
    p = fma(p, r * r, r) + 1.0f;
    const int n = (int)AS_UINT32(shifted) - (int)AS_UINT32(ROUND);
    const int half_n = n >> 1; /* 2^n in two factors, for n from -150 to 128 */
    return p * AS_FLOAT((uint32)(half_n + 127) << 23) * AS_FLOAT((uint32)(n - half_n + 127) << 23);
}

DEVICE float logarithm(float x)
{
    const bool tiny = x < 1.17549435e-38f; /* below the normal range */
    const float scaled = tiny ? x * 8388608.0f : x;
    const int i = (int)AS_UINT32(scaled) + (0x3f800000 - 0x3f3504f3);
    const float n = (float)((i >> 23) - 127 - (tiny ? 23 : 0));
    const float f = AS_FLOAT((uint32)((i & 0x007fffff) + 0x3f3504f3)) - 1.0f;
    float p = fma(0.0674654767f, f, -0.116755739f);
    p = fma(p, f, 0.118881613f);
    p = fma(p, f, -0.124056026f);
    p = fma(p, f, 0.142195538f);
    p = fma(p, f, -0.166679949f);
    p = fma(p, f, 0.200021192f);
    p = fma(p, f, -0.250000089f);
    p = fma(p, f, 0.333333135f);
    const float s = f * f;
    p = fma(n, LN2_LOW, fma(-0.5f, s, p * (f * s)));
    const float y = fma(n, LN2_HIGH, f + p);
    const float ordinary = x < INFINITY ? y : x; /* infinity and NaN are their own logarithms */
    const float positive = x == 0.0f ? -INFINITY : ordinary;
    return x < 0.0f ? NAN : positive;
}

DEVICE float logarithm_1p(float x)
{
    const float u = 1.0f + x;
    const float y = logarithm(u) * (x / (u - 1.0f));
    const float finite = x < INFINITY ? y : x;
    return u == 1.0f ? x : finite;
}

DEVICE float hyperbolic_tangent(float x)
{
    const float t = fabs(x), s = x * x;
    float p = fma(-0.0057049864f, s, 0.0206390861f);
    p = fma(p, s, -0.0537397154f);
    p = fma(p, s, 0.133314416f);
    p = fma(p, s, -0.333332807f);
    const float near = fma(p, s * t, t);
    const float far = 1.0f - 2.0f / (exponential(2.0f * t) + 1.0f);
    return sign_from(t < 0.625f ? near : far, x);
}

DEVICE float error_function(float x)
{
    const float t = fabs(x), s = x * x;
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
    const float far = sign_from(1.0f - exponential(-q), x);
    return t < 0.9375f ? near : far;
}

DEVICE float sine(float x, int quarters) /* sin(x + quarters * pi/2) */
{
    const float k = floor(fma(x, 0.636619772f, 0.5f));
    float r = fma(k, -1.5703125f, x); /* pi/2 in three parts, the first two exact in products */
    r = fma(k, -0.000483751297f, r);
    r = fma(k, -7.54978942e-8f, r);
    const int q = (int)k + quarters;
    const float s = r * r;
    float a = fma(-0.00019514632f, s, 0.00833215564f);
    a = fma(a, s, -0.166666552f);
    a = fma(a, s * r, r);
    float b = fma(2.44324128e-5f, s, -0.00138873095f);
    b = fma(b, s, 0.0416666456f);
    b = fma(b, s * s, fma(-0.5f, s, 1.0f));
    const float y = q & 1 ? b : a;
    return fabs(x) < INFINITY ? (q & 2 ? -y : y) : NAN;
}

/* log2(t) as high + low: t = 2^e m, ln m = 2 s + s^3 P(s^2), s = (m - 1) / (m + 1) with its rest */
DEVICE float power(float a, float b)
{
    const float t = fabs(a);
    const bool tiny = t < 1.17549435e-38f;
    const float scaled = tiny ? t * 8388608.0f : t;
    const int i = (int)AS_UINT32(scaled) + (0x3f800000 - 0x3f3504f3);
    const float e = (float)((i >> 23) - 127 - (tiny ? 23 : 0));
    const float m = AS_FLOAT((uint32)((i & 0x007fffff) + 0x3f3504f3));
    const float f = m - 1.0f, g = m + 1.0f, s = f / g;
    const float g_low = 1.0f - (g - m);
    const float s_low = fma(-s, g_low, fma(-s, g, f)) / g;
    const float z = s * s;
    float p = fma(z, 0.21f, 0.285714286f);
    p = fma(p, z, 0.4f);
    p = fma(p, z, 0.666666667f);
    const float rest = fma(p * z, s, 2.0f * s_low); /* ln m = 2 s + rest */
    const float h = 2.0f * s, l_high = h * 1.44269502f;
    const float l_low = fma(h, 1.44269502f, -l_high) + fma(h, 1.92596299e-8f, rest * 1.44269502f);
    const float high = e + l_high;
    const float low = (l_high - (high - e)) + l_low;
    const float w = b * high; /* b log2 t = w + w_low */
    const float w_low = fma(b, high, -w) + b * low;
    const float c = w < -160.0f ? -160.0f : w > 160.0f ? 160.0f : w;
    const float k = floor(c + 0.5f);
    const float r = ((c - k) + (fabs(w) < 160.0f ? w_low : 0.0f)) * 0.693147181f;
    float y = exponential(r);
    const int n = (int)k, half_n = n >> 1;
    y = y * AS_FLOAT((uint32)(half_n + 127) << 23) * AS_FLOAT((uint32)(n - half_n + 127) << 23);
    const float zero_or_infinity = (t < 1.0f) == (b > 0.0f) ? 0.0f : INFINITY;
    y = t == 0.0f || t == INFINITY || fabs(b) == INFINITY ? zero_or_infinity : y;
    y = t == 1.0f ? 1.0f : y;
    /* a negative base: an odd whole exponent keeps the sign, a fraction has no real result */
    const bool fraction = floor(b) != b, odd = floor(0.5f * b) != 0.5f * b;
    y = odd && !fraction ? sign_from(y, a) : y;
    y = a < 0.0f && t < INFINITY && fraction ? NAN : y;
    y = a != a || b != b ? a + b : y;
    return a == 1.0f || b == 0.0f ? 1.0f : y;
}

DEVICE float clipped(float x, float low, float high)
{
    const float y = x > low || x != x ? x : low;
    return y < high || y != y ? y : high;
}

#define exp(x) exponential(x)
#define log(x) logarithm(x)
#define log1p(x) logarithm_1p(x)
#define tanh(x) hyperbolic_tangent(x)
#define erf(x) error_function(x)
#define sin(x) ((x) == 0 ? (x) : sine(x, 0))
#define cos(x) sine(x, 1)
#define is_nan(x) ((x) != (x))
#define absolute(x) ((x) <= 0 ? 0 - (x) : (x))
