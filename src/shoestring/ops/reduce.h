// What reduce.cpp and position.cpp share: where the terms of a reduction are, and how one output is
// combined.
//
// integers of every entry:
//     type (0 float, 1 int64, 2 int32, 3 uint8 or bool), what to do at the end, by columns?,
//     slices, kept axes A >= 1, reduced axes B >= 1,
//     n[A], s[A], t[A] (size, stride in x, stride in y), n[B], s[B]; strides in elements
//
// By rows: x is densest along its last reduced axis; one output at a time, LANES partial results
// side by side. By columns: x is densest along its last kept axis; COLUMNS outputs at a time, one
// partial result for each.
#pragma once
#include "../backends/cpu/kernel.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

constexpr int64_t TASK = 16384, LANES = 32, COLUMNS = 256, FLUSH = 64, MAX_AXES = 12;

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Axes {
    int64_t count;
    const int64_t *n, *s, *t;  // sizes, strides in x, strides in y (kept axes only)
    int64_t size() const {
        int64_t product = 1;
        for (int64_t k = 0; k < count; ++k) product *= n[k];
        return product;
    }
};

// Steps through the first `count` axes in row-major order; x and y are the offsets of the current
// place.
struct Walk {
    Axes axes;
    int64_t at[MAX_AXES], x, y;
    Walk(const Axes& a, int64_t count, int64_t start) : axes(a), x(0), y(0) {
        axes.count = count;
        for (int64_t k = count - 1; k >= 0; --k) {
            at[k] = start % axes.n[k];
            start /= axes.n[k];
            move(k, at[k]);
        }
    }
    void move(int64_t k, int64_t places) {
        x += places * axes.s[k];
        if (axes.t) y += places * axes.t[k];
    }
    void next() {
        for (int64_t k = axes.count - 1; k >= 0; --k) {
            move(k, 1);
            if (++at[k] < axes.n[k]) return;
            move(k, -axes.n[k]);
            at[k] = 0;
        }
    }
};

struct Job {
    Axes kept, reduced;
    int64_t end;  // what to do with a total: as the entry says
    bool columns;
    int64_t slices, outputs, terms;
    // `places` units of work, `width` outputs each (1 by rows), `across` of them side by side
    int64_t width, across, places;
    explicit Job(const int64_t* k) : end(k[1]), columns(k[2]), slices(k[3]) {
        const int64_t a = k[4], b = k[5], *n = k + 6;
        kept = {a, n, n + a, n + 2 * a};
        reduced = {b, n + 3 * a, n + 3 * a + b, nullptr};
        outputs = kept.size();
        terms = reduced.size();
        width = columns ? smaller(n[a - 1], COLUMNS) : 1;
        across = columns ? ceil_div(n[a - 1], width) : 1;
        places = (columns ? outputs / n[a - 1] : outputs) * across;
    }
    // The walk over the kept axes that leads to `place`.
    Walk walk(int64_t place) const { return Walk(kept, kept.count - columns, place / across); }
};

template <class T>
struct Lowest {
    static T value() { return static_cast<T>(T(1) << (sizeof(T) * 8 - 1)); }
};
template <>
struct Lowest<uint8_t> {
    static uint8_t value() { return 0; }
};
template <>
struct Lowest<float> {
    static float value() { return -__builtin_inff(); }
};
template <class T>
struct Highest {
    static T value() { return static_cast<T>(~Lowest<T>::value()); }
};
template <>
struct Highest<float> {
    static float value() { return __builtin_inff(); }
};

// The largest (or smallest) value. A NaN wins, and stays.
template <class T, bool MAX>
struct Extreme {
    using In = T;
    using Lane = T;
    using Total = T;
    static T start() { return MAX ? Lowest<T>::value() : Highest<T>::value(); }
    static bool better(T v, T a) { return (MAX ? v > a : v < a) | (v != v); }
    static T add(T a, T v, float) { return better(v, a) ? v : a; }
    static T join(T a, T b) { return add(a, b, 0); }
    static void store(void* y, int64_t k, T a, int64_t, double) { static_cast<T*>(y)[k] = a; }
};

// All lanes together, and every lane back at its start. 32 lanes fold in halves; fewer, one after
// the other.
template <class R>
typename R::Total fold_lanes(typename R::Lane* lanes, int64_t used) {
    typename R::Total total = R::start();
    if (used == LANES) {
        typename R::Total totals[LANES];
        for (int64_t l = 0; l < LANES; ++l) totals[l] = lanes[l];
        for (int64_t half = LANES / 2; half > 0; half /= 2)
            for (int64_t l = 0; l < half; ++l) totals[l] = R::join(totals[l], totals[l + half]);
        total = totals[0];
    } else {
        for (int64_t l = 0; l < used; ++l) total = R::join(total, lanes[l]);
    }
    for (int64_t l = 0; l < used; ++l) lanes[l] = R::start();
    return total;
}

// One output: terms [begin, end) of those at x. R says what to combine: a Lane takes terms, a Total
// takes lanes, both start at the neutral element. x(offset, count): where the term at this offset is
// found, and the next ones, s apart.
template <class R, class X>
typename R::Total fold_row(X x, const Axes& reduced, int64_t begin, int64_t end, float m) {
    const int64_t last = reduced.count - 1, n = reduced.n[last], s = reduced.s[last];
    typename R::Lane lanes[LANES];
    typename R::Total total = R::start();
    const int64_t used = smaller(LANES, end - begin);
    if (used <= 0) return total;
    for (int64_t l = 0; l < used; ++l) lanes[l] = R::start();
    int64_t added = 0;
    Walk walk(reduced, last, begin ? begin / n : 0);
    int64_t first = begin ? begin % n : 0;  // only the first run may begin in its middle
    for (int64_t i = begin; i < end; walk.next(), first = 0) {
        const int64_t length = smaller(n - first, end - i);
        for (int64_t done = 0; done < length;) {
            const int64_t count = smaller(length - done, LANES * FLUSH);
            const typename R::In* p = x(walk.x + (first + done) * s, count);
            int64_t j = 0;
            if (s == 1) {
                for (; j + LANES <= count; j += LANES)
                    for (int64_t l = 0; l < LANES; ++l) lanes[l] = R::add(lanes[l], p[j + l], m);
                for (int64_t l = 0; l < count - j; ++l) lanes[l] = R::add(lanes[l], p[j + l], m);
                j = count;
            }
            for (; j < count; ++j) lanes[j % LANES] = R::add(lanes[j % LANES], p[j * s], m);
            done += count;
            added += ceil_div(count, LANES);
            if (added >= FLUSH || i + done == end) {
                total = R::join(total, fold_lanes<R>(lanes, used));
                added = 0;
            }
        }
        i += length;
    }
    return total;
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring
