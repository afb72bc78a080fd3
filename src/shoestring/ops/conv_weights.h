// The weight gradient of a convolution:
//     dw[k, t] = sum_{n,p,q} dy[n,k,p,q] * src[n][offset_t + p*step + q],   t = (c, r, s)
//
// Derivation: w[k, t] occurs once in every y[n,k,p,q], times that element of src (conv_source.h).
//
// It is a matrix product over all pixels, whose lanes are output channels: src is read where it
// lies, one element per tap, and meets a whole vector of channels of dy. For that, dy is transposed
// to [pixel][V*W channels], some lines of pixels at a time, so that it stays in the second cache
// while all taps meet it. A tile of kTaps taps x V vectors stays in registers for these lines, then
// it is added to its partial sum: chains of additions stay short.
// The lines (n, p) of the batch are cut into `splits` parts, chosen by shapes in conv.py; their
// sums are added in order, whichever thread computed them.
//
// On demand the sums of dy's channels, a bias's gradient, are made too: the task that works on
// the first taps adds up the pixels that it has turned.
#pragma once
#include "conv_source.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kTaps = 9;
#elif defined(__AVX2__)
constexpr int kTaps = 6;
#else
constexpr int kTaps = 4;
#endif
constexpr int64_t kPixels = 768;  // of a tile between two additions to its partial sum

// to[pixel][V*W] for lines [first, last) from dy's planes of channels k, k+1, ...; zeros where K
// ends.
template <int V>
void turn(const Sizes& z, const float* dy, int64_t k, int64_t first, int64_t last, float* to) {
    const int64_t plane = z.P * z.Q;
    for (int64_t line = first; line < last;) {
        const int64_t n = line / z.P, next = least(last, (n + 1) * z.P);
        const float* from = dy + (n * z.K + k) * plane + line % z.P * z.Q;
        const int64_t pixels = (next - line) * z.Q;
        for (int64_t p = 0; p < pixels; p += W) {
            const int64_t count = least(W, pixels - p);
            const Mask lanes = mask(0, static_cast<int>(count));
            for (int64_t j = 0; j < V; ++j) {
                vf r[W];
                for (int64_t i = 0; i < W; ++i)
                    r[i] = k + j * W + i < z.K ? load(from + (j * W + i) * plane + p, lanes) : vf{};
                transpose(r);
                for (int64_t i = 0; i < count; ++i) store(to + (p + i) * V * W + j * W, r[i]);
            }
        }
        to += pixels * V * W;
        line = next;
    }
}

// sums[kTaps][V*W] = (add ? sums : 0) + what lines [first, last) give. dy: turned, from
// line `first`.
template <int V>
void weight_tile(const Sizes& z, const Source& src, int64_t first, int64_t last,
                 const int64_t* offsets, const float* dy, float* sums, bool add) {
    const float* tap[kTaps];
    for (int i = 0; i < kTaps; ++i) tap[i] = src.data + offsets[i];
    vf sum[kTaps][V] = {};
    int64_t n = first / z.P, p = first % z.P;
    for (int64_t line = first; line < last; ++line) {
        const int64_t begin = n * src.image + p * src.step;
        for (int64_t x = begin; x < begin + z.Q; ++x, dy += V * W) {
            vf d[V];
#pragma GCC unroll 2
            for (int j = 0; j < V; ++j) d[j] = load(dy + j * W);
#pragma GCC unroll 16
            for (int i = 0; i < kTaps; ++i) {
                const vf value = splat(tap[i][x]);
#pragma GCC unroll 2
                for (int j = 0; j < V; ++j) sum[i][j] = fma(value, d[j], sum[i][j]);
            }
        }
        if (++p == z.P) ++n, p = 0;
    }
#pragma GCC unroll 16
    for (int i = 0; i < kTaps; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < V; ++j) {
            float* to = sums + (i * V + j) * W;
            store(to, add ? load(to) + sum[i][j] : sum[i][j]);
        }
}

// sums[V*W] = (add ? sums : 0) + the sum of dy's turned pixels.
template <int V>
void channel_sums(const float* dy, int64_t pixels, float* sums, bool add) {
    constexpr int kChains = 4;  // of additions that do not wait for each other
    vf sum[kChains][V] = {};
    int64_t x = 0;
    for (; x + kChains <= pixels; x += kChains)
#pragma GCC unroll 4
        for (int i = 0; i < kChains; ++i)
#pragma GCC unroll 2
            for (int j = 0; j < V; ++j) sum[i][j] = sum[i][j] + load(dy + ((x + i) * V + j) * W);
    for (; x < pixels; ++x)
        for (int j = 0; j < V; ++j) sum[0][j] = sum[0][j] + load(dy + (x * V + j) * W);
    for (int j = 0; j < V; ++j) {
        const vf total = (sum[0][j] + sum[1][j]) + (sum[2][j] + sum[3][j]);
        store(sums + j * W, add ? load(sums + j * W) + total : total);
    }
}

