"""The lock of the board and of supervisors: a file lock whose file names its holder.

``Lock`` waits in the queue of the kernel. The lock file is never unlinked, so ``flock .liza/state.yaml.lock CMD`` takes
the same lock. ``flock.py`` has the wait itself, and ``lock_path``, which locks any file or directory without writing
to it. ``library_lock.py`` holds the lock through filelock in processes that live long. Decisions 003 and 017.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from pathlib import Path, PurePath
from typing import Final, Protocol

from liza.rules.errors import LockTimeout, NotRegularFile, Refused
from liza.system import files, proc_stat, untrusted_files
from liza.system.flock import take_flock

DEFAULT_TIMEOUT: Final = 10.0
"""Seconds to wait for a lock by default."""


class Hold(Protocol):
    """How a lock is held by a thread: taken several times, it is released as often."""

    @property
    def descriptor(self) -> int | None:
        """The descriptor of the lock; None if this thread does not hold it."""

    def take(self, limit: float) -> bool:
        """Take the lock, waiting at most ``limit`` seconds, for ever if negative; return whether it was taken."""

    def give(self) -> None:
        """Release the lock once. Without the lock this does nothing."""


class Lock:
    """An exclusive lock on a file, held by a thread until it is released or this process ends.

    ``acquire(timeout=seconds)`` and ``with lock:`` raise LockTimeout, which names the holder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hold = _hold_types[-1](path)

    def acquire(self, timeout: float | None = None) -> _Acquired:
        """Take the lock. Wait at most ``timeout`` seconds: DEFAULT_TIMEOUT for None, for ever if negative.

        The result releases the lock at the end of its ``with`` block. Raises LockTimeout.
        """
        limit = DEFAULT_TIMEOUT if timeout is None else timeout
        if not self._hold.take(limit):
            raise LockTimeout(
                f"{self.path} was not free within {limit:g} s: {describe_holder(self.path)}", "liza status"
            )
        return _Acquired(self)

    def try_acquire(self) -> bool:
        """Take the lock if it is free now; return whether it was taken."""
        return self._hold.take(0)

    def release(self) -> None:
        """Release the lock, if it was taken several times then once. Without the lock this does nothing."""
        self._hold.give()

    @property
    def is_locked(self) -> bool:
        """Whether this thread holds the lock."""
        return self._hold.descriptor is not None

    @property
    def descriptor(self) -> int:
        """The descriptor of the lock. A child that inherits it keeps the lock after this process ends.

        Raises Refused if the lock is not held.
        """
        descriptor = self._hold.descriptor
        if descriptor is None:
            raise Refused(f"{self.path} is not held", "liza status")
        return descriptor

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


class _Acquired:
    """A lock that was acquired: ``with`` releases it at its end."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    def __enter__(self) -> Lock:
        return self._lock

    def __exit__(self, *exception: object) -> None:
        self._lock.release()


class _ThreadHold(threading.local):
    """How short commands hold a lock. filelock, which takes 15 ms of CPU time to import, would only count here."""

    descriptor: int | None = None
    _count = 0

    def __init__(self, path: Path) -> None:
        self._path = path

    def take(self, limit: float) -> bool:
        if self.descriptor is None:
            self.descriptor = lock_file(self._path, limit)
        self._count += self.descriptor is not None
        return self.descriptor is not None

    def give(self) -> None:
        if self._count == 1 and self.descriptor is not None:
            descriptor, self.descriptor = self.descriptor, None
            unlock_file(descriptor)
        self._count = max(0, self._count - 1)

    def __del__(self) -> None:
        if self.descriptor is not None:
            unlock_file(self.descriptor)


_hold_types: list[Callable[[Path], Hold]] = [_ThreadHold]


def use_library() -> None:
    """Hold every lock of this process through filelock from now on."""
    from liza.system.library_lock import LibraryHold

    _hold_types.append(LibraryHold)


def lock_file(path: Path, limit: float) -> int | None:
    """Open a file, lock it and write the line about this process into it; return the descriptor.

    Wait at most ``limit`` seconds, for ever if negative. None if the lock was not free. Raises WriteFailed,
    NotRegularFile.
    """
    with files.convert_os_errors():
        descriptor = untrusted_files.open_regular(path, os.O_RDWR | os.O_CREAT, files.BOARD_MODE)
    if not take_flock(descriptor, limit):
        return None
    # The holder line is only for messages; on a full disk the lock is held without it.
    with suppress(OSError):
        os.ftruncate(descriptor, os.pwrite(descriptor, _own_holder_line(), 0))
    return descriptor


def unlock_file(descriptor: int) -> None:
    """Release a lock that ``lock_file`` took: also for children that inherited it."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


