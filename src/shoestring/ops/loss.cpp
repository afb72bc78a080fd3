// Softmax, its logarithm and cross entropy over the middle axis of x[outer][C][inner].
//
//   softmax, log_softmax  buffers x, y                                    integers outer C inner
//   cross_entropy         buffers x, labels, weight, smoothing, loss     and: bytes of a label,
//                         ignore_index
//   cross_entropy_grad    buffers dloss, x, labels, weight, smoothing, dx     the same, then how many
//                         axes dloss has, their sizes, their strides
//   cross_entropy_both    buffers dloss, x, labels, weight, smoothing, loss, dx    the same
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

// keep: where the exp(x - max) go, in the same places as x; nullptr: nowhere.
Row read(const float* x, int64_t C, int64_t step, float* keep = nullptr) {
    float largest = x[0], total = 0.0f;
    for (int64_t c = 1; c < C; ++c) {
        const float v = x[c * step];
        largest = v > largest || v != v ? v : largest;
    }
    if (keep != nullptr) {
        for (int64_t c = 0; c < C; ++c) keep[c * step] = exp(x[c * step] - largest);
        for (int64_t c = 0; c < C; ++c) total += keep[c * step];
    } else {
        for (int64_t c = 0; c < C; ++c) total += exp(x[c * step] - largest);
    }
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

// Where dloss of row n lies: its axes are merged, so that a row of its own needs no more than one.
struct Places {
    const int64_t* axes;  // how many; their sizes; their strides
    int64_t operator()(int64_t n) const {
        const int64_t count = axes[0], *size = axes + 1, *stride = size + count;
        int64_t at = 0;
        for (int64_t k = count; k-- > 0; n /= size[k]) at += n % size[k] * stride[k];
        return at;
    }
};

// The losses, their gradient for x, or both in one pass: then exp(x - largest), which the gradient
// needs again, waits in dx. The same operations in the same order, so that bits do not depend on it.
template <bool kLoss, bool kGradient>
void cross_entropy(const Arguments& a) {
    const int64_t C = a.integers[1], inner = a.integers[2], ignore = a.integers[4];
    void* const* next = a.buffers;
    const float* dloss = kGradient ? static_cast<const float*>(*next++) : nullptr;
    const float* logits = static_cast<const float*>(*next++);
    const void* labels = *next++;
    const float* weight = static_cast<const float*>(*next++);
    const float smoothing = *static_cast<const float*>(*next++);
    float* losses = kLoss ? static_cast<float*>(*next++) : nullptr;
    float* slopes = kGradient ? static_cast<float*>(*next) : nullptr;
    const float share = smoothing / static_cast<float>(C);
    const Places place = {a.integers + 5};
    each_row(a.integers[0], C, inner, [&](int64_t n, int64_t at) {
        const int64_t target = label(labels, n, a.integers[3]);
        float* dx = kGradient ? slopes + at : nullptr;
        if (target == ignore || target < 0 || target >= C) {
            if (kLoss) losses[n] = 0.0f;
            for (int64_t c = 0; kGradient && c < C; ++c) dx[c * inner] = 0.0f;
            return;
        }
        const Row row = read(logits + at, C, inner, dx);
        if (kLoss) {
            const float shift = log(row.total);
            float total = 0.0f;
            for (int64_t c = 0; c < C && smoothing != 0.0f; ++c) {
                const float t = share * weight[c];
                if (t != 0.0f) total += t * ((row.x[c * inner] - row.largest) - shift);
            }
            const float t = (1.0f - smoothing) * weight[target];
            if (t != 0.0f) total += t * ((row.x[target * inner] - row.largest) - shift);
            losses[n] = -total;
        }
        if (kGradient) {
            const float slope = dloss[place(n)];
            float mass = (1.0f - smoothing) * weight[target];
            for (int64_t c = 0; c < C && smoothing != 0.0f; ++c) mass += share * weight[c];
            for (int64_t c = 0; c < C; ++c) {
                const float p = dx[c * inner] / row.total;
                const float t =
                    (c == target ? (1.0f - smoothing) * weight[c] : 0.0f) + share * weight[c];
                dx[c * inner] = slope * (p * mass - t);
            }
        }
    });
}

// buffers: how many the kernel has.
template <int64_t buffers>
const char* gradient_complaint(const Counts& c) {
    const bool whole = c.integers > 5 && c.values[5] >= 1 && c.values[5] <= 12 &&
                       c.integers == 6 + 2 * c.values[5];
    if (c.buffers != buffers || c.reals != 0 || !whole)
        return "cross_entropy: needs its buffers, 5 integers and the axes of dloss";
    int64_t rows = 1;
    for (int64_t k = 0; k < c.values[5]; ++k) rows *= c.values[6 + k];
    return rows == c.values[0] * c.values[2] ? nullptr
                                             : "cross_entropy: dloss has another number of rows";
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring

SHOESTRING_KERNELS(loss, {"softmax", shoestring::SHOESTRING_ISA::softmax},
                   {"log_softmax", shoestring::SHOESTRING_ISA::log_softmax},
                   {"cross_entropy", shoestring::SHOESTRING_ISA::cross_entropy<true, false>},
                   {"cross_entropy_grad", shoestring::SHOESTRING_ISA::cross_entropy<false, true>,
                    shoestring::SHOESTRING_ISA::gradient_complaint<6>},
                   {"cross_entropy_both", shoestring::SHOESTRING_ISA::cross_entropy<true, true>,
                    shoestring::SHOESTRING_ISA::gradient_complaint<7>})
