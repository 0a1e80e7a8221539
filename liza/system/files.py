"""Bytes onto the disk in the ways that a crash cannot tear, and from it without being led astray by what is no file."""

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
"""Bytes of a board, and of what a revision keeps of it. To read and judge so much takes about as long as others wait
for the lock; a board of 5,000 tasks has a third of it."""

_BASE_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
"""A pipe must not hold up who opens it."""
_NO_FOLLOW_FLAGS: Final = _BASE_FLAGS | os.O_NOFOLLOW
"""What is written must not end up elsewhere, over a file that a link leads to."""
_HINTS: Final = {
    errno.ENOSPC: "df -h .",
    errno.EDQUOT: "df -h .",
    errno.EROFS: "findmnt -T .",
    errno.EFBIG: "ulimit -f",
}

_WRONG_TYPE_ERRORS: Final = {
    *(errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.EINVAL, errno.ENXIO, errno.ENOTEMPTY),
    # A directory was to be made where something else stands.
    errno.EEXIST,
}


@contextlib.contextmanager
def convert_os_errors() -> Iterator[None]:
    """What the disk refuses inside is raised as DiskRefused."""
    try:
        yield
    except OSError as error:
        raise _build_write_failed(error) from error


def _build_write_failed(error: OSError) -> WriteFailed:
    place = error.filename2 or error.filename
    said = f"{place}: {error.strerror}" if place else error.strerror
    hint = _HINTS.get(error.errno or 0)
    if hint is None:
        word = shlex.quote(str(place))
        blocked = error.errno in _WRONG_TYPE_ERRORS
        hint = "liza doctor" if not place else f"mv {word} {word}.odd" if blocked else f"ls -ld {word}"
    return WriteFailed(f"the disk did not take it: {said}; what was acknowledged before is kept", hint)


def to_write_failed(error: OSError) -> WriteFailed | None:
    """What to tell of a disk that is full or read-only; None where the error says something else."""
    return _build_write_failed(error) if error.errno in _HINTS else None


def require_regular(descriptor: int, path: Path) -> os.stat_result:
    """What is open, if it is a file. Raises OSError for a directory, a pipe, a device."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "this is no file but something else", str(path))
    return found


def open_no_follow(path: Path, flags: int) -> int:
    """A descriptor of a file of Liza's own, which no link may lead away from. Raises OSError."""
    descriptor = os.open(path, flags | _NO_FOLLOW_FLAGS, 0o666)
    try:
        require_regular(descriptor, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_limited(path: Path, most: int) -> bytes:
    """The bytes of a file. Raises OSError, also for what is no file, and for one with more than ``most`` bytes."""
    descriptor = os.open(path, os.O_RDONLY | _BASE_FLAGS)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        size = require_regular(descriptor, path).st_size
        data = file.readall() if size <= most else b""
    if size > most or len(data) > most:
        raise OSError(errno.EFBIG, f"more than {most >> 20} MB ({size} bytes)", str(path))
    return data


def encode_board(text: str) -> bytes:
    """The bytes of a board. Raises BoardInconsistent where it could not be read again."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise BoardInconsistent(f"a letter that UTF-8 does not have: {error}", "liza validate") from None
    if len(data) > MAX_BOARD_SIZE:
        size = f"{len(data) / (1 << 20):.1f} MB"
        raise BoardInconsistent(
            f"the board would have {size}, more than {MAX_BOARD_SIZE >> 20}; nothing was written", "liza edit"
        )
    return data


@convert_os_errors()
def preserve_file(path: Path, directory: Path, name: str) -> Path | None:
    """Gives what stands at a path a second name, or where that cannot be had another one: that name, None where nothing
    stands. Nothing is copied: it may be a directory, a device without an end, a file larger than the disk."""
    if not os.path.lexists(path):
        return None
    kept = next(place for number in count() if not os.path.lexists(place := directory / f"{name}{number or ''}.yaml"))
    try:
        os.link(path, kept, follow_symlinks=False)
    except OSError:
        path.rename(kept)
    return kept


def is_being_written(path: Path) -> bool:
    """Whether a process has the file open for writing, as far as the kernel tells: it gives no lease on such a file.

    Where it gives none for other reasons (another owner, a file system without leases): False.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | _BASE_FLAGS)
    except OSError:
        return False
    try:
        # Whoever opens the file in this moment would have us told by SIGIO, which ends a process; SIGURG does not.
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
    """Appends and waits until the disk has it."""
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
    """Writes a file that is not in use yet, and waits until the disk has it."""
    descriptor = open_no_follow(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        _write_all(descriptor, data)
        crash_points.point("written", path.name)
        os.fsync(descriptor)
        crash_points.point("synced", path.name)
    finally:
        os.close(descriptor)


def replace_unsynced(path: Path, data: bytes) -> None:
    """Replaces a small file in one step, without waiting for the disk: readers see the old one or the new one."""
    replace_unsynced_via(path.parent, path, data)


@convert_os_errors()
def replace_unsynced_via(directory: Path, path: Path, data: bytes) -> None:
    """The same, the new file being made in another directory of the same disk."""
    directory.mkdir(parents=True, exist_ok=True)
    fresh = directory / f"{path.name}.new"
    descriptor = open_no_follow(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        if data:
            _preallocate(descriptor, len(data))
        _write_all(descriptor, data)
    finally:
        os.close(descriptor)
    name = directory.name if path.name.isdecimal() else path.name
    crash_points.point("written", name)
    fresh.rename(path)
    crash_points.point("renamed", name)


def _preallocate(descriptor: int, size: int) -> None:
    """Takes the blocks now: ext4 would otherwise write them out inside the rename, a millisecond each time."""
    with contextlib.suppress(OSError, AttributeError):
        os.posix_fallocate(descriptor, 0, size)


@convert_os_errors()
def fsync_directory(path: Path) -> None:
    """Waits until the disk has the names in a directory."""
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
