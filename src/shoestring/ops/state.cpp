// Checks of data: the first offender's {position, found} goes into a record of two int64, {-1, 0}
// if there is none.
//
//     check_index    buffers x, record   integers count, item size (8, 4: signed; 1: unsigned),
//                    limit, has ignore, ignore
//     check_finite   buffers x, record   integers count          found: 1 infinite, 0 NaN
//
// One thread, one pass: labels are few, and a finite array is scanned by a sum that only a NaN or
// infinity can spoil.
#include "../backends/cpu/kernel.h"

namespace shoestring {
namespace SHOESTRING_ISA {

template <class T>
static void find_index(const T* x, const int64_t* n, int64_t* record) {
    for (int64_t i = 0; i < n[0]; ++i) {
        const int64_t v = static_cast<int64_t>(x[i]);
        if (v >= 0 && v < n[2]) continue;
        if (n[3] && v == n[4]) continue;
        record[0] = i;
        record[1] = v;
        return;
    }
}

static void check_index(const Arguments& a) {
    int64_t* record = static_cast<int64_t*>(a.buffers[1]);
    record[0] = -1;
    record[1] = 0;
    if (a.integers[1] == 8)
        find_index(static_cast<const int64_t*>(a.buffers[0]), a.integers, record);
    else if (a.integers[1] == 4)
        find_index(static_cast<const int32_t*>(a.buffers[0]), a.integers, record);
    else find_index(static_cast<const uint8_t*>(a.buffers[0]), a.integers, record);
}

static void check_finite(const Arguments& a) {
    const float* x = static_cast<const float*>(a.buffers[0]);
    int64_t* record = static_cast<int64_t*>(a.buffers[1]);
    record[0] = -1;
    record[1] = 0;
    const int64_t count = a.integers[0], block = 1024;
    for (int64_t start = 0; start < count; start += block) {
        const int64_t end = start + block < count ? start + block : count;
        float spoilt = 0;
        for (int64_t i = start; i < end; ++i) spoilt += x[i] * 0.0f;  // 0, or NaN from then on
        if (spoilt == 0) continue;
        for (int64_t i = start; i < end; ++i) {
            if (x[i] - x[i] == 0) continue;
            record[0] = i;
            record[1] = x[i] == x[i];
            return;
        }
    }
}

}  // namespace SHOESTRING_ISA
}  // namespace shoestring

SHOESTRING_KERNELS(state, {"check_index", shoestring::SHOESTRING_ISA::check_index},
                   {"check_finite", shoestring::SHOESTRING_ISA::check_finite})
