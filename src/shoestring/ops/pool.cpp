// 2-D pooling. One plane (an image's channel) at a time; planes are shared among threads.
//
//   max_pool2d         buffers x, y, position          largest value of each window, the first
//                      among equals, NaN wins
//   max_pool2d_grad    buffers dy, position, dx        dx = 0, then dx[position] += dy in order
//   max_pool2d_gather  buffers g, position, y          y = g[position]
//   avg_pool2d         buffers x, y                    sum of the window / its count
//   avg_pool2d_grad    buffers dy, dx                  dx += dy / count for every element of each
//                      window
//
//   integers  planes H W P Q, kernel (2), stride (2), padding (2), count_include_pad (avg);  for
//             grad and gather: planes,
//             positions per plane, elements per plane
#include "../backends/cpu/kernel.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

struct Window {
    int64_t H, W, P, Q, kh, kw, sh, sw, ph, pw;
    int64_t top(int64_t p) const { return p * sh - ph; }
    int64_t left(int64_t q) const { return q * sw - pw; }
};

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

Window window(const Arguments& a) {
    const int64_t* n = a.integers;
    return {n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10]};
}

// Planes are small: several make a task.
template <class Body>
void each_plane(int64_t planes, int64_t work, Body body) {
    const int64_t chunk = most(1, 16384 / most(1, work));
    parallel_for((planes + chunk - 1) / chunk, [&](int64_t task) {
        for (int64_t plane = task * chunk; plane < least(planes, (task + 1) * chunk); ++plane)
            body(plane);
    });
}

// 2x2 windows side by side, the usual case: no bounds to check. First the larger of each two rows,
// column by column, then of each two columns. A later value wins only if it is larger, or NaN where
// there was none; between two columns the lower place wins among equals, as in the scan of a
// window.
void max_pairs(const float* x, float* y, int32_t* position, const Window& w) {
    constexpr int64_t kBlock = 128;
    for (int64_t p = 0; p < w.P; ++p, y += w.Q, position += w.Q)
        for (int64_t q0 = 0; q0 < w.Q; q0 += kBlock) {
            const int64_t n = least(kBlock, w.Q - q0);
            const float *up = x + 2 * p * w.W + 2 * q0, *down = up + w.W;
            const int32_t start = static_cast<int32_t>(2 * p * w.W + 2 * q0),
                          row = static_cast<int32_t>(w.W);
            float best[2 * kBlock];
            int32_t below[2 * kBlock];  // 0, or the distance to the lower row
            for (int64_t i = 0; i < 2 * n; ++i) {
                const float a = up[i], b = down[i];
                const bool lower = !(b <= a) & (a == a);
                best[i] = lower ? b : a;
                below[i] = lower ? row : 0;
            }
            for (int64_t i = 0; i < n; ++i) {
                const float a = best[2 * i], b = best[2 * i + 1];
                const int32_t at_a = below[2 * i], at_b = below[2 * i + 1];
                const bool nan_a = a != a, nan_b = b != b;
                const bool equal = (a == b) | (nan_a & nan_b);
                const bool right = ((b > a) & !nan_a) | (nan_b & !nan_a) | (equal & (at_b < at_a));
                y[q0 + i] = right ? b : a;
                position[q0 + i] = start + static_cast<int32_t>(2 * i) + (right ? at_b + 1 : at_a);
            }
        }
}

void max_windows(const float* x, float* y, int32_t* position, const Window& w) {
    for (int64_t p = 0; p < w.P; ++p)
        for (int64_t q = 0; q < w.Q; ++q, ++y, ++position) {
            const int64_t top = most(w.top(p), 0), left = most(w.left(q), 0);
            const int64_t bottom = least(w.top(p) + w.kh, w.H),
                          right = least(w.left(q) + w.kw, w.W);
            int64_t place = top * w.W + left;
            float best = x[place];
            for (int64_t h = top; h < bottom; ++h)
                for (int64_t i = h * w.W + left; i < h * w.W + right; ++i)
                    if (x[i] > best || (x[i] != x[i] && best == best)) {
                        best = x[i];
                        place = i;
                    }
            *y = best;
            *position = static_cast<int32_t>(place);
        }
}

void max_pool2d(const Arguments& a) {
    const Window w = window(a);
    const bool pairs = w.kh == 2 && w.kw == 2 && w.sh == 2 && w.sw == 2 && !w.ph && !w.pw &&
                       2 * w.P <= w.H && 2 * w.Q <= w.W;
    each_plane(a.integers[0], w.P * w.Q * w.kh * w.kw, [&](int64_t plane) {
        const float* x = static_cast<const float*>(a.buffers[0]) + plane * w.H * w.W;
        float* y = static_cast<float*>(a.buffers[1]) + plane * w.P * w.Q;
        int32_t* position = static_cast<int32_t*>(a.buffers[2]) + plane * w.P * w.Q;
        if (pairs) max_pairs(x, y, position, w);
        else max_windows(x, y, position, w);
    });
}

