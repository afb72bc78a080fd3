// The Python face of runtime.h: names and conversions, no logic (tests check that there is no loop
// and no arithmetic).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "runtime.h"

namespace nb = nanobind;
using namespace shoestring;
using Unlocked = nb::call_guard<nb::gil_scoped_release>;
using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;

NB_MODULE(_native, m) {
    nb::set_leak_warnings(false);
    nb::class_<Buffer>(
        m, "Buffer",
        "Memory from the system: `nbytes` bytes, aligned to 64, counted while it lives.")
        .def(nb::init<std::size_t>(), nb::arg("nbytes"))
        .def_prop_ro("address", &Buffer::address)
        .def_prop_ro("nbytes", &Buffer::nbytes)
        .def(
            "bytes",
            [](nb::object self) {
                const Buffer& buffer = nb::cast<const Buffer&>(self);
                return Bytes(buffer.data(), {buffer.nbytes()}, self);
            },
            "The memory as a NumPy array uint8[nbytes], which keeps it alive.");
    nb::class_<Program>(m, "Program",
                        "Launches (entry, [(base, byte offset)], [integers], [reals], [(port, "
                        "index, [(base, byte offset)], [integers], [reals], entry)]), resolved.")
        .def(nb::init<const std::vector<Launch>&>(), nb::arg("launches"))
        .def("run", &Program::run, nb::arg("bases"), Unlocked(),
             "Run all launches; bases: one address per base.")
        .def("run_range", &Program::run_range, nb::arg("bases"), nb::arg("first"), nb::arg("last"),
             Unlocked(), "Run launches first to last - 1.")
        .def("__len__", &Program::size);
    m.def("allocated_bytes", &allocated_bytes, "Bytes held now.");
    m.def("peak_bytes", &peak_bytes, "The most bytes held at once since reset_peak().");
    m.def("reset_peak", &reset_peak);
    m.def("threads", &threads, "How many threads run kernels.");
    m.def("set_threads", &set_threads, nb::arg("count"), Unlocked());
    m.def("isas", &isas,
          "Instruction sets that this build has and this machine runs, plainest first.");
    m.def("isa", &isa, "The instruction set in use.");
    m.def("set_isa", &set_isa, nb::arg("name"));
    m.def("entries", &entries, "Names of all kernels.");
    m.def("has_entry", &has_entry, nb::arg("name"));
}
