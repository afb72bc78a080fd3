"""Compiled kernels on disk.

    name      SHA-256 of the rendered text and the options, then the target:  4f1c....sm_61
    contents  "shoestring kernel 1 NVRTC 11.8 <SHA-256 of the rest>\\n", then the cubin (or PTX)

An entry is written under another name and then renamed, so that it is there whole or not at all;
one whose hash does not fit counts as absent and is made again. A folder of exported kernels is the
same, with what was compiled for in `card.json`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import tempfile
from collections.abc import Iterable

from ...config import cache_folder
from ..source import Source
from .nvrtc import OPTIONS

MARK = b"shoestring kernel 1 "


def folder() -> pathlib.Path:
    return cache_folder() / "kernels"


def name_of(source: Source, target: str) -> str:
    text = "\0".join([*OPTIONS, source.entry, source.text])
    return f"{hashlib.sha256(text.encode()).hexdigest()}.{target}"


def packed(image: bytes, compiler: str) -> bytes:
    return MARK + f"{compiler} {hashlib.sha256(image).hexdigest()}\n".encode() + image


def unpacked(data: bytes) -> bytes | None:
    """The image, None if the entry is damaged."""
    header, _, image = data.partition(b"\n")
    whole = header.startswith(MARK) and header.split()[-1].decode("ascii", "replace")
    return image if whole == hashlib.sha256(image).hexdigest() else None


def read(where: pathlib.Path, source: Source, targets: Iterable[str]) -> bytes | None:
    """The kernel for the first target that there is."""
    for target in targets:
        with contextlib.suppress(OSError):
            image = unpacked((where / name_of(source, target)).read_bytes())
            if image is not None:
                return image
    return None


def write(where: pathlib.Path, source: Source, target: str, image: bytes, compiler: str) -> None:
    """Keep a kernel; OSError if that is not possible."""
    where.mkdir(parents=True, exist_ok=True)
    file, part = tempfile.mkstemp(dir=where, suffix=".part")
    try:
        with os.fdopen(file, "wb") as whole:
            whole.write(packed(image, compiler))
        os.replace(part, where / name_of(source, target))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def size(where: pathlib.Path) -> tuple[int, int]:
    """(kernels, bytes) in a folder."""
    sizes = []
    with contextlib.suppress(OSError):
        sizes = [entry.stat().st_size for entry in os.scandir(where) if ".part" not in entry.name]
    return len(sizes), sum(sizes)
