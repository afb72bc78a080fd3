"""The memory log (SHOESTRING_LOG_MEMORY=1): a line on stderr for every allocation and release.

    memory device=cpu event=allocate bytes=4096 address=0x7f10 total=12288 layer="" what="arena"
    memory device=cpu event=release bytes=4096 address=0x7f10 total=8192 layer="" what="arena"

It is written where memory is asked of the system, so bytes and total are what the device counts;
total is what it holds after the event. When a plan runs for the first time, one line for the plan
and one for each tenant of its arena follow (see runtime/usage.py):

    memory device=cpu event=plan bytes=30000 arena=8192 steps=12
    memory device=cpu event=tenant bytes=1024 address=0x7f10 steps=3-5 layer="conv1" what="conv2d"
"""

from __future__ import annotations

import json
import sys
import weakref
from typing import Any

enabled = False


def write(
    device: str, event: str, layer: Any = None, what: str | None = None, **facts: Any
) -> None:
    """One line, in one call."""
    words = [f"{name}={value}" for name, value in facts.items()]
    texts = {} if what is None else {"layer": str(layer or ""), "what": what}
    words += [f"{name}={json.dumps(text)}" for name, text in texts.items()]
    sys.stderr.write(f"memory device={device} event={event} {' '.join(words)}\n")


def address_of(memory: Any) -> int:
    """Of the first byte: of a host array, or of a card's memory as its driver counts."""
    return memory.__array_interface__["data"][0] if hasattr(memory, "ctypes") else memory.address


def allocated(device: Any, memory: Any, what: str, layer: Any) -> None:
    """`memory` has just been made; its release will be written too."""
    nbytes, address = memory.nbytes, hex(address_of(memory))
    total = device.allocated_bytes()
    facts = dict(bytes=nbytes, address=address)
    write(device.name, "allocate", layer, what, **facts, total=total)

    def released() -> None:  # called just before the device counts it
        total = device.allocated_bytes() - nbytes
        write(device.name, "release", layer, what, **facts, total=total)

    weakref.finalize(memory, released).atexit = False
