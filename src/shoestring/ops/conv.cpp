// 2-D convolution in three directions, all on one idea: a tap is an offset (conv_source.h).
//
//   conv2d              y[n,k,p,q] = sum_t w[k,t] * src[n][offset_t + p*step + q],   t = (c, r, s)
//   conv2d_input_grad   the same sum over dy, spread out by the stride with zeros between, with w
//                       turned round
//   conv2d_weight_grad  see conv_weights.h
//
// Lanes are pixels of one output row; a tile of kRows channels x kVectors vectors stays in
// registers for all taps. Weights are packed as [K / kRows][tap][kRows], in the order of reading.
//
// buffers   input, weight (or second input), output, workspace for packed weights or partial sums
//           followed by the taps' offsets, workspace for src, and for weight_grad one for dy
// integers  N C H W K R S P Q, stride a b, padding top left (of the forward convolution, in all
//           three), images of which src is made at a time; for weight_grad also splits and the
//           floats of the partial sums
// ports     store (conv2d, conv2d_input_grad); also: the sums of dy's channels (weight_grad)
// How work is cut depends on shapes alone: threads do not change bits.
// What it does not do: cut channels so that large images stay in cache, or save multiplications
// (Winograd; a strided input gradient multiplies the zeros between).
#include "conv_weights.h"
#include "program.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kRows = 8, kVectors = 3;
#elif defined(__AVX2__)
constexpr int kRows = 4, kVectors = 3;
#else
constexpr int kRows = 4, kVectors = 2;
#endif

struct Vector {
    int64_t source, target;
    int lanes;
};

// Vector number v of an image: `across` vectors per row of `width` pixels.
Vector pixels(int64_t v, int64_t across, int64_t width, int64_t step) {
    const int64_t p = v / across, q = v % across * W;
    return {p * step + q, p * width + q, static_cast<int>(least(W, width - q))};
}

