// Sums of what a program computes, without its results being written:
//     y_j[k] = sum over o, i of f_j(a[o,k,i], b[o,k,i], ...) / divisor_j
//
//     program_sums   buffers  one output per sum, workspace
//                    integers outer, kept, inner, total, group, slices, divisors, one per sum
//                    ports    load, always: a program whose outputs are the f_j; end
//
// The index space is row-major [outer, kept, inner], of which `total` elements exist (less only if
// kept is 1). A task takes `group` neighbours k and one of `slices` parts of the o; it runs the
// program block by block into scratch, which stays in the first-level cache. Every stretch of one k
// in a block is added up in vector lanes as float, at most kBlock terms, and goes into a double.
// Slices are combined in order: bits depend on shapes alone. Workspace: slices * sums * kept
// doubles.
#include "../backends/cpu/vector.h"
#include "program.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

constexpr int64_t kBlock = 1024, kSums = kLoads, kHead = 6;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

double stretch(const float* x, int64_t n) {
    if (n < W) {
        float sum = 0;
        for (int64_t i = 0; i < n; ++i) sum += x[i];
        return static_cast<double>(sum);
    }
    vf lanes[2] = {};
    int64_t i = 0;
    for (; i + 2 * W <= n; i += 2 * W) {
        lanes[0] = lanes[0] + load(x + i);
        lanes[1] = lanes[1] + load(x + i + W);
    }
    for (; i < n; i += W)
        lanes[0] = lanes[0] + load(x + i, mask(0, static_cast<int>(least(W, n - i))));
    return static_cast<double>(sum_lanes(lanes[0] + lanes[1]));
}

void program_sums(const Arguments& a) {
    const int64_t *n = a.integers, outer = n[0], kept = n[1], inner = n[2], total = n[3];
    const int64_t group = n[4], slices = n[5], groups = (kept + group - 1) / group;
    const int64_t sums = Program(a.at(Port::load)->integers).outputs, *divisors = n + kHead;
    double* totals = static_cast<double*>(a.buffers[sums]);
    parallel_for(groups * slices, [&](int64_t task) {
        const int64_t slice = task % slices, first = task / slices * group;
        const int64_t last = least(first + group, kept);
        alignas(64) float scratch[kSums][kBlock];
        Load values(a);
        double* to = totals + slice * sums * kept;
        for (int64_t j = 0; j < sums; ++j)
            for (int64_t k = first; k < last; ++k) to[j * kept + k] = 0;
        for (int64_t o = outer * slice / slices; o < outer * (slice + 1) / slices; ++o) {
            const int64_t begin = o * kept * inner, end = least(begin + last * inner, total);
            for (int64_t at = begin + first * inner; at < end; at += kBlock) {
                const int64_t count = least(kBlock, end - at);
                values.run(at, at + count, scratch[0], kBlock);
                for (int64_t j = 0; j < sums; ++j) {
                    double* into = to + j * kept;
                    if (inner == 1) {
                        for (int64_t i = 0; i < count; ++i)
                            into[at - begin + i] += static_cast<double>(scratch[j][i]);
                        continue;
                    }
                    for (int64_t i = 0; i < count;) {
                        const int64_t k = (at - begin + i) / inner;
                        const int64_t size = least((k + 1) * inner - (at - begin + i), count - i);
                        into[k] += stretch(scratch[j] + i, size);
                        i += size;
                    }
                }
            }
        }
    });
    for (int64_t j = 0; j < sums; ++j) {
        float* y = static_cast<float*>(a.buffers[j]);
        for (int64_t k = 0; k < kept; ++k) {
            double sum = 0;
            for (int64_t slice = 0; slice < slices; ++slice)
                sum += totals[(slice * sums + j) * kept + k];
            y[k] = static_cast<float>(sum / static_cast<double>(divisors[j]));
        }
    }
    run_end(a);
}

const char* complaint(const Counts& c) {
    const int64_t sums = c.buffers - 1, *n = c.values;
    if (sums < 1 || sums > kSums || c.integers != kHead + sums || !c.at(Port::load))
        return "needs a program, its sizes, a divisor and an output for each sum, and a workspace";
    if (n[1] < 1 || n[2] < 1 || n[4] < 1 || n[5] < 1) return "a size is out of range";
    return load_complaint(c, sums, n[3]);
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring

using shoestring::port, shoestring::Port;
SHOESTRING_KERNELS(reduce_program, {"program_sums", shoestring::SHOESTRING_ISA::program_sums,
                                    shoestring::SHOESTRING_ISA::complaint,
                                    port(Port::load) | port(Port::inlined) | port(Port::end)})
