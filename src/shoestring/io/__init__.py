"""Saving and loading weights: one .npz file, written whole or not at all.

The file is written under another name beside its place, flushed to the disk, and renamed: a crash
or a full disk leaves what was there before.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
import zipfile
from typing import Any

import numpy as np

from ..errors import DataError, fail
from ..nn import Module


def save(thing: Module | dict[str, Any], path: str | os.PathLike) -> None:
    """Write a Module's state (or a dict of arrays) to `path`."""
    state = thing.state_dict() if isinstance(thing, Module) else thing
    target = pathlib.Path(path)
    try:
        handle, name = tempfile.mkstemp(
            prefix=target.name + ".", suffix=".part", dir=target.parent or "."
        )
    except OSError as problem:
        cannot_write(target, problem)
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **{key: np.asarray(value) for key, value in state.items()})
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except OSError as problem:
        cannot_write(target, problem)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)


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
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as problem:
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