void max_pool2d_grad(const Arguments& a) {
    const int64_t count = a.integers[1], size = a.integers[2];
    each_plane(a.integers[0], 2 * count + size, [&](int64_t plane) {
        const float* dy = static_cast<const float*>(a.buffers[0]) + plane * count;
        const int32_t* position = static_cast<const int32_t*>(a.buffers[1]) + plane * count;
        float* dx = static_cast<float*>(a.buffers[2]) + plane * size;
        for (int64_t i = 0; i < size; ++i) dx[i] = 0.0f;
        for (int64_t i = 0; i < count; ++i) dx[position[i]] += dy[i];
    });
}

void max_pool2d_gather(const Arguments& a) {
    const int64_t count = a.integers[1], size = a.integers[2];
    each_plane(a.integers[0], 2 * count, [&](int64_t plane) {
        const float* g = static_cast<const float*>(a.buffers[0]) + plane * size;
        const int32_t* position = static_cast<const int32_t*>(a.buffers[1]) + plane * count;
        float* y = static_cast<float*>(a.buffers[2]) + plane * count;
        for (int64_t i = 0; i < count; ++i) y[i] = g[position[i]];
    });
}

// How many elements the mean of one window is over, along one axis.
int64_t extent(int64_t start, int64_t kernel, int64_t size, int64_t pad, bool padded) {
    const int64_t stop = least(start + kernel, size + pad);
    return padded ? stop - start : least(stop, size) - most(start, 0);
}

template <class Body>
void each_mean(const Window& w, bool padded, Body body) {
    for (int64_t p = 0; p < w.P; ++p)
        for (int64_t q = 0; q < w.Q; ++q) {
            const int64_t top = w.top(p), left = w.left(q);
            const int64_t count =
                extent(top, w.kh, w.H, w.ph, padded) * extent(left, w.kw, w.W, w.pw, padded);
            body(p * w.Q + q, most(top, 0), least(top + w.kh, w.H), most(left, 0),
                 least(left + w.kw, w.W), static_cast<float>(count));
        }
}

void avg_pool2d(const Arguments& a) {
    const Window w = window(a);
    each_plane(a.integers[0], w.P * w.Q * w.kh * w.kw, [&](int64_t plane) {
        const float* x = static_cast<const float*>(a.buffers[0]) + plane * w.H * w.W;
        float* y = static_cast<float*>(a.buffers[1]) + plane * w.P * w.Q;
        each_mean(
            w, a.integers[11],
            [&](int64_t i, int64_t top, int64_t bottom, int64_t left, int64_t right, float count) {
                float total = 0.0f;
                for (int64_t h = top; h < bottom; ++h)
                    for (int64_t j = left; j < right; ++j) total += x[h * w.W + j];
                y[i] = total / count;
            });
    });
}

void avg_pool2d_grad(const Arguments& a) {
    const Window w = window(a);
    each_plane(a.integers[0], w.P * w.Q * w.kh * w.kw + w.H * w.W, [&](int64_t plane) {
        const float* dy = static_cast<const float*>(a.buffers[0]) + plane * w.P * w.Q;
        float* dx = static_cast<float*>(a.buffers[1]) + plane * w.H * w.W;
        for (int64_t i = 0; i < w.H * w.W; ++i) dx[i] = 0.0f;
        each_mean(
            w, a.integers[11],
            [&](int64_t i, int64_t top, int64_t bottom, int64_t left, int64_t right, float count) {
                const float share = dy[i] / count;
                for (int64_t h = top; h < bottom; ++h)
                    for (int64_t j = left; j < right; ++j) dx[h * w.W + j] += share;
            });
    });
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring

SHOESTRING_KERNELS(pool, {"max_pool2d", shoestring::SHOESTRING_ISA::max_pool2d},
                   {"max_pool2d_grad", shoestring::SHOESTRING_ISA::max_pool2d_grad},
                   {"max_pool2d_gather", shoestring::SHOESTRING_ISA::max_pool2d_gather},
                   {"avg_pool2d", shoestring::SHOESTRING_ISA::avg_pool2d},
                   {"avg_pool2d_grad", shoestring::SHOESTRING_ISA::avg_pool2d_grad})
