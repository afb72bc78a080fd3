// 2-D pooling by the mean of each window. One plane (an image's channel) at a time; planes are shared
// among threads.
//
//   avg_pool2d         buffers x, y                    sum of the window / its count
//   avg_pool2d_grad    buffers dy, dx                  dx += dy / count for every element of each
//                      window
//
//   integers  planes H W P Q, kernel (2), stride (2), padding (2), count_include_pad
//   ports     load (avg_pool2d)
#include "pool.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

// How many elements the mean of one window is over, along one axis.
int64_t extent(int64_t start, int64_t kernel, int64_t size, int64_t pad, bool padded) {
    const int64_t stop = least(start + kernel, size + pad);
    return padded ? stop - start : least(stop, size) - most(start, 0);
}

template <class Body>
void each_mean(const Window& w, bool padded, int64_t p0, int64_t p1, Body body) {
    for (int64_t p = p0; p < p1; ++p)
        for (int64_t q = 0; q < w.Q; ++q) {
            const int64_t top = w.top(p), left = w.left(q);
            const int64_t count =
                extent(top, w.kh, w.H, w.ph, padded) * extent(left, w.kw, w.W, w.pw, padded);
            body(p * w.Q + q, most(top, 0), least(top + w.kh, w.H), most(left, 0),
                 least(left + w.kw, w.W), static_cast<float>(count));
        }
}

// Rows p0 to p1 of results. x: the image's row `first`, and the rows after it; y: of one plane.
void means(const Window& w, bool padded, const float* x, int64_t first, int64_t p0, int64_t p1,
           float* y) {
    each_mean(
        w, padded, p0, p1,
        [&](int64_t i, int64_t top, int64_t bottom, int64_t left, int64_t right, float count) {
            float total = 0.0f;
            for (int64_t h = top; h < bottom; ++h)
                for (int64_t j = left; j < right; ++j) total += x[(h - first) * w.W + j];
            y[i] = total / count;
        });
}

const char* complaint(const Counts& c) { return pool_complaint(c, 2); }

void avg_pool2d(const Arguments& a) {
    const Window w = window(a.integers);
    const bool padded = a.integers[11];
    float* y = static_cast<float*>(a.buffers[1]);
    if (a.at(Port::load))
        return each_band(a, w,
                         [&](const float* x, int64_t first, int64_t plane, int64_t p0, int64_t p1) {
                             means(w, padded, x, first, p0, p1, y + plane * w.P * w.Q);
                         });
    each_plane(a.integers[0], w.P * w.Q * w.kh * w.kw, [&](int64_t plane) {
        const float* x = static_cast<const float*>(a.buffers[0]) + plane * w.H * w.W;
        means(w, padded, x, 0, 0, w.P, y + plane * w.P * w.Q);
    });
}

void avg_pool2d_grad(const Arguments& a) {
    const Window w = window(a.integers);
    each_plane(a.integers[0], w.P * w.Q * w.kh * w.kw + w.H * w.W, [&](int64_t plane) {
        const float* dy = static_cast<const float*>(a.buffers[0]) + plane * w.P * w.Q;
        float* dx = static_cast<float*>(a.buffers[1]) + plane * w.H * w.W;
        for (int64_t i = 0; i < w.H * w.W; ++i) dx[i] = 0.0f;
        each_mean(
            w, a.integers[11], 0, w.P,
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

using shoestring::port, shoestring::Port;
SHOESTRING_KERNELS(pool,
                   {"avg_pool2d", shoestring::SHOESTRING_ISA::avg_pool2d,
                    shoestring::SHOESTRING_ISA::complaint, port(Port::load) | port(Port::inlined)},
                   {"avg_pool2d_grad", shoestring::SHOESTRING_ISA::avg_pool2d_grad})
