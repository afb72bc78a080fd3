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

constexpr int64_t kScratch = 65536, kValues = 64, kAxes = 16;
constexpr int64_t kOperations = sizeof operations / sizeof operations[0];

static const Generator generators[] = {max_pool2d_grad_block};  // numbered as GENERATORS in Python
constexpr int64_t kGenerators = sizeof generators / sizeof generators[0];

const char* program_complaint(const Counts& c) {
    if (c.integers < kProgramHeader) return "the program has no header";
    if (c.values[0] != fingerprint)
        return "the table in elementwise.py is not the one the kernels were built from: build "
               "again";
    const Program p(c.values);
    if (p.rank < 1 || p.rank > kAxes || p.inputs < 0 || p.constants < 0 || p.instructions < 1 ||
        p.inputs + p.constants + p.instructions > kValues || p.outputs < 1 || p.generated < 0 ||
        p.generated > p.inputs)
        return "a size in the program's header is out of range";
    if (c.buffers != p.inputs + p.outputs + p.generated || c.reals != p.constants ||
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
    for (int64_t k = 0; k < p.generated; ++k) {
        const int64_t* g = p.generator + k * (3 + kGenerated);
        if (g[0] < 0 || g[0] >= p.inputs || p.input[g[0] * (2 + p.rank) + 1] < 0 || g[1] < 0 ||
            g[1] >= kGenerators || g[2] < 0 || g[2] >= c.buffers)
            return "a generated input has no slot, generator or buffer";
    }
    return nullptr;
}

const char* prologue_complaint(const Counts& c, int64_t at, int64_t own, int64_t own_reals) {
    const char* wrong = program_complaint(
        {c.buffers - own + 1, c.integers - at, c.reals - own_reals, c.values + at});
    if (wrong) return wrong;
    const Program p(c.values + at);
    return p.outputs == 1 ? nullptr : "the program gives more than the kernel's first input";
}

const char* epilogue_complaint(const Counts& c, int64_t at, int64_t own, int64_t own_reals) {
    if (c.integers <= at) return "the kernel does not say whether a program follows";
    if (c.values[at])
        return program_complaint(
            {c.buffers - own, c.integers - at - 1, c.reals - own_reals, c.values + at + 1});
    return c.integers == at + 1 && c.buffers == own && c.reals == own_reals
               ? nullptr
               : "the kernel's parts do not have the sizes that its integers state";
}

static int64_t elements(const Program& p) {
    int64_t total = 1;
    for (int64_t d = 0; d < p.rank; ++d) total *= p.shape[d];
    return total;
}

const char* epilogue_complaint(const Counts& c, int64_t at, int64_t own, int64_t own_reals,
                               int64_t count) {
    const char* wrong = epilogue_complaint(c, at, own, own_reals);
    if (wrong || !c.values[at]) return wrong;
    const Program p(c.values + at + 1);
    return p.outputs == 1 && elements(p) == count
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
    for (int64_t k = 0; k < p.inputs; ++k) {
        const int64_t* in = p.input + k * (2 + p.rank);
        if (in[1] < 0 || !is_scalar(p, in + 2)) continue;
        gather_bytes(static_cast<const char*>(a.buffers[k]), p, in, Place(p, 0), most, slot(in[1]));
        values[k] = slot(in[1]);
        filled[k] = true;
    }
    for (int64_t k = 0; k < p.generated; ++k) {
        const int64_t input = p.generator[k * (3 + kGenerated)];
        values[input] = slot(p.input[input * (2 + p.rank) + 1]);
        filled[input] = true;  // block by block, below
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
        for (int64_t k = 0; k < p.generated; ++k) {
            const int64_t* g = p.generator + k * (3 + kGenerated);
            char* to = slot(p.input[g[0] * (2 + p.rank) + 1]);
            generators[g[1]](g + 3, a.buffers[g[0]], a.buffers[g[2]], at, n, to);
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

static void elementwise(const Arguments& a) {
    const Program p(a.integers);
    const int64_t total = elements(p);
    parallel_for((total + p.grain - 1) / p.grain, [&](int64_t task) {
        const int64_t start = task * p.grain, end = start + p.grain;
        run_program(p, a, start, end < total ? end : total);
    });
}

// Several programs as one launch. integers: how many; of each how many buffers, integers and reals
// it has, and whether it is chained to the one before; their integers. Buffers and reals: one after
// the other. A task runs the programs of a chain, which are of one size, on the same elements one
// after the other, so that a program finds what those before it have written there. Chains do not
// wait for each other.
constexpr int64_t kParts = 64;

static void elementwise_group(const Arguments& a) {
    const int64_t parts = a.integers[0], *sizes = a.integers + 1;
    Arguments part[kParts];
    int64_t first[kParts + 1], end[kParts];  // of each chain its first part, one past its last task
    int64_t chains = 0, total = 0;
    Arguments next = {a.buffers, sizes + 4 * parts, a.reals};
    for (int64_t k = 0; k < parts; ++k, sizes += 4) {
        part[k] = next;
        if (!sizes[3]) {
            const Program p(next.integers);
            first[chains] = k;
            end[chains++] = total += (elements(p) + p.grain - 1) / p.grain;
        }
        next = {next.buffers + sizes[0], next.integers + sizes[1], next.reals + sizes[2]};
    }
    first[chains] = parts;
    parallel_for(total, [&](int64_t task) {
        int64_t chain = 0;
        while (task >= end[chain]) ++chain;
        const Program leader(part[first[chain]].integers);
        const int64_t all = elements(leader);
        const int64_t start = (task - (chain ? end[chain - 1] : 0)) * leader.grain;
        const int64_t stop = start + leader.grain < all ? start + leader.grain : all;
        for (int64_t k = first[chain]; k < first[chain + 1]; ++k)
            run_program(Program(part[k].integers), part[k], start, stop);
    });
}

static const char* group_complaint(const Counts& c) {
    if (c.integers < 1 || c.values[0] < 1 || c.values[0] > kParts ||
        c.integers < 1 + 4 * c.values[0])
        return "elementwise_group: the header is not whole";
    const int64_t* sizes = c.values + 1;
    const int64_t* integers = sizes + 4 * c.values[0];
    int64_t buffers = 0, reals = 0, size = -1;
    for (int64_t k = 0; k < c.values[0]; ++k, sizes += 4) {
        if (integers + sizes[1] > c.values + c.integers)
            return "elementwise_group: a part is not whole";
        const char* wrong = program_complaint({sizes[0], sizes[1], sizes[2], integers});
        if (wrong) return wrong;
        const int64_t own = elements(Program(integers));
        if (sizes[3] && own != size)
            return "elementwise_group: a part is chained to one of another size";
        size = own;
        integers += sizes[1];
        buffers += sizes[0];
        reals += sizes[2];
    }
    return buffers == c.buffers && reals == c.reals && integers == c.values + c.integers
               ? nullptr
               : "elementwise_group: the parts do not have the sizes that the header states";
}

void run_epilogue(const Arguments& a, int64_t at, int64_t own, int64_t own_reals) {
    if (a.integers[at]) elementwise({a.buffers + own, a.integers + at + 1, a.reals + own_reals});
}

}  // namespace SHOESTRING_ISA
}  // namespace shoestring

namespace here = shoestring::SHOESTRING_ISA;
SHOESTRING_KERNELS(elementwise, {"elementwise", here::elementwise, here::program_complaint},
                   {"elementwise_group", here::elementwise_group, here::group_complaint})
