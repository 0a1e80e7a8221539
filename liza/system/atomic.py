"""Replace files atomically: write a temporary file in the same directory, fsync, rename.

Use this module for every file that another process may read meanwhile. A reader sees the old content or the new one,
also after a crash, and a link or a pipe at the path is replaced, never written to. The files of the board are the
exception: `files.py` writes them, since the order of their fsyncs and renames belongs to the commit of a change.
To read a file, use `untrusted_files.py`. Hooks load both, so neither imports pathlib, which is slow to load.

The temporary name ends with the pid of the writer. After a crash `git/leftovers.py` removes such a file from the
directories of the board, of the slots and of `.git/info`; the archiving of a run removes one of that run. A file that
is left elsewhere, such as in an inbox, is never read.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from liza.system import crash_points

_MAX_PREFIX = 50  # characters of the file's name in the temporary name; a character has up to 4 of the 255 bytes


def write(path: Path | str, data: bytes, mode: int = 0o600, *, sync: bool = True, label: str = "") -> None:
    """Replace ``path`` with ``data`` in one step. The parameters are those of ``replacing``. Raises OSError."""
    with replacing(path, mode, sync=sync, label=label) as file:
        file.write(data)


@contextmanager
def replacing(
    path: Path | str, mode: int = 0o600, *, sync: bool = True, label: str = "", directory: Path | None = None
) -> Iterator[BinaryIO]:
    """Yield a temporary file that replaces ``path`` at the end of the block. After an exception it is removed.

    It is in ``directory``, or beside ``path``, on the same file system.

    ``sync``: fsync the file before the rename, so that a power cut leaves no empty file. ``label`` is the name in crash
    points, if not that of the file. Raises OSError.
    """
    temporary, file = _open_temporary(path, directory)
    name = label or os.path.basename(path)  # noqa: PTH119
    try:
        with file:
            yield file
            _finish(file, mode, sync)
        crash_points.point("synced" if sync else "written", name)
        os.replace(temporary, path)  # noqa: PTH105
        crash_points.point("renamed", name)
    except BaseException:
        _unlink(temporary)
        raise


def write_from(
    directory: Path, path: Path, data: bytes, mode: int = 0o600, *, sync: bool = True, label: str = ""
) -> None:
    """Replace ``path`` as ``write`` does; the temporary file is in ``directory``, where git does not look for files.

    If that is on another file system, the temporary file is beside ``path``. Raises OSError.
    """
    try:
        with replacing(path, mode, sync=sync, label=label, directory=directory) as file:
            file.write(data)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        write(path, data, mode, sync=sync, label=label)


def write_if_absent(path: Path, data: bytes, mode: int = 0o600) -> bool:
    """Write ``path`` atomically unless it exists; return whether it was written. Of several writers one wins.

    Raises OSError.
    """
    temporary, file = _open_temporary(path)
    try:
        with file:
            file.write(data)
            _finish(file, mode, sync=True)
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        _unlink(temporary)
    return True


def write_link(path: Path, target: str, label: str) -> None:
    """Replace ``path`` by a symbolic link to ``target``. ``label`` is the name in crash points. Raises OSError."""
    temporary = path.with_name(f".{path.name[:_MAX_PREFIX]}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    crash_points.point("written", label)
    temporary.replace(path)
    crash_points.point("renamed", label)


def _open_temporary(path: Path | str, directory: Path | None = None) -> tuple[str, BinaryIO]:
    """Create a file of a new name in ``directory``, or beside ``path``, to replace ``path``."""
    parent, name = os.path.split(path)
    while True:
        temporary_name = f".{name[:_MAX_PREFIX]}.{os.urandom(4).hex()}.{os.getpid()}"
        # Not resolved: links in it are kept.
        temporary = os.path.join(os.path.abspath(directory or parent), temporary_name)  # noqa: PTH100, PTH118
        with suppress(FileExistsError):
            handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            return temporary, os.fdopen(handle, "wb")


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108


def _finish(file: BinaryIO, mode: int, sync: bool) -> None:
    file.flush()
    os.fchmod(file.fileno(), mode)
    if sync:
        os.fsync(file.fileno())


def make_directory(root: Path, directory: Path) -> None:
    """Create a directory of the crew at ``root`` with mode 0700. Idempotent.

    Raises FileNotFoundError if ``root`` does not exist: a repository that was moved must not reappear at its old path.
    """
    if not root.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(root))
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
