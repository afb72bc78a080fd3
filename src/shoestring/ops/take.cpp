// Picking rows by index, and adding rows up by index. a: axes before, b: axes after the indexed
// one, of size n.
//
//     take      buffers x [a][n][b], indices [m], y [a][m][b]
//               integers item size (1, 4, 8), index size (8, 4, 1: unsigned), float?, a, n, m, b
//               y[a][i][b] = x[a][indices[i]][b]; an index outside [0, n) gives NaN, 0 if not float
//     put_add   buffers x [a][m][b], indices [m], y [a][n][b]     float32
//               integers index size, a, n, m, b
//               y[a][j][b] = sum over i with indices[i] = j of x[a][i][b]; others add nothing
//
// A task of take is a block of rows i; a task of put_add is a block of columns b of one a, which it
// clears and then adds to in the order of i: no two tasks write to one place, and the order of a
// sum never changes.
#include <cstring>

#include "../backends/cpu/kernel.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

constexpr int64_t TASK = 16384, COLUMNS = 64;

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t index_at(const void* indices, int64_t size, int64_t i) {
    if (size == 8) return static_cast<const int64_t*>(indices)[i];
    if (size == 4) return static_cast<const int32_t*>(indices)[i];
    return static_cast<const uint8_t*>(indices)[i];
}

template <class T>
void take_rows(const Arguments& args, T outside) {
    const int64_t *k = args.integers, a = k[3], n = k[4], m = k[5], b = k[6];
    const T* x = static_cast<const T*>(args.buffers[0]);
    T* y = static_cast<T*>(args.buffers[2]);
    const int64_t rows = ceil_div(TASK, b);
    parallel_for(ceil_div(a * m, rows), [&](int64_t task) {
        for (int64_t row = task * rows; row < smaller(a * m, (task + 1) * rows); ++row) {
            const int64_t j = index_at(args.buffers[1], k[1], row % m);
            T* to = y + row * b;
            if (j >= 0 && j < n) {
                const T* from = x + (row / m * n + j) * b;
                if (b == 1) *to = *from;
                else std::memcpy(to, from, static_cast<size_t>(b) * sizeof(T));
            } else {
                for (int64_t c = 0; c < b; ++c) to[c] = outside;
            }
        }
    });
}

void take(const Arguments& args) {
    switch (args.integers[0]) {
        case 1:
            return take_rows<uint8_t>(args, 0);
        case 4:
            return take_rows<uint32_t>(args, args.integers[2] ? 0x7fc00000u : 0u);
        default:
            return take_rows<uint64_t>(args, 0);
    }
}

void put_add(const Arguments& args) {
    const int64_t *k = args.integers, a = k[1], n = k[2], m = k[3], b = k[4];
    const float* x = static_cast<const float*>(args.buffers[0]);
    float* y = static_cast<float*>(args.buffers[2]);
    const int64_t blocks = ceil_div(b, COLUMNS);
    parallel_for(a * blocks, [&](int64_t task) {
        const int64_t outer = task / blocks, first = task % blocks * COLUMNS,
                      width = smaller(COLUMNS, b - first);
        float* to = y + outer * n * b + first;
        const float* from = x + outer * m * b + first;
        for (int64_t j = 0; j < n; ++j)
            std::memset(to + j * b, 0, static_cast<size_t>(width) * sizeof(float));
        for (int64_t i = 0; i < m; ++i) {
            const int64_t j = index_at(args.buffers[1], k[0], i);
            if (j < 0 || j >= n) continue;
            for (int64_t c = 0; c < width; ++c) to[j * b + c] += from[i * b + c];
        }
    });
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring

SHOESTRING_KERNELS(take, {"take", shoestring::SHOESTRING_ISA::take},
                   {"put_add", shoestring::SHOESTRING_ISA::put_add})
