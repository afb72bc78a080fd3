// Where taps and pixels of a convolution lie in memory, and the copies that put them there.
//
// Let src be the input with its padding. Output pixel (p, q) meets tap (c, r, s) at
//     src[n][c][p*a + r][q*b + s],   stride (a, b)
// If the columns of src are sorted by their remainder of b, column q*b + s lies at position q + s/b
// of part s % b: for a fixed tap, pixels q, q+1, ... are neighbours in memory, whatever the stride.
// So a tap is an offset, and no patch is ever copied:
//     tap (c, r, s) meets pixel (p, q) at   offset(c, r, s) + p*step + q
// Without padding and with b = 1, src is x itself.
#pragma once
#include "../backends/cpu/vector.h"

namespace shoestring {
namespace SHOESTRING_ISA {

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t parts(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

// body(i) for i in [0, count), in at most 32 tasks.
template <class Body>
static inline void share(int64_t count, Body body) {
    const int64_t tasks = least(count, 32);
    parallel_for(tasks, [&](int64_t task) {
        for (int64_t i = count * task / tasks; i < count * (task + 1) / tasks; ++i) body(i);
    });
}

struct Sizes {
    int64_t N, C, H, W_, K, R, S, P, Q, a, b, top, left;
};

static inline Sizes sizes(const Arguments& x) {
    const int64_t* n = x.integers;
    return {n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], n[12]};
}

// Image n begins at n*image; channels are `plane` apart, rows `row`, output rows `step`.
struct Source {
    const float* data;
    int64_t image, plane, row, part, step, b;

    // Offsets of all taps, in the order of w: [channels][R][S].
    void taps(int64_t channels, int64_t R, int64_t S, int64_t* offsets) const {
        for (int64_t c = 0; c < channels; ++c)
            for (int64_t r = 0; r < R; ++r)
                for (int64_t s = 0; s < S; ++s)
                    *offsets++ = c * plane + r * row + (b == 1 ? s : s % b * part + s / b);
    }
};

// src of N images for the forward geometry: x itself, or a padded copy with sorted columns in
// `space`.
static inline Source unfold(const Sizes& z, int64_t N, const float* x, float* space) {
    const int64_t rows = (z.P - 1) * z.a + z.R, columns = z.Q + (z.S - 1) / z.b;
    if (z.b == 1 && !z.top && !z.left && rows <= z.H && columns <= z.W_)
        return {x, z.C * z.H * z.W_, z.H * z.W_, z.W_, 0, z.a * z.W_, 1};
    const int64_t row = z.b * columns;
    share(N * z.C, [&](int64_t plane) {
        const float* from = x + plane * z.H * z.W_ - z.left;
        float* to = space + plane * rows * row;
        for (int64_t i = 0; i < rows; ++i, to += row) {
            const int64_t h = i - z.top, end = least(z.left + z.W_, columns);
            for (int64_t j = 0; j < row; ++j) to[j] = 0.0f;
            if (h < 0 || h >= z.H) continue;
            if (z.b == 1)
                for (int64_t j = z.left; j < end; ++j) to[j] = from[h * z.W_ + j];
            else
                for (int64_t part = 0; part < z.b; ++part)
                    for (int64_t j = 0; j < columns; ++j) {
                        const int64_t w = j * z.b + part;
                        if (w >= z.left && w < z.left + z.W_)
                            to[part * columns + j] = from[h * z.W_ + w];
                    }
        }
    });
    return {space, z.C * rows * row, rows * row, row, columns, z.a * row, z.b};
}

// src of N images for the input gradient: dy spread out by the stride, zeros between and around, so that
//     dx[n,c,h,w] = sum_{k,r,s} w[k,c,R-1-r,S-1-s] * spread[n][k][h + r][w + s]
static inline Source spread(const Sizes& z, int64_t N, const float* dy, float* space) {
    const int64_t rows = z.H + z.R - 1, columns = z.W_ + z.S - 1, shift = z.S - 1 - z.left;
    const int64_t first = shift < 0 ? parts(-shift, z.b) : 0;  // the q whose column exists
    const int64_t end = columns > shift ? least(z.Q, parts(columns - shift, z.b)) : 0;
    share(N * z.K, [&](int64_t plane) {
        float* to = space + plane * rows * columns;
        const float* from = dy + plane * z.P * z.Q;
        for (int64_t i = 0; i < rows * columns; ++i) to[i] = 0.0f;
        for (int64_t p = 0; p < z.P; ++p, from += z.Q) {
            const int64_t i = p * z.a + z.R - 1 - z.top;
            if (i < 0 || i >= rows) continue;
            float* row = to + i * columns + shift;
            if (z.b == 1)
                for (int64_t q = first; q < end; ++q) row[q] = from[q];
            else
                for (int64_t q = first; q < end; ++q) row[q * z.b] = from[q];
        }
    });
    return {space, z.K * rows * columns, rows * columns, columns, 0, columns, 1};
}

}  // namespace SHOESTRING_ISA
}  // namespace shoestring
