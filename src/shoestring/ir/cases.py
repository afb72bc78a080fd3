"""An op's own examples. Tests, docs and benchmarks read them.

    cases = (Case([(2, 3, 5, 6), (4, 3, 3, 2)], dict(stride=(1, 1))),
             Case([(4, 10), (4,)], domains=("any", "labels 10"), dtypes=("float32", "int64")))

A domain says which values an input takes:
    any         +-[0.2, 1]: away from 0, where many functions have a kink
    positive    [0.2, 1]
    unit        (0, 1)
    distinct    a permutation of evenly spaced values: no two equal, so that a maximum has one place
    bool        0 and 1
    labels K    integers in [0, K)
    key         (seed, draw): what a random op takes
    =v          the number v everywhere
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """One call of an op: input shapes, attributes, and per input the domain of values and the
    type."""

    shapes: Sequence[tuple[int, ...]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domains: Sequence[str] | str = "any"
    dtypes: Sequence[str] | str = "float32"

    def inputs(self, seed: int = 0, floats: str = "float32") -> list[np.ndarray]:
        """The arrays of this case; float inputs get the type `floats`."""
        rng = np.random.default_rng(seed)
        domains = (
            [self.domains] * len(self.shapes) if isinstance(self.domains, str) else self.domains
        )
        dtypes = [self.dtypes] * len(self.shapes) if isinstance(self.dtypes, str) else self.dtypes
        arrays = [
            np.asarray(draw(domain, shape, rng))
            for domain, shape in zip(domains, self.shapes, strict=True)
        ]
        return [
            a.astype(floats if d == "float32" else d) for a, d in zip(arrays, dtypes, strict=True)
        ]


def draw(domain: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    name, _, argument = domain.partition(" ")
    if domain.startswith("="):
        return np.full(shape, float(domain[1:]))
    if name == "any":
        return rng.uniform(0.2, 1, shape) * rng.choice([-1.0, 1.0], shape)
    if name == "positive":
        return rng.uniform(0.2, 1, shape)
    if name == "unit":
        return rng.uniform(0.05, 0.95, shape)
    if name == "distinct":
        size = int(np.prod(shape))
        return ((rng.permutation(size) - size // 2) / max(size // 2, 1)).reshape(shape)
    if name == "bool":
        return rng.integers(0, 2, shape)
    if name == "labels":
        return rng.integers(0, int(argument), shape)
    if name == "key":
        return np.array([7, 3], np.uint64)
    raise ValueError(f"no domain {domain!r}; the domains are listed in ir/cases.py")
