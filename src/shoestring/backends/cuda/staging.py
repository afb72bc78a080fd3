"""Copies between the host and a card through memory that the card can reach by itself (pinned).

Two halves of HALF bytes take turns: while the card reads one, the host fills the other. A copy to
the card is done for the caller once its bytes are in a half; that half is filled again only after
an event says that the card has read it. Small copies lie one behind the other in a half.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_void_p
from typing import Any

import numpy as np

HALF = 4 << 20
ALIGNMENT = 256


class Staging:
    """Of one card, on its stream. Pinned memory is taken at the first copy."""

    def __init__(self, device: Any) -> None:
        self.device, self.at, self.half = device, 0, 0
        self.lock = threading.Lock()  # data may be prepared in threads
        self.memory: list[int] = []
        self.events: list[c_void_p] = []
        self.marked = [False, False]  # whether an event tells when the half has been read

    def open(self) -> None:
        whole = c_void_p()
        self.device.call("cuMemHostAlloc", byref(whole), 2 * HALF, 0)
        self.memory = [whole.value or 0, (whole.value or 0) + HALF]
        for _ in range(2):
            event = c_void_p()
            self.device.call("cuEventCreate", byref(event), 2)  # without a time
            self.events.append(event)

    def turn(self) -> None:
        """Go on in the other half, once the card has read what was there."""
        call = self.device.call
        call("cuEventRecord", self.events[self.half], self.device.stream)
        self.marked[self.half] = True
        self.half, self.at = 1 - self.half, 0
        if self.marked[self.half]:
            call("cuEventSynchronize", self.events[self.half])
            self.marked[self.half] = False

    def copy_in(self, address: int, data: np.ndarray) -> None:
        """Contiguous host data to an address of the card."""
        with self.lock:
            self.fill(address, data)

    def copy_out(self, address: int, data: np.ndarray) -> None:
        """From an address of the card into contiguous host memory, after all that was started."""
        with self.lock:
            self.fetch(address, data)

    def fill(self, address: int, data: np.ndarray) -> None:
        if not self.memory:
            self.open()
        source, rest = data.__array_interface__["data"][0], data.nbytes
        while rest:
            if self.at >= HALF:
                self.turn()
            if rest <= HALF < self.at + rest:  # whole in the other half
                self.turn()
            count = min(rest, HALF - self.at)
            pinned = self.memory[self.half] + self.at
            ctypes.memmove(pinned, source, count)
            stream = self.device.stream
            self.device.call("cuMemcpyHtoDAsync_v2", address, pinned, count, stream)
            self.at += -(-count // ALIGNMENT) * ALIGNMENT
            source, address, rest = source + count, address + count, rest - count

    def fetch(self, address: int, data: np.ndarray) -> None:
        if not self.memory:
            self.open()
        self.turn()
        target, rest = data.__array_interface__["data"][0], data.nbytes
        call, stream = self.device.call, self.device.stream
        waiting: tuple[int, int, int] | None = None  # (target, pinned, count) under way
        while rest or waiting:
            if rest:
                count, pinned = min(rest, HALF), self.memory[self.half]
                call("cuMemcpyDtoHAsync_v2", pinned, address, count, stream)
                call("cuEventRecord", self.events[self.half], stream)
            if waiting:
                call("cuEventSynchronize", self.events[1 - self.half])
                ctypes.memmove(*waiting)
            waiting = None
            if rest:
                waiting = (target, pinned, count)
                target, address, rest = target + count, address + count, rest - count
                self.half = 1 - self.half
        self.marked, self.at = [False, False], 0
