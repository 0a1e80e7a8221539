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

from liza.rules.errors import BoardInconsistent, DiskRefused
from liza.system import crash_points

LARGEST: Final = 16 << 20
"""Bytes of a board, and of what a revision keeps of it. To read and judge so much takes about as long as others wait
for the lock; a board of 5,000 tasks has a third of it."""

_PLAIN: Final = os.O_NONBLOCK | os.O_CLOEXEC
"""A pipe must not hold up who opens it."""
_OWN: Final = _PLAIN | os.O_NOFOLLOW
"""What is written must not end up elsewhere, over a file that a link leads to."""
_HINTS: Final = {
    errno.ENOSPC: "df -h .",
    errno.EDQUOT: "df -h .",
    errno.EROFS: "findmnt -T .",
    errno.EFBIG: "ulimit -f",
}

_BLOCKED: Final = {
    *(errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.EINVAL, errno.ENXIO, errno.ENOTEMPTY),
    # A directory was to be made where something else stands.
    errno.EEXIST,
}


@contextlib.contextmanager
def named() -> Iterator[None]:
    """What the disk refuses inside is raised as DiskRefused."""
    try:
        yield
    except OSError as error:
        raise _refused(error) from error


def _refused(error: OSError) -> DiskRefused:
    place = error.filename2 or error.filename
    said = f"{place}: {error.strerror}" if place else error.strerror
    hint = _HINTS.get(error.errno or 0)
    if hint is None:
        word = shlex.quote(str(place))
        blocked = error.errno in _BLOCKED
        hint = "liza doctor" if not place else f"mv {word} {word}.odd" if blocked else f"ls -ld {word}"
    return DiskRefused(f"the disk did not take it: {said}; what was acknowledged before is kept", hint)


def refusal(error: OSError) -> DiskRefused | None:
    """What to tell of a disk that is full or read-only; None where the error says something else."""
    return _refused(error) if error.errno in _HINTS else None


def regular(descriptor: int, path: Path) -> os.stat_result:
    """What is open, if it is a file. Raises OSError for a directory, a pipe, a device."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "this is no file but something else", str(path))
    return found


def opened(path: Path, flags: int) -> int:
    """A descriptor of a file of Liza's own, which no link may lead away from. Raises OSError."""
    descriptor = os.open(path, flags | _OWN, 0o666)
    try:
        regular(descriptor, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read(path: Path, most: int) -> bytes:
    """The bytes of a file. Raises OSError, also for what is no file, and for one with more than ``most`` bytes."""
    descriptor = os.open(path, os.O_RDONLY | _PLAIN)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        size = regular(descriptor, path).st_size
        data = file.readall() if size <= most else b""
    if size > most or len(data) > most:
        raise OSError(errno.EFBIG, f"more than {most >> 20} MB ({size} bytes)", str(path))
    return data


def encoded(text: str) -> bytes:
    """The bytes of a board. Raises BoardInconsistent where it could not be read again."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise BoardInconsistent(f"a letter that UTF-8 does not have: {error}", "liza validate") from None
    if len(data) > LARGEST:
        size = f"{len(data) / (1 << 20):.1f} MB"
        raise BoardInconsistent(
            f"the board would have {size}, more than {LARGEST >> 20}; nothing was written", "liza edit"
        )
    return data


@named()
def keep(path: Path, directory: Path, name: str) -> Path | None:
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
        descriptor = os.open(path, os.O_RDONLY | _PLAIN)
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


@named()
def append(path: Path, data: bytes) -> None:
    """Appends and waits until the disk has it."""
    descriptor = opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        _all(descriptor, data)
        crash_points.point("written", path.name)
        os.fdatasync(descriptor)
        crash_points.point("synced", path.name)
    finally:
        os.close(descriptor)


@named()
def aside(path: Path, data: bytes) -> None:
    """Writes a file that is not in use yet, and waits until the disk has it."""
    descriptor = opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        _all(descriptor, data)
        crash_points.point("written", path.name)
        os.fsync(descriptor)
        crash_points.point("synced", path.name)
    finally:
        os.close(descriptor)


def swap(path: Path, data: bytes) -> None:
    """Replaces a small file in one step, without waiting for the disk: readers see the old one or the new one."""
    swap_from(path.parent, path, data)


@named()
def swap_from(directory: Path, path: Path, data: bytes) -> None:
    """The same, the new file being made in another directory of the same disk."""
    directory.mkdir(parents=True, exist_ok=True)
    fresh = directory / f"{path.name}.new"
    descriptor = opened(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        if data:
            _reserve(descriptor, len(data))
        _all(descriptor, data)
    finally:
        os.close(descriptor)
    name = directory.name if path.name.isdecimal() else path.name
    crash_points.point("written", name)
    fresh.rename(path)
    crash_points.point("renamed", name)


def _reserve(descriptor: int, size: int) -> None:
    """Takes the blocks now: ext4 would otherwise write them out inside the rename, a millisecond each time."""
    with contextlib.suppress(OSError, AttributeError):
        os.posix_fallocate(descriptor, 0, size)


@named()
def settle_directory(path: Path) -> None:
    """Waits until the disk has the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    view = view[os.write(descriptor, crash_points.portion(view)) :]
    crash_points.point("part")
    while view:
        view = view[os.write(descriptor, view) :]
