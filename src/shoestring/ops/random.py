"""Random numbers from a counter: Philox4x32-10.

Element i of a draw is a function of (seed, draw, i) and of nothing else.

    word(seed, draw, i) = Philox(key = seed, counter = (i // 4, draw))[i % 4]     32 random bits

    uniform    y[i] = (word(i) >> 8) 2^-24             in [0, 1): 24 bits, as many as a float has
    normal     y[2j], y[2j+1] = r cos(2 pi v), r sin(2 pi v)                      Box-Muller
               r = sqrt(-2 log u), u = (word(2j) + 1) 2^-32, v = (word(2j+1) >> 8) 2^-24
    bernoulli  y[i] = 1 if uniform(i) < p else 0       p = 0: never 1; p = 1: always 1

The key is an input, uint64[2] = (seed, draw), so a plan does not depend on it; counting by element
means that any part of a draw can be computed alone, on any device and in any order. `word >> 8`
instead of word / 2^32, which rounds to 1.0 for the largest words. Kernels equal the reference bit
for bit, but for the logarithm and the cosine of `normal`.

    Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..backends import Kernel, Launch
from ..ir import MIXED, Case, Cost, Op, Shape, float32

ROUNDS, LOW = 10, np.uint64(0xFFFFFFFF)
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


def philox(counter: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Philox4x32-10: four random words, [4, ...], of each counter.

    One round: (hi0, lo0) = M0 c0 and (hi1, lo1) = M1 c2 are products of 64 bits;
    c = (hi1 ^ c1 ^ k0, lo1, hi0 ^ c3 ^ k1, lo0); k += Weyl.

    counter  [4, ...];  key: [2];  all words have 32 bits and are held in uint64
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        first, second = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (second >> np.uint64(32)) ^ c1 ^ k0,
            second & LOW,
            (first >> np.uint64(32)) ^ c3 ^ k1,
            first & LOW,
        )
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return np.stack([c0, c1, c2, c3])


def words(key: np.ndarray, count: int, first: int = 0) -> np.ndarray:
    """Random words `first` to `first + count` of a draw, as uint64. key: uint64[2] = (seed,
    draw)."""
    seed, draw = np.asarray(key, np.uint64)
    block = np.arange(first // 4, -(-(first + count) // 4), dtype=np.uint64)
    halves = [
        block & LOW,
        block >> np.uint64(32),
        np.full_like(block, draw & LOW),
        np.full_like(block, draw >> np.uint64(32)),
    ]
    found = philox(np.stack(halves), np.array([seed & LOW, seed >> np.uint64(32)]))
    return found.T.reshape(-1)[first % 4 :][:count]


def uniforms(key: np.ndarray, count: int, first: int = 0) -> np.ndarray:
    """Uniform numbers `first` to `first + count` of a draw, float32 exactly."""
    return (words(key, count, first) >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)


class RandomOp(Op):
    """key: uint64[2] = (seed, draw); `to`: sizes of the result; `first`: elements of the draw that
    come before it. A constant for differentiation."""

    kind, cheap_to_recompute = "random", True
    gradient = None
    to: Shape
    first: int

    def shape(self, key):
        if key != (2,):
            self.fail(
                "shape/random.key",
                f"a key has shape [2], got {list(key)}",
                hint="np.array([seed, draw], np.uint64)",
            )
        return self.to

    def dtype(self, key, *others):
        if key != np.uint64:
            self.fail(
                "type/random.key",
                f"a key is uint64, got {key}",
                hint="np.array([seed, draw], np.uint64)",
            )
        return float32

    def batch_axis(self, axes, *shapes):
        return None if all(a is None for a in axes) else MIXED

    def makes_rows(self, axis, *shapes):
        return axis == 0

    def for_part(self, axis, first, count):
        return dict(to=(count, *self.to[1:]), first=self.first + first * math.prod(self.to[1:]))

    def launch_cpu(self, device, inputs, outputs):
        numbers = (outputs[0].size, self.first)
        return Launch((Kernel(self.name, (0, 1), numbers),))

    def cost(self, *shapes):
        return Cost(30.0 * math.prod(self.to), 4.0 * math.prod(self.to))


@dataclass(frozen=True, eq=False)
class Uniform(RandomOp):
    """y[i] = (word(seed, draw, i) >> 8) 2^-24: 24 random bits, in [0, 1)."""

    name = "uniform"
    to: Shape = ()
    first: int = 0
    cases = tuple(
        Case([(2,)], dict(to=to, first=first), "key", "uint64")
        for to, first in [((2, 3), 0), ((37,), 0), ((), 0), ((0, 2), 0), ((3, 25), 1), ((70,), 66)]
    )

    def tolerance(self, *shapes):
        """None at all: integers and one exact product."""
        return 0.0

    def reference(self, key):
        return uniforms(key, math.prod(self.to), self.first).reshape(self.to)


@dataclass(frozen=True, eq=False)
class Normal(RandomOp):
    """y[2j], y[2j+1] = sqrt(-2 log u) (cos, sin)(2 pi v).

    u = (word(2j) + 1) 2^-32 in (0, 1], v = (word(2j+1) >> 8) 2^-24 in [0, 1)
    """

    name = "normal"
    to: Shape = ()
    first: int = 0
    cases = tuple(
        Case([(2,)], dict(to=to, first=first), "key", "uint64")
        for to, first in [((2, 3), 0), ((37,), 0), ((), 0), ((0, 2), 0), ((3, 25), 1), ((70,), 66)]
    )

    def reference(self, key):
        count, odd = math.prod(self.to), self.first % 2
        pairs = words(key, count + odd + (count + odd) % 2, self.first - odd).reshape(-1, 2)
        r = np.sqrt(-2 * np.log((pairs[:, 0] + np.uint64(1)) * 2.0**-32))
        angle = 2 * np.pi * ((pairs[:, 1] >> np.uint64(8)) * 2.0**-24)
        found = np.stack([r * np.cos(angle), r * np.sin(angle)], 1)
        return found.reshape(-1)[odd:][:count].reshape(self.to).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Bernoulli(RandomOp):
    """y[i] = 1 if uniform(i) < p else 0, float32. p: one number, or one per element."""

    name = "bernoulli"
    to: Shape = ()
    first: int = 0
    cases = (
        Case([(2,), ()], dict(to=(5, 70), first=70), ("key", "unit"), ("uint64", "float32")),
        Case([(2,), (9, 2)], dict(to=(9, 2), first=3), ("key", "unit"), ("uint64", "float32")),
        Case([(2,), ()], dict(to=(5, 7)), ("key", "unit"), ("uint64", "float32")),
        Case([(2,), (3, 4)], dict(to=(3, 4)), ("key", "unit"), ("uint64", "float32")),
        Case([(2,), (4,)], dict(to=(3, 4)), ("key", "unit"), ("uint64", "float32")),
        Case([(2,), ()], dict(to=(100,)), ("key", "=0"), ("uint64", "float32")),
    )

    def shape(self, key, p):
        super().shape(key)
        tail = self.to[len(self.to) - len(p) :]
        if len(p) > len(self.to) or any(a not in (1, b) for a, b in zip(p, tail, strict=True)):
            self.fail(
                "shape/bernoulli.p",
                f"p has shape {list(p)}, which does not broadcast to {list(self.to)}",
                hint="one number, or one per element",
            )
        return self.to

    def batch_axis(self, axes, key, p):
        if axes == (None, None):
            return None
        alike = len(p) == len(self.to) and axes == (None, 0) and p[0] == self.to[0]
        return 0 if alike else MIXED

    def tolerance(self, *shapes):
        """None at all: integers and one exact product."""
        return 0.0

    def reference(self, key, p):
        drawn = uniforms(key, math.prod(self.to), self.first).reshape(self.to)
        return (drawn < p).astype(np.float32)

    def launch_cpu(self, device, inputs, outputs):
        _, p = inputs
        if p.dtype != np.float32 or p.size not in (1, outputs[0].size):
            return None
        numbers = (outputs[0].size, self.first, int(p.size > 1))
        return Launch((Kernel("bernoulli", (0, 1, 2), numbers),))
