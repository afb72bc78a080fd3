// Mean and biased variance of x[outer][kept][inner] over outer and inner, for each place of kept.
//
//   buffers x, mean, variance   integers outer kept inner   port end
//
// Two passes: the sum, then the squared distances from the mean. E[x^2] - E[x]^2 would lose all
// digits of the variance when the mean is large. The second pass finds the data in the cache: for a
// batch of images one channel is small. Sums are kept per lane in float over one row and across
// rows in double, so that the error does not grow with their number.
#include "../backends/cpu/vector.h"
#include "program.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

// Sum over one row of f(x), four vectors of partial sums, then their lanes in a fixed order.
template <bool squares>
float row(const float* x, int64_t n, float shift) {
    vf sum[4] = {};
    const vf s = splat(shift);
    int64_t i = 0;
    for (; i + 4 * W <= n; i += 4 * W)
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            const vf d = load(x + i + j * W) - s;
            sum[j] = squares ? fma(d, d, sum[j]) : sum[j] + d;
        }
    for (; i < n; i += W) {
        const Mask m = mask(0, static_cast<int>(n - i < W ? n - i : W));
        vf d = load(x + i, m) - s;
        alignas(64) float lanes[W] = {};
        store(lanes, d, m);
        d = load(lanes);
        sum[0] = squares ? fma(d, d, sum[0]) : sum[0] + d;
    }
    return sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

void of_rows(const Arguments& a, int64_t outer, int64_t kept, int64_t inner) {
    const float* x = static_cast<const float*>(a.buffers[0]);
    float *mean = static_cast<float*>(a.buffers[1]), *variance = static_cast<float*>(a.buffers[2]);
    const double count = static_cast<double>(outer * inner);
    const int64_t chunk = outer * inner > 4096 ? 1 : 4096 / (outer * inner);
    parallel_for((kept + chunk - 1) / chunk, [&](int64_t task) {
        for (int64_t c = task * chunk; c < kept && c < (task + 1) * chunk; ++c) {
            const float shift = x[c * inner];  // sums of distances from one sample stay small
            double total = 0, squares = 0;
            for (int64_t n = 0; n < outer; ++n)
                total += row<false>(x + (n * kept + c) * inner, inner, shift);
            const double centre = static_cast<double>(shift) + total / count;
            const float middle = static_cast<float>(centre);
            for (int64_t n = 0; n < outer; ++n)
                squares += row<true>(x + (n * kept + c) * inner, inner, middle);
            const double off = centre - static_cast<double>(middle);
            mean[c] = middle;
            variance[c] = static_cast<float>(squares / count - off * off);
        }
    });
}

// inner = 1: columns of a matrix [outer, kept], a block of them at a time.
void of_columns(const Arguments& a, int64_t outer, int64_t kept) {
    const float* x = static_cast<const float*>(a.buffers[0]);
    float *mean = static_cast<float*>(a.buffers[1]), *variance = static_cast<float*>(a.buffers[2]);
    constexpr int64_t kBlock = 64;
    const double count = static_cast<double>(outer);
    parallel_for((kept + kBlock - 1) / kBlock, [&](int64_t task) {
        const int64_t c = task * kBlock, n = kept - c < kBlock ? kept - c : kBlock;
        double sum[kBlock] = {}, squares[kBlock] = {};
        for (int64_t k = 0; k < outer; ++k)
            for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<double>(x[k * kept + c + i]);
        for (int64_t i = 0; i < n; ++i) sum[i] /= count;
        for (int64_t k = 0; k < outer; ++k)
            for (int64_t i = 0; i < n; ++i) {
                const double d = static_cast<double>(x[k * kept + c + i]) - sum[i];
                squares[i] += d * d;
            }
        for (int64_t i = 0; i < n; ++i) {
            mean[c + i] = static_cast<float>(sum[i]);
            variance[c + i] = static_cast<float>(squares[i] / count);
        }
    });
}

void moments(const Arguments& a) {
    const int64_t outer = a.integers[0], kept = a.integers[1], inner = a.integers[2];
    if (inner == 1) of_columns(a, outer, kept);
    else of_rows(a, outer, kept, inner);
    run_end(a);
}

const char* complaint(const Counts& c) {
    return c.buffers == 3 && c.integers == 3 ? nullptr : "needs 3 buffers and 3 integers";
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring

using shoestring::port, shoestring::Port;
SHOESTRING_KERNELS(norm, {"moments", shoestring::SHOESTRING_ISA::moments,
                          shoestring::SHOESTRING_ISA::complaint, port(Port::end)})
