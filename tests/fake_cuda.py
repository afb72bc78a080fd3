"""A CUDA driver and a compiler that stand in for the real ones where there is no card.

The driver is called through ctypes with the very prototypes of the real one. Memory is the host's.
What goes to a stream waits there until somebody waits for it, so that a copy from memory which is
overwritten too early is seen. A launch reads its arguments when it is made, as the real one does;
it computes nothing, but what `kernels` has for its name.
"""

import ctypes
from types import SimpleNamespace

from shoestring.backends.cuda.driver import PROTOTYPES

WRITTEN = {"cuDeviceGetName"}  # functions that write into a c_char_p
INVALID, FAULT, NO_DEVICE = 1, 700, 100
NAMES = {
    1: b"CUDA_ERROR_INVALID_VALUE",
    2: b"CUDA_ERROR_OUT_OF_MEMORY",
    100: b"CUDA_ERROR_NO_DEVICE",
    222: b"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    700: b"CUDA_ERROR_ILLEGAL_ADDRESS",
    999: b"CUDA_ERROR_UNKNOWN",
}


def card(**changes):
    """Facts of a card; attributes by the driver's numbers."""
    facts = dict(name=b"Fake GPU", capability=(6, 1), memory=2**30, cores=20, threads=1024)
    return SimpleNamespace(**facts | changes)


