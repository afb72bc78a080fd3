"""What a cubin says of its kernels: registers, shared memory, stack. Read without a card, where
there is no driver to ask.

A cubin is a 64-bit ELF file. Per kernel NAME it has the sections
    .text.NAME       the code
    .nv.shared.NAME  static shared memory; only its size matters
    .nv.info.NAME    attributes of the kernel
and .nv.info, whose attributes name a kernel by its symbol. An attribute is (format u8, code u8,
value u16); format 4 has `value` bytes of payload behind it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

PAYLOAD = 4
REGISTERS, FRAME, MAX_THREADS, REQUIRED_THREADS, PARAMETERS = 0x2F, 0x11, 0x05, 0x10, 0x19
DRIVER_SHARED = 1024  # that sm_90 and later count, though the driver has it


class Resources(NamedTuple):
    """registers, stack: per thread; shared: bytes per block; threads: most in a block; parameters:
    bytes of the argument list."""

    registers: int
    stack: int
    shared: int
    threads: int
    parameters: int


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        kind, code, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if kind == PAYLOAD:
            yield code, data[at : at + value]
            at += value
        else:
            yield code, struct.pack("<H", value)


def resources(data: bytes) -> dict[str, Resources]:
    """{kernel: what it takes} of a cubin."""
    (start,) = struct.unpack_from("<Q", data, 40)
    (flags,) = struct.unpack_from("<I", data, 48)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    raw = [struct.unpack_from("<IIQQQQIIQQ", data, start + k * size) for k in range(count)]

    def text(table: int, at: int) -> str:
        return data[table + at : data.index(b"\0", table + at)].decode()

    def body(name: str) -> bytes:
        return data[sections[name][4] :][: sections[name][5]] if name in sections else b""

    sections = {text(raw[names][4], s[0]): s for s in raw}
    table, strings = sections[".symtab"], sections[".strtab"][4]
    symbols = [
        text(strings, struct.unpack_from("<I", data, table[4] + 24 * k)[0])
        for k in range(table[5] // 24)
    ]
    found: dict[str, dict[int, int]] = {}
    for section in sections:
        if section.startswith(".text."):
            own = found[section.removeprefix(".text.")] = {}
            for code, value in attributes(body(f".nv.info.{section.removeprefix('.text.')}")):
                if code in (MAX_THREADS, REQUIRED_THREADS) and len(value) >= 12:
                    x, y, z = struct.unpack_from("<III", value)
                    own[MAX_THREADS] = x * y * z
                elif code == PARAMETERS:
                    own[code] = struct.unpack("<H", value)[0]
    for code, value in attributes(body(".nv.info")):
        if code in (REGISTERS, FRAME) and len(value) == 8:
            symbol, number = struct.unpack("<II", value)
            if symbols[symbol] in found:
                own = found[symbols[symbol]]
                own[code] = max(own.get(code, 0), number)
    reserved = DRIVER_SHARED if (flags & 0xFF) >= 90 else 0
    return {
        name: Resources(
            own.get(REGISTERS, 0),
            own.get(FRAME, 0),
            max(sections.get(f".nv.shared.{name}", (0,) * 6)[5] - reserved, 0),
            own.get(MAX_THREADS, 0),
            own.get(PARAMETERS, 0),
        )
        for name, own in found.items()
    }
