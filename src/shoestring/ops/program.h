// Programs: y[i] = f(a[i], b[i], ...) in a few instructions, for any kernel that wants to run one on a
// part of its index space. The interpreter is elementwise.cpp; programs come from
// elementwise_program.py as integers:
//
//         fingerprint, rank, inputs, constants, instructions, outputs, slots, width, block, grain,
//         generated inputs
//         shape[rank]
//         per input        bytes of an element, slot or -1, strides[rank] in elements
//         per constant     slot
//         per instruction  operation, slot or -1 - output, four sources (unused ones 0)
//         per generated    input, generator, its second buffer, the generator's kGenerated numbers
//
// A value is an input, a constant, or the result of an instruction, numbered in this order; sources
// are such numbers. The index space is the row-major output. Buffers are the inputs, the outputs,
// then the second buffers of generated inputs.
//
// A generated input is in no memory: its generator computes a block of it, from two smaller arrays,
// when the program reads that block.
#pragma once
#include "../backends/cpu/kernel.h"

namespace shoestring {
namespace SHOESTRING_ISA {

constexpr int64_t kProgramHeader = 11, kGenerated = 12;

struct Program {
    int64_t rank, inputs, constants, instructions, outputs, slots, width, block, grain, generated;
    const int64_t *shape, *input, *constant, *instruction, *generator;

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
          generated(n[10]),
          shape(n + kProgramHeader),
          input(shape + rank),
          constant(input + inputs * (2 + rank)),
          instruction(constant + constants),
          generator(instruction + 6 * instructions) {}
    // One past the program's last integer.
    const int64_t* end() const { return generator + generated * (3 + kGenerated); }
};

// What is wrong with a program, nullptr if nothing. counts: of the program's own buffers, integers
// and reals.
const char* program_complaint(const Counts& counts);

// Elements [start, end) of the outputs. a: the program's own buffers, integers and reals. The
// address of a buffer is that of its element 0, whether or not that element exists.
void run_program(const Program& p, const Arguments& a, int64_t start, int64_t end);

// A program inside another kernel, which computes that kernel's first input: among the kernel's
// buffers the program's inputs stand in place of it, `own` others follow, then the second buffer of
// a generated input; its constants follow the kernel's own reals. Each task makes one.
struct Prologue {
    const Program program;
    const Arguments arguments;
    void* buffers[68];
    Prologue(const Arguments& a, const int64_t* integers, int64_t own, int64_t own_reals)
        : program(integers), arguments{buffers, integers, a.reals + own_reals} {
        for (int64_t k = 0; k < program.inputs; ++k) buffers[k] = a.buffers[k];
        if (program.generated) buffers[program.inputs + 1] = a.buffers[program.inputs + own];
    }
    Prologue(const Prologue&) = delete;
    // Elements [start, end) of the result, into `to`.
    void run(int64_t start, int64_t end, float* to) {
        buffers[program.inputs] = reinterpret_cast<void*>(
            reinterpret_cast<uintptr_t>(to) - static_cast<uintptr_t>(start) * sizeof(float));
        run_program(program, arguments, start, end);
    }
};

// What is wrong with the program in a kernel's integers from `at` on; own, own_reals: as above.
const char* prologue_complaint(const Counts& counts, int64_t at, int64_t own, int64_t own_reals);

// A program at the end of another kernel, over its few results: the kernel's integers from `at` on
// are 0, or 1 and the program; the program's buffers follow `own` ones of the kernel, its constants
// `own_reals` others.
void run_epilogue(const Arguments& a, int64_t at, int64_t own, int64_t own_reals);
const char* epilogue_complaint(const Counts& counts, int64_t at, int64_t own, int64_t own_reals);

// A program that computes a kernel's final result from its raw one, in place: a task that has
// written a stretch of the output runs it there, while that stretch is in cache. In the integers as
// above; among the program's inputs and as its only output stands the kernel's output.
struct Epilogue {
    const int64_t* integers;  // nullptr: the raw result is the final one
    Arguments arguments;
    Epilogue(const Arguments& a, int64_t at, int64_t own, int64_t own_reals)
        : integers(a.integers[at] ? a.integers + at + 1 : nullptr),
          arguments{a.buffers + own, integers, a.reals + own_reals} {}
    explicit operator bool() const { return integers != nullptr; }
    void run(int64_t start, int64_t end) const {
        run_program(Program(integers), arguments, start, end);
    }
    // Columns [from, to) of `rows` rows of `row` elements, the first of which begins at `start`.
    void run(int64_t start, int64_t row, int64_t rows, int64_t from, int64_t to) const {
        if (from == 0 && to == row) return run(start, start + rows * row);
        for (int64_t i = 0; i < rows; ++i, start += row) run(start + from, start + to);
    }
};
// elements: of the kernel's output.
const char* epilogue_complaint(const Counts& counts, int64_t at, int64_t own, int64_t own_reals,
                               int64_t elements);

// Fills out with the elements start .. start + n - 1 of a generated input.
using Generator = void (*)(const int64_t* numbers, const void* first, const void* second,
                           int64_t start, int64_t n, void* out);
void max_pool2d_grad_block(const int64_t* numbers, const void* first, const void* second,
                           int64_t start, int64_t n, void* out);  // pool_max.cpp

}  // namespace SHOESTRING_ISA
}  // namespace shoestring
