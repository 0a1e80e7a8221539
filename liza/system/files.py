"""Write the files of the board. Every other module writes a file with `atomic.py`.

The steps are separate here, because the commit of a change puts them in its own order: append to the journal, write the
next board, rename, fsync the directory (`board/file_store/commit_steps.py`). Errors become WriteFailed, after which a
command of an agent is postponed, not lost. To read a file, use `untrusted_files.py`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shlex
import shutil
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import chain, count
from pathlib import Path
from typing import Final, Generic, TypeVar

from liza.model.errors import BoardInconsistent, NotRegularFile, WriteFailed
from liza.system import crash_points, untrusted_files

MAX_BOARD_SIZE: Final = 16 << 20
"""Maximum size of a board, in bytes. Reading and checking a larger one takes longer than the timeout of the lock; a
board of 5,000 tasks has a third of this size."""

BOARD_MODE: Final = 0o666
"""Mode of a new file, before the umask: people share a board as they share the repository."""
_MESSAGE: Final = "writing to disk failed: {}; changes that were confirmed before are kept"
_HINTS: Final = {
    errno.ENOSPC: "df -h .",
    errno.EDQUOT: "df -h .",
    errno.EROFS: "findmnt -T .",
    errno.EFBIG: "ulimit -f",
}

_MIN_FREE: Final = 1 << 20  # bytes, for a board and the output of a session
_WRONG_TYPE_ERRORS: Final = {
    *(errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.EINVAL, errno.ENXIO, errno.ENOTEMPTY),
    # mkdir(2) on a path that exists and is not a directory.
    errno.EEXIST,
}


@contextlib.contextmanager
def convert_os_errors() -> Iterator[None]:
    """Raise WriteFailed for an OSError or a NotRegularFile in the block."""
    try:
        yield
    except NotRegularFile as error:
        raise WriteFailed(_MESSAGE.format(error.message), error.hint) from error
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
    return WriteFailed(_MESSAGE.format(reason), hint)


def to_write_failed(error: OSError) -> WriteFailed | None:
    """Return a WriteFailed for a full or read-only disk, a quota or a size limit; None for other errors."""
    return _build_write_failed(error) if error.errno in _HINTS else None


def find_disk_fault(path: Path) -> tuple[str, str] | None:
    """Return why nothing can be written to the disk of a path, and the command that shows it; None if it can be.

    Quotas are not seen. Raises OSError.
    """
    disk = os.statvfs(path)
    free = (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail) * disk.f_frsize
    where = shlex.quote(str(path))
    if disk.f_flag & os.ST_RDONLY:
        return f"the disk of {path} is read-only", f"findmnt -T {where}"
    # Some file systems count neither blocks nor files.
    if disk.f_blocks and free < _MIN_FREE:
        return f"the disk of {path} is full: {free >> 10} KB are free", f"df -h {where}"
    if disk.f_files and not disk.f_ffree:
        return f"the disk of {path} can have no more files", f"df -i {where}"
    return None


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


def find_free_path(path: Path) -> Path:
    """Return ``path``, with a number if something exists there."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(free for free in chain([path], numbered) if not os.path.lexists(free))


def remove_tree(directory: Path) -> tuple[Path, ...]:
    """Remove a directory with its content, except mount points; return these. Raises OSError."""
    kept: dict[Path, None] = {}

    def keep(_function: object, name: str, raised: tuple[type[BaseException], BaseException, object]) -> None:
        error = raised[1]
        assert isinstance(error, OSError)
        path = Path(name)
        if error.errno == errno.EBUSY:
            kept[path] = None
        elif error.errno == errno.EROFS:
            kept[next((parent for parent in (path, *path.parents) if parent.is_mount()), path)] = None
        elif error.errno != errno.ENOTEMPTY or not kept:
            raise error

    shutil.rmtree(directory, onerror=keep)  # Python 3.11 has no ``onexc``
    return tuple(kept)


def is_being_written(path: Path) -> bool:
    """Return whether a process has the file open for writing: the kernel grants no read lease on such a file.

    False if a lease is refused for another reason, as another owner or a file system without leases.
    """
    try:
        descriptor = untrusted_files.open_regular(path, follow_links=True)
    except (OSError, NotRegularFile):
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


Stamp = tuple[int, int, int]
"""Inode, mtime in nanoseconds and size in bytes of a file: a changed file has another one."""


def read_stamp(path: Path) -> Stamp | None:
    """Return the stamp of a file; None if it is missing. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        status = path.lstat()
        return status.st_ino, status.st_mtime_ns, status.st_size
    return None


T = TypeVar("T")


class FileCache(Generic[T]):
    """What was read from files, as long as each file is the same. Thread-safe."""

    def __init__(self, limit: int) -> None:
        """``limit``: files that are remembered; the one unused for the longest time is read again when needed."""
        self._limit = limit
        self._guard = threading.Lock()
        self._entries: OrderedDict[Path, tuple[Stamp, T]] = OrderedDict()

    def read(self, path: Path, load: Callable[[], T]) -> T:
        """Return what ``load`` returns, from memory if the file has not changed. Raises FileNotFoundError."""
        stamp = read_stamp(path)
        if stamp is None:
            raise FileNotFoundError(path)
        with self._guard:
            entry = self._entries.get(path)
            if entry is not None and entry[0] == stamp:
                self._entries.move_to_end(path)
                return entry[1]
        content = load()
        with self._guard:
            self._entries[path] = stamp, content
            if len(self._entries) > self._limit:
                self._entries.popitem(last=False)
        return content


@convert_os_errors()
def append_synced(path: Path, data: bytes) -> None:
    """Append with fdatasync. Raises WriteFailed."""
    descriptor = _open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
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
    descriptor = _open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
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
    descriptor = _open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
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


def _open(path: Path, flags: int) -> int:
    return untrusted_files.open_regular(path, flags, BOARD_MODE)


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
