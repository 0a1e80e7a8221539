"""``telemetry.jsonl``: one line for each turn that the runtime of a run reported, each turn once.

A turn that is reported again is known by its id or its content. Lines are not fsynced: they survive the death of their
writer, and after a power cut no session goes on.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from liza.model.errors import LockTimeout
from liza.model.value_classes import decodable
from liza.programs.session.run_directory import ReportedHealth
from liza.system import crash_points, untrusted_files
from liza.system.locks import lock_path
from liza.usage.rules.telemetry_rules import TelemetryEvent, TelemetrySums, add_event

TELEMETRY_FILE = "telemetry.jsonl"
MAX_BYTES = 64 << 20
"""Maximum size of the file, in bytes: some 250,000 turns."""
LOCK_TIMEOUT = 10.0
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_DECODER = msgspec.json.Decoder(decodable(TelemetryEvent))
_ENCODER = msgspec.json.Encoder()


class TelemetryLog:
    """The telemetry of one run. Thread-safe, also with other processes.

    An object remembers sums and keys, and reads only what others appended: a request costs no more in a long run.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / TELEMETRY_FILE
        self._guard = threading.Lock()
        self._forget()

    def append(self, events: Sequence[TelemetryEvent], *, may_wait: bool = True) -> int:
        """Store the events that are not stored yet, and return their number. ``may_wait``: for the lock, if it is held.

        Raises OSError, NotRegularFile, LockTimeout. After an error the request can be sent again.
        """
        with self._hold(LOCK_TIMEOUT if may_wait else 0.0):
            fresh: dict[bytes, tuple[TelemetryEvent, bytes]] = {}
            for event in events:
                line = _ENCODER.encode(event)
                key = _event_key(event, line)
                if key not in self._keys:
                    fresh.setdefault(key, (event, line))
            if fresh:
                self._write(b"".join(line + b"\n" for _, line in fresh.values()))
                for key, (event, _) in fresh.items():
                    self._add(key, event)
            return len(fresh)

    def read(self) -> TelemetrySums | None:
        """Return the sums of the run; None if nothing was reported. Raises OSError, NotRegularFile, LockTimeout."""
        if not self._path.exists():
            return None
        with self._hold(LOCK_TIMEOUT):
            return self._sums if self._sums.turns else None

    @contextmanager
    def _hold(self, timeout: float) -> Iterator[None]:
        """Lock the log against other threads and processes, and read what they have appended."""
        path = self._directory / ".telemetry.lock"
        if not self._guard.acquire(timeout=timeout):
            raise LockTimeout(f"{path} was not free within {timeout:g} s: another thread holds it", "liza doctor")
        try:
            with lock_path(path, timeout, 0o600, make_parents=False):
                self._catch_up()
                yield
        finally:
            self._guard.release()

    def _forget(self) -> None:
        self._sums = TelemetrySums()
        self._keys: set[bytes] = set()
        self._file: tuple[int, int] | None = None
        """Device and inode of the file that was read."""
        self._size = 0

    def _catch_up(self) -> None:
        """Read what is new in the files. The caller holds the lock."""
        try:
            status = self._path.lstat()
        except FileNotFoundError:
            status = None
        file = None if status is None else (status.st_dev, status.st_ino)
        if file is not None and file == self._file and status is not None and status.st_size == self._size:
            return
        if file is None or file != self._file or status is None or status.st_size < self._size:
            self._forget()
        if file is not None:
            self._file = file
            self._read_new_lines()

    def _read_new_lines(self) -> None:
        """Read from the remembered size on, and cut off a line that a crashed writer left incomplete."""
        descriptor = untrusted_files.open_regular(self._path, os.O_RDWR)
        with os.fdopen(descriptor, "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if size > MAX_BYTES:
                raise untrusted_files.not_regular_error(self._path)
            file.seek(self._size)
            data = file.read(size - self._size)
            end = data.rfind(b"\n") + 1
            if end < len(data):
                file.truncate(self._size + end)
            for line in data[:end].splitlines():
                self._fold(line)
            self._size += end

    def _fold(self, line: bytes) -> None:
        """Add a stored line. A line that is none of Liza's is skipped: agents can write here."""
        try:
            event = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        self._add(_event_key(event, line), event)

    def _add(self, key: bytes, event: TelemetryEvent) -> None:
        self._keys.add(key)
        self._sums = add_event(self._sums, event)

    def _write(self, data: bytes) -> None:
        """Append in one write."""
        descriptor = untrusted_files.open_regular(self._path, _APPEND)
        try:
            written = os.write(descriptor, data)
            if written < len(data):
                # The next call cuts off the incomplete line, and counts the lines before it.
                raise OSError(f"only {written} of {len(data)} bytes were written to {self._path}")
            status = os.fstat(descriptor)
            self._file, self._size = (status.st_dev, status.st_ino), status.st_size
        finally:
            os.close(descriptor)
        crash_points.point("telemetry", "appended")


def size_of(directory: Path) -> tuple[int, int] | None:
    """Return what changes with each new turn in the telemetry of a run; None if nothing was reported."""
    try:
        status = (directory / TELEMETRY_FILE).lstat()
    except OSError:
        return None
    return (status.st_ino, status.st_size)


def _event_key(event: TelemetryEvent, line: bytes) -> bytes:
    """Return what two reports of one turn have in common: the id, or the content."""
    text = line if event.id is None else b"id " + event.id.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest()


def find_context_usage(sums: TelemetrySums | None, reported: ReportedHealth | None) -> float | None:
    """Return the newest report, 0 to 1: of a turn, or of the runtime's health; None without one."""
    if reported is None or reported.context_usage is None:
        return sums.context_usage if sums is not None else None
    if sums is None or sums.context_usage is None or sums.last is None or sums.last < reported.time:
        return reported.context_usage
    return sums.context_usage
