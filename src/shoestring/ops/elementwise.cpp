// y[i] = f(a[i], b[i], ...): an interpreter of small programs, block by block.
//
//     elementwise    buffers, integers, reals: of the program, see program.h
//
// The index space is cut into tasks of `grain` elements and these into blocks. In each block every
// instruction runs over all elements before the next begins: a vector loop made from the C
// expression of its line in elementwise.py. Results stay in slots of scratch (`block` elements of
// `width` bytes), small enough for the first-level cache. An input that lies as the output does
// (slot -1) is read in place; any other is gathered into its slot first, row by row, several rows
// per block if they are short. Other kernels run programs on parts of what they compute.
//
// Why not one loop compiled per chain: no compiler on the user's machine is needed, and a chain
// runs at the speed of memory as soon as it does not fit the cache. What this does not do:
// reductions.
#include "../backends/cpu/math.h"
#include "program.h"

namespace shoestring {
namespace SHOESTRING_ISA {

// Outputs may lie exactly over inputs, never shifted: iterations are independent.
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

using Loop = void (*)(int64_t n, const void* const* in, void* out);

struct Operation {
    Loop loop;
    int64_t sources, bytes;  // bytes: of an element of the result
};

static inline int32_t absolute(int32_t x) { return x < 0 ? -x : x; }
static inline int64_t absolute(int64_t x) { return x < 0 ? -x : x; }
static inline bool is_nan(float x) { return x != x; }
static inline bool is_nan(int32_t) { return false; }
static inline bool is_nan(int64_t) { return false; }
static inline float power(float a, float b) { return pow(a, b); }
static inline float clipped(float x, float low, float high) {
    const float y = x > low || is_nan(x) ? x : low;
    return y < high || is_nan(y) ? y : high;
}
template <class T>
static inline float to_f32(T x) {
    return static_cast<float>(x);
}
template <class T>
static inline int64_t to_i64(T x) {
    return static_cast<int64_t>(x);
}
template <class T>
static inline int32_t to_i32(T x) {
    return static_cast<int32_t>(x);
}
template <class T>
static inline uint8_t to_u8(T x) {
    return static_cast<uint8_t>(static_cast<int32_t>(x));
}

#include "elementwise_loops.inc"

constexpr int64_t kScratch = 65536, kAxes = 16;
constexpr int64_t kOperations = sizeof operations / sizeof operations[0];

// What is wrong with a program, nullptr if nothing. c: of the program alone, and what is computed
// inline.
static const char* program_complaint(const Counts& c) {
    if (c.integers < kProgramHeader) return "the program has no header";
    if (c.values[0] != fingerprint)
        return "the table in elementwise.py is not the one the kernels were built from: build "
               "again";
    const Program p(c.values);
    if (p.rank < 1 || p.rank > kAxes || p.inputs < 0 || p.constants < 0 || p.instructions < 1 ||
        p.inputs + p.constants + p.instructions > kValues || p.outputs < 1)
        return "a size in the program's header is out of range";
    if (c.buffers != p.inputs + p.outputs || c.reals != p.constants ||
        c.integers != p.end() - c.values)
        return "the program's parts do not have the sizes that its header states";
    if (p.slots < 0 || p.block < 1 || p.grain < 1 ||
        p.slots * p.width * (p.slots ? p.block : 0) > kScratch)
        return "the program's blocks do not fit the scratch";
    for (int64_t k = 0; k < p.inputs; ++k) {
        const int64_t* in = p.input + k * (2 + p.rank);
        if ((in[0] != 1 && in[0] != 4 && in[0] != 8) || in[0] > p.width || in[1] < -1 ||
            in[1] >= p.slots)
            return "an input's element size or slot is out of range";
    }
    for (int64_t k = 0; k < p.constants; ++k)
        if (p.constant[k] < 0 || p.constant[k] >= p.slots)
            return "a constant's slot is out of range";
    for (int64_t k = 0; k < p.instructions; ++k) {
        const int64_t* i = p.instruction + 6 * k;
        if (i[0] < 0 || i[0] >= kOperations || i[1] < -p.outputs || i[1] >= p.slots ||
            operations[i[0]].bytes > p.width)
            return "an instruction's operation or slot is out of range";
        for (int64_t s = 0; s < operations[i[0]].sources; ++s)
            if (i[2 + s] < 0 || i[2 + s] >= p.inputs + p.constants + k)
                return "an instruction reads a value that does not exist yet";
    }
    for (int64_t k = 0; k < c.attachments; ++k) {
        if (c.attached[k].port != Port::inlined) continue;
        const int64_t input = c.attached[k].index, *in = p.input + input * (2 + p.rank);
        if (input < 0 || input >= p.inputs || in[0] != 4 || in[1] < 0)
            return "an input that is computed inline has no slot for floats";
    }
    return nullptr;
}

const char* load_complaint(const Counts& c, int64_t outputs, int64_t elements) {
    const AttachedCounts* load = c.at(Port::load);
    if (!load) return nullptr;
    const Program p(load->values);
    return p.outputs == outputs && outputs <= kLoads && p.elements() == elements
               ? nullptr
               : "the program's outputs do not have the size of what the kernel reads";
}

const char* store_complaint(const Counts& c, int64_t elements) {
    const AttachedCounts* store = c.at(Port::store);
    if (!store) return nullptr;
    const Program p(store->values);
    return p.outputs == 1 && p.elements() == elements
               ? nullptr
               : "the program's output does not have the size of the kernel's";
}

// A place in the index space: one index per axis.
struct Place {
    int64_t index[kAxes];
    Place(const Program& p, int64_t at) {
        for (int64_t d = p.rank - 1; d >= 0; --d) {
            index[d] = at % p.shape[d];
            at /= p.shape[d];
        }
    }
};

// dst[j] = the input's elements from `start` on, n of them, in the order of the index space.
template <class T>
static void gather(const T* base, const Program& p, const int64_t* strides, const Place& start,
                   int64_t n, T* dst) {
    const int64_t last = p.rank - 1, row = p.shape[last], step = strides[last];
    int64_t index[kAxes];
    const T* line = base;  // the current row's first element
    for (int64_t d = 0; d <= last; ++d) {
        index[d] = start.index[d];
        if (d < last) line += index[d] * strides[d];
    }
    for (int64_t column = index[last]; n > 0; column = 0) {
        const int64_t piece = row - column < n ? row - column : n;
        const T* src = line + column * step;
        if (step == 0) {
            const T v = *src;
            for (int64_t j = 0; j < piece; ++j) dst[j] = v;
        } else if (step == 1) {
            for (int64_t j = 0; j < piece; ++j) dst[j] = src[j];
        } else {
            for (int64_t j = 0; j < piece; ++j) dst[j] = src[j * step];
        }
        dst += piece;
        n -= piece;
        for (int64_t d = last - 1; d >= 0; --d) {
            line += strides[d];
            if (++index[d] < p.shape[d]) break;
            line -= strides[d] * p.shape[d];
            index[d] = 0;
        }
    }
}

typedef uint32_t word __attribute__((may_alias));
typedef uint64_t long_word __attribute__((may_alias));

static void gather_bytes(const char* base, const Program& p, const int64_t* input,
                         const Place& start, int64_t n, char* slot) {
    const int64_t* strides = input + 2;
    if (input[0] == 4)
        gather(reinterpret_cast<const word*>(base), p, strides, start, n,
               reinterpret_cast<word*>(slot));
    else if (input[0] == 1)
        gather(reinterpret_cast<const uint8_t*>(base), p, strides, start, n,
               reinterpret_cast<uint8_t*>(slot));
    else
        gather(reinterpret_cast<const long_word*>(base), p, strides, start, n,
               reinterpret_cast<long_word*>(slot));
}

static bool is_scalar(const Program& p, const int64_t* strides) {
    for (int64_t d = 0; d < p.rank; ++d)
        if (strides[d] != 0) return false;
    return true;
}

void run_program(const Program& p, const Arguments& a, int64_t start, int64_t end) {
    alignas(64) char scratch[kScratch];
    const void* values[kValues];
    bool filled[kValues] = {};  // scalars and constants are written into their slots once
    const int64_t first = p.inputs + p.constants,
                  most = end - start < p.block ? end - start : p.block;
    const auto slot = [&](int64_t k) { return scratch + k * p.width * p.block; };
    for (int64_t k = 0; k < p.constants; ++k) {
        float* to = reinterpret_cast<float*>(slot(p.constant[k]));
        for (int64_t j = 0; j < most; ++j) to[j] = static_cast<float>(a.reals[k]);
        values[p.inputs + k] = to;
    }
    for (int64_t k = 0; k < a.attachments; ++k) {
        if (a.attached[k].port != Port::inlined) continue;
        const int64_t input = a.attached[k].index;
        values[input] = slot(p.input[input * (2 + p.rank) + 1]);
        filled[input] = true;  // block by block, below
    }
    for (int64_t k = 0; k < p.inputs; ++k) {
        const int64_t* in = p.input + k * (2 + p.rank);
        if (filled[k] || in[1] < 0 || !is_scalar(p, in + 2)) continue;
        gather_bytes(static_cast<const char*>(a.buffers[k]), p, in, Place(p, 0), most, slot(in[1]));
        values[k] = slot(in[1]);
        filled[k] = true;
    }
    for (int64_t at = start; at < end; at += p.block) {
        const int64_t n = end - at < p.block ? end - at : p.block;
        const Place place(p, at);
        for (int64_t k = 0; k < p.inputs; ++k) {
            if (filled[k]) continue;
            const int64_t* in = p.input + k * (2 + p.rank);
            const char* base = static_cast<const char*>(a.buffers[k]);
            if (in[1] < 0) {
                values[k] = base + at * in[0];
            } else {
                gather_bytes(base, p, in, place, n, slot(in[1]));
                values[k] = slot(in[1]);
            }
        }
        for (int64_t k = 0; k < a.attachments; ++k) {
            const Attachment& made = a.attached[k];
            if (made.port == Port::inlined)
                made.block(made, at, n, slot(p.input[made.index * (2 + p.rank) + 1]));
        }
        for (int64_t k = 0; k < p.instructions; ++k) {
            const int64_t* i = p.instruction + 6 * k;
            const Operation& operation = operations[i[0]];
            const void* in[4] = {values[i[2]], values[i[3]], values[i[4]], values[i[5]]};
            char* to = i[1] >= 0 ? slot(i[1])
                                 : static_cast<char*>(a.buffers[p.inputs - 1 - i[1]]) +
                                       at * operation.bytes;
            operation.loop(n, in, to);
            values[first + k] = to;
        }
    }
}

void run_whole(const Arguments& a) {
    const Program p(a.integers);
    const int64_t total = p.elements();
    parallel_for((total + p.grain - 1) / p.grain, [&](int64_t task) {
        const int64_t start = task * p.grain, end = start + p.grain;
        run_program(p, a, start, end < total ? end : total);
    });
}

// Several programs as one launch, each at Port::part; those with index 1 are chained to the one
// before. A task runs the programs of a chain, which are of one size, on the same elements one after
// the other, so that a program finds what those before it have written there. Chains do not wait for
// each other.
constexpr int64_t kParts = 64;

static void elementwise_group(const Arguments& a) {
    int64_t first[kParts + 1], end[kParts];  // of each chain its first part, one past its last task
    int64_t chains = 0, total = 0;
    for (int64_t k = 0; k < a.attachments; ++k) {
        if (a.attached[k].index) continue;
        const Program p(a.attached[k].integers);
        first[chains] = k;
        end[chains++] = total += (p.elements() + p.grain - 1) / p.grain;
    }
    first[chains] = a.attachments;
    parallel_for(total, [&](int64_t task) {
        int64_t chain = 0;
        while (task >= end[chain]) ++chain;
        const Program leader(a.attached[first[chain]].integers);
        const int64_t all = leader.elements();
        const int64_t start = (task - (chain ? end[chain - 1] : 0)) * leader.grain;
        const int64_t stop = start + leader.grain < all ? start + leader.grain : all;
        for (int64_t k = first[chain]; k < first[chain + 1]; ++k) {
            const Attachment& part = a.attached[k];
            run_program(Program(part.integers),
                        {part.buffers, part.integers, part.reals, nullptr, 0}, start, stop);
        }
    });
}

static const char* group_complaint(const Counts& c) {
    if (c.buffers || c.integers || c.reals || c.attachments < 1 || c.attachments > kParts)
        return "needs 1 to 64 parts, and nothing of its own";
    int64_t size = -1;
    for (int64_t k = 0; k < c.attachments; ++k) {
        const int64_t own = Program(c.attached[k].values).elements();
        if (c.attached[k].index && own != size) return "a part is chained to one of another size";
        size = own;
    }
    return nullptr;
}

}  // namespace SHOESTRING_ISA
}  // namespace shoestring

namespace here = shoestring::SHOESTRING_ISA;
using shoestring::port, shoestring::Port;
SHOESTRING_KERNELS(elementwise,
                   {"elementwise", here::run_whole, here::program_complaint, port(Port::inlined)},
                   {"elementwise_group", here::elementwise_group, here::group_complaint,
                    port(Port::part, 0) | port(Port::part, 1)})
