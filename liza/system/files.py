"""Write files so that a crash does not tear them, and read only regular files.

Files in the repository may be replaced by agents with links, pipes or devices. Files are opened here or in `atomic.py`,
with O_NONBLOCK and a check of the type; files that Liza writes also with O_NOFOLLOW.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shlex
import signal
import stat
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

from liza.rules.errors import BoardInconsistent, WriteFailed
from liza.system import crash_points

MAX_BOARD_SIZE: Final = 16 << 20
"""Maximum size of a board, in bytes. Reading and checking a larger one takes longer than the timeout of the lock; a
board of 5,000 tasks has a third of this size."""

_BASE_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
"""Opening a pipe must not block."""
_NO_FOLLOW_FLAGS: Final = _BASE_FLAGS | os.O_NOFOLLOW
"""A write must not follow a link and overwrite another file."""
_HINTS: Final = {
    errno.ENOSPC: "df -h .",
    errno.EDQUOT: "df -h .",
    errno.EROFS: "findmnt -T .",
    errno.EFBIG: "ulimit -f",
}

_WRONG_TYPE_ERRORS: Final = {
    *(errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.EINVAL, errno.ENXIO, errno.ENOTEMPTY),
    # mkdir(2) on a path that exists and is not a directory.
    errno.EEXIST,
}


@contextlib.contextmanager
def convert_os_errors() -> Iterator[None]:
    """Raise WriteFailed for an OSError in the block."""
    try:
        yield
    except OSError as error:
        raise _build_write_failed(error) from error


def _build_write_failed(error: OSError) -> WriteFailed:
    path = error.filename2 or error.filename
    reason = f"{path}: {error.strerror}" if path else error.strerror
    hint = _HINTS.get(error.errno or 0)
    if hint is None:
        quoted = shlex.quote(str(path))
        blocked = error.errno in _WRONG_TYPE_ERRORS
        hint = "liza doctor" if not path else f"mv {quoted} {quoted}.odd" if blocked else f"ls -ld {quoted}"
    return WriteFailed(f"writing to disk failed: {reason}; changes that were confirmed before are kept", hint)


def to_write_failed(error: OSError) -> WriteFailed | None:
    """Return a WriteFailed for a full or read-only disk, a quota or a size limit; None for other errors."""
    return _build_write_failed(error) if error.errno in _HINTS else None


def require_regular(descriptor: int, path: Path) -> os.stat_result:
    """Return the status of an open file. Raises OSError if it is not a regular file, as a directory, pipe or device."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "this is not a regular file", str(path))
    return status


def open_no_follow(path: Path, flags: int) -> int:
    """Open a file of Liza's own without following a link. Raises OSError, also if it is not a regular file."""
    descriptor = os.open(path, flags | _NO_FOLLOW_FLAGS, 0o666)
    try:
        require_regular(descriptor, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_limited(path: Path, most: int) -> bytes:
    """Return the bytes of a file. Raises OSError, also if it is not a regular file or has more than ``most`` bytes."""
    descriptor = os.open(path, os.O_RDONLY | _BASE_FLAGS)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        size = require_regular(descriptor, path).st_size
        data = file.readall() if size <= most else b""
    if size > most or len(data) > most:
        raise OSError(errno.EFBIG, f"more than {most >> 20} MB ({size} bytes)", str(path))
    return data


def encode_board(text: str) -> bytes:
    """Return the bytes of a board. Raises BoardInconsistent if they could not be read again."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise BoardInconsistent(f"a character that UTF-8 cannot encode: {error}", "liza validate") from None
    if len(data) > MAX_BOARD_SIZE:
        size = f"{len(data) / (1 << 20):.1f} MB"
        raise BoardInconsistent(
            f"the board would have {size}, at most {MAX_BOARD_SIZE >> 20} MB are allowed; nothing was written",
            "liza edit",
        )
    return data


@convert_os_errors()
def preserve_file(path: Path, directory: Path, name: str) -> Path | None:
    """Keep the object at ``path`` under a free name in ``directory``: as a hard link, or if that fails by a rename.

    Return the new path, None if ``path`` does not exist. Nothing is copied: the object may be a directory, an endless
    device or a file larger than the free space. Raises WriteFailed.
    """
    if not os.path.lexists(path):
        return None
    copy = next(
        candidate for number in count() if not os.path.lexists(candidate := directory / f"{name}{number or ''}.yaml")
    )
    try:
        os.link(path, copy, follow_symlinks=False)
    except OSError:
        path.rename(copy)
    return copy


def is_being_written(path: Path) -> bool:
    """Return whether a process has the file open for writing: the kernel grants no read lease on such a file.

    False if a lease is refused for another reason, as another owner or a file system without leases.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | _BASE_FLAGS)
    except OSError:
        return False
    try:
        # If another process opens the file now, the kernel sends a signal. The default, SIGIO, would end this process;
        # SIGURG is ignored.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    except AttributeError:
        return False
    finally:
        os.close(descriptor)
    return False


@convert_os_errors()
def append_synced(path: Path, data: bytes) -> None:
    """Append with fdatasync. Raises WriteFailed."""
    descriptor = open_no_follow(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        _write_all(descriptor, data)
        crash_points.point("written", path.name)
        os.fdatasync(descriptor)
        crash_points.point("synced", path.name)
    finally:
        os.close(descriptor)


@convert_os_errors()
def write_synced(path: Path, data: bytes) -> None:
    """Write a file that is not in use yet, with fsync. Raises WriteFailed."""
    descriptor = open_no_follow(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        _write_all(descriptor, data)
        crash_points.point("written", path.name)
        os.fsync(descriptor)
        crash_points.point("synced", path.name)
    finally:
        os.close(descriptor)


def replace_unsynced(path: Path, data: bytes) -> None:
    """Replace a file atomically, without fsync: readers see the old or the new bytes. Raises WriteFailed."""
    replace_unsynced_via(path.parent, path, data)


@convert_os_errors()
def replace_unsynced_via(directory: Path, path: Path, data: bytes) -> None:
    """Replace a file atomically, without fsync. The temporary file is in ``directory``, on the same file system."""
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f"{path.name}.new"
    descriptor = open_no_follow(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        if data:
            _preallocate(descriptor, len(data))
        _write_all(descriptor, data)
    finally:
        os.close(descriptor)
    name = directory.name if path.name.isdecimal() else path.name
    crash_points.point("written", name)
    temporary.rename(path)
    crash_points.point("renamed", name)


def _preallocate(descriptor: int, size: int) -> None:
    """Allocate the blocks now: otherwise ext4 writes them out during the rename, which takes about 1 ms."""
    with contextlib.suppress(OSError, AttributeError):
        os.posix_fallocate(descriptor, 0, size)


@convert_os_errors()
def fsync_directory(path: Path) -> None:
    """fsync a directory, so that its new names survive a power cut. Raises WriteFailed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    view = view[os.write(descriptor, crash_points.limit_write(view)) :]
    crash_points.point("part")
    while view:
        view = view[os.write(descriptor, view) :]
