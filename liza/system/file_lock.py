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

LIMIT: Final = 10.0
"""Seconds to wait for a lock unless the caller says otherwise."""


class Lock(BaseFileLock):
    """An exclusive lock on a file, held by this process until released or dead.

    ``acquire(timeout=seconds)`` and ``with lock:`` raise LockTimeout, which names the holder.
    """

    _wait = 0.0

    def acquire(  # type: ignore[override]  # how to wait is not the caller's choice: the kernel's queue
        self, timeout: float | None = None
    ) -> AcquireReturnProxy[Lock]:
        """Takes the lock, waiting ``timeout`` seconds at most: LIMIT for None, for ever when negative.

        Raises LockTimeout.
        """
        self._wait = LIMIT if timeout is None else timeout
        try:
            return super().acquire(0, blocking=False)
        except Timeout:
            raise LockTimeout(
                f"{self.lock_file} was not free within {self._wait:g} s: {holder(Path(self.lock_file))}", "liza status"
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
        with files.named():
            descriptor = files.opened(Path(self.lock_file), os.O_RDWR | os.O_CREAT)
        if not _taken_now(descriptor):
            if self._wait == 0:
                os.close(descriptor)
                return
            if not _Waiter(descriptor).result(self._wait):
                return
        # The name is for people; on a full disk the lock is held without it.
        with suppress(OSError):
            os.ftruncate(descriptor, os.pwrite(descriptor, _own_name(), 0))
        self._context.lock_file_fd = descriptor

    def _release(self) -> None:
        descriptor = self._context.lock_file_fd
        self._context.lock_file_fd = None
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _taken_now(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Waiter:
    """A thread that stands in the kernel's queue; when nobody wants the lock any more, it lets go at once.

    A thread, because a blocked flock(2) can otherwise be ended by a signal only, and signals belong to the program.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._guard = threading.Lock()
        self._answered = threading.Event()
        self._taken = self._given_up = False
        threading.Thread(target=self._stand, daemon=True, name="waits for a lock").start()

    def _stand(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            taken = True
        except OSError:
            taken = False
        with self._guard:
            self._taken = taken
            if self._given_up or not taken:
                os.close(self._descriptor)
        self._answered.set()

    def result(self, limit: float) -> bool:
        """Whether the lock was had within ``limit`` seconds; if not, the descriptor is closed sooner or later."""
        try:
            self._answered.wait(None if limit < 0 else limit)
        finally:
            with self._guard:
                self._given_up = not self._taken
        return self._taken


_NAME: dict[int, bytes] = {}


def _own_name() -> bytes:
    """``pid start command`` of this process, made once."""
    pid = os.getpid()
    if pid not in _NAME:
        _NAME.clear()
        _NAME[pid] = f"{pid} {_start(pid)} {_command(pid)}\n".encode(errors="replace")[:400]
    return _NAME[pid]


def _start(pid: int) -> str:
    """When a process started, in clock ticks since boot; ``?`` where it cannot be known."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "?"


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "?"
    return " ".join(os.fsdecode(word) for word in words if word).replace("\n", " ")[:200]


def holder(path: Path) -> str:
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
            return f"process {pid} (started at tick {_start(pid)}) holds it: {_command(pid)}"
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


def holder_pid(path: Path) -> int | None:
    """The process that wrote its name into a lock last; None where none did."""
    try:
        return int(path.read_text(errors="replace").split(" ", 1)[0])
    except (OSError, ValueError):
        return None
