// The first place of the largest (or smallest) of n terms along one axis of x; a NaN wins.
//
//     argmax, argmin   buffers x (any strides), y (int64, contiguous)
//                      integers: reduce.h, with one reduced axis
//
// By rows: the extreme value first, many lanes at a time, then a search for it from the front. By
// columns: value and place side by side, one term of all columns after the other.
#include "reduce.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

// Where the best value is; if that is NaN, where the first NaN is.
template <class T>
bool hit(T v, T best) {
    return (v == best) | (v != v);
}

template <class T, bool MAX>
int64_t place_in_row(const T* x, const Axes& axis) {
    const T best = fold_row<Extreme<T, MAX>>([&](int64_t at, int64_t) { return x + at; }, axis, 0,
                                             axis.n[0], 0);
    int64_t i = 0;
    for (; axis.s[0] == 1 && i + LANES <= axis.n[0]; i += LANES) {
        int32_t hits = 0;
        for (int64_t l = 0; l < LANES; ++l) hits += hit(x[i + l], best);
        if (hits) break;
    }
    while (!hit(x[i * axis.s[0]], best)) ++i;
    return i;
}

// `width` outputs, s apart in x and t apart in y.
template <class T, bool MAX>
void places_in_columns(const T* x, const Axes& axis, int64_t s, int64_t width, int64_t* y,
                       int64_t t) {
    T best[COLUMNS];
    int64_t at[COLUMNS];
    for (int64_t c = 0; c < width; ++c) {
        best[c] = x[c * s];
        at[c] = 0;
    }
    for (int64_t i = 1; i < axis.n[0]; ++i) {
        const T* p = x + i * axis.s[0];
        for (int64_t c = 0; c < width; ++c) {
            const T v = p[c * s];
            const bool take = Extreme<T, MAX>::better(v, best[c]) & (best[c] == best[c]);
            best[c] = take ? v : best[c];
            at[c] = take ? i : at[c];
        }
    }
    for (int64_t c = 0; c < width; ++c) y[c * t] = at[c];
}

template <class T, bool MAX>
void places(const Arguments& a) {
    const Job job(a.integers);
    const T* x = static_cast<const T*>(a.buffers[0]);
    int64_t* y = static_cast<int64_t*>(a.buffers[1]);
    const int64_t group = smaller(job.places, ceil_div(TASK, job.width * job.terms)),
                  last = job.kept.count - 1;
    parallel_for(ceil_div(job.places, group), [&](int64_t task) {
        Walk walk = job.walk(task * group);
        for (int64_t place = task * group; place < smaller(job.places, (task + 1) * group);
             ++place) {
            if (job.columns) {
                const int64_t c0 = place % job.across * job.width, s = job.kept.s[last],
                              t = job.kept.t[last];
                places_in_columns<T, MAX>(x + walk.x + c0 * s, job.reduced, s,
                                          smaller(job.width, job.kept.n[last] - c0),
                                          y + walk.y + c0 * t, t);
                if (place % job.across == job.across - 1) walk.next();
            } else {
                y[walk.y] = place_in_row<T, MAX>(x + walk.x, job.reduced);
                walk.next();
            }
        }
    });
}

template <bool MAX>
void position(const Arguments& a) {
    switch (a.integers[0]) {
        case 0:
            return places<float, MAX>(a);
        case 1:
            return places<int64_t, MAX>(a);
        case 2:
            return places<int32_t, MAX>(a);
        default:
            return places<uint8_t, MAX>(a);
    }
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring

SHOESTRING_KERNELS(position, {"argmax", shoestring::SHOESTRING_ISA::position<true>},
                   {"argmin", shoestring::SHOESTRING_ISA::position<false>})
