"""Reflogs of a person's refs: branches, remote branches, and HEAD of the main checkout."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from liza.rules.reports.ref_moves import HEAD, ReflogEntry, parse_reflog
from liza.system import untrusted_files

MAX_TAIL = 1 << 16
"""Maximum number of bytes that are read from the end of a log: some 400 moves."""
_LIZA_REFS = ("refs/heads/task", "refs/liza")


def log_directories(common: Path) -> tuple[Path, ...]:
    """Return the directories that contain logs of a person's refs."""
    top = common / "logs"
    return (top, *(Path(directory) for directory, _, _ in _walk(top))) if top.is_dir() else ()


def stamp_logs(common: Path) -> list[int]:
    """Return a stamp that changes when one of the logs changes."""
    statuses = [path.stat() for path in _log_files(common)]
    return [
        len(statuses),
        sum(status.st_size for status in statuses),
        max((status.st_mtime_ns for status in statuses), default=0),
    ]


def read_logs(common: Path) -> dict[str, tuple[ReflogEntry, ...]]:
    """Return the entries of each log by ref, oldest first; of a long log only the newest. Raises OSError."""
    top = common / "logs"
    return {str(path.relative_to(top)): tuple(parse_reflog(_read_tail(path))) for path in _log_files(common)}


def _log_files(common: Path) -> Iterator[Path]:
    top = common / "logs"
    if _is_file(top / HEAD):
        yield top / HEAD
    for directory, _, names in _walk(top):
        yield from (path for name in names if _is_file(path := Path(directory) / name))


def _walk(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    for kind in ("heads", "remotes"):
        for directory, subdirectories, names in os.walk(top / "refs" / kind):
            subdirectories[:] = [
                name for name in subdirectories if str((Path(directory) / name).relative_to(top)) not in _LIZA_REFS
            ]
            yield directory, subdirectories, names


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _read_tail(path: Path) -> str:
    with untrusted_files.open_to_read(path) as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - MAX_TAIL))
        return log.read(MAX_TAIL).decode(errors="replace")