// Rows of a panel's partial sums: whole tiles of taps, then the sum of dy itself.
int64_t partial_rows(const Sizes& z) { return parts(z.C * z.R * z.S, kTaps) * kTaps + 1; }

// What `images` more give to the splits' sums. offsets: space for all taps, rounded up to whole
// tiles. partial: [split][panel][row][V*W]. turned: for each task, room for the lines that it turns.
// bias: whether the sums of dy are wanted.
template <int V>
void weight_sums(const Sizes& z, const Source& src, int64_t images, bool more, int64_t splits,
                 const float* dy, float* partial, int64_t* offsets, float* turned, bool bias) {
    const int64_t count = z.C * z.R * z.S, tiles = parts(count, kTaps), rows = partial_rows(z);
    const int64_t panels = parts(z.K, V * W), lines = images * z.P;
    const int64_t some = least(parts(kPixels, z.Q), parts(lines, splits));
    const int64_t bands = least(tiles, parts(16, splits * panels));
    src.taps(z.C, z.R, z.S, offsets);
    for (int64_t t = count; t < tiles * kTaps; ++t) offsets[t] = offsets[count - 1];
    parallel_for(splits * panels * bands, [&](int64_t task) {
        const int64_t band = task % bands, panel = task / bands % panels;
        const int64_t split = task / bands / panels, begin = lines * split / splits;
        const int64_t end = lines * (split + 1) / splits;
        float* sums = partial + (split * panels + panel) * rows * V * W;
        float *d = turned + task * some * z.Q * V * W, *last = sums + (rows - 1) * V * W;
        const bool add_up = bias && band == 0;
        if (begin == end && !more) {  // fewer lines than splits
            for (int64_t i = tiles * band / bands * kTaps; i < tiles * (band + 1) / bands * kTaps;
                 ++i)
                for (int j = 0; j < V; ++j) store(sums + (i * V + j) * W, vf{});
            for (int j = 0; add_up && j < V; ++j) store(last + j * W, vf{});
        }
        for (int64_t line = begin; line < end; line += some) {
            const int64_t next = least(end, line + some);
            turn<V>(z, dy, panel * V * W, line, next, d);
            if (add_up) channel_sums<V>(d, (next - line) * z.Q, last, more || line > begin);
            for (int64_t i = tiles * band / bands; i < tiles * (band + 1) / bands; ++i)
                weight_tile<V>(z, src, line, next, offsets + i * kTaps, d, sums + i * kTaps * V * W,
                               more || line > begin);
        }
    });
}

// dw = the splits' sums, in order; db, unless it is nullptr, those of dy.
template <int V>
void weight_total(const Sizes& z, int64_t splits, const float* partial, float* dw, float* db) {
    const int64_t count = z.C * z.R * z.S, rows = partial_rows(z);
    const int64_t panels = parts(z.K, V * W);
    const int64_t across = parts(count, W), vectors = parts(z.K, W);
    share(vectors * across, [&](int64_t i) {  // the splits' sums, turned back to dw[k][t]
        const int64_t k = i / across * W, t = i % across * W, taps = least(W, count - t);
        const Mask lanes = mask(0, static_cast<int>(taps));
        vf r[W] = {};
        for (int64_t split = 0; split < splits; ++split)
            for (int64_t j = 0; j < taps; ++j) {
                const float* from = partial + (split * panels + k / (V * W)) * rows * V * W;
                r[j] = r[j] + load(from + (t + j) * V * W + k % (V * W));
            }
        transpose(r);
        for (int64_t j = 0; j < least(W, z.K - k); ++j)
            store(dw + (k + j) * count + t, r[j], lanes);
    });
    for (int64_t k = 0; db != nullptr && k < z.K; k += W) {
        vf total = {};
        for (int64_t split = 0; split < splits; ++split) {
            const float* from = partial + (split * panels + k / (V * W)) * rows * V * W;
            total = total + load(from + (rows - 1) * V * W + k % (V * W));
        }
        store(db + k, total, mask(0, static_cast<int>(least(W, z.K - k))));
    }
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring
