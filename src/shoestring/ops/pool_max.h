// The largest value of each window, and its way back: the parts that work on rows of one plane.
//
// A place is r * kw + s, within its window; T is its type (uint8_t or int32_t).
#pragma once
#include "../backends/cpu/vector.h"
#include "pool.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

// The rule itself: a window in row-major order; a later value wins only if it is larger, or the
// first NaN. For windows too wide or far apart for max_row. x: the image's row `first`, and the rows after it.
template <class T>
void max_scan(const Window& w, const float* x, int64_t first, int64_t p, float* y, T* position) {
    for (int64_t q = 0; q < w.Q; ++q) {
        const int64_t top = w.top(p), left = w.left(q), from = most(left, 0),
                      bottom = least(top + w.kh, w.H), right = least(left + w.kw, w.W);
        int64_t at_h = most(top, 0), at_w = from;
        float best = x[(at_h - first) * w.W + at_w];
        for (int64_t h = at_h; h < bottom; ++h)
            for (int64_t i = from; i < right; ++i) {
                const float v = x[(h - first) * w.W + i];
                if (v > best || (v != v && best == best)) {
                    best = v;
                    at_h = h;
                    at_w = i;
                }
            }
        y[q] = best;
        position[q] = static_cast<T>((at_h - top) * w.kw + at_w - left);
    }
}

// Which of a, at place at_a, and b is the maximum so far; a stands earlier unless they are equal
// and at_b < at_a.
inline void larger(vf& a, vi& at_a, vf b, vi at_b) {
    const vi nan_a = a != a, nan_b = b != b, equal = (a == b) | (nan_a & nan_b);
    const vi wins = ((b > a) & ~nan_a) | (nan_b & ~nan_a) | (equal & (at_b < at_a));
    a = select(wins, b, a);
    at_a = select(wins, at_b, at_a);
}

// Lanes p[0], p[step], p[2 step], ...; Step as in max_row.
template <int64_t Step>
vf spaced(const float* p, int64_t step) {
    if (Step == 1) return load(p);
    if (Step == 2) return evens(load(p), load(p + W));
    vf v;
    for (int l = 0; l < W; ++l) v[l] = p[l * step];
    return v;
}

// One row of results: first the largest value of every column of the windows, then of the columns
// of each window. Among equals the place earlier in the window wins, as in the scan; columns of
// padding hold -infinity at a place after all others. Step: w.sw where it is known, or 0.
template <class T, int64_t Step>
void max_row(const Window& w, const float* x, int64_t first, int64_t p, float* y, T* position) {
    constexpr int64_t kColumns = 512;
    const int64_t step = Step ? Step : w.sw, block = (kColumns - w.kw) / step + 1;
    const int64_t top = w.top(p), from_h = most(top, 0), to_h = least(top + w.kh, w.H);
    const vf none = splat(-__builtin_inff());
    const vi after = splat(static_cast<int32_t>(w.kh * w.kw));
    vi lane;
    for (int l = 0; l < W; ++l) lane[l] = l;
    for (int64_t q0 = 0; q0 < w.Q; q0 += block) {
        const int64_t n = least(block, w.Q - q0), left = w.left(q0),
                      columns = (n - 1) * step + w.kw;
        alignas(64) float best[2 * kColumns];  // lanes past the last column are never used
        alignas(64) int32_t place[2 * kColumns];
        for (int64_t j = 0; j < columns; j += W) {
            const int from = static_cast<int>(least(most(-left - j, 0), W)),
                      to = static_cast<int>(most(least(w.W - left - j, W), 0));
            const Mask inside = mask(from, to);
            const float* column = x + (from_h - first) * w.W + left + j;
            vf a = load(column, inside);
            vi at = splat(static_cast<int32_t>((from_h - top) * w.kw));
            for (int64_t h = from_h + 1; h < to_h; ++h) {
                column += w.W;
                const vf b = load(column, inside);
                const vi later = ~(b <= a) & (a == a);
                a = select(later, b, a);
                at = select(later, splat(static_cast<int32_t>((h - top) * w.kw)), at);
            }
            const vi padding = (lane < from) | (lane >= to);
            store(best + j, select(padding, none, a));
            store(place + j, select(padding, after, at));
        }
        for (int64_t i = 0; i < n; i += W) {
            vf a;
            vi at;
            for (int32_t s = 0; s < w.kw; ++s) {
                const vf b = spaced<Step>(best + i * step + s, step);
                const vi at_b =
                    (vi)spaced<Step>(reinterpret_cast<const float*>(place) + i * step + s, step) +
                    s;
                if (s) {
                    larger(a, at, b, at_b);
                } else {
                    a = b;
                    at = at_b;
                }
            }
            const int count = static_cast<int>(least(n - i, W));
            store(y + q0 + i, a, mask(0, count));
            alignas(64) T codes[W];
            for (int l = 0; l < W; ++l) codes[l] = static_cast<T>(at[l]);
            __builtin_memcpy(position + q0 + i, codes, count * sizeof(T));
        }
    }
}

