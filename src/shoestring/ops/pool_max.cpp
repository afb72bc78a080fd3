// 2-D pooling by the largest value of each window. One plane (an image's channel) at a time; planes
// are shared among threads.
//
//   max_pool2d         buffers x, y, position    largest value of each window and its place
//   max_pool2d_grad    buffers dy, position, dx  dx = sum of dy over the windows with their place
//                      there
//   max_pool2d_gather  buffers g, position, y    y = g at that place, 0 in padding
//   max_pool2d_places  buffers position, y       y (int64) = h * W + w of that place
//
//   integers  planes H W P Q, kernel (2), stride (2), padding (2), bytes of a place (1 or 4)
//   ports     load (max_pool2d)
#include "pool_max.h"

#include "program.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

template <class T>
struct Max {
    static void forward(const Arguments& a, const Window& w, int64_t plane) {
        const float* x = static_cast<const float*>(a.buffers[0]) + plane * w.H * w.W;
        float* y = static_cast<float*>(a.buffers[1]) + plane * w.P * w.Q;
        T* position = static_cast<T*>(a.buffers[2]) + plane * w.P * w.Q;
        for (int64_t p = 0; p < w.P; ++p) max_pooled(w, x, 0, p, y + p * w.Q, position + p * w.Q);
    }

    static void grad(const Arguments& a, const Window& w, int64_t plane) {
        const float* dy = static_cast<const float*>(a.buffers[0]) + plane * w.P * w.Q;
        const T* position = static_cast<const T*>(a.buffers[1]) + plane * w.P * w.Q;
        float* dx = static_cast<float*>(a.buffers[2]) + plane * w.H * w.W;
        unpooled(w, Places<T>(w), dy, position, 0, w.H * w.W, dx);
    }

    // body(number of the window, h, w) for every window of a plane
    template <class Body>
    static void each_place(const T* position, const Window& w, Body body) {
        for (int64_t p = 0; p < w.P; ++p)
            for (int64_t q = 0; q < w.Q; ++q) {
                const int64_t place = position[p * w.Q + q];
                body(p * w.Q + q, w.top(p) + place / w.kw, w.left(q) + place % w.kw);
            }
    }

    static void gather(const Arguments& a, const Window& w, int64_t plane) {
        const float* g = static_cast<const float*>(a.buffers[0]) + plane * w.H * w.W;
        const T* position = static_cast<const T*>(a.buffers[1]) + plane * w.P * w.Q;
        float* y = static_cast<float*>(a.buffers[2]) + plane * w.P * w.Q;
        each_place(position, w, [&](int64_t i, int64_t h, int64_t j) {
            y[i] = h >= 0 && h < w.H && j >= 0 && j < w.W ? g[h * w.W + j] : 0.0f;
        });
    }

    static void places(const Arguments& a, const Window& w, int64_t plane) {
        const T* position = static_cast<const T*>(a.buffers[0]) + plane * w.P * w.Q;
        int64_t* y = static_cast<int64_t*>(a.buffers[1]) + plane * w.P * w.Q;
        each_place(position, w, [&](int64_t i, int64_t h, int64_t j) { y[i] = h * w.W + j; });
    }
};

const char* complaint(const Counts& c) { return pool_complaint(c, 3); }

using Body = void (*)(const Arguments&, const Window&, int64_t plane);

void planes(const Arguments& a, Body bytes, Body words, int64_t work) {
    const Window w = window(a.integers);
    const Body body = a.integers[11] == 1 ? bytes : words;
    each_plane(a.integers[0], work, [&](int64_t plane) { body(a, w, plane); });
}

// The same where a program computes x.
template <class T>
void max_of_program(const Arguments& a, const Window& w) {
    float* y = static_cast<float*>(a.buffers[1]);
    T* position = static_cast<T*>(a.buffers[2]);
    each_band(a, w, [&](const float* x, int64_t first, int64_t plane, int64_t p0, int64_t p1) {
        for (int64_t p = p0; p < p1; ++p) {
            const int64_t row = (plane * w.P + p) * w.Q;
            max_pooled(w, x, first, p, y + row, position + row);
        }
    });
}

void max_pool2d(const Arguments& a) {
    const Window w = window(a.integers);
    if (a.at(Port::load))
        return a.integers[11] == 1 ? max_of_program<uint8_t>(a, w) : max_of_program<int32_t>(a, w);
    planes(a, Max<uint8_t>::forward, Max<int32_t>::forward, w.P * w.Q * w.kh * w.kw);
}

void max_pool2d_grad(const Arguments& a) {
    const Window w = window(a.integers);
    planes(a, Max<uint8_t>::grad, Max<int32_t>::grad, 2 * w.P * w.Q + w.H * w.W);
}

void max_pool2d_gather(const Arguments& a) {
    const Window w = window(a.integers);
    planes(a, Max<uint8_t>::gather, Max<int32_t>::gather, 4 * w.P * w.Q);
}

void max_pool2d_places(const Arguments& a) {
    const Window w = window(a.integers);
    planes(a, Max<uint8_t>::places, Max<int32_t>::places, 4 * w.P * w.Q);
}

template <class T>
void grad_block(const Window& w, const void* dy, const void* position, int64_t start, int64_t n,
                float* dx) {
    const Places<T> places(w);
    const int64_t size = w.H * w.W, count = w.P * w.Q;
    for (int64_t piece; n > 0; start += piece, dx += piece, n -= piece) {
        const int64_t plane = start / size;
        piece = least(n, (plane + 1) * size - start);
        unpooled(w, places, static_cast<const float*>(dy) + plane * count,
                 static_cast<const T*>(position) + plane * count, start - plane * size, piece, dx);
    }
}

void max_pool2d_grad_block(const Attachment& a, int64_t start, int64_t n, void* dx) {
    const auto block = a.integers[11] == 1 ? grad_block<uint8_t> : grad_block<int32_t>;
    block(window(a.integers), a.buffers[0], a.buffers[1], start, n, static_cast<float*>(dx));
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring

using shoestring::port, shoestring::Port;
SHOESTRING_KERNELS(pool_max,
                   {"max_pool2d", shoestring::SHOESTRING_ISA::max_pool2d,
                    shoestring::SHOESTRING_ISA::complaint, port(Port::load) | port(Port::inlined)},
                   {"max_pool2d_grad", shoestring::SHOESTRING_ISA::max_pool2d_grad,
                    shoestring::SHOESTRING_ISA::complaint, 0,
                    shoestring::SHOESTRING_ISA::max_pool2d_grad_block},
                   {"max_pool2d_gather", shoestring::SHOESTRING_ISA::max_pool2d_gather},
                   {"max_pool2d_places", shoestring::SHOESTRING_ISA::max_pool2d_places})
