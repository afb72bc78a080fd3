"""Saving and loading weights: one .npz file, written whole or not at all.

The file is written under another name beside its place, flushed to the disk, and renamed: a crash
or a full disk leaves what was there before.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import zipfile
from typing import Any

import numpy as np

from ..errors import DataError, fail
from ..nn import Module


def save(thing: Module | dict[str, Any], path: str | os.PathLike) -> None:
    """Write a Module's state (or a dict of arrays) to `path`. Equal values give equal bytes."""
    state = thing.state_dict() if isinstance(thing, Module) else thing
    arrays = {key: as_array(key, value) for key, value in state.items()}
    target = pathlib.Path(path)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            write(file, arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except OSError as problem:
        cannot_write(target, problem)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def as_array(key: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:  # nested lists of unequal length
        array = np.empty((), object)
    if array.dtype.kind not in "fiub":
        fail(
            "type/save.value",
            f"{key} is no array of numbers but {type(value).__name__}",
            op="save",
            tensors={},
            hint="ss.save(model, path), or a dict of arrays",
        )
    return array


def write(file: Any, arrays: dict[str, np.ndarray]) -> None:
    """What np.savez writes, for any names: its own arguments are keywords, so it refuses `file`."""
    with zipfile.ZipFile(file, "w") as archive:
        for key, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{key}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def cannot_write(target: pathlib.Path, problem: OSError) -> None:
    fail(
        "data/save.write",
        f"{target} could not be written: {problem.strerror or problem}",
        op="save",
        tensors={},
        source=problem,
        error=DataError,
        cause="the file that was there before is untouched",
        hint="another folder, or room on the disk",
    )


def load(path: str | os.PathLike, into: Module | None = None) -> dict[str, np.ndarray]:
    """The arrays of a file written by save(); with a Module, its state too."""
    try:
        with np.load(path, allow_pickle=False) as file:
            state = {key: file[key] for key in file.files}
    except FileNotFoundError as problem:
        fail(
            "data/load.missing",
            f"there is no file {path}",
            op="load",
            tensors={},
            source=problem,
            error=DataError,
            hint="ss.save(model, path) writes one",
        )
    except Exception as problem:  # damage can strike the archive, its compression, or a header
        fail(
            "data/load.damaged",
            f"{path} is not a whole .npz file: {problem}",
            op="load",
            tensors={},
            source=problem,
            error=DataError,
            expected="a file written by ss.save",
            hint="copy it again, or train again",
        )
    if into is not None:
        into.load_state_dict(state)
    return state
