// Reductions: y[k] = combine of x[k, r] over all reduced places r. x has any strides, y is
// contiguous.
//
//     sum       buffers x, y       end 0: float -> float, else -> int64
//                                  end 1: divided by reals[0], as float
//     squares   buffers x, m, y    float: sum over r of (x[k, r] - m[k])^2, divided by reals[0]
//     norm      buffers x, y       float: square root of the sum of x[k, r]^2
//     prod      buffers x, y       float
//     max, min  buffers x, y       T -> T; NaN wins
//
// Port of sum: load, by rows of a contiguous x. After y: a workspace of slices * outputs * 8 bytes, if slices > 1. Integers: reduce.h. Reals:
// divisor.
//
// Partial sums are float for at most FLUSH terms and then go into a double, so that the error of a
// sum does not grow with its length. Long reductions to few outputs are cut into slices (by the
// launch, from the shapes alone), whose results are combined in order. A task is about TASK
// elements.
#include "reduce.h"

#include "program.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

template <class T>
struct Number {
    using Lane = int64_t;
    using Total = int64_t;
};
template <>
struct Number<float> {
    using Lane = float;
    using Total = double;
};

template <class T>
struct Sum {
    using In = T;
    using Lane = typename Number<T>::Lane;
    using Total = typename Number<T>::Total;
    static Lane start() { return 0; }
    static Lane add(Lane a, T v, float) { return a + static_cast<Lane>(v); }
    static Total join(Total a, Total b) { return a + b; }
    static void store(void* y, int64_t k, Total a, int64_t end, double divisor) {
        if (end) static_cast<float*>(y)[k] = static_cast<float>(static_cast<double>(a) / divisor);
        else if (sizeof(Lane) == sizeof(float)) static_cast<float*>(y)[k] = static_cast<float>(a);
        else static_cast<int64_t*>(y)[k] = static_cast<int64_t>(a);
    }
};

struct Squares : Sum<float> {
    static float add(float a, float v, float m) { return a + (v - m) * (v - m); }
};

struct Norm : Squares {
    static void store(void* y, int64_t k, double a, int64_t, double) {
        static_cast<float*>(y)[k] = static_cast<float>(__builtin_sqrt(a));
    }
};

struct Product {
    using In = float;
    using Lane = double;  // a float would overflow on the way to a product that does not
    using Total = double;
    static double start() { return 1; }
    static double add(double a, float v, float) { return a * static_cast<double>(v); }
    static double join(double a, double b) { return a * b; }
    static void store(void* y, int64_t k, double a, int64_t, double) {
        static_cast<float*>(y)[k] = static_cast<float>(a);
    }
};

// `width` outputs, s apart in x: terms [begin, end) of each.
template <class R>
void fold_columns(const typename R::In* x, const Axes& reduced, int64_t begin, int64_t end,
                  int64_t s, int64_t width, const float* m, typename R::Total* totals) {
    typename R::Lane lanes[COLUMNS];
    for (int64_t c = 0; c < width; ++c) {
        lanes[c] = R::start();
        totals[c] = R::start();
    }
    Walk walk(reduced, reduced.count, begin);
    int64_t added = 0;
    for (int64_t i = begin; i < end; ++i, walk.next()) {
        const typename R::In* p = x + walk.x;
        if (s == 1) {
            for (int64_t c = 0; c < width; ++c) lanes[c] = R::add(lanes[c], p[c], m[c]);
        } else {
            for (int64_t c = 0; c < width; ++c) lanes[c] = R::add(lanes[c], p[c * s], m[c]);
        }
        if (++added == FLUSH || i + 1 == end) {
            for (int64_t c = 0; c < width; ++c) {
                totals[c] = R::join(totals[c], lanes[c]);
                lanes[c] = R::start();
            }
            added = 0;
        }
    }
}

// Where x comes from: memory, or a program that computes a piece of a row in scratch as it is added
// up. Each task has one.
template <class T>
struct Memory {
    const T* x;
    explicit Memory(const Arguments& a) : x(static_cast<const T*>(a.buffers[0])) {}
    const T* piece(int64_t at, int64_t) { return x + at; }
};

struct Computed {
    alignas(64) float scratch[LANES * FLUSH];
    Load prologue;
    const float* const x = nullptr;  // by rows only
    explicit Computed(const Arguments& a) : prologue(a) {}
    const float* piece(int64_t at, int64_t count) {
        prologue.run(at, at + count, scratch);
        return scratch;
    }
};