// One tile: kRows outputs x V vectors, over all taps. weights: [tap][kRows]; y: kRows planes.
template <int V>
void tile(const float* source, const Vector* at, const float* weights, const int64_t* taps,
          int64_t count, float* y, int64_t plane, int64_t rows) {
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

// Weights of output channels k to k + kRows: element (k, tap (c, i)) at w[k*from_k + c*from_c + i],
// the i of each c read backwards if `turned`.
void pack(const float* w, int64_t k, int64_t K, int64_t from_k, int64_t channels, int64_t from_c,
          int64_t window, bool turned, float* to) {
    for (int64_t c = 0; c < channels; ++c)
        for (int64_t i = 0; i < window; ++i, to += kRows) {
            const float* from = w + c * from_c + (turned ? window - 1 - i : i);
            for (int64_t j = 0; j < kRows; ++j) to[j] = k + j < K ? from[(k + j) * from_k] : 0.0f;
        }
}

// How one image is cut. `bands` tasks share it: each takes some blocks of kRows channels where
// planes are small, else some groups of kVectors vectors. A task works on `stretch` groups at a
// time, whose source stays in cache, and completes them in one block after the other.
constexpr int64_t kSmallPlane = 1024, kSource = 65536, kLeastPixels = 256;

struct Cut {
    int64_t bands, stretch;
    bool by_blocks;
    Cut(int64_t N, int64_t channels, int64_t pixels, int64_t groups, int64_t blocks) {
        bands = parts(16, N);
        by_blocks = pixels <= kSmallPlane && blocks >= bands;
        if (!by_blocks) bands = least(bands, groups);
        const int64_t wanted =
            kSource / channels > kLeastPixels ? kSource / channels : kLeastPixels;
        stretch = parts(least(wanted, kSmallPlane) * groups, pixels);
    }
};

// y[n, k, p, q] = sum over taps, for N images, the first of which has number `first`. taps: their
// offsets; packed: the weights, by pack; result: of all images.
void convolve(const Source& src, int64_t first, int64_t N, int64_t C, const int64_t* taps,
              int64_t count, int64_t K, int64_t P, int64_t Q, const float* packed, float* result,
              const Store& epilogue) {
    const int64_t across = parts(Q, W), vectors = P * across, area = P * Q;
    const int64_t groups = parts(vectors, kVectors), blocks = parts(K, kRows);
    const Cut cut(N, C, area, groups, blocks);
    parallel_for(N * cut.bands, [&](int64_t task) {
        const int64_t n = task / cut.bands, band = task % cut.bands, base = (first + n) * K * area;
        const float* image = src.data + n * src.image;
        const auto part = [&](int64_t whole, bool shared, int64_t i) {
            return shared ? whole * (band + i) / cut.bands : whole * i;
        };
        const int64_t last = part(groups, !cut.by_blocks, 1);
        for (int64_t begin = part(groups, !cut.by_blocks, 0), end; begin < last; begin = end) {
            end = least(begin + cut.stretch, last);
            const int64_t from = pixels(begin * kVectors, across, Q, 0).target;
            const int64_t to = end == groups ? area : pixels(end * kVectors, across, Q, 0).target;
            for (int64_t block = part(blocks, cut.by_blocks, 0);
                 block < part(blocks, cut.by_blocks, 1); ++block) {
                const int64_t k = block * kRows, rows = least(kRows, K - k), at_k = base + k * area;
                const float* w = packed + k * count;
                for (int64_t g = begin; g < end; ++g) {
                    Vector at[kVectors];
                    const int64_t v = g * kVectors, width = least(kVectors, vectors - v);
                    for (int64_t j = 0; j < width; ++j) at[j] = pixels(v + j, across, Q, src.step);
                    float* out = result + at_k;
                    if (width == 3) tile<3>(image, at, w, taps, count, out, area, rows);
                    else if (width == 2) tile<2>(image, at, w, taps, count, out, area, rows);
                    else tile<1>(image, at, w, taps, count, out, area, rows);
                }
                if (epilogue) epilogue.run(at_k, area, rows, from, to);
            }
        }
    });
}

const float* input(const Arguments& a, int k) { return static_cast<const float*>(a.buffers[k]); }
float* space(const Arguments& a, int k) { return static_cast<float*>(a.buffers[k]); }

void conv2d(const Arguments& a) {
    const Sizes z = sizes(a);
    const int64_t count = z.C * z.R * z.S;
    float* packed = space(a, 3);
    int64_t* taps = reinterpret_cast<int64_t*>(packed + parts(z.K, 8) * 8 * count);
    share(parts(z.K, kRows), [&](int64_t block) {
        pack(input(a, 1), block * kRows, z.K, count, 1, 0, count, false,
             packed + block * kRows * count);
    });
    const Store epilogue(a);
    for (int64_t n = 0, some; n < z.N; n += some) {
        some = least(a.integers[13], z.N - n);
        const Source src = unfold(z, some, input(a, 0) + n * z.C * z.H * z.W_, space(a, 4));
        if (n == 0) src.taps(z.C, z.R, z.S, taps);
        convolve(src, n, some, z.C, taps, count, z.K, z.P, z.Q, packed, space(a, 2), epilogue);
    }
}

void conv2d_input_grad(const Arguments& a) {
    const Sizes z = sizes(a);
    const int64_t window = z.R * z.S, count = z.K * window;
    float* packed = space(a, 3);
    int64_t* taps = reinterpret_cast<int64_t*>(packed + parts(z.C, 8) * 8 * count);
    share(parts(z.C, kRows), [&](int64_t block) {
        pack(input(a, 1), block * kRows, z.C, window, z.K, z.C * window, window, true,
             packed + block * kRows * count);
    });
    const Store epilogue(a);
    for (int64_t n = 0, some; n < z.N; n += some) {
        some = least(a.integers[13], z.N - n);
        const Source src = spread(z, some, input(a, 0) + n * z.K * z.P * z.Q, space(a, 4));
        if (n == 0) src.taps(z.K, z.R, z.S, taps);
        convolve(src, n, some, z.K, taps, count, z.C, z.H, z.W_, packed, space(a, 2), epilogue);
    }
}

void conv2d_weight_grad(const Arguments& a) {
    const Sizes z = sizes(a);
    const int64_t splits = a.integers[14];
    const Attachment* also = a.at(Port::also);
    float* db = also ? static_cast<float*>(also->buffers[0]) : nullptr;
    int64_t* taps = reinterpret_cast<int64_t*>(space(a, 3) + a.integers[15]);
    for (int64_t n = 0, some; n < z.N; n += some) {
        some = least(a.integers[13], z.N - n);
        const Source src = unfold(z, some, input(a, 1) + n * z.C * z.H * z.W_, space(a, 4));
        const float* dy = input(a, 0) + n * z.K * z.P * z.Q;
        const auto sums = z.K > W ? weight_sums<2> : weight_sums<1>;
        sums(z, src, some, n > 0, splits, dy, space(a, 3), taps, space(a, 5), db != nullptr);
    }
    (z.K > W ? weight_total<2> : weight_total<1>)(z, splits, space(a, 3), space(a, 2), db);
}

const char* forward_complaint(const Counts& c) {
    if (c.buffers != 5 || c.integers != 14) return "needs 5 buffers and 14 integers";
    const int64_t* n = c.values;
    return store_complaint(c, n[0] * n[4] * n[7] * n[8]);
}
const char* input_complaint(const Counts& c) {
    if (c.buffers != 5 || c.integers != 14) return "needs 5 buffers and 14 integers";
    const int64_t* n = c.values;
    return store_complaint(c, n[0] * n[1] * n[2] * n[3]);
}
const char* weight_complaint(const Counts& c) {
    return c.buffers == 6 && c.integers == 16 ? nullptr : "needs 6 buffers and 16 integers";
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring

namespace here = shoestring::SHOESTRING_ISA;
using shoestring::port, shoestring::Port;
SHOESTRING_KERNELS(conv, {"conv2d", here::conv2d, here::forward_complaint, port(Port::store)},
                   {"conv2d_input_grad", here::conv2d_input_grad, here::input_complaint,
                    port(Port::store)},
                   {"conv2d_weight_grad", here::conv2d_weight_grad, here::weight_complaint,
                    port(Port::also)})
