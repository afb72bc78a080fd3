// What every CPU kernel sees. All entries share one C signature; kernels never allocate and know
// nothing of Python.
//
// A family's file (ops/<family>.cpp) is compiled once per instruction set, with SHOESTRING_ISA =
// baseline, avx2, avx512 or neon, everything inside `namespace shoestring::SHOESTRING_ISA`. It ends
// with its table of entries:
//
//     SHOESTRING_KERNELS(conv, {"conv2d", conv2d}, {"conv2d_input_grad", conv2d_input_grad})
//
// Rules. No std:: templates in kernel files (the linker may merge their code across instruction
// sets). Floating-point contraction is off: call fma() where one is meant. How work is cut depends
// on shapes alone, never on the number of threads, so that results do not either.
#pragma once
#include <cstdint>

namespace shoestring {

// Where in a kernel something is attached: see Attached in backends/launch.py.
enum class Port : int64_t { load, store, end, also, inlined, part };

struct Attachment;

// Writes elements start .. start + n - 1 of what the kernel would compute from these buffers and
// integers.
using Block = void (*)(const Attachment&, int64_t start, int64_t n, void* to);

struct Attachment {
    Port port;
    int64_t index;
    void* const* buffers;
    const int64_t* integers;
    const double* reals;
    Block block;  // at Port::inlined: of the kernel that computes the input
};

struct Arguments {
    void* const* buffers;     // inputs, outputs, workspaces, in the order of the launch description
    const int64_t* integers;  // sizes, strides (in elements), flags
    const double* reals;
    const Attachment* attached;
    int64_t attachments;
    const Attachment* at(Port port, int64_t index = 0) const;  // nullptr where there is none
};

using Entry = void (*)(const Arguments&);

// How many of each a launch or an attachment brings, and the integers themselves.
struct AttachedCounts;
struct Counts {
    int64_t buffers, integers, reals;
    const int64_t* values;
    const AttachedCounts* attached;
    int64_t attachments;
    const AttachedCounts* at(Port port, int64_t index = 0) const;
};
struct AttachedCounts : Counts {
    Port port;
    int64_t index;
};

// The bit of a port in Kernel::ports. At Port::inlined it stands for every index: which input of a
// program.
static constexpr int64_t port(Port p, int64_t index = 0) {
    return int64_t(1) << (8 * static_cast<int64_t>(p) + index);
}

struct Kernel {
    const char* name;
    Entry entry;
    // Optional: what is wrong with a launch, nullptr if nothing. Asked once, when a program is
    // made, after the programs at its ports have been found right.
    const char* (*complaint)(const Counts&) = nullptr;
    int64_t ports = 0;      // those at which it takes attachments; others are refused
    Block block = nullptr;  // Optional: its result block by block, inside what reads it
};

// Runs body(context, task) for every task in [0, tasks), on the pool's threads; returns when all
// are done. Tasks are handed out one by one, so make each worth some microseconds; a single task
// runs on the calling thread at once.
void parallel(int64_t tasks, void (*body)(void* context, int64_t task), void* context);

// The same with a lambda: parallel_for(n, [&](int64_t task) { ... });
template <class Body>
static inline void parallel_for(int64_t tasks, Body body) {
    parallel(
        tasks, [](void* context, int64_t task) { (*static_cast<Body*>(context))(task); }, &body);
}

}  // namespace shoestring

#define SHOESTRING_JOIN2(a, b) a##_##b
#define SHOESTRING_JOIN(a, b) SHOESTRING_JOIN2(a, b)
#define SHOESTRING_KERNELS(family, ...)                                                       \
    extern const ::shoestring::Kernel SHOESTRING_JOIN(shoestring_##family, SHOESTRING_ISA)[]; \
    const ::shoestring::Kernel SHOESTRING_JOIN(shoestring_##family, SHOESTRING_ISA)[] = {     \
        __VA_ARGS__, {nullptr, nullptr}};
