"""Files that are written whole or not at all.

A file is written under another name in the same folder, flushed to the disk, and renamed to its
own: a crash or a full disk leaves what was there before. While that lasts the file is locked, and
the lock ends with the process, however it ends. So what is found without one was left by a process
that is dead, on whichever machine, and the next writer in the folder removes it.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
from collections.abc import Iterator
from typing import IO

try:
    import fcntl
except ImportError:  # no locks on this system: what is left behind stays
    fcntl = None

SUFFIX = ".shoestring.part"


@contextlib.contextmanager
def written_whole(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    """A binary file to write, which becomes `path` if the block ends well. A link is followed."""
    target = pathlib.Path(os.path.realpath(path))
    remove_abandoned(target.parent)
    part, file = begun(target)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(part, target)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def begun(target: pathlib.Path) -> tuple[pathlib.Path, IO[bytes]]:
    """A new, locked file beside `target`. If another process took it for abandoned between its
    creation and its lock, it is begun anew under another name."""
    while True:
        unique = f"{os.getpid()}-{secrets.token_hex(4)}"
        part = target.with_name(f"{target.name[:50]}.{unique}{SUFFIX}")
        file = open(part, "xb")
        ours = lock(file)
        if ours is None or (ours and file_is_at(file, part)):
            return part, file
        file.close()


def lock(file: IO[bytes]) -> bool | None:
    """Whether the lock is ours now; None where there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


def file_is_at(file: IO[bytes], path: pathlib.Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def remove_abandoned(folder: pathlib.Path) -> None:
    """Remove what processes that are dead have left in a folder. Whatever forbids that is no error:
    it is not what was asked for."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.name.endswith(SUFFIX):
                with contextlib.suppress(OSError), open(entry.path, "r+b") as file:
                    if lock(file):
                        os.unlink(entry.path)
