// The engine that runs kernels: memory, threads, the choice of instruction set, programs. C++
// alone, no Python.
//
// A program is a list of launches with everything resolved but addresses, so that a run costs a few
// nanoseconds per launch besides the kernels themselves. The Python module is a thin glue over this
// header; so is examples/cpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernel.h"

namespace shoestring {

// ---- memory.cpp: aligned to 64 bytes, counted where it is asked of the system, in bytes as asked
// for.
class Buffer {
  public:
    explicit Buffer(std::size_t nbytes);  // std::bad_alloc when there is none left
    ~Buffer();
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    void* data() const { return data_; }
    std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(data_); }
    std::size_t nbytes() const { return nbytes_; }

  private:
    void* data_;
    std::size_t nbytes_;
};
std::size_t allocated_bytes();  // held now
std::size_t peak_bytes();       // the most held at once since reset_peak()
void reset_peak();

// ---- threads.cpp: the pool behind parallel() in kernel.h.
int threads();                // how many threads run kernels, the calling one included
void set_threads(int count);  // std::invalid_argument unless >= 1; not while kernels run

// ---- dispatch.cpp: kernels by name, for the instruction set in use.
struct Variant {
    const char* name;  // "baseline", "avx2", "avx512", "neon"
    const Kernel* const*
        families;  // tables that end with {nullptr, nullptr}; the list ends with nullptr
};
extern const Variant variants[];  // written by CMake, plainest first; ends with {nullptr, nullptr}

std::vector<std::string> isas();        // those this machine can run, plainest first
std::string isa();                      // the one in use; at first the widest
void set_isa(const std::string& name);  // std::invalid_argument unless one of isas()
std::vector<std::string> entries();     // names of all kernels
bool has_entry(const std::string& name);
std::size_t find(
    const std::string& name);  // its number, in all instruction sets; or std::out_of_range
const Kernel* current();       // kernels by number, for the instruction set in use

// ---- program.cpp
// A buffer is (base, byte offset): bases[base] + offset at run time. The base of an input is its
// first element, which a reversed one reaches backwards from: its views may have offsets below 0.
using Place = std::pair<std::size_t, std::int64_t>;
// Port, index, buffers, integers, reals, entry: see Attached in backends/launch.py.
using Attached = std::tuple<std::string, std::int64_t, std::vector<Place>,
                            std::vector<std::int64_t>, std::vector<double>, std::string>;
// Entry name, buffers, integers, reals, what is attached: see Kernel in backends/launch.py.
using Launch = std::tuple<std::string, std::vector<Place>, std::vector<std::int64_t>,
                          std::vector<double>, std::vector<Attached>>;

class Program {
  public:
    // std::out_of_range for an unknown entry, std::invalid_argument if the kernel complains or
    // takes nothing at a port
    explicit Program(const std::vector<Launch>& launches);
    void run(const std::vector<std::uintptr_t>& bases) const { run_range(bases, 0, steps_.size()); }
    // Launches first to last - 1 only. std::out_of_range when bases are too few or the range is
    // none of ours.
    void run_range(const std::vector<std::uintptr_t>& bases, std::size_t first,
                   std::size_t last) const;
    std::size_t size() const { return steps_.size(); }

  private:
    struct Lists {  // where each list of a launch or attachment begins in the flat lists below
        std::size_t places, count, integers, reals;
    };
    struct Extra {
        Port port;
        std::int64_t index;
        std::size_t kernel;  // at Port::inlined
        Lists lists;
    };
    struct Step {
        std::size_t kernel;
        Lists lists;
        std::size_t extras, count;  // what is attached
    };
    Lists append(const std::vector<Place>& places, const std::vector<std::int64_t>& integers,
                 const std::vector<double>& reals);
    void** address(const Lists& lists, const std::vector<std::uintptr_t>& bases, void** to) const;
    std::vector<Step> steps_;
    std::vector<Extra> extras_;
    std::vector<Place> places_;
    std::vector<std::int64_t> integers_;
    std::vector<double> reals_;
    // bases needed; most buffers and attachments of one launch
    std::size_t bases_ = 0, widest_ = 0, fullest_ = 0;
};

}  // namespace shoestring
