"""Atomic writes: write a temporary file, fsync, rename. And safe reads: regular files of limited size only."""

from __future__ import annotations

import errno
import os
import shlex
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from liza.rules.errors import NotRegularFile
from liza.system import crash_points

MAX_RECORD_SIZE = 64 << 20
"""Maximum size of a record file, in bytes."""


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace ``path`` with ``data`` in one step; a reader sees the old bytes or the new ones. Raises OSError."""
    temporary = _write_temporary(path.parent, data, mode)
    crash_points.point("synced", path.name)
    try:
        temporary.replace(path)
        crash_points.point("renamed", path.name)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_if_absent(path: Path, data: bytes, mode: int = 0o600) -> bool:
    """Write ``path`` atomically unless it exists; return whether it was written. Of several writers one wins.

    Raises OSError.
    """
    temporary = _write_temporary(path.parent, data, mode)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _write_temporary(directory: Path, data: bytes, mode: int) -> Path:
    handle, name = tempfile.mkstemp(prefix=".aside-", dir=directory)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    return Path(name)


def make_directory(root: Path, directory: Path) -> None:
    """Create a directory of the crew at ``root`` with mode 0700. Idempotent.

    Raises FileNotFoundError if ``root`` does not exist: a repository that was moved must not reappear at its old path.
    """
    if not root.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(root))
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading.

    Agents can put anything in its place: opening a pipe, or reading a device, could block for ever.
    Raises NotRegularFile if the path is not a regular file, OSError.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise _not_regular(path) from error  # ENXIO: a socket, or a device without a driver
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise _not_regular(path)
        with os.fdopen(handle, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)


def _not_regular(path: Path) -> NotRegularFile:
    return NotRegularFile(f"{path} is not a regular file", f"ls -lL {shlex.quote(str(path))}")


def read_if_exists(path: Path, largest: int = MAX_RECORD_SIZE) -> bytes | None:
    """Return the bytes of a file; None if it does not exist.

    Raises NotRegularFile if it is not a regular file or has more than ``largest`` bytes, OSError.
    """
    try:
        with open_regular(path) as file:
            data = file.read(largest + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(data) > largest:
        raise NotRegularFile(f"{path} has more than {largest >> 20} MB", f"ls -lL {shlex.quote(str(path))}")
    return data