_COMMAND_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,30}")
"""A command of liza, or an agent."""
MAX_LINE: Final = 400
"""Bytes of the line in a lock file."""
_HOLDER_LINES: dict[int, bytes] = {}


def _own_holder_line() -> bytes:
    """Return the line ``pid start program`` of this process, at most MAX_LINE bytes; built once per pid."""
    pid = os.getpid()
    if pid not in _HOLDER_LINES:
        _HOLDER_LINES.clear()
        _HOLDER_LINES[pid] = f"{pid} {_start_ticks(pid)} {_describe_program(pid)}\n".encode(errors="replace")[:MAX_LINE]
    return _HOLDER_LINES[pid]


def _start_ticks(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; ``?`` if unknown."""
    try:
        fields = proc_stat.read_stat(pid)
    except OSError:
        fields = None
    return "?" if fields is None else fields[proc_stat.START_TIME].decode()


def _describe_program(pid: int) -> str:
    """Return the name of a process's program, of Liza with its command; ``?`` if unknown.

    Never arguments: they may have secrets.
    """
    try:
        words = [os.fsdecode(word) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if word]
    except OSError:
        return "?"
    # Liza runs as: python PATH/liza COMMAND, or python -P -m liza COMMAND.
    options = list(takewhile(lambda word: word.startswith("-"), words[1:]))
    name, *rest = (PurePath(word).name for word in words[len(options) + 1 :] or [""])
    if name.partition(".")[0] not in ("liza", "liza-agent"):
        return PurePath(words[0]).name if words else "?"
    return f"{name} {rest[0]}" if rest and _COMMAND_NAME.fullmatch(rest[0]) else name


def describe_holder(path: Path) -> str:
    """Describe the holder of a lock for a message: from /proc/locks, else from the line in the lock file."""
    try:
        wanted = path.stat()
        table = Path("/proc/locks").read_text()
    except OSError:
        table = ""
    for line in table.splitlines():
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5].endswith(f":{wanted.st_ino}"):
            pid = int(words[4])
            if proc_stat.holds_flock(pid, wanted, proc_stat.ANY_MODE) is False:
                continue
            return f"process {pid} (started at tick {_start_ticks(pid)}) holds it: {_describe_program(pid)}"
    try:
        pid_text, start, program = _read_line(path).split(" ", 2)
    except (OSError, ValueError, NotRegularFile):
        return "its holder is unknown"
    return f"last taken by process {pid_text} (started at tick {start}): {program.strip()}"


def last_holder_pid(path: Path) -> int | None:
    """Return the pid in a lock file, which is that of the last holder; None if the file has no pid.

    Agents can write in the file: do not send a signal to this process. `lock_holders.find_holder` asks the kernel.
    """
    try:
        return int(_read_line(path).split(" ", 1)[0])
    except (OSError, ValueError, NotRegularFile):
        return None


def _read_line(path: Path) -> str:
    """Return the begin of a lock file: an agent can write in it, and make it large. Raises NotRegularFile, OSError."""
    with untrusted_files.open_to_read(path) as file:
        return file.read(MAX_LINE).decode(errors="replace")
