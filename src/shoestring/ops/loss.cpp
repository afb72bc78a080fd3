// Softmax, its logarithm and cross entropy over the middle axis of x[outer][C][inner].
//
//   softmax, log_softmax  buffers x, y                                    integers outer C inner
//   cross_entropy         buffers x, labels, weight, smoothing, loss, counts   and: bytes of a
//                         label, ignore_index
//   cross_entropy_grad    buffers dloss, x, labels, weight, smoothing, dx      the same
//
// Each distribution is three short passes over C numbers: the largest, the sum of exp(x - largest),
// the result. Labels outside [0, C) count as ignored, so that nothing is ever read beside the
// weights: check_index reports them.
#include "../backends/cpu/math.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

struct Row {
    const float* x;
    int64_t C, step;
    float largest, total;  // max of x, sum of exp(x - max)
};

Row read(const float* x, int64_t C, int64_t step) {
    float largest = x[0], total = 0.0f;
    for (int64_t c = 1; c < C; ++c) {
        const float v = x[c * step];
        largest = v > largest || v != v ? v : largest;
    }
    for (int64_t c = 0; c < C; ++c) total += exp(x[c * step] - largest);
    return {x, C, step, largest, total};
}

// body(n, where row n starts), n = outer * inner rows; some thousands of numbers make a task.
template <class Body>
void each_row(int64_t outer, int64_t C, int64_t inner, Body body) {
    const int64_t rows = outer * inner, chunk = C > 2048 ? 1 : 2048 / C;
    parallel_for((rows + chunk - 1) / chunk, [&](int64_t task) {
        for (int64_t n = task * chunk; n < rows && n < (task + 1) * chunk; ++n)
            body(n, n / inner * C * inner + n % inner);
    });
}

void softmax(const Arguments& a) {
    const int64_t C = a.integers[1], inner = a.integers[2];
    each_row(a.integers[0], C, inner, [&](int64_t, int64_t at) {
        const Row row = read(static_cast<const float*>(a.buffers[0]) + at, C, inner);
        float* y = static_cast<float*>(a.buffers[1]) + at;
        for (int64_t c = 0; c < C; ++c)
            y[c * inner] = exp(row.x[c * inner] - row.largest) / row.total;
    });
}

void log_softmax(const Arguments& a) {
    const int64_t C = a.integers[1], inner = a.integers[2];
    each_row(a.integers[0], C, inner, [&](int64_t, int64_t at) {
        const Row row = read(static_cast<const float*>(a.buffers[0]) + at, C, inner);
        float* y = static_cast<float*>(a.buffers[1]) + at;
        const float shift = log(row.total);
        for (int64_t c = 0; c < C; ++c) y[c * inner] = (row.x[c * inner] - row.largest) - shift;
    });
}

int64_t label(const void* labels, int64_t n, int64_t bytes) {
    if (bytes == 8) return static_cast<const int64_t*>(labels)[n];
    if (bytes == 4) return static_cast<const int32_t*>(labels)[n];
    return static_cast<const uint8_t*>(labels)[n];
}

void cross_entropy(const Arguments& a) {
    const int64_t C = a.integers[1], inner = a.integers[2], ignore = a.integers[4];
    const float* weight = static_cast<const float*>(a.buffers[2]);
    const float smoothing = *static_cast<const float*>(a.buffers[3]);
    float *loss = static_cast<float*>(a.buffers[4]), *counts = static_cast<float*>(a.buffers[5]);
    each_row(a.integers[0], C, inner, [&](int64_t n, int64_t at) {
        const int64_t target = label(a.buffers[1], n, a.integers[3]);
        loss[n] = counts[n] = 0.0f;
        if (target == ignore || target < 0 || target >= C) return;
        const Row row = read(static_cast<const float*>(a.buffers[0]) + at, C, inner);
        const float shift = log(row.total), share = smoothing / static_cast<float>(C);
        float total = 0.0f;
        if (smoothing != 0.0f)
            for (int64_t c = 0; c < C; ++c) {
                const float t = share * weight[c];
                if (t != 0.0f) total += t * ((row.x[c * inner] - row.largest) - shift);
            }
        const float t = (1.0f - smoothing) * weight[target];
        if (t != 0.0f) total += t * ((row.x[target * inner] - row.largest) - shift);
        loss[n] = -total;
        counts[n] = weight[target];
    });
}

void cross_entropy_grad(const Arguments& a) {
    const int64_t C = a.integers[1], inner = a.integers[2], ignore = a.integers[4];
    const float* dloss = static_cast<const float*>(a.buffers[0]);
    const float* weight = static_cast<const float*>(a.buffers[3]);
    const float smoothing = *static_cast<const float*>(a.buffers[4]);
    const float share = smoothing / static_cast<float>(C);
    each_row(a.integers[0], C, inner, [&](int64_t n, int64_t at) {
        float* dx = static_cast<float*>(a.buffers[5]) + at;
        const int64_t target = label(a.buffers[2], n, a.integers[3]);
        if (target == ignore || target < 0 || target >= C) {
            for (int64_t c = 0; c < C; ++c) dx[c * inner] = 0.0f;
            return;
        }
        const Row row = read(static_cast<const float*>(a.buffers[1]) + at, C, inner);
        float mass = (1.0f - smoothing) * weight[target];
        for (int64_t c = 0; c < C && smoothing != 0.0f; ++c) mass += share * weight[c];
        for (int64_t c = 0; c < C; ++c) {
            const float p = exp(row.x[c * inner] - row.largest) / row.total;
            const float t =
                (c == target ? (1.0f - smoothing) * weight[c] : 0.0f) + share * weight[c];
            dx[c * inner] = dloss[n] * (p * mass - t);
        }
    });
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring

SHOESTRING_KERNELS(loss, {"softmax", shoestring::SHOESTRING_ISA::softmax},
                   {"log_softmax", shoestring::SHOESTRING_ISA::log_softmax},
                   {"cross_entropy", shoestring::SHOESTRING_ISA::cross_entropy},
                   {"cross_entropy_grad", shoestring::SHOESTRING_ISA::cross_entropy_grad})
