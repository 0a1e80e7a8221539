"""flock(2) behind filelock's interface.

filelock waits by asking again and again, which is unfair under load; here the kernel's own queue is waited in. The
lock file is never unlinked, so that ``flock .liza/state.yaml.lock CMD`` excludes the same people.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from filelock import AcquireReturnProxy, BaseFileLock, Timeout

from liza.rules.errors import LockTimeout, Refused
from liza.system import files

DEFAULT_TIMEOUT: Final = 10.0
"""Seconds to wait for a lock unless the caller says otherwise."""


class Lock(BaseFileLock):
    """An exclusive lock on a file, held by this process until released or dead.

    ``acquire(timeout=seconds)`` and ``with lock:`` raise LockTimeout, which names the holder.
    """

    _wait_limit = 0.0

    def acquire(  # type: ignore[override]  # how to wait is not the caller's choice: the kernel's queue
        self, timeout: float | None = None
    ) -> AcquireReturnProxy[Lock]:
        """Takes the lock, waiting ``timeout`` seconds at most: LIMIT for None, for ever when negative.

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
        """Takes the lock if it is free now."""
        try:
            self.acquire(timeout=0)
        except LockTimeout:
            return False
        return True

    @property
    def descriptor(self) -> int:
        """What a child inherits that is to go on holding the lock, whoever dies first. Raises Refused when not held."""
        held = self._context.lock_file_fd
        if held is None:
            raise Refused(f"{self.lock_file} is not held", "liza status")
        return held

    def _acquire(self) -> None:
        with files.convert_os_errors():
            descriptor = files.open_no_follow(Path(self.lock_file), os.O_RDWR | os.O_CREAT)
        if not _try_flock(descriptor):
            if self._wait_limit == 0:
                os.close(descriptor)
                return
            if not _FlockThread(descriptor).wait_acquired(self._wait_limit):
                return
        # The name is for people; on a full disk the lock is held without it.
        with suppress(OSError):
            os.ftruncate(descriptor, os.pwrite(descriptor, _own_holder_line(), 0))
        self._context.lock_file_fd = descriptor

    def _release(self) -> None:
        descriptor = self._context.lock_file_fd
        self._context.lock_file_fd = None
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _try_flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _FlockThread:
    """A thread that stands in the kernel's queue; when nobody wants the lock any more, it lets go at once.

    A thread, because a blocked flock(2) can otherwise be ended by a signal only, and signals belong to the program.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._guard = threading.Lock()
        self._finished = threading.Event()
        self._acquired = self._given_up = False
        threading.Thread(target=self._wait_in_queue, daemon=True, name="waits for a lock").start()

    def _wait_in_queue(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            taken = True
        except OSError:
            taken = False
        with self._guard:
            self._acquired = taken
            if self._given_up or not taken:
                os.close(self._descriptor)
        self._finished.set()

    def wait_acquired(self, limit: float) -> bool:
        """Whether the lock was had within ``limit`` seconds; if not, the descriptor is closed sooner or later."""
        try:
            self._finished.wait(None if limit < 0 else limit)
        finally:
            with self._guard:
                self._given_up = not self._acquired
        return self._acquired


_HOLDER_LINES: dict[int, bytes] = {}


def _own_holder_line() -> bytes:
    """``pid start command`` of this process, made once."""
    pid = os.getpid()
    if pid not in _HOLDER_LINES:
        _HOLDER_LINES.clear()
        _HOLDER_LINES[pid] = f"{pid} {_start_ticks(pid)} {_command_line(pid)}\n".encode(errors="replace")[:400]
    return _HOLDER_LINES[pid]


def _start_ticks(pid: int) -> str:
    """When a process started, in clock ticks since boot; ``?`` where it cannot be known."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "?"


def _command_line(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "?"
    return " ".join(os.fsdecode(word) for word in words if word).replace("\n", " ")[:200]


def describe_holder(path: Path) -> str:
    """Who holds a lock, for a message: the kernel's word where it gives one, else what the holder wrote down."""
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
        return "its holder is not known"
    return f"last taken by process {pid_text} (started at tick {start}): {command.strip()}"


def _may_have_open(pid: int, wanted: os.stat_result) -> bool:
    """Whether a process has this very file open: another file system has a file of the same number. The device in the
    kernel's table is no help, for some file systems show another one to whoever asks for a file's."""
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
    """The process that wrote its name into a lock last; None where none did."""
    try:
        return int(path.read_text(errors="replace").split(" ", 1)[0])
    except (OSError, ValueError):
        return None
