"""Usage of sessions and runs of gates on a crew with several hosts: a copy of the lines of all hosts in each clone.

A host has its own lines in the same file as a crew on one host. Its host process sends them to the server, and appends
those of all hosts to ``.liza/hosts/<log>.jsonl``, so that supervisors read files only. A clone without a host process
does that when a command reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from liza.board.shared_records import NumberedLine, SharedLog, SharedRecords
from liza.crew.crew import Crew
from liza.model.errors import LizaError, LockTimeout
from liza.model.gates import GateRun
from liza.model.paths import Paths
from liza.model.spending import LedgerEntry
from liza.model.value_classes import decodable
from liza.system import atomic, file_growth, untrusted_files
from liza.system.locks import is_flock_held, lock_path

BATCH: Final = 500
"""Lines of one statement."""
NEWEST_GATE_RUNS: Final = 4000
"""Newest runs of gates that a copy has; it may become twice as long. Of usage it has all."""
_LOCK_LIMIT: Final = 2.0  # seconds; the holder brings what is new
_LINE_LIMIT: Final = 1 << 16  # bytes at the end of a copy in which its last line is found
StructT = TypeVar("StructT", bound=msgspec.Struct)


def own_log(paths: Paths, log: SharedLog) -> Path:
    """Return the file to which this host appends its own lines."""
    return paths.usage if log is SharedLog.USAGE else paths.gates


def read_shared(paths: Paths, log: SharedLog, kind: type[StructT]) -> list[StructT]:
    """Return what all hosts added to a log, as far as it was copied; none for a crew on one host. Raises LizaError."""
    path = paths.shared_log(log)
    data = untrusted_files.read_if_exists(path)
    if data is None:
        return []
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    try:
        return [msgspec.json.decode(line.partition(b" ")[2], type=decodable(kind)) for line in lines]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # It is copied anew from the server.
        raise LizaError(f"{path} cannot be read: {error}", f"rm {path}") from error


def refresh(crew: Crew, log: SharedLog) -> None:
    """Copy new lines of a crew on several hosts, unless the host process of this clone does it.

    Raises BoardUnavailable, BoardServerRefused, OSError.
    """
    shared = crew.board.shared if crew.is_on_server else None
    if shared is not None and not is_flock_held(crew.paths.host_lock):
        copy_lines(shared, crew.paths, log)


def copy_lines(shared: SharedRecords, paths: Paths, log: SharedLog) -> int:
    """Append the lines to the copy that it does not have; return how many. Nothing is done while another process does
    it. Raises BoardUnavailable, BoardServerRefused, OSError.
    """
    path = paths.shared_log(log)
    with suppress(LockTimeout), lock_path(path.with_suffix(".lock"), _LOCK_LIMIT, 0o600):
        last = _read_last(path)
        newer = [] if last is None else shared.read_lines(log, last.number - 1, BATCH)
        # A database that was restored from a backup, or another one, has other numbers.
        if last is None or not newer or newer[0] != last or _is_too_long(path, log):
            return _copy_anew(shared, path, log)
        return _append(shared, path, log, newer[1:])
    return 0


def _copy_anew(shared: SharedRecords, path: Path, log: SharedLog) -> int:
    after, _ = shared.find_place(log, NEWEST_GATE_RUNS) if log is SharedLog.GATES else (0, 0)
    lines: list[NumberedLine] = []
    while batch := shared.read_lines(log, after, BATCH):
        lines += batch
        after = batch[-1].number
    if lines or path.exists():
        atomic.write(path, b"".join(map(_format_line, lines)), sync=False)
    return len(lines)


def _append(shared: SharedRecords, path: Path, log: SharedLog, newer: list[NumberedLine]) -> int:
    count = 0
    while newer:
        with path.open("r+b") as file:
            file.truncate(_complete_size(path))
            file.seek(0, 2)
            file.writelines(map(_format_line, newer))
        count += len(newer)
        newer = shared.read_lines(log, newer[-1].number, BATCH)
    return count


def _format_line(line: NumberedLine) -> bytes:
    return f"{line.number} {line.line}\n".encode("utf-8", "surrogateescape")


def _complete_size(path: Path) -> int:
    """Return the size without an incomplete last line, which a crash cut."""
    size = path.stat().st_size
    tail = _read_tail(path)
    return size - len(tail) + tail.rfind(b"\n") + 1


def _read_tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LINE_LIMIT))
        return file.read()


def _read_last(path: Path) -> NumberedLine | None:
    """Return the last complete line of a copy; None if there is none, or if it is longer than usual lines are."""
    try:
        lines = _read_tail(path).rpartition(b"\n")[0].splitlines()
        number, _, line = lines[-1].partition(b" ") if len(lines) > 1 or _is_whole(path) else (b"", b"", b"")
        return NumberedLine(int(number), line.decode())
    except (FileNotFoundError, ValueError, IndexError):
        return None


def _is_whole(path: Path) -> bool:
    return path.stat().st_size <= _LINE_LIMIT


def _is_too_long(path: Path, log: SharedLog) -> bool:
    return log is SharedLog.GATES and untrusted_files.read(path).count(b"\n") >= 2 * NEWEST_GATE_RUNS


_TYPES: Final[Mapping[SharedLog, type[Any]]] = {SharedLog.USAGE: LedgerEntry, SharedLog.GATES: GateRun}


class LogSender:
    """Sends the lines of a log of this host. Lines that are no records are a fault of this host, and stay here."""

    def __init__(self, paths: Paths, log: SharedLog) -> None:
        self._log, self._tail = log, file_growth.Tail(own_log(paths, log), anew=True)
        self._waiting: list[str] = []

    def send(self, shared: SharedRecords) -> int:
        """Send what was appended since the last call that succeeded, first all; return how many lines were new.

        Raises BoardUnavailable, BoardServerRefused, NotRegularFile, OSError.
        """
        self._waiting += filter(self._is_record, self._tail.lines())
        count = 0
        while self._waiting:
            batch = self._waiting[:BATCH]
            count += shared.append_lines(self._log, batch)
            del self._waiting[: len(batch)]
        return count

    def _is_record(self, line: str) -> bool:
        with suppress(msgspec.DecodeError, RecursionError):
            msgspec.json.decode(line, type=decodable(_TYPES[self._log]))
            return True
        return False
