// Matrix product: y[m, n] = sum_k A[m, k] * B[k, n], for every place of the leading axes.
//
// Both matrices are first copied into panels in the order in which the inner loop reads them: kM
// rows of A and kN columns of B at a time, padded with zeros at the edges. Then each tile of y, kM
// x kN, is summed in registers over a stretch of kDepth k, so that a panel of A stays in the first
// cache and a stretch of B's panel in the second.
//
//   buffers   a, b, y, workspace for the panels
//   integers  M N K, strides of A (m, k), strides of B (k, n), rank, rank sizes, rank strides of a,
//             rank strides of b
//
// Any strides: a transposed operand costs nothing but its way through the cache while packing.
// Every tile is one sum in one order, whichever thread computes it.
#include "../backends/cpu/vector.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kM = 14, kVectors = 2;
#elif defined(__AVX2__)
constexpr int kM = 6, kVectors = 2;
#else
constexpr int kM = 4, kVectors = 2;
#endif
constexpr int kN = kVectors * W;
constexpr int64_t kDepth = 256;

struct Matrix {
    const float* data;
    int64_t across, along;  // strides: from one row (column) of the panel to the next, and along k
};

// Panel number `panel` of `width` rows (columns), all k: [k][width].
void pack(const Matrix& x, int64_t count, int64_t K, int64_t panel, int width, float* to) {
    const int64_t first = panel * width, real = count - first < width ? count - first : width;
    const float* from = x.data + first * x.across;
    to += panel * width * K;
    if (x.across == 1) {
        for (int64_t k = 0; k < K; ++k, to += width, from += x.along) {
            for (int64_t i = 0; i < real; ++i) to[i] = from[i];
            for (int64_t i = real; i < width; ++i) to[i] = 0.0f;
        }
        return;
    }
    for (int64_t i = 0; i < width; ++i)
        for (int64_t k = 0; k < K; ++k)
            to[k * width + i] = i < real ? from[i * x.across + k * x.along] : 0.0f;
}

// y[kM x kN] = (add ? y : 0) + sum over `depth` k; only `rows` x `columns` of it exist.
void tile(const float* a, const float* b, int64_t depth, float* y, int64_t N, int rows,
          int64_t columns, bool add) {
    vf sum[kM][kVectors] = {};
    for (int64_t k = 0; k < depth; ++k, a += kM, b += kN) {
        vf x[kVectors];
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; ++j) x[j] = load(b + j * W);
#pragma GCC unroll 16
        for (int i = 0; i < kM; ++i) {
            const vf w = splat(a[i]);
#pragma GCC unroll 2
            for (int j = 0; j < kVectors; ++j) sum[i][j] = fma(w, x[j], sum[i][j]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kM; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; ++j) {
            const int64_t lanes = columns - j * W;
            if (i >= rows || lanes <= 0) continue;
            const Mask m = mask(0, static_cast<int>(lanes < W ? lanes : W));
            float* to = y + i * N + j * W;
            store(to, add ? load(to, m) + sum[i][j] : sum[i][j], m);
        }
}

void product(const Matrix& A, const Matrix& B, int64_t M, int64_t N, int64_t K, float* y,
             float* space) {
    const int64_t panels_m = (M + kM - 1) / kM, panels_n = (N + kN - 1) / kN;
    float *a = space, *b = space + panels_m * kM * K;
    const bool small = M * N * K < 32768;
    const int64_t chunk_n = small ? panels_n : 4, chunks_n = (panels_n + chunk_n - 1) / chunk_n;
    const int64_t chunk_m = small ? panels_m : 8, chunks_m = (panels_m + chunk_m - 1) / chunk_m;
    parallel_for(chunks_m + chunks_n, [&](int64_t task) {
        const bool of_a = task < chunks_m;
        const int64_t first = of_a ? task * chunk_m : (task - chunks_m) * chunk_n;
        const int64_t all = of_a ? panels_m : panels_n, last = first + (of_a ? chunk_m : chunk_n);
        for (int64_t panel = first; panel < (last < all ? last : all); ++panel)
            if (of_a) pack(A, M, K, panel, kM, a);
            else pack(B, N, K, panel, kN, b);
    });
    parallel_for(chunks_m * chunks_n, [&](int64_t task) {
        const int64_t m0 = task / chunks_n * chunk_m, n0 = task % chunks_n * chunk_n;
        const int64_t m1 = m0 + chunk_m < panels_m ? m0 + chunk_m : panels_m;
        const int64_t n1 = n0 + chunk_n < panels_n ? n0 + chunk_n : panels_n;
        for (int64_t k = 0; k < K || k == 0; k += kDepth)
            for (int64_t n = n0; n < n1; ++n)
                for (int64_t m = m0; m < m1; ++m)
                    tile(a + (m * K + k) * kM, b + (n * K + k) * kN,
                         K - k < kDepth ? K - k : kDepth, y + m * kM * N + n * kN, N,
                         static_cast<int>(M - m * kM < kM ? M - m * kM : kM), N - n * kN, k > 0);
    });
}

void matmul(const Arguments& x) {
    const int64_t* n = x.integers;
    const int64_t M = n[0], N = n[1], K = n[2], rank = n[7];
    const int64_t *sizes = n + 8, *strides_a = sizes + rank, *strides_b = strides_a + rank;
    int64_t count = 1;
    for (int64_t d = 0; d < rank; ++d) count *= sizes[d];
    for (int64_t place = 0; place < count; ++place) {
        int64_t rest = place, at_a = 0, at_b = 0;
        for (int64_t d = rank - 1; d >= 0; --d) {
            at_a += rest % sizes[d] * strides_a[d];
            at_b += rest % sizes[d] * strides_b[d];
            rest /= sizes[d];
        }
        product({static_cast<const float*>(x.buffers[0]) + at_a, n[3], n[4]},
                {static_cast<const float*>(x.buffers[1]) + at_b, n[6], n[5]}, M, N, K,
                static_cast<float*>(x.buffers[2]) + place * M * N,
                static_cast<float*>(x.buffers[3]));
    }
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring

SHOESTRING_KERNELS(matmul, {"matmul", shoestring::SHOESTRING_ISA::matmul})
