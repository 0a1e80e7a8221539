"""Whole files or none: written aside, synced, renamed; and read only where they are files."""

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
"""Bytes of a file of facts; more is nobody's word."""


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace ``path`` with ``data`` in one step; a reader sees the old bytes or the new ones. Raises OSError."""
    aside = _write_temporary(path.parent, data, mode)
    crash_points.point("synced", path.name)
    try:
        aside.replace(path)
        crash_points.point("renamed", path.name)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def write_if_absent(path: Path, data: bytes, mode: int = 0o600) -> bool:
    """Write ``path`` unless it exists; of several writers one wins, with its bytes whole. Whether this one did."""
    aside = _write_temporary(path.parent, data, mode)
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    finally:
        aside.unlink(missing_ok=True)
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
    """Make a directory of the crew at ``root``, for this user only. Repeatable.

    Raises FileNotFoundError if the repository is not there: what was moved away is not made again at its former path.
    """
    if not root.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(root))
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """A file to read. Anybody can put anything in its place: a pipe would be waited for, and a device read, for ever.

    Raises NoFile for what is none, OSError.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise NotRegularFile(f"{path} is no file", f"ls -lL {shlex.quote(str(path))}") from error
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise NotRegularFile(f"{path} is no file", f"ls -lL {shlex.quote(str(path))}")
        with os.fdopen(handle, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)


def read_if_exists(path: Path, largest: int = MAX_RECORD_SIZE) -> bytes | None:
    """What a file holds; None where there is none. Raises NoFile for what is none or has more than ``largest`` bytes,
    OSError."""
    try:
        with open_regular(path) as file:
            data = file.read(largest + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(data) > largest:
        raise NotRegularFile(f"{path} has more than {largest >> 20} MB", f"ls -lL {shlex.quote(str(path))}")
    return data
