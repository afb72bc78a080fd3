// Which instruction set runs, and kernels by name.
//
// Every family is compiled once per instruction set; the widest one that both the processor and the
// operating system support is used. A kernel's number is its place in the sorted list of names, so
// that programs survive a change.
#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "runtime.h"

namespace shoestring {

static bool supported(const std::string& name) {
#if defined(__x86_64__)
    if (name == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (name == "avx512")
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("fma");
#endif
    return name == "baseline" || name == "neon";
}

namespace {
struct Loaded {
    std::string name;
    std::vector<Kernel>
        kernels;  // by number; {nullptr, nullptr} where this instruction set lacks one
};

struct Registry {
    std::vector<std::string> names;
    std::vector<Loaded> loaded;  // plainest first
    std::atomic<const Loaded*> used;

    Registry() {
        for (const Variant* v = variants; v->name; ++v)
            for (const Kernel* const* family = v->families; *family; ++family)
                for (const Kernel* k = *family; k->name; ++k) names.push_back(k->name);
        std::sort(names.begin(), names.end());
        names.erase(std::unique(names.begin(), names.end()), names.end());
        for (const Variant* v = variants; v->name; ++v) {
            if (!supported(v->name)) continue;
            loaded.push_back(
                {v->name, std::vector<Kernel>(names.size(), Kernel{nullptr, nullptr})});
            for (const Kernel* const* family = v->families; *family; ++family)
                for (const Kernel* k = *family; k->name; ++k)
                    loaded.back().kernels[number(k->name)] = *k;
        }
        if (loaded.empty())
            throw std::runtime_error(
                "the kernels were built for none of this machine's instruction sets");
        used = &loaded.back();
    }

    std::size_t number(const std::string& name) const {
        const auto place = std::lower_bound(names.begin(), names.end(), name);
        if (place == names.end() || *place != name)
            throw std::out_of_range("no kernel is named " + name);
        return static_cast<std::size_t>(place - names.begin());
    }
};
}  // namespace

static Registry& registry() {
    static Registry one;
    return one;
}

std::vector<std::string> isas() {
    std::vector<std::string> found;
    for (const Loaded& l : registry().loaded) found.push_back(l.name);
    return found;
}

std::string isa() { return registry().used.load()->name; }

void set_isa(const std::string& name) {
    for (const Loaded& l : registry().loaded)
        if (l.name == name) {
            registry().used = &l;
            return;
        }
    throw std::invalid_argument("this machine or build has no instruction set " + name);
}

std::vector<std::string> entries() { return registry().names; }

bool has_entry(const std::string& name) {
    const std::vector<std::string>& names = registry().names;
    return std::binary_search(names.begin(), names.end(), name);
}

std::size_t find(const std::string& name) { return registry().number(name); }
const Kernel* current() { return registry().used.load()->kernels.data(); }

}  // namespace shoestring
