// The geometry of pooling windows, as pool.py describes it to kernels.
#pragma once
#include "../backends/cpu/kernel.h"

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

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring
