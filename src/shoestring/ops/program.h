// Programs: y[i] = f(a[i], b[i], ...) in a few instructions, for any kernel that wants to run one on a
// part of its index space. The interpreter is elementwise.cpp; programs come from
// elementwise_program.py as integers:
//
//         fingerprint, rank, inputs, constants, instructions, outputs, slots, width, block, grain
//         shape[rank]
//         per input        bytes of an element, slot or -1, strides[rank] in elements
//         per constant     slot
//         per instruction  operation, slot or -1 - output, four sources (unused ones 0)
//
// A value is an input, a constant, or the result of an instruction, numbered in this order; sources
// are such numbers. The index space is the row-major output. Buffers are the inputs, then the
// outputs.
//
// An input k for which there is an attachment at Port::inlined, k, is in no memory: that kernel
// computes a block of it when the program reads that block.
#pragma once
#include "../backends/cpu/kernel.h"

namespace shoestring {
namespace SHOESTRING_ISA {

constexpr int64_t kProgramHeader = 10, kValues = 64;

struct Program {
    int64_t rank, inputs, constants, instructions, outputs, slots, width, block, grain;
    const int64_t *shape, *input, *constant, *instruction;

    explicit Program(const int64_t* n)
        : rank(n[1]),
          inputs(n[2]),
          constants(n[3]),
          instructions(n[4]),
          outputs(n[5]),
          slots(n[6]),
          width(n[7]),
          block(n[8]),
          grain(n[9]),
          shape(n + kProgramHeader),
          input(shape + rank),
          constant(input + inputs * (2 + rank)),
          instruction(constant + constants) {}
    int64_t elements() const {
        int64_t total = 1;
        for (int64_t d = 0; d < rank; ++d) total *= shape[d];
        return total;
    }
    // One past the program's last integer.
    const int64_t* end() const { return instruction + 6 * instructions; }
};

// Elements [start, end) of the outputs. a: the program's own buffers, integers and reals, and what
// is computed inline. The address of a buffer is that of its element 0, whether or not that element
// exists.
void run_program(const Program& p, const Arguments& a, int64_t start, int64_t end);

// All of it, shared among threads.
void run_whole(const Arguments& a);

// A program at Port::load: it computes what the kernel would read. Its outputs' buffers are the
// kernel's, one after the other in scratch. Each task makes one.
constexpr int64_t kLoads = 8;  // outputs at most

struct Load {
    const Program program;
    const Arguments arguments;
    void* buffers[kValues + kLoads];
    explicit Load(const Arguments& a)
        : program(a.at(Port::load)->integers),
          arguments{buffers, a.at(Port::load)->integers, a.at(Port::load)->reals, a.attached,
                    a.attachments} {
        for (int64_t k = 0; k < program.inputs; ++k) buffers[k] = a.at(Port::load)->buffers[k];
    }
    Load(const Load&) = delete;
    // Elements [start, end), of output k into to + k * apart.
    void run(int64_t start, int64_t end, float* to, int64_t apart = 0) {
        for (int64_t k = 0; k < program.outputs; ++k)
            buffers[program.inputs + k] =
                reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(to + k * apart) -
                                        static_cast<uintptr_t>(start) * sizeof(float));
        run_program(program, arguments, start, end);
    }
};

// What a kernel has to say of the program at Port::load: that it has this many outputs of so many
// elements.
const char* load_complaint(const Counts& c, int64_t outputs, int64_t elements);

// A program at Port::end: once, over all results.
static inline void run_end(const Arguments& a) {
    const Attachment* end = a.at(Port::end);
    if (end) run_whole({end->buffers, end->integers, end->reals, nullptr, 0});
}

// A program at Port::store: it computes a kernel's final result from its raw one, in place: a task
// that has written a stretch of the output runs it there, while that stretch is in cache. Among the
// program's inputs and as its only output stands the kernel's output.
struct Store {
    const Attachment* at;  // nullptr: the raw result is the final one
    explicit Store(const Arguments& a) : at(a.at(Port::store)) {}
    explicit operator bool() const { return at != nullptr; }
    void run(int64_t start, int64_t end) const {
        run_program(Program(at->integers), {at->buffers, at->integers, at->reals, nullptr, 0},
                    start, end);
    }
    // Columns [from, to) of `rows` rows of `row` elements, the first of which begins at `start`.
    void run(int64_t start, int64_t row, int64_t rows, int64_t from, int64_t to) const {
        if (from == 0 && to == row) return run(start, start + rows * row);
        for (int64_t i = 0; i < rows; ++i, start += row) run(start + from, start + to);
    }
};

// What a kernel with so many results has to say of the program at Port::store.
const char* store_complaint(const Counts& c, int64_t elements);

}  // namespace SHOESTRING_ISA
}  // namespace shoestring
