"""A card that is not here: ops choose tiles for it, and its kernels are compiled into a folder.

    card.json                 what was compiled for: architecture, multiprocessors, who asked
    4f1c....sm_61             kernels, as the cache keeps them

The number of multiprocessors decides about tiles, so the machine that runs these kernels takes it
from the folder and not from its card.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from ...errors import ArgumentError, DeviceError, fail
from ..card import Card, bind
from ..launch import Placed
from ..source import Source
from . import cache, compiled, nvrtc

# multiprocessors of a common card of each architecture
CORES = {
    35: 15,
    37: 13,
    50: 5,
    52: 13,
    53: 1,
    60: 56,
    61: 20,
    62: 2,
    70: 80,
    72: 8,
    75: 36,
    80: 108,
}
CORES |= {86: 46, 87: 16, 89: 46, 90: 132, 100: 148, 103: 148, 120: 70, 121: 48}


def capability_of(text: str) -> tuple[int, int]:
    """(6, 1) for "sm_61"; complains about what is none."""
    found = re.fullmatch(r"sm_(\d{2,3})", text)
    if found is None or int(found[1]) not in CORES:
        names = ", ".join(f"sm_{n}" for n in CORES)
        fail(
            "value/cuda.architecture",
            f"there is no architecture {text!r}",
            tensors={},
            error=ArgumentError,
            expected=f"one of {names}, got {text!r}",
            hint="--arch sm_61; shoestring doctor, on the other machine, says which",
        )
    return divmod(int(found[1]), 10)


class Target(Card):
    """name: which device it stands for;  compiler, target: what compiles for it."""

    name = "cuda:0"
    largest_block, local_bytes = 1024, 49152

    def __init__(self, architecture: str, folder: pathlib.Path, cores: int | None = None) -> None:
        super().__init__()
        self.capability = capability_of(architecture)
        major, minor = self.capability
        self.model, self.folder = f"a card of {architecture}", folder
        self.cores = cores or CORES[10 * major + minor]
        chosen = nvrtc.choose(self.capability, 1 << 30)  # whichever driver it has
        if chosen is None:
            nvrtc.missing(self.model, self.capability, 1 << 30)
        self.compiler, self.target = chosen
        self.made: dict[Source, str] = {}

    def compile(self, source: Source) -> str:
        if source not in self.made:
            image = cache.read(self.folder, source, [self.target])
            if image is None:
                image = compiled(self.compiler, source, self.target, self.model)
                self.keep(lambda: cache.write(self.folder, source, self.target, image, self.spelt))
            self.made[source] = cache.name_of(source, self.target)
        return self.made[source]

    @property
    def spelt(self) -> str:
        return nvrtc.spelt(self.compiler)

    def export(self, launches: Sequence[Placed]) -> None:
        """Compile what a plan launches."""
        for kernel, places, _ in launches:
            bind(self, kernel, places)

    def finish(self, **facts: Any) -> None:
        """Write what the folder is for."""
        facts = dict(architecture=self.target, cores=self.cores, compiler=self.spelt, **facts)
        text = json.dumps(facts, indent=1) + "\n"
        self.keep(lambda: (self.folder / "card.json").write_text(text))

    def keep(self, write: Any) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write()
        except OSError as problem:
            fail(
                "data/cuda.export",
                f"nothing can be written to {self.folder}: {problem.strerror}",
                tensors={},
                error=DeviceError,
                source=problem,
                hint="--export with another folder, or room on the disk",
            )
