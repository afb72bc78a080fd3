// Matrix product: y[m, n] = sum_k A[m, k] * B[k, n], for every place of the leading axes.
//
// Both matrices are first copied into panels in the order in which the inner loop reads them: up to
// kM rows of A and kN columns of B at a time. Then each tile of y, kM x kN, is summed in registers
// over a stretch of at most kDepth k, so that B's panel stays in the first cache and some panels of
// A in the second. M is cut into panels of nearly equal height (128 = 8 x 13 + 2 x 12, not
// 9 x 14 + 2): the tile exists once for each height.
//
//   buffers   a, b, y, workspace for the panels (one for each of `slots`)
//   integers  M N K, strides of A (m, k), strides of B (k, n), slots, floats per slot, rank, rank
//             sizes, rank strides of a, rank strides of b
//   ports     store; also: of a single product sums[m] = sum_k A[m, k], sums[n] = sum_k B[k, n]
//
// Where A or B is the gradient of a layer's result its sums are the gradient of the layer's bias,
// added up from panels that have just been packed.
//
// Any strides: where k is contiguous, packing transposes W x W tiles in registers. Many places are
// dealt out to `slots` tasks; with one slot, the threads share each product instead. Every tile is
// one sum in one order, whichever thread computes it.
// What it does not do: keep packed weights from one call to the next.
#include "../backends/cpu/vector.h"
#include "program.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kM = 14;
#elif defined(__AVX2__)
constexpr int kM = 6;
#else
constexpr int kM = 4;
#endif
constexpr int kN = 2 * W;
constexpr int64_t kDepth = 256, kIntegers = 10;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t parts(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

struct Matrix {
    const float* data;
    int64_t across, along;  // strides: from one row (column) of the panel to the next, and along k
};

// One panel, all k: to[k][width], of which `real` columns exist and the others are 0.
void pack(const Matrix& x, int64_t first, int64_t real, int64_t K, int64_t width, float* to) {
    const float* from = x.data + first * x.across;
    if (x.across == 1) {
        for (int64_t k = 0; k < K; ++k, to += width, from += x.along)
            for (int64_t i = 0; i < width; i += W)
                store(to + i, load(from + i, mask(0, static_cast<int>(least(W, real - i)))),
                      mask(0, static_cast<int>(least(W, width - i))));
        return;
    }
    if (x.along != 1) {
        for (int64_t k = 0; k < K; ++k)
            for (int64_t i = 0; i < width; ++i)
                to[k * width + i] = i < real ? from[i * x.across + k * x.along] : 0.0f;
        return;
    }
    for (int64_t i = 0; i < width; i += W) {
        const int64_t rows = least(W, real - i);
        const Mask columns = mask(0, static_cast<int>(least(W, width - i)));
        for (int64_t k = 0; k < K; k += W) {
            const int64_t depth = least(W, K - k);
            const Mask lanes = mask(0, static_cast<int>(depth));
            vf r[W];
            for (int64_t j = 0; j < W; ++j)
                r[j] = j < rows ? load(from + (i + j) * x.across + k, lanes) : vf{};
            transpose(r);
            for (int64_t j = 0; j < depth; ++j) store(to + (k + j) * width + i, r[j], columns);
        }
    }
}

// sums[i] = sum over all k of a packed panel's column i, in double every kSumDepth k.
constexpr int64_t kSumDepth = 2048;

void add_up(const float* panel, int64_t K, int64_t width, int64_t real, float* sums) {
    for (int64_t i = 0; i < real; i += W) {
        const int64_t columns = least(W, real - i);
        const Mask m = mask(0, static_cast<int>(columns));
        const auto row = [&](int64_t k) { return load(panel + k * width + i, m); };
        double total[W] = {};
        for (int64_t k = 0, end; k < K; k = end) {
            end = least(K, k + kSumDepth);
            vf sum[4] = {};
            for (; k + 4 <= end; k += 4)
                for (int64_t j = 0; j < 4; ++j) sum[j] = sum[j] + row(k + j);
            for (; k < end; ++k) sum[0] = sum[0] + row(k);
            float part[W];
            store(part, (sum[0] + sum[1]) + (sum[2] + sum[3]));
            for (int64_t j = 0; j < columns; ++j) total[j] += part[j];
        }
        for (int64_t j = 0; j < columns; ++j) sums[i + j] = static_cast<float>(total[j]);
    }
}

// y[R x V*W] = (add ? y : 0) + sum over `depth` k of a[k][R] * b[k][V*W]; of its rows and columns
// `rows` and `columns` exist.
template <int R, int V>
void tile(const float* a, const float* b, int64_t depth, float* y, int64_t N, int64_t rows,
          int64_t columns, bool add) {
    vf sum[R][V] = {};
    for (int64_t k = 0; k < depth; ++k, a += R, b += V * W) {
        vf x[V];
#pragma GCC unroll 2
        for (int j = 0; j < V; ++j) x[j] = load(b + j * W);
#pragma GCC unroll 16
        for (int i = 0; i < R; ++i) {
            const vf w = splat(a[i]);
#pragma GCC unroll 2
            for (int j = 0; j < V; ++j) sum[i][j] = fma(w, x[j], sum[i][j]);
        }
    }
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) {
        const Mask m = mask(0, static_cast<int>(least(W, columns - j * W)));
#pragma GCC unroll 16
        for (int i = 0; i < R; ++i) {
            if (i >= rows) continue;
            float* to = y + i * N + j * W;
            store(to, add ? load(to, m) + sum[i][j] : sum[i][j], m);
        }
    }
}