class FakeDriver:
    """What ctypes.CDLL("libcuda.so.1") gives.

    calls     names of the functions called, in order;  launches: (entry, grid, block, addresses)
    codes     {function: code} to answer with instead;  function: attributes of every kernel
    fault_at  the entry of a kernel that breaks the context
    """

    def __init__(self, cards=None, version=13000, without=()):
        self.cards = [card()] if cards is None else cards
        self.version, self.calls, self.launches, self.codes = version, [], [], {}
        self.function = {0: 1024, 1: 0, 3: 0, 4: 32}
        self.memory, self.handles, self.queue, self.done = {}, {}, [], set()
        self.kernels, self.fault_at, self.broken, self.log = {}, None, False, b""
        for name, types in PROTOTYPES.items():
            if name not in without:
                seen = [
                    ctypes.c_void_p if t is ctypes.c_char_p and name in WRITTEN else t
                    for t in types
                ]
                made = ctypes.CFUNCTYPE(ctypes.c_int, *seen)(self.answering(name))
                setattr(self, name, made)

    def answering(self, name):
        method = getattr(self, "do_" + name, lambda *arguments: 0)

        def answer(*arguments):
            self.calls.append(name)
            if name in self.codes:
                return self.codes[name]
            if self.broken and name != "cuGetErrorName":
                return FAULT
            return method(*arguments) or 0

        return answer

    def handle(self, what):
        self.handles[number := 1000 + len(self.handles)] = what
        return number

    # ---- the driver and its cards ----
    def do_cuDriverGetVersion(self, out):
        out[0] = self.version

    def do_cuGetErrorName(self, code, out):
        if code not in NAMES:
            return INVALID
        out[0] = NAMES[code]

    def do_cuDeviceGetCount(self, out):
        out[0] = len(self.cards)

    def do_cuDeviceGetName(self, text, size, k):
        ctypes.memmove(text, self.cards[k].name + b"\0", len(self.cards[k].name) + 1)

    def do_cuDeviceGetAttribute(self, out, which, k):
        c = self.cards[k]
        facts = {75: c.capability[0], 76: c.capability[1], 16: c.cores, 1: c.threads, 8: 49152}
        out[0] = facts[which]

    def do_cuDeviceTotalMem_v2(self, out, k):
        out[0] = self.cards[k].memory

    def do_cuDevicePrimaryCtxRetain(self, out, k):
        out[0] = self.handle("context")

    # ---- memory ----
    def do_cuMemGetInfo_v2(self, free, total):
        total[0] = self.cards[0].memory
        free[0] = total[0] - sum(len(m) for m in self.memory.values())

    def do_cuMemAlloc_v2(self, out, size):
        taken = sum(len(m) for m in self.memory.values())
        if taken + size > self.cards[0].memory:
            return 2
        made = ctypes.create_string_buffer(b"\xff" * size, size)
        self.memory[ctypes.addressof(made)] = made
        out[0] = ctypes.addressof(made)

    def do_cuMemFree_v2(self, address):
        self.run()
        return 0 if self.memory.pop(address, None) is not None else INVALID

    def do_cuMemHostAlloc(self, out, size, flags):
        made = ctypes.create_string_buffer(size)
        self.handle(made)
        out[0] = ctypes.addressof(made)

    def held(self, address, size):
        """Whether these bytes are all in one allocation."""
        return any(a <= address and address + size <= a + len(m) for a, m in self.memory.items())

    def do_cuMemcpyHtoDAsync_v2(self, to, source, size, stream):
        if not self.held(to, size):
            return INVALID
        self.queue.append(lambda: ctypes.memmove(to, source, size))

    def do_cuMemcpyDtoHAsync_v2(self, to, source, size, stream):
        if not self.held(source, size):
            return INVALID
        self.queue.append(lambda: ctypes.memmove(to, source, size))

    # ---- the stream ----
    def run(self, until=None):
        while self.queue:
            job = self.queue.pop(0)
            if callable(job):
                job()
            elif job == until:
                return

    def do_cuStreamCreate(self, out, flags):
        out[0] = self.handle("stream")

    def do_cuStreamSynchronize(self, stream):
        self.run()
        return FAULT if self.broken else 0

    def do_cuEventCreate(self, out, flags):
        out[0] = self.handle("event")

    def do_cuEventRecord(self, event, stream):
        self.queue = [job for job in self.queue if job != event]
        self.queue.append(event)

    def do_cuEventSynchronize(self, event):
        if event in self.queue:
            self.run(until=event)
        return FAULT if self.broken else 0

    # ---- kernels ----
    def do_cuModuleLoadDataEx(self, out, image, count, options, values):
        out[0] = self.handle(("module", image))

    def do_cuModuleGetFunction(self, out, module, name):
        out[0] = self.handle(name.decode())

    def do_cuFuncGetAttribute(self, out, which, function):
        out[0] = self.function[which]

    def do_cuLaunchKernel(self, function, *rest):
        *sizes, _shared, _stream, arguments, _extra = rest
        self.start(function, tuple(sizes[:3]), tuple(sizes[3:]), read(arguments, self.count))

    count = 1  # buffers of every kernel: a driver knows it from the cubin

    def start(self, function, grid, block, addresses):
        entry = self.handles[function]
        self.launches.append((entry, grid, block, addresses))

        def job():
            if entry == self.fault_at:
                self.broken = True
            elif not self.broken and entry in self.kernels:
                self.kernels[entry](*addresses)

        self.queue.append(job)

    # ---- graphs: nodes keep copies of their arguments ----
    def do_cuGraphCreate(self, out, flags):
        out[0] = self.handle([])

    def do_cuGraphAddKernelNode(self, out, graph, after, count, facts):
        nodes = self.handles[graph]
        if count != bool(nodes) or (count and after[0] != nodes[-1]):
            return INVALID  # not a chain
        out[0] = node = self.handle(None)
        self.keep(node, facts)
        nodes.append(node)

    def keep(self, node, facts):
        f = facts[0]
        sizes = tuple(f.grid), tuple(f.block)
        self.handles[node] = (f.function, *sizes, read(f.arguments, self.count))

    def do_cuGraphInstantiateWithFlags(self, out, graph, flags):
        out[0] = self.handle({node: self.handles[node] for node in self.handles[graph]})

    def do_cuGraphInstantiate_v2(self, out, graph, node, log, size):
        return self.do_cuGraphInstantiateWithFlags(out, graph, 0)

    def do_cuGraphExecKernelNodeSetParams(self, executable, node, facts):
        nodes = self.handles[executable]
        if node not in nodes:
            return INVALID
        before = self.handles[node]
        self.keep(node, facts)
        nodes[node], self.handles[node] = self.handles[node], before

    def do_cuGraphLaunch(self, executable, stream):
        for node in self.handles[executable].values():
            self.start(*node)


def read(arguments, count):
    """The addresses that a launch is given."""
    pointers = [arguments[k] for k in range(count)]
    return tuple(ctypes.c_uint64.from_address(p).value for p in pointers)


class FakeNVRTC:
    """A compiler that is given its facts and counts what it compiles."""

    def __init__(self, version=(11, 8), architectures=(35, 50, 61, 90), problem=None):
        self.version, self.architectures, self.problem = version, list(architectures), problem
        self.path, self.compiled = f"/fake/libnvrtc.so.{version[0]}", []

    def compile(self, text, target, name):
        self.compiled.append((name, target))
        if self.problem is not None:
            return b"", self.problem
        return f"image of {name} for {target}".encode(), ""
