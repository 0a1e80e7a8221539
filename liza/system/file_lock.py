"""The lock of the board and of supervisors: a file lock whose file names its holder.

filelock polls, which is unfair under load; ``Lock`` has its interface but waits in the queue of the kernel. The lock
file is never unlinked, so ``flock .liza/state.yaml.lock CMD`` takes the same lock. ``flock.py`` has the wait itself,
and ``lock_path``, which locks any file or directory without writing to it.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from filelock import AcquireReturnProxy, BaseFileLock, Timeout

from liza.rules.errors import LockTimeout, Refused
from liza.system import files, proc_stat, untrusted_files
from liza.system.flock import take_flock

DEFAULT_TIMEOUT: Final = 10.0
"""Seconds to wait for a lock by default."""


class Lock(BaseFileLock):
    """An exclusive lock on a file, held until it is released or this process ends.

    ``acquire(timeout=seconds)`` and ``with lock:`` raise LockTimeout, which names the holder.
    """

    _wait_limit = 0.0

    def acquire(  # type: ignore[override]  # no choice of how to wait: always the queue of the kernel
        self, timeout: float | None = None
    ) -> AcquireReturnProxy[Lock]:
        """Take the lock. Wait at most ``timeout`` seconds: DEFAULT_TIMEOUT for None, for ever if negative.

        Raises LockTimeout.
        """
        self._wait_limit = DEFAULT_TIMEOUT if timeout is None else timeout
        try:
            return super().acquire(0, blocking=False)
        except Timeout:
            raise LockTimeout(
                f"{self.lock_file} was not free within {self._wait_limit:g} s: {describe_holder(Path(self.lock_file))}",
                "liza status",
            ) from None

    def try_acquire(self) -> bool:
        """Take the lock if it is free now; return whether it was taken."""
        try:
            self.acquire(timeout=0)
        except LockTimeout:
            return False
        return True

    @property
    def descriptor(self) -> int:
        """The descriptor of the lock. A child that inherits it keeps the lock after this process ends.

        Raises Refused if the lock is not held.
        """
        descriptor = self._context.lock_file_fd
        if descriptor is None:
            raise Refused(f"{self.lock_file} is not held", "liza status")
        return descriptor

    def _acquire(self) -> None:
        with files.convert_os_errors():
            descriptor = untrusted_files.open_regular(Path(self.lock_file), os.O_RDWR | os.O_CREAT, files.BOARD_MODE)
        if not take_flock(descriptor, self._wait_limit):
            return
        # The holder line is only for messages; on a full disk the lock is held without it.
        with suppress(OSError):
            os.ftruncate(descriptor, os.pwrite(descriptor, _own_holder_line(), 0))
        self._context.lock_file_fd = descriptor

    def _release(self) -> None:
        descriptor = self._context.lock_file_fd
        self._context.lock_file_fd = None
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


_HOLDER_LINES: dict[int, bytes] = {}


def _own_holder_line() -> bytes:
    """Return the line ``pid start command`` of this process, at most 400 bytes; built once per pid."""
    pid = os.getpid()
    if pid not in _HOLDER_LINES:
        _HOLDER_LINES.clear()
        _HOLDER_LINES[pid] = f"{pid} {_start_ticks(pid)} {_command_line(pid)}\n".encode(errors="replace")[:400]
    return _HOLDER_LINES[pid]


def _start_ticks(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; ``?`` if unknown."""
    try:
        fields = proc_stat.read_stat(pid)
    except OSError:
        fields = None
    return "?" if fields is None else fields[proc_stat.START_TIME].decode()


def _command_line(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "?"
    return " ".join(os.fsdecode(word) for word in words if word).replace("\n", " ")[:200]


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
            if not _may_have_open(pid, wanted):
                continue
            return f"process {pid} (started at tick {_start_ticks(pid)}) holds it: {_command_line(pid)}"
    try:
        pid_text, start, command = path.read_text(errors="replace").split(" ", 2)
    except (OSError, ValueError):
        return "its holder is unknown"
    return f"last taken by process {pid_text} (started at tick {start}): {command.strip()}"


def _may_have_open(pid: int, wanted: os.stat_result) -> bool:
    """Return whether a process has this file open, or True if that is unknown.

    /proc/locks has inode numbers, and another file system can have a file with the same one. Its device numbers are
    no help: on some file systems they differ from those of stat(2).
    """
    try:
        handles = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return True
    for handle in handles:
        with suppress(OSError):
            if os.path.samestat(handle.stat(), wanted):
                return True
    return False


def last_holder_pid(path: Path) -> int | None:
    """Return the pid in a lock file, which is that of the last holder; None if there is none."""
    try:
        return int(path.read_text(errors="replace").split(" ", 1)[0])
    except (OSError, ValueError):
        return None
