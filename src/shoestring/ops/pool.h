// The geometry of pooling windows, as pool.py describes it to kernels.
#pragma once
#include "program.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

struct Window {
    int64_t H, W, P, Q, kh, kw, sh, sw, ph, pw;
    int64_t top(int64_t p) const { return p * sh - ph; }
    int64_t left(int64_t q) const { return q * sw - pw; }
};

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// integers: planes H W P Q, kernel (2), stride (2), padding (2)
inline Window window(const int64_t* n) {
    return {n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10]};
}

// Planes are small: several make a task.
template <class Body>
inline void each_plane(int64_t planes, int64_t work, Body body) {
    const int64_t chunk = most(1, 16384 / most(1, work));
    parallel_for((planes + chunk - 1) / chunk, [&](int64_t task) {
        for (int64_t plane = task * chunk; plane < least(planes, (task + 1) * chunk); ++plane)
            body(plane);
    });
}

constexpr int64_t kBand = 16384;  // elements of x that are computed in scratch at a time

// body(x, first, plane, p0, p1) for all rows of results, where x is computed by a program: a band of
// rows at a time, of which x holds those from `first` on, or several small planes.
template <class Body>
inline void each_band(const Arguments& a, const Window& w, Body body) {
    const int64_t planes = a.integers[0], size = w.H * w.W;
    const int64_t group = most(1, least(kBand / size, 16384 / most(1, w.P * w.Q * w.kh * w.kw)));
    const int64_t rows = size <= kBand ? w.P : (kBand / w.W - w.kh) / w.sh + 1;
    const int64_t bands = (w.P + rows - 1) / rows, groups = (planes + group - 1) / group;
    parallel_for(groups * bands, [&](int64_t task) {
        alignas(64) float x[kBand];
        Load prologue(a);
        const int64_t from = task / bands * group, to = least(planes, from + group);
        const int64_t p0 = task % bands * rows, p1 = least(w.P, p0 + rows);
        const int64_t first = size <= kBand ? 0 : most(w.top(p0), 0),
                      last = size <= kBand ? w.H : least(w.top(p1 - 1) + w.kh, w.H);
        prologue.run(from * size + first * w.W, (to - 1) * size + last * w.W, x);
        for (int64_t plane = from; plane < to; ++plane)
            body(x + (plane - from) * size, first, plane, p0, p1);
    });
}

// What is wrong with a launch of a kernel of 12 integers.
inline const char* pool_complaint(const Counts& c, int64_t buffers) {
    if (c.integers != 12 || c.buffers != buffers) return "needs its sizes and buffers";
    const int64_t* n = c.values;
    const int64_t rows = n[1] * n[2] <= kBand ? 1 : n[5];
    if (c.at(Port::load) && rows * n[2] > kBand)
        return "the rows of a window do not fit the scratch";
    return load_complaint(c, 1, n[0] * n[1] * n[2]);
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring
