"""git's logs of the refs that are a person's: their branches, where they pushed, and the HEAD of their checkout."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from liza.rules.reports.ref_moves import HEAD, ReflogEntry, parse_reflog

MAX_TAIL = 1 << 16
"""Bytes of the end of a log that are read: some 400 moves."""
_LIZA_REFS = ("refs/heads/task", "refs/liza")
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def log_directories(common: Path) -> tuple[Path, ...]:
    """The directories that logs of a person's refs lie in."""
    top = common / "logs"
    return (top, *(Path(place) for place, _, _ in _walk(top))) if top.is_dir() else ()


def stamp_logs(common: Path) -> list[int]:
    """It changes when one of the logs does."""
    found = [path.stat() for path in _log_files(common)]
    return [len(found), sum(one.st_size for one in found), max((one.st_mtime_ns for one in found), default=0)]


def read_logs(common: Path) -> dict[str, tuple[ReflogEntry, ...]]:
    """The entries of each log, by the ref, oldest first; of a long one the newest. Raises OSError."""
    top = common / "logs"
    return {str(path.relative_to(top)): tuple(parse_reflog(_read_tail(path))) for path in _log_files(common)}


def _log_files(common: Path) -> Iterator[Path]:
    top = common / "logs"
    if _is_file(top / HEAD):
        yield top / HEAD
    for place, _, names in _walk(top):
        yield from (path for name in names if _is_file(path := Path(place) / name))


def _walk(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    for kind in ("heads", "remotes"):
        for place, below, names in os.walk(top / "refs" / kind):
            below[:] = [name for name in below if str((Path(place) / name).relative_to(top)) not in _LIZA_REFS]
            yield place, below, names


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _read_tail(path: Path) -> str:
    with os.fdopen(os.open(path, _FLAGS), "rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - MAX_TAIL))
        return log.read(MAX_TAIL).decode(errors="replace")
