// Memory from the system: the one place that asks for it, hence the one place that counts.
#include <atomic>
#include <new>

#include "runtime.h"

namespace shoestring {

static std::atomic<std::size_t> held{0}, most{0};
static constexpr std::align_val_t kAlignment{64};

Buffer::Buffer(std::size_t nbytes) : data_(::operator new(nbytes, kAlignment)), nbytes_(nbytes) {
    const std::size_t now = held.fetch_add(nbytes) + nbytes;
    std::size_t seen = most.load();
    while (seen < now && !most.compare_exchange_weak(seen, now)) {
    }
}

Buffer::~Buffer() {
    held.fetch_sub(nbytes_);
    ::operator delete(data_, kAlignment);
}

std::size_t allocated_bytes() { return held.load(); }
std::size_t peak_bytes() { return most.load(); }
void reset_peak() { most.store(held.load()); }

}  // namespace shoestring
