"""``.liza/usage.jsonl``: one line per session, with its usage and its outcome. Sessions of other hosts are in
`crew/shared_logs.py`."""

from __future__ import annotations

import os
from typing import IO

import msgspec

from liza.board.shared_records import SharedLog
from liza.crew import shared_logs
from liza.model.errors import LizaError
from liza.model.paths import Paths
from liza.model.spending import LedgerEntry, TokenUsage
from liza.model.type_errors import describe_decode_error
from liza.model.value_classes import decodable
from liza.system import untrusted_files
from liza.system.locks import lock_path

_BLOCK_SIZE = 1 << 16  # bytes that are read at a time, from the end


def read_entries(paths: Paths) -> tuple[LedgerEntry, ...]:
    """Return one entry per run, also those of other hosts; of several entries of one run, the last.

    An incomplete last line was cut by a crash and is skipped; its session is recorded again.

    Raises LizaError if a line cannot be read, NotRegularFile if the path is not a regular file.
    """
    path = paths.usage
    data = untrusted_files.read_if_exists(path) or b""
    entries = {entry.run: entry for entry in shared_logs.read_shared(paths, SharedLog.USAGE, LedgerEntry)}
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            entry = msgspec.json.decode(line, type=decodable(LedgerEntry))
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
            reason = describe_decode_error(error, LedgerEntry)
            raise LizaError(f"{path}:{number} cannot be read: {reason}", f"sed -i {number}d {path}") from error
        entries[entry.run] = entry
    return tuple(entries.values())


def conversation_usage(paths: Paths, conversation: str, run: str) -> TokenUsage:
    """Return what the sessions of a conversation before ``run`` reported. Raises LizaError, NotRegularFile."""
    entries = (entry for entry in read_entries(paths) if entry.conversation == conversation and entry.run != run)
    used = (entry.used for entry in entries if entry.used is not None and not entry.used.estimated)
    return sum(used, TokenUsage())


def append_entry(paths: Paths, spent: LedgerEntry) -> None:
    """Append the usage of a session, durably. A repeated entry counts once.

    Raises OSError, NotRegularFile, LockTimeout.
    """
    line = msgspec.json.encode(spent) + b"\n"
    with lock_path(paths.usage, mode=0o600) as handle, os.fdopen(handle, "r+b", closefd=False) as file:
        _drop_torn_line(file)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _drop_torn_line(file: IO[bytes]) -> None:
    """Cut off an incomplete last line, and seek to the end."""
    start = file.seek(0, os.SEEK_END)
    end = 0
    while start and not end:
        before = start
        start = file.seek(max(0, start - _BLOCK_SIZE))
        index = file.read(before - start).rfind(b"\n")
        end = start + index + 1 if index >= 0 else 0
    file.truncate(end)
    file.seek(0, os.SEEK_END)
