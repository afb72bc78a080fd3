// 2-D convolution in three directions, all on one idea: a tap is an offset.
//
// Let src be the input with its padding. Output pixel (p, q) meets tap (c, r, s) at
//     src[n][c][p*a + r][q*b + s],   stride (a, b)
// If the columns of src are sorted by their remainder of b, column q*b + s lies at position q + s/b
// of part s % b: for a fixed tap, pixels q, q+1, ... are neighbours in memory, whatever the stride.
// So
//     y[n,k,p,q] = sum_t w[k,t] * src[n][offset_t + p*step + q],   t = (c, r, s)
// and no patch is ever copied: vectors of W pixels are read where they lie. Without padding and
// with b = 1, src is x.
//
//   conv2d              the sum above: tiles of kRows channels x kVectors vectors of pixels in
//                       registers
//   conv2d_input_grad   the same sum over dy, spread out by the stride with zeros between, with w
//                       turned round:
//                       dx[n,c,h,w] = sum_{k,r,s} w[k,c,R-1-r,S-1-s] * spread[n][k][h + r][w + s]
//   conv2d_weight_grad  dw[k,t] = sum_{n,p,q} dy[n,k,p,q] * src[n][offset_t + p*step + q]: lanes
//                       are pixels, added up last
//
// buffers   input, weight (or second input), output, workspace for packed weights or partial sums,
//           workspace for src
// integers  N C H W K R S P Q, stride a b, padding top left (of the forward convolution, in all
//           three)
// The batch is cut into 8 groups for weight_grad, into 2 where there are taps enough to share;
// their sums are added in order: threads do not change bits. What it does not do: cut channels so
// that large images stay in cache, or save multiplications (Winograd).
#include "../backends/cpu/vector.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kRows = 8, kVectors = 3, kGradRows = 4, kGradTaps = 5;
#elif defined(__AVX2__)
constexpr int kRows = 4, kVectors = 3, kGradRows = 3, kGradTaps = 3;
#else
constexpr int kRows = 4, kVectors = 2, kGradRows = 2, kGradTaps = 4;
#endif

struct Sizes {
    int64_t N, C, H, W_, K, R, S, P, Q, a, b, top, left;
};
Sizes sizes(const Arguments& x) {
    const int64_t* n = x.integers;
    return {n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], n[12]};
}

// Where taps and pixels lie in src: image n at n*image, tap (c, r, s) at c*plane + r*row + (s %
// b)*part + s / b.
struct Source {
    const float* data;
    int64_t image, plane, row, part, step, b;
    int64_t tap(int64_t c, int64_t r, int64_t s) const {
        return c * plane + r * row + (s % b) * part + s / b;
    }
};

// src for the forward geometry: x itself, or a padded copy with sorted columns in `space`.
Source unfold(const Sizes& z, const float* x, float* space) {
    const int64_t rows = (z.P - 1) * z.a + z.R, columns = z.Q + (z.S - 1) / z.b;
    if (z.b == 1 && !z.top && !z.left && rows <= z.H && z.Q + z.S - 1 <= z.W_)
        return {x, z.C * z.H * z.W_, z.H * z.W_, z.W_, 0, z.a * z.W_, 1};
    parallel_for(z.N * z.C, [&](int64_t plane) {
        const float* from = x + plane * z.H * z.W_;
        float* to = space + plane * rows * z.b * columns;
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t part = 0; part < z.b; ++part, to += columns)
                for (int64_t j = 0; j < columns; ++j) {
                    const int64_t h = i - z.top, w = j * z.b + part - z.left;
                    to[j] = h >= 0 && h < z.H && w >= 0 && w < z.W_ ? from[h * z.W_ + w] : 0.0f;
                }
    });
    const int64_t row = z.b * columns;
    return {space, z.C * rows * row, rows * row, row, columns, z.a * row, z.b};
}

struct Vector {
    int64_t source, target;
    int lanes;
};

// Vector number v of an image: `across` vectors per row of `width` pixels.
Vector pixels(int64_t v, int64_t across, int64_t width, int64_t step) {
    const int64_t p = v / across, q = v % across * W;
    return {p * step + q, p * width + q, static_cast<int>(width - q < W ? width - q : W)};
}

