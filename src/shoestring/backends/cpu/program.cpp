// A program: launches with all but addresses resolved, their lists laid flat one after the other.
//
// A launch's attachments are programs for the interpreter, or blocks of a kernel, or a buffer for a
// sum. Whatever can be said of them without knowing the kernel is checked here, once.
#include <algorithm>
#include <stdexcept>

#include "runtime.h"

namespace shoestring {

static const char* const interpreter = "elementwise";  // its launches are programs

// Out of line and here, where one instruction set is certain: kernel.h has no inline functions.
const Attachment* Arguments::at(Port port, int64_t index) const {
    for (int64_t k = 0; k < attachments; ++k)
        if (attached[k].port == port && attached[k].index == index) return attached + k;
    return nullptr;
}

const AttachedCounts* Counts::at(Port port, int64_t index) const {
    for (int64_t k = 0; k < attachments; ++k)
        if (attached[k].port == port && attached[k].index == index) return attached + k;
    return nullptr;
}

static Port port_of(const std::string& name) {
    static const char* const names[] = {"load", "store", "end", "also", "inline", "part"};
    for (std::size_t k = 0; k < sizeof names / sizeof names[0]; ++k)
        if (name == names[k]) return static_cast<Port>(k);
    throw std::invalid_argument("no port is named " + name);
}

static Counts counts(const std::vector<Place>& places, const std::vector<std::int64_t>& integers,
                     const std::vector<double>& reals) {
    return {static_cast<int64_t>(places.size()),
            static_cast<int64_t>(integers.size()),
            static_cast<int64_t>(reals.size()),
            integers.data(),
            nullptr,
            0};
}

static const char* complaint_of(std::size_t kernel, const Counts& c) {
    const auto complaint = current()[kernel].complaint;
    return complaint ? complaint(c) : nullptr;
}

// What is wrong with one attachment of a launch, nullptr if nothing; all: those of the launch.
static const char* attached_complaint(const Kernel& kernel, const std::string& entry,
                                      const AttachedCounts& own, const Counts& all) {
    const bool numbered = own.port != Port::inlined;
    if (numbered && (own.index < 0 || own.index > 7)) return "takes nothing at this port";
    if (!(kernel.ports & port(own.port, numbered ? own.index : 0)))
        return "takes nothing at this port";
    if (own.port != Port::part && all.at(own.port, own.index) != &own)
        return "takes one thing at a port";
    if (own.port == Port::also)
        return own.buffers == 1 && !own.integers && !own.reals ? nullptr
                                                               : "a sum needs its buffer alone";
    if (own.port != Port::inlined) {
        // a program that loads finds what is computed inline for it
        const bool loads = own.port == Port::load;
        return complaint_of(find(interpreter),
                            {own.buffers, own.integers, own.reals, own.values,
                             loads ? all.attached : nullptr, loads ? all.attachments : 0});
    }
    if (kernel.ports & port(Port::load) && !all.at(Port::load)) return "no program reads its input";
    const std::size_t inlined = find(entry);
    if (!current()[inlined].block) return "its input's kernel does not compute block by block";
    return complaint_of(inlined,  // as if launched: with its result
                        {own.buffers + 1, own.integers, own.reals, own.values, nullptr, 0});
}

Program::Lists Program::append(const std::vector<Place>& places,
                               const std::vector<std::int64_t>& integers,
                               const std::vector<double>& reals) {
    const Lists lists = {places_.size(), places.size(), integers_.size(), reals_.size()};
    for (const Place& place : places) bases_ = std::max(bases_, place.first + 1);
    places_.insert(places_.end(), places.begin(), places.end());
    integers_.insert(integers_.end(), integers.begin(), integers.end());
    reals_.insert(reals_.end(), reals.begin(), reals.end());
    return lists;
}

Program::Program(const std::vector<Launch>& launches) {
    for (const auto& [entry, places, integers, reals, attached] : launches) {
        const std::size_t kernel = find(entry);
        const auto refuse = [&](const char* wrong) {
            if (wrong) throw std::invalid_argument(entry + ": " + wrong);
        };
        std::vector<AttachedCounts> found;
        for (const auto& [port, index, own, numbers, constants, inlined] : attached)
            found.push_back({counts(own, numbers, constants), port_of(port), index});
        Counts all = counts(places, integers, reals);
        all.attached = found.data();
        all.attachments = static_cast<int64_t>(found.size());
        for (std::size_t k = 0; k < found.size(); ++k)
            refuse(attached_complaint(current()[kernel], std::get<5>(attached[k]), found[k], all));
        refuse(complaint_of(kernel, all));

        steps_.push_back({kernel, append(places, integers, reals), extras_.size(), found.size()});
        std::size_t buffers = places.size();
        for (const auto& [name, index, own, numbers, constants, inlined] : attached) {
            const Port port = port_of(name);
            extras_.push_back({port, index, port == Port::inlined ? find(inlined) : kernel,
                               append(own, numbers, constants)});
            buffers += own.size();
        }
        widest_ = std::max(widest_, buffers);
        fullest_ = std::max(fullest_, found.size());
    }
}

// Addresses of a list's buffers, one past the last.
void** Program::address(const Lists& lists, const std::vector<std::uintptr_t>& bases,
                        void** to) const {
    for (std::size_t i = 0; i < lists.count; ++i) {
        const Place& place = places_[lists.places + i];
        *to++ = reinterpret_cast<void*>(bases[place.first] + place.second);
    }
    return to;
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
    const auto present = [&](std::size_t kernel) {
        if (!kernels[kernel].entry)
            throw std::out_of_range(isa() + " lacks kernel " + entries()[kernel]);
        return kernels + kernel;
    };
    std::vector<void*> buffers(widest_);
    std::vector<Attachment> attached(fullest_);
    for (std::size_t k = first; k < last; ++k) {
        const Step& step = steps_[k];
        void** next = address(step.lists, bases, buffers.data());
        for (std::size_t i = 0; i < step.count; ++i) {
            const Extra& extra = extras_[step.extras + i];
            attached[i] = {extra.port,
                           extra.index,
                           next,
                           integers_.data() + extra.lists.integers,
                           reals_.data() + extra.lists.reals,
                           present(extra.kernel)->block};
            next = address(extra.lists, bases, next);
        }
        present(step.kernel)
            ->entry({buffers.data(), integers_.data() + step.lists.integers,
                     reals_.data() + step.lists.reals, attached.data(),
                     static_cast<int64_t>(step.count)});
    }
}

}  // namespace shoestring