// y and position: row p of the results. x: the image's row `first`, and the rows after it.
template <class T>
void max_pooled(const Window& w, const float* x, int64_t first, int64_t p, float* y, T* position) {
    if (w.kw > 64 || w.sw > 16) max_scan(w, x, first, p, y, position);
    else if (w.sw == 1) max_row<T, 1>(w, x, first, p, y, position);
    else if (w.sw == 2) max_row<T, 2>(w, x, first, p, y, position);
    else max_row<T, 0>(w, x, first, p, y, position);
}

// Where a place lies: rows and columns from its window's first.
template <class T>
struct Places {
    const int64_t kw;
    explicit Places(const Window& w) : kw(w.kw) {}
    int64_t row(T code) const { return code / kw; }
    int64_t column(T code) const { return code % kw; }
};

template <>
struct Places<uint8_t> {
    int16_t rows[256] = {}, columns[256] = {};
    explicit Places(const Window& w) {
        for (int64_t r = 0, code = 0; r < w.kh; ++r)
            for (int64_t s = 0; s < w.kw; ++s, ++code) {
                rows[code] = static_cast<int16_t>(r);
                columns[code] = static_cast<int16_t>(s);
            }
    }
    int64_t row(uint8_t code) const { return rows[code]; }
    int64_t column(uint8_t code) const { return columns[code]; }
};

// dx[i] = sum of dy[p, q] over the windows whose place is the plane's element start + i, in the
// order of p, then q; i < n. A place in padding is none. dy, position: of one plane.
template <class T>
void unpooled(const Window& w, const Places<T>& places, const float* dy, const T* position,
              int64_t start, int64_t n, float* dx) {
    const int64_t first = start / w.W, last = (start + n - 1) / w.W;
    const int64_t from = first + w.ph < w.kh ? 0 : (first + w.ph - w.kh) / w.sh + 1,
                  to = least(w.P, (last + w.ph) / w.sh + 1);
    float elsewhere = 0.0f;
    for (int64_t i = 0; i < n; ++i) dx[i] = 0.0f;
    for (int64_t p = from; p < to; ++p) {
        const float* d = dy + p * w.Q;
        const T* at = position + p * w.Q;
        const int64_t corner = w.top(p) * w.W - start;
        for (int64_t q = 0, left = -w.pw; q < w.Q; ++q, left += w.sw) {
            const int64_t column = left + places.column(at[q]);
            const int64_t i = corner + places.row(at[q]) * w.W + column;
            const bool here = (static_cast<uint64_t>(i) < static_cast<uint64_t>(n)) &
                              (static_cast<uint64_t>(column) < static_cast<uint64_t>(w.W));
            *(here ? dx + i : &elsewhere) += d[q];  // no branch: nobody could foretell it
        }
    }
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring
