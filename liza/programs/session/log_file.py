"""Log files for a program's output: readable by this user only, never written through a link, limited in size."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from liza.programs.session._shim import cap
from liza.system import untrusted_files

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT
__all__ = ["cap", "open_empty", "open_for_append", "read_last_lines", "read_tail"]


def open_for_append(path: Path) -> IO[str]:
    """Open a text file for appending. Raises OSError, NotRegularFile, also for a link."""
    return os.fdopen(untrusted_files.open_regular(path, _FLAGS), "a", encoding="utf-8", errors="backslashreplace")


def open_empty(path: Path) -> IO[bytes]:
    """Open a file empty, with O_APPEND, so that it can be truncated while another process writes.

    Raises OSError, NotRegularFile, also for a link.
    """
    return os.fdopen(untrusted_files.open_regular(path, _FLAGS | os.O_TRUNC), "ab", buffering=0)


def read_tail(path: Path, size: int = 1 << 16) -> str:
    """Return the last ``size`` bytes of a file of any size. Raises OSError, NotRegularFile."""
    with untrusted_files.open_to_read(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - size))
        return file.read(size).decode(errors="replace")


def read_last_lines(path: Path, size: int) -> str:
    """Return the last complete lines of a file, at most ``size`` bytes; a longer last line is cut at its start.

    Raises OSError, NotRegularFile.
    """
    tail = read_tail(path, size + 1)
    if len(tail.encode()) <= size:
        return tail
    _, _, complete = tail.partition("\n")
    return complete if complete.strip() else f"…{tail[2:]}"
