// A program: launches with all but addresses resolved, their lists laid flat one after the other.
#include <algorithm>
#include <stdexcept>

#include "runtime.h"

namespace shoestring {

Program::Program(const std::vector<Launch>& launches) {
    for (const auto& [entry, places, integers, reals] : launches) {
        const std::size_t kernel = find(entry);
        const auto complaint = current()[kernel].complaint;
        const char* wrong = complaint
                                ? complaint({static_cast<int64_t>(places.size()),
                                             static_cast<int64_t>(integers.size()),
                                             static_cast<int64_t>(reals.size()), integers.data()})
                                : nullptr;
        if (wrong) throw std::invalid_argument(entry + ": " + wrong);
        steps_.push_back({kernel, places_.size(), places.size(), integers_.size(), reals_.size()});
        for (const Place& place : places) bases_ = std::max(bases_, place.first + 1);
        widest_ = std::max(widest_, places.size());
        places_.insert(places_.end(), places.begin(), places.end());
        integers_.insert(integers_.end(), integers.begin(), integers.end());
        reals_.insert(reals_.end(), reals.begin(), reals.end());
    }
}

void Program::run_range(const std::vector<std::uintptr_t>& bases, std::size_t first,
                        std::size_t last) const {
    if (bases.size() < bases_)
        throw std::out_of_range("the program needs " + std::to_string(bases_) +
                                " base addresses, got " + std::to_string(bases.size()));
    if (first > last || last > steps_.size())
        throw std::out_of_range("launches " + std::to_string(first) + " to " +
                                std::to_string(last) + " are not within the program's " +
                                std::to_string(steps_.size()));
    const Kernel* kernels = current();
    std::vector<void*> buffers(widest_);
    for (std::size_t k = first; k < last; ++k) {
        const Step& step = steps_[k];
        for (std::size_t i = 0; i < step.count; ++i) {
            const Place& place = places_[step.places + i];
            buffers[i] = reinterpret_cast<void*>(bases[place.first] + place.second);
        }
        const Entry entry = kernels[step.kernel].entry;
        if (!entry) throw std::out_of_range(isa() + " lacks kernel " + entries()[step.kernel]);
        entry({buffers.data(), integers_.data() + step.integers, reals_.data() + step.reals});
    }
}

}  // namespace shoestring