using Tile = void (*)(const float*, const float*, int64_t, float*, int64_t, int64_t, int64_t, bool);

template <int R, int V>
Tile tile_of(int64_t height) {
    if constexpr (R == 1) return tile<1, V>;
    else return height == R ? tile<R, V> : tile_of<R - 1, V>(height);
}

// y: of this product, whose first element has number `base` in the output. rows, columns: where the
// sums of A's rows and B's columns go, if anywhere.
void product(const Matrix& A, const Matrix& B, int64_t M, int64_t N, int64_t K, float* y,
             float* space, const Store& epilogue, int64_t base, float* rows, float* columns) {
    const int64_t height = parts(M, parts(M, kM)), panels_m = parts(M, height);
    const int64_t panels_n = parts(N, kN), depth = parts(K, parts(K, kDepth));
    const int64_t narrow = N - (panels_n - 1) * kN <= W ? W : kN;  // width of the last panel of B
    float *b = space, *a = space + panels_n * kN * K;
    const bool small = M * N * K < 32768;
    const int64_t chunks_m = small ? 1 : parts(panels_m, 8);
    // an epilogue prefers long rows, where there are tasks enough without cutting them
    const int64_t chunks_n = small ? 1 : parts(panels_n, epilogue && chunks_m >= 16 ? 32 : 4);
    const Tile whole = tile_of<kM, 2>(height), half = tile_of<kM, 1>(height);
    parallel_for(small ? 1 : chunks_m + chunks_n, [&](int64_t task) {
        const int64_t m0 = small || task < chunks_m ? panels_m * task / chunks_m : panels_m;
        const int64_t m1 = m0 < panels_m ? panels_m * (task + 1) / chunks_m : m0;
        for (int64_t m = m0; m < m1; ++m) {
            const int64_t real = least(height, M - m * height);
            pack(A, m * height, real, K, height, a + m * height * K);
            if (rows != nullptr) add_up(a + m * height * K, K, height, real, rows + m * height);
        }
        if (!small && task < chunks_m) return;
        const int64_t chunk = small ? 0 : task - chunks_m;
        for (int64_t n = panels_n * chunk / chunks_n; n < panels_n * (chunk + 1) / chunks_n; ++n) {
            const int64_t real = least(kN, N - n * kN), width = n + 1 < panels_n ? kN : narrow;
            pack(B, n * kN, real, K, width, b + n * kN * K);
            if (columns != nullptr) add_up(b + n * kN * K, K, width, real, columns + n * kN);
        }
    });
    parallel_for(chunks_m * chunks_n, [&](int64_t task) {
        const int64_t i = task / chunks_n, j = task % chunks_n;
        for (int64_t k = 0; k < K; k += depth)
            for (int64_t n = panels_n * j / chunks_n; n < panels_n * (j + 1) / chunks_n; ++n) {
                const bool last = n + 1 == panels_n && narrow == W;
                for (int64_t m = panels_m * i / chunks_m; m < panels_m * (i + 1) / chunks_m; ++m)
                    (last ? half : whole)(a + (m * K + k) * height,
                                          b + n * kN * K + k * (last ? W : kN), least(depth, K - k),
                                          y + m * height * N + n * kN, N,
                                          least(height, M - m * height), N - n * kN, k > 0);
            }
        if (!epilogue) return;
        const int64_t top = panels_m * i / chunks_m * height, left = panels_n * j / chunks_n * kN;
        const int64_t bottom = least(panels_m * (i + 1) / chunks_m * height, M);
        const int64_t right = least(panels_n * (j + 1) / chunks_n * kN, N);
        epilogue.run(base + top * N, N, bottom - top, left, right);
    });
}

