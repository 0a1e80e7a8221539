"""``.liza/usage.jsonl``: a line a session, of what it used and what came of it."""

from __future__ import annotations

import fcntl
import os
import stat
from typing import IO

import msgspec

from liza.rules.errors import LizaError, NotRegularFile
from liza.rules.paths import Paths
from liza.rules.sessions.spending import LedgerEntry
from liza.system import atomic

_BLOCK_SIZE = 1 << 16  # bytes that are looked through at a time, from the end


def read_entries(paths: Paths) -> tuple[LedgerEntry, ...]:
    """Every session's line, a run's last one where it was written twice. Raises LizaError where a line cannot be read,
    and where it is no file.

    A last line without its end was being written when the machine went down, and its session is told of again.
    """
    place = paths.usage
    data = atomic.read_if_exists(place) or b""
    found: dict[str, LedgerEntry] = {}
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            one = msgspec.json.decode(line, type=LedgerEntry)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
            raise LizaError(f"{place}:{number} cannot be read: {error}", f"sed -i {number}d {place}") from error
        found[one.run] = one
    return tuple(found.values())


def append_entry(paths: Paths, spent: LedgerEntry) -> None:
    """Write down what a session used. Said again it counts once. Raises OSError, NoFile."""
    line = msgspec.json.encode(spent) + b"\n"
    handle = os.open(paths.usage, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NotRegularFile(f"{paths.usage} is no file", f"ls -l {paths.usage}")
    with os.fdopen(handle, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _drop_torn_line(file)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _drop_torn_line(file: IO[bytes]) -> None:
    """Leave the file at its end, behind a whole line."""
    start = file.seek(0, os.SEEK_END)
    end = 0
    while start and not end:
        before = start
        start = file.seek(max(0, start - _BLOCK_SIZE))
        found = file.read(before - start).rfind(b"\n")
        end = start + found + 1 if found >= 0 else 0
    file.truncate(end)
    file.seek(0, os.SEEK_END)
