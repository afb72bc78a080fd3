// Moving elements. x: any strides. y: a region of any strides, at `offset`, of the array that the
// second buffer holds.
//
//     y[offset + sum_k i_k t_k] = x[sum_k i_k s_k]        for all 0 <= i_k < n_k
//
//     copy   buffers x, y    integers item size (1, 4, 8), offset, axes A >= 2, n[A], s[A], t[A]
//     zero   buffer  y       integers bytes
//
// Strides and offsets count elements.
//
// The last two axes form tiles: rows (n[A-2]) by columns (n[A-1]), and y is densest along its
// columns. Three ways: both dense along columns: memcpy of rows. x dense along rows: the tile
// passes through a small square, read along its rows and written along its columns, so that whole
// cache lines are used on both sides. Otherwise: element by element. A task is about TASK elements:
// part of one tile if tiles are large, several tiles if they are small.
#include <cstring>

#include "../backends/cpu/kernel.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

constexpr int64_t TASK = 16384, SQUARE = 16, MAX_AXES = 12;

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Tile {
    int64_t rows, columns;   // elements
    int64_t xr, xc, yr, yc;  // strides of x and y along rows and columns
};

// x dense along rows (xr = 1), y dense along columns (yc = 1).
template <class T>
void transpose(const T* x, T* y, const Tile& t) {
    T square[SQUARE * SQUARE];
    for (int64_t r = 0; r < t.rows; r += SQUARE) {
        const int64_t rows = smaller(SQUARE, t.rows - r);
        for (int64_t c = 0; c < t.columns; c += SQUARE) {
            const int64_t columns = smaller(SQUARE, t.columns - c);
            if (rows == SQUARE && columns == SQUARE) {
                for (int64_t j = 0; j < SQUARE; ++j)
                    std::memcpy(square + j * SQUARE, x + r + (c + j) * t.xc, SQUARE * sizeof(T));
                for (int64_t i = 0; i < SQUARE; ++i) {
                    T* row = y + (r + i) * t.yr + c;
                    for (int64_t j = 0; j < SQUARE; ++j) row[j] = square[j * SQUARE + i];
                }
            } else {
                for (int64_t i = 0; i < rows; ++i)
                    for (int64_t j = 0; j < columns; ++j)
                        y[(r + i) * t.yr + c + j] = x[r + i + (c + j) * t.xc];
            }
        }
    }
}

template <class T>
void move(const T* x, T* y, const Tile& t) {
    if (t.xc == 1 && t.yc == 1) {
        for (int64_t r = 0; r < t.rows; ++r)
            std::memcpy(y + r * t.yr, x + r * t.xr, static_cast<size_t>(t.columns) * sizeof(T));
    } else if (t.xr == 1 && t.yc == 1 && t.rows > 1) {
        transpose(x, y, t);
    } else {
        for (int64_t r = 0; r < t.rows; ++r)
            for (int64_t c = 0; c < t.columns; ++c) y[r * t.yr + c * t.yc] = x[r * t.xr + c * t.xc];
    }
}

template <class T>
void copy_all(const Arguments& a) {
    const int64_t axes = a.integers[2];
    const int64_t *n = a.integers + 3, *s = n + axes, *t = s + axes;
    const T* x = static_cast<const T*>(a.buffers[0]);
    T* y = static_cast<T*>(a.buffers[1]) + a.integers[1];
    const int64_t rows = n[axes - 2], columns = n[axes - 1];
    int64_t tiles = 1;
    for (int64_t k = 0; k < axes - 2; ++k) tiles *= n[k];

    // A part is `height` by `width` of a tile; a task is `group` tiles' worth of one part.
    const int64_t width = smaller(columns, TASK);
    int64_t height = smaller(rows, ceil_div(TASK, width));
    if (height < rows) height = ceil_div(height, SQUARE) * SQUARE;
    const int64_t across = ceil_div(columns, width), down = ceil_div(rows, height),
                  parts = across * down;
    const int64_t group = parts > 1 ? 1 : smaller(tiles, ceil_div(TASK, rows * columns));
    parallel_for(ceil_div(tiles, group) * parts, [&](int64_t task) {
        const int64_t part = task % parts, r = part / across * height, c = part % across * width;
        const Tile tile = {smaller(height, rows - r),
                           smaller(width, columns - c),
                           s[axes - 2],
                           s[axes - 1],
                           t[axes - 2],
                           t[axes - 1]};
        const int64_t first = task / parts * group, last = smaller(tiles, first + group);
        int64_t at[MAX_AXES], rest = first;
        int64_t from = r * tile.xr + c * tile.xc, to = r * tile.yr + c * tile.yc;
        for (int64_t k = axes - 3; k >= 0; --k) {
            at[k] = rest % n[k];
            rest /= n[k];
            from += at[k] * s[k];
            to += at[k] * t[k];
        }
        for (int64_t i = first; i < last; ++i) {
            move(x + from, y + to, tile);
            for (int64_t k = axes - 3; k >= 0; --k) {  // the next tile, as on an odometer
                from += s[k];
                to += t[k];
                if (++at[k] < n[k]) break;
                from -= n[k] * s[k];
                to -= n[k] * t[k];
                at[k] = 0;
            }
        }
    });
}

void copy(const Arguments& a) {
    switch (a.integers[0]) {
        case 1:
            return copy_all<uint8_t>(a);
        case 4:
            return copy_all<uint32_t>(a);
        default:
            return copy_all<uint64_t>(a);
    }
}

void zero(const Arguments& a) {
    uint8_t* y = static_cast<uint8_t*>(a.buffers[0]);
    const int64_t bytes = a.integers[0], block = 1 << 18;
    parallel_for(ceil_div(bytes, block), [&](int64_t task) {
        std::memset(y + task * block, 0, static_cast<size_t>(smaller(block, bytes - task * block)));
    });
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring

SHOESTRING_KERNELS(copy, {"copy", shoestring::SHOESTRING_ISA::copy},
                   {"zero", shoestring::SHOESTRING_ISA::zero})