// One tile: kRows outputs x V vectors, over all taps. weights: [tap][kRows]; y: kRows planes.
template <int V>
void tile(const float* source, const Vector* at, const float* weights, const int64_t* taps,
          int64_t count, float* y, int64_t plane, int rows) {
    vf sum[kRows][V] = {};
    Mask lanes[V];
    for (int j = 0; j < V; ++j) lanes[j] = mask(0, at[j].lanes);
    for (int64_t t = 0; t < count; ++t, weights += kRows) {
        vf x[V];
        const float* from = source + taps[t];
#pragma GCC unroll 4
        for (int j = 0; j < V; ++j) x[j] = load(from + at[j].source, lanes[j]);
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
            const vf w = splat(weights[i]);
#pragma GCC unroll 4
            for (int j = 0; j < V; ++j) sum[i][j] = fma(w, x[j], sum[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < V; ++j)
            if (i < rows) store(y + i * plane + at[j].target, sum[i][j], lanes[j]);
}

// y[n, k, p, q] = sum over taps; weights are packed as [K / kRows][taps][kRows], the taps' offsets
// come after them.
void convolve(const Source& src, int64_t N, int64_t channels, int64_t R, int64_t S, int64_t K,
              int64_t P, int64_t Q, float* packed, float* y) {
    const int64_t count = channels * R * S;
    int64_t* taps = reinterpret_cast<int64_t*>(packed + (K + 7) / 8 * 8 * count);
    for (int64_t t = 0; t < count; ++t) taps[t] = src.tap(t / (R * S), t / S % R, t % S);
    const int64_t across = (Q + W - 1) / W, vectors = P * across, blocks = (K + kRows - 1) / kRows;
    parallel_for(N, [&](int64_t n) {
        const float* image = src.data + n * src.image;
        for (int64_t v = 0; v < vectors; v += kVectors) {
            Vector at[kVectors];
            const int width = static_cast<int>(vectors - v < kVectors ? vectors - v : kVectors);
            for (int j = 0; j < width; ++j) at[j] = pixels(v + j, across, Q, src.step);
            for (int64_t block = 0; block < blocks; ++block) {
                const int64_t k = block * kRows;
                const int rows = static_cast<int>(K - k < kRows ? K - k : kRows);
                float* out = y + (n * K + k) * P * Q;
                const float* w = packed + k * count;
                if (width == 3) tile<3>(image, at, w, taps, count, out, P * Q, rows);
                else if (width == 2) tile<2>(image, at, w, taps, count, out, P * Q, rows);
                else tile<1>(image, at, w, taps, count, out, P * Q, rows);
            }
        }
    });
}

void conv2d(const Arguments& a) {
    const Sizes z = sizes(a);
    const float* w = static_cast<const float*>(a.buffers[1]);
    float* packed = static_cast<float*>(a.buffers[3]);
    const int64_t count = z.C * z.R * z.S;
    for (int64_t k = 0; k < (z.K + kRows - 1) / kRows * kRows; ++k)
        for (int64_t t = 0; t < count; ++t)
            packed[(k / kRows * count + t) * kRows + k % kRows] = k < z.K ? w[k * count + t] : 0.0f;
    const Source src =
        unfold(z, static_cast<const float*>(a.buffers[0]), static_cast<float*>(a.buffers[4]));
    convolve(src, z.N, z.C, z.R, z.S, z.K, z.P, z.Q, packed, static_cast<float*>(a.buffers[2]));
}

void conv2d_input_grad(const Arguments& a) {
    const Sizes z = sizes(a);
    const float* dy = static_cast<const float*>(a.buffers[0]);
    const float* w = static_cast<const float*>(a.buffers[1]);
    float *packed = static_cast<float*>(a.buffers[3]), *space = static_cast<float*>(a.buffers[4]);
    const int64_t taps = z.R * z.S, count = z.K * taps, rows = z.H + z.R - 1,
                  columns = z.W_ + z.S - 1;
    for (int64_t c = 0; c < (z.C + kRows - 1) / kRows * kRows; ++c)
        for (int64_t t = 0; t < count; ++t)
            packed[(c / kRows * count + t) * kRows + c % kRows] =
                c < z.C ? w[(t / taps * z.C + c) * taps + taps - 1 - t % taps] : 0.0f;
    parallel_for(z.N * z.K, [&](int64_t plane) {
        float* to = space + plane * rows * columns;
        const float* from = dy + plane * z.P * z.Q;
        for (int64_t i = 0; i < rows * columns; ++i) to[i] = 0.0f;
        for (int64_t p = 0; p < z.P; ++p) {
            const int64_t i = p * z.a + z.R - 1 - z.top;
            if (i < 0 || i >= rows) continue;
            for (int64_t q = 0; q < z.Q; ++q) {
                const int64_t j = q * z.b + z.S - 1 - z.left;
                if (j >= 0 && j < columns) to[i * columns + j] = from[p * z.Q + q];
            }
        }
    });
    const Source src = {space, z.K * rows * columns, rows * columns, columns, 0, columns, 1};
    convolve(src, z.N, z.K, z.R, z.S, z.C, z.H, z.W_, packed, static_cast<float*>(a.buffers[2]));
}

// dw for kGradRows channels of dy and kGradTaps taps, over images [first, last). rows, taps: how
// many are real.
void gradient_tile(const Source& src, const Sizes& z, const float* dy, int64_t k, int rows,
                   const int64_t* offsets, int taps, int64_t first, int64_t last, float* dw,
                   int64_t count) {
    const int64_t across = (z.Q + W - 1) / W, plane = z.P * z.Q;
    vf sum[kGradRows][kGradTaps] = {};
    int64_t row[kGradRows], tap[kGradTaps];
    for (int i = 0; i < kGradRows; ++i) row[i] = (k + (i < rows ? i : 0)) * plane;
    for (int j = 0; j < kGradTaps; ++j) tap[j] = offsets[j < taps ? j : 0];
    for (int64_t n = first; n < last; ++n) {
        const float *from = src.data + n * src.image, *g = dy + n * z.K * plane;
        for (int64_t p = 0; p < z.P; ++p)
            for (int64_t v = 0; v < across; ++v) {
                const int64_t q = v * W, at = p * z.Q + q, source = p * src.step + q;
                const Mask lanes = mask(0, static_cast<int>(z.Q - q < W ? z.Q - q : W));
                vf d[kGradRows];
#pragma GCC unroll 4
                for (int i = 0; i < kGradRows; ++i) d[i] = load(g + row[i] + at, lanes);
#pragma GCC unroll 5
                for (int j = 0; j < kGradTaps; ++j) {
                    const vf x = load(from + tap[j] + source, lanes);
#pragma GCC unroll 4
                    for (int i = 0; i < kGradRows; ++i) sum[i][j] = fma(d[i], x, sum[i][j]);
                }
            }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kGradRows; ++i)
#pragma GCC unroll 5
        for (int j = 0; j < kGradTaps; ++j)
            if (i < rows && j < taps) dw[(k + i) * count + j] = sum_lanes(sum[i][j]);
}

void conv2d_weight_grad(const Arguments& a) {
    const Sizes z = sizes(a);
    const float* dy = static_cast<const float*>(a.buffers[0]);
    float *dw = static_cast<float*>(a.buffers[2]), *partial = static_cast<float*>(a.buffers[3]);
    const Source src =
        unfold(z, static_cast<const float*>(a.buffers[1]), static_cast<float*>(a.buffers[4]));
    const int64_t count = z.C * z.R * z.S;
    const int64_t blocks = (count + kGradTaps - 1) / kGradTaps, wide = (blocks + 7) / 8,
                  parts = (blocks + wide - 1) / wide;
    const int64_t wanted = parts < 8 ? 8 : 2,
                  groups = z.N < wanted ? z.N : wanted;  // enough tasks, few sums
    parallel_for(groups * parts, [&](int64_t task) {
        const int64_t group = task / parts, begin = task % parts * wide;
        const int64_t end = begin + wide < blocks ? begin + wide : blocks;
        for (int64_t block = begin; block < end; ++block) {
            int64_t offsets[kGradTaps];
            const int64_t t = block * kGradTaps;
            const int taps = static_cast<int>(count - t < kGradTaps ? count - t : kGradTaps);
            for (int j = 0; j < taps; ++j)
                offsets[j] = src.tap((t + j) / (z.R * z.S), (t + j) / z.S % z.R, (t + j) % z.S);
            for (int64_t k = 0; k < z.K; k += kGradRows)
                gradient_tile(src, z, dy, k,
                              static_cast<int>(z.K - k < kGradRows ? z.K - k : kGradRows), offsets,
                              taps, z.N * group / groups, z.N * (group + 1) / groups,
                              partial + group * z.K * count + t, count);
        }
    });
    for (int64_t i = 0; i < z.K * count; ++i) {
        float total = partial[i];
        for (int64_t group = 1; group < groups; ++group) total += partial[group * z.K * count + i];
        dw[i] = total;
    }
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring

SHOESTRING_KERNELS(conv, {"conv2d", shoestring::SHOESTRING_ISA::conv2d},
                   {"conv2d_input_grad", shoestring::SHOESTRING_ISA::conv2d_input_grad},
                   {"conv2d_weight_grad", shoestring::SHOESTRING_ISA::conv2d_weight_grad})