// All outputs. Partial results of slice i lie at partial[i * outputs + k].
template <class R, class Source = Memory<typename R::In>>
void reduce(const Arguments& a, bool centred = false) {
    const Job job(a.integers);
    const float* mean = centred ? static_cast<const float*>(a.buffers[1]) : nullptr;
    void* const* own = a.buffers + 1 + centred;
    void* y = own[0];
    typename R::Total* partial = static_cast<typename R::Total*>(job.slices > 1 ? own[1] : nullptr);
    auto keep = [&](int64_t slice, int64_t k, typename R::Total total) {
        if (partial) partial[slice * job.outputs + k] = total;
        else R::store(y, k, total, job.end, a.reals[0]);
    };
    const int64_t length = ceil_div(job.terms, job.slices);
    const int64_t group =
        job.slices > 1 ? 1 : smaller(job.places, ceil_div(TASK, job.width * length));
    parallel_for(ceil_div(job.places, group) * job.slices, [&](int64_t task) {
        const int64_t slice = task % job.slices, begin = slice * length,
                      end = smaller(job.terms, begin + length);
        const int64_t first = task / job.slices * group, last = job.kept.count - 1;
        Walk walk = job.walk(first);
        Source source(a);
        for (int64_t place = first; place < smaller(job.places, first + group); ++place) {
            if (job.columns) {
                const int64_t c0 = place % job.across * job.width,
                              count = smaller(job.width, job.kept.n[last] - c0);
                const int64_t s = job.kept.s[last], t = job.kept.t[last];
                typename R::Total totals[COLUMNS];
                float m[COLUMNS];
                for (int64_t c = 0; c < count; ++c) m[c] = mean ? mean[walk.y + (c0 + c) * t] : 0;
                fold_columns<R>(source.x + walk.x + c0 * s, job.reduced, begin, end, s, count, m,
                                totals);
                for (int64_t c = 0; c < count; ++c) keep(slice, walk.y + (c0 + c) * t, totals[c]);
                if (place % job.across == job.across - 1) walk.next();
            } else {
                const auto row = [&](int64_t at, int64_t count) {
                    return source.piece(walk.x + at, count);
                };
                keep(slice, walk.y,
                     fold_row<R>(row, job.reduced, begin, end, mean ? mean[walk.y] : 0));
                walk.next();
            }
        }
    });
    for (int64_t k = 0; partial && k < job.outputs; ++k) {
        typename R::Total total = partial[k];
        for (int64_t i = 1; i < job.slices; ++i)
            total = R::join(total, partial[i * job.outputs + k]);
        R::store(y, k, total, job.end, a.reals[0]);
    }
}

const char* complaint(const Counts& c) {
    const int64_t axes = c.integers < 6 ? 0 : 3 * c.values[4] + 2 * c.values[5];
    if (axes <= 0 || c.integers != 6 + axes) return "needs the sizes that its header states";
    const Job job(c.values);
    if (c.buffers != (job.slices > 1 ? 3 : 2) || c.reals != 1)
        return "needs x, y, a workspace if it is cut, and a divisor";
    if (c.at(Port::load) &&
        (job.columns || c.values[0] || job.reduced.s[job.reduced.count - 1] != 1))
        return "reads programs by rows of float only";
    return load_complaint(c, 1, job.outputs * job.terms);
}

void sum(const Arguments& a) {
    if (a.at(Port::load)) return reduce<Sum<float>, Computed>(a);
    switch (a.integers[0]) {
        case 0:
            return reduce<Sum<float>>(a);
        case 1:
            return reduce<Sum<int64_t>>(a);
        case 2:
            return reduce<Sum<int32_t>>(a);
        default:
            return reduce<Sum<uint8_t>>(a);
    }
}

void squares(const Arguments& a) { reduce<Squares>(a, true); }
void norm(const Arguments& a) { reduce<Norm>(a); }
void prod(const Arguments& a) { reduce<Product>(a); }

template <bool MAX>
void extreme(const Arguments& a) {
    switch (a.integers[0]) {
        case 0:
            return reduce<Extreme<float, MAX>>(a);
        case 1:
            return reduce<Extreme<int64_t, MAX>>(a);
        case 2:
            return reduce<Extreme<int32_t, MAX>>(a);
        default:
            return reduce<Extreme<uint8_t, MAX>>(a);
    }
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring

using shoestring::port, shoestring::Port;
SHOESTRING_KERNELS(reduce,
                   {"sum", shoestring::SHOESTRING_ISA::sum, shoestring::SHOESTRING_ISA::complaint,
                    port(Port::load) | port(Port::inlined)},
                   {"squares", shoestring::SHOESTRING_ISA::squares},
                   {"norm", shoestring::SHOESTRING_ISA::norm},
                   {"prod", shoestring::SHOESTRING_ISA::prod},
                   {"max", shoestring::SHOESTRING_ISA::extreme<true>},
                   {"min", shoestring::SHOESTRING_ISA::extreme<false>})
