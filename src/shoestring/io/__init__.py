"""Saving and loading weights: one .npz file, written whole or not at all (see whole.py)."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import DataError, fail
from ..nn import Module
from .whole import written_whole


def save(thing: Module | dict[str, Any], path: str | os.PathLike) -> None:
    """Write a Module's state (or a dict of arrays) to `path`. Equal values give equal bytes.

    What processes that were killed while saving have left in the folder is removed."""
    if not isinstance(thing, (Module, Mapping)) or not isinstance(path, (str, os.PathLike)):
        swapped = isinstance(thing, (str, os.PathLike)) and isinstance(path, (Module, Mapping))
        fail(
            "type/save.arguments",
            "what is saved comes first, then where"
            if swapped
            else f"saves a Module or a dict of arrays to a path, got {type(thing).__name__} and "
            f"{type(path).__name__}",
            op="save",
            tensors={},
            hint=f"ss.save(model, {os.fspath(thing)!r})"  # pyright: ignore
            if swapped
            else 'ss.save(model, "weights.npz"), or ss.save({"w": w}, "w.npz")',
        )
    state = thing.state_dict() if isinstance(thing, Module) else thing
    arrays = {checked_name(key): as_array(key, value) for key, value in state.items()}
    try:
        with written_whole(path) as file:
            write(file, arrays)
    except OSError as problem:
        cannot_write(path, problem)


def checked_name(key: Any) -> str:
    """A name that a file gives back as it was."""
    if not isinstance(key, str) or "\0" in key:
        fail(
            "type/save.name",
            f"names of arrays are strings without zero bytes, got {key!r}",
            op="save",
            tensors={},
            hint=f"ss.save({{{str(key)!r}: ...}}, path)",
        )
    return key


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


def cannot_write(target: str | os.PathLike, problem: OSError) -> None:
    fail(
        "data/save.write",
        f"{os.fspath(target)} could not be written: {problem.strerror or problem}",
        op="save",
        tensors={},
        source=problem,
        error=DataError,
        cause="the file that was there before is untouched",
        hint="another folder, or room on the disk",
    )


def load(path: str | os.PathLike, into: Module | None = None) -> dict[str, np.ndarray]:
    """The arrays of a file written by save(); with a Module, its state too. If something does not
    fit the Module, nothing of it changes and the error lists it all."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(into, (Module, type(None))):
        fail(
            "type/load.arguments",
            f"loads from a path, into a Module, got {type(path).__name__} and "
            f"{type(into).__name__}",
            op="load",
            tensors={},
            hint='ss.load("weights.npz", into=model)',
        )
    try:
        with np.load(path, allow_pickle=False) as file:
            state = {key: file[key] for key in file.files}
        odd = [key for key, value in state.items() if not isinstance(value, np.ndarray)]
        if odd:  # some other zip archive
            raise ValueError(f"{odd[0]} in it is no array")
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
