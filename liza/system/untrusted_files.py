"""Open files that may be hostile.

Agents can replace any file below the repository, ``.git`` and ``.liza`` included: by a link to a file of the person, by
a pipe, at which an open waits for ever, by a device without an end, or by a file of many gigabytes. Every module opens
such a file with a function of this module. It never blocks, follows a link only where the caller says so, checks the
type of what was opened (a check before would be a race), and reads no more than a limit. What fails a check raises
NotRegularFile, with one message and one hint for all of them.

``programs/session/_shim.py`` is the exception: it runs without Liza's modules and opens its own files in this way.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from liza.model.errors import NotRegularFile

MAX_SIZE: Final = 64 << 20
"""Maximum size of a file by default, in bytes."""
MAX_RECORD_SIZE: Final = 1 << 20
"""Maximum size of a small record in the git directory or in ``.liza``, in bytes."""
# Without O_NOCTTY a terminal device could become the controlling terminal.
_SAFE_FLAGS: Final = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# ELOOP: a link. ENXIO: a pipe without a reader, a socket, a device without a driver. EISDIR: a directory, to write.
_WRONG_TYPE_ERRORS: Final = {errno.ELOOP, errno.ENXIO, errno.EISDIR}


def open_regular(
    path: Path | str,
    flags: int = os.O_RDONLY,
    mode: int = 0o600,
    *,
    follow_links: bool = False,
    dir_fd: int | None = None,
) -> int:
    """Open a regular file with the flags of open(2) and return the descriptor. ``mode`` is that of a new file.

    ``follow_links``: the last part of the path may be a link. Raises NotRegularFile, OSError.
    """
    safe_flags = _SAFE_FLAGS if follow_links else _SAFE_FLAGS | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | safe_flags, mode, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in _WRONG_TYPE_ERRORS:
            raise not_regular_error(path) from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise not_regular_error(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def open_to_read(path: Path | str, *, follow_links: bool = False) -> Iterator[BinaryIO]:
    """Open a regular file of any size for reading. Raises NotRegularFile, OSError."""
    with os.fdopen(open_regular(path, follow_links=follow_links), "rb") as file:
        yield file


def read(path: Path | str, limit: int = MAX_SIZE, *, follow_links: bool = False) -> bytes:
    """Return the bytes of a file. Raises NotRegularFile, also for more than ``limit`` bytes, OSError."""
    return _read(open_regular(path, follow_links=follow_links), path, limit)


def _read(descriptor: int, path: Path | str, limit: int) -> bytes:
    """Read a whole file, and close its descriptor."""
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        # The size is asked first, so that a large file is not read in vain. Files of /proc have none.
        data = file.read(limit + 1) if os.fstat(descriptor).st_size <= limit else None
        while data is not None and len(data) <= limit and (more := file.read(limit + 1 - len(data))):
            data += more
    if data is None or len(data) > limit:
        size = f"{limit >> 20} MB" if limit >= 1 << 20 else f"{limit} bytes"
        raise NotRegularFile(f"{path} has more than {size}", _hint(path))
    return data


def read_if_exists(path: Path | str, limit: int = MAX_SIZE, *, follow_links: bool = False) -> bytes | None:
    """Return the bytes of a file as ``read`` does; None if it does not exist."""
    try:
        return read(path, limit, follow_links=follow_links)
    except (FileNotFoundError, NotADirectoryError):
        return None


def digest(path: Path | str) -> str:
    """Return the SHA-256 of a file of any size. Raises NotRegularFile, OSError."""
    sha256 = hashlib.sha256()
    with open_to_read(path) as file:
        while block := file.read(1 << 20):
            sha256.update(block)
    return sha256.hexdigest()


def read_record(path: Path | str) -> bytes:
    """Return the bytes of a small record that Liza wrote. Raises NotRegularFile, also for more than 1 MB, OSError."""
    return read(path, MAX_RECORD_SIZE)


def open_below(root: Path, name: str) -> int:
    """Open a regular file below a directory that an agent can write; no part of ``name`` may be a link.

    Raises NotRegularFile, NotADirectoryError for a link in the place of a directory, OSError.
    """
    *parents, last = name.split("/")
    with _open_directory(root, parents) as directory:
        return open_regular(last, dir_fd=directory)


def read_below(root: Path, name: str, limit: int) -> bytes | None:
    """Return the bytes of a file as ``open_below`` opens it; None if it does not exist.

    Raises NotRegularFile, also for more than ``limit`` bytes, OSError.
    """
    try:
        descriptor = open_below(root, name)
    except FileNotFoundError:
        return None
    return _read(descriptor, root / name, limit)


def list_below(root: Path, name: str) -> list[str]:
    """Return the names in a directory below ``root``, sorted; no part of ``name`` may be a link. Raises OSError."""
    with _open_directory(root, name.split("/")) as directory:
        return sorted(os.listdir(directory))  # noqa: PTH208 - a descriptor is no path


@contextmanager
def _open_directory(root: Path, parts: Sequence[str]) -> Iterator[int]:
    descriptor = os.open(root, _DIRECTORY_FLAGS)
    try:
        for part in parts:
            inner = os.open(part, _DIRECTORY_FLAGS, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def not_regular_error(path: Path | str) -> NotRegularFile:
    """Return the error for a path at which a regular file is expected."""
    return NotRegularFile(f"{path} is not a regular file", _hint(path))


def _hint(path: Path | str) -> str:
    return shlex.join(["mv", str(path), f"{path}.odd"])