void matmul(const Arguments& x) {
    const int64_t* n = x.integers;
    const int64_t M = n[0], N = n[1], K = n[2], slots = n[7], room = n[8], rank = n[9];
    const int64_t *sizes = n + kIntegers, *strides_a = sizes + rank, *strides_b = strides_a + rank;
    const Store epilogue(x);
    const auto sums = [&](int64_t input) {
        const Attachment* also = x.at(Port::also, input);
        return also ? static_cast<float*>(also->buffers[0]) : nullptr;
    };
    float *rows = sums(0), *columns = sums(1);
    int64_t count = 1;
    for (int64_t d = 0; d < rank; ++d) count *= sizes[d];
    parallel_for(slots, [&](int64_t slot) {
        float* space = static_cast<float*>(x.buffers[3]) + slot * room;
        for (int64_t place = count * slot / slots; place < count * (slot + 1) / slots; ++place) {
            int64_t rest = place, at_a = 0, at_b = 0;
            for (int64_t d = rank - 1; d >= 0; --d) {
                at_a += rest % sizes[d] * strides_a[d];
                at_b += rest % sizes[d] * strides_b[d];
                rest /= sizes[d];
            }
            product({static_cast<const float*>(x.buffers[0]) + at_a, n[3], n[4]},
                    {static_cast<const float*>(x.buffers[1]) + at_b, n[6], n[5]}, M, N, K,
                    static_cast<float*>(x.buffers[2]) + place * M * N, space, epilogue,
                    place * M * N, rows, columns);
        }
    });
}

const char* complaint(const Counts& c) {
    if (c.buffers != 4 || c.integers < kIntegers) return "needs 4 buffers and 10 integers or more";
    const int64_t *n = c.values, rank = n[9];
    if (rank < 0 || c.integers != kIntegers + 3 * rank) return "needs 10 + 3 * rank integers";
    if (rank && (c.at(Port::also, 0) || c.at(Port::also, 1))) return "sums need one product";
    int64_t elements = n[0] * n[1];
    for (int64_t d = 0; d < rank; ++d) elements *= n[kIntegers + d];
    return store_complaint(c, elements);
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring

using shoestring::port, shoestring::Port;
SHOESTRING_KERNELS(matmul, {"matmul", shoestring::SHOESTRING_ISA::matmul,
                            shoestring::SHOESTRING_ISA::complaint,
                            port(Port::store) | port(Port::also, 0) | port(Port::also, 1)})
