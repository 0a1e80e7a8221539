"""Locks: ``Lock`` through filelock, and flock(2) for what filelock cannot do. The only module that takes locks.

``Lock`` is the lock of the board, of supervisors and of mergers: its file names the holder, and is never unlinked, so
``flock .liza/state.yaml.lock CMD`` takes the same lock. ``lock_path`` locks a file or a directory without writing to
it; ``try_flock`` takes a lock in shared mode, or on a descriptor that a child inherits. Decision 003. ``find_holders``
names the processes that hold a lock.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import takewhile
from pathlib import Path, PurePath
from typing import Any, Final

from filelock import AcquireReturnProxy, BaseFileLock, Timeout

from liza.model.errors import LockTimeout, NotRegularFile, Refused
from liza.system import crash_points, files, proc_stat, processes, untrusted_files

DEFAULT_TIMEOUT: Final = 10.0
"""Seconds to wait for a lock by default."""
_wait_limit: ContextVar[float] = ContextVar("wait limit of the lock that is being taken")


class Lock(BaseFileLock):
    """An exclusive lock on a file, held by a thread until it is released or this process ends.

    filelock counts how often a thread has taken it, and releases a lock that was forgotten. Its wait is replaced: it
    polls, and a process with unlucky timing waits longest (decision 003).
    """

    @property
    def path(self) -> Path:
        """The path of the lock file."""
        return Path(self.lock_file)

    def acquire(self, timeout: float | None = None, *_: Any, **__: Any) -> AcquireReturnProxy[Lock]:
        """Take the lock. Wait at most ``timeout`` seconds: DEFAULT_TIMEOUT for None, for ever if negative.

        The result releases the lock at the end of its ``with`` block. Raises LockTimeout, which names the holder,
        WriteFailed, NotRegularFile.
        """
        limit = DEFAULT_TIMEOUT if timeout is None else timeout
        token = _wait_limit.set(limit)
        try:
            return super().acquire(0, blocking=False)
        except Timeout:
            holder = describe_holder(self.path)
            raise LockTimeout(f"{self.path} was not free within {limit:g} s: {holder}", "liza status") from None
        finally:
            _wait_limit.reset(token)

    def try_acquire(self) -> bool:
        """Take the lock if it is free now; return whether it was taken."""
        with suppress(LockTimeout):
            self.acquire(0)
            return True
        return False

    @property
    def descriptor(self) -> int:
        """The descriptor of the lock. A child that inherits it keeps the lock after this process ends.

        Raises Refused if this thread does not hold the lock.
        """
        descriptor = self._context.lock_file_fd
        if descriptor is None:
            raise Refused(f"{self.path} is not held", "liza status")
        return descriptor

    def _acquire(self) -> None:
        with files.convert_os_errors():
            descriptor = untrusted_files.open_regular(self.path, os.O_RDWR | os.O_CREAT, files.BOARD_MODE)
        if not take_flock(descriptor, _wait_limit.get()):
            return
        # The line is only for messages; on a full disk the lock is held without it.
        with suppress(OSError):
            os.ftruncate(descriptor, os.pwrite(descriptor, own_line(), 0))
        self._context.lock_file_fd = descriptor

    def _release(self) -> None:
        descriptor, self._context.lock_file_fd = self._context.lock_file_fd, None
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for children that inherited it
            os.close(descriptor)


@contextmanager
def lock_path(path: Path, timeout: float = 300, mode: int = 0o644, *, make_parents: bool = True) -> Iterator[int]:
    """Hold flock(2) on ``path``: an existing directory, or a file, which is created with ``mode`` if missing.

    ``make_parents``: create missing directories above it, too. Yields the descriptor; a child that inherits it keeps
    the lock. Raises LockTimeout after ``timeout`` seconds, NotRegularFile, also for a link, OSError.
    """
    if path.is_dir():
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    else:
        if make_parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = untrusted_files.open_regular(path, os.O_RDWR | os.O_CREAT, mode)
    if not take_flock(descriptor, timeout):
        raise LockTimeout(f"{path} was not free within {timeout:g} s: another process holds it", "liza doctor")
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def try_lock_path(path: Path, mode: int = 0o644) -> Iterator[bool]:
    """Hold flock(2) on the file ``path`` if it is free now; yield whether it is held. A missing file is created.

    Raises NotRegularFile, OSError.
    """
    descriptor = untrusted_files.open_regular(path, os.O_RDWR | os.O_CREAT, mode)
    try:
        yield try_flock(descriptor)
    finally:
        os.close(descriptor)


def try_flock(descriptor: int, mode: int = fcntl.LOCK_EX) -> bool:
    """Take the lock if it is free now; return whether it was taken. Raises OSError."""
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_flock_held(path: Path) -> bool:
    """Return whether another process holds the exclusive lock on the file ``path``; False if there is no such file.

    The check takes the lock in shared mode for a moment: two checks at the same time do not see each other. Raises
    NotRegularFile, OSError.
    """
    try:
        descriptor = untrusted_files.open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def wait_for_release(path: Path, limit: float) -> bool:
    """Wait until no process holds the exclusive lock on the file ``path``, at most ``limit`` seconds.

    Return whether that is so. It waits in shared mode: another process that waits for the same release would take an
    exclusive holder for the one that was to end, and send its signal here. Raises NotRegularFile, OSError.
    """
    try:
        descriptor = untrusted_files.open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    if not take_flock(descriptor, limit, fcntl.LOCK_SH):
        return False
    crash_points.point("lock", "released")
    os.close(descriptor)
    return True


def take_flock(descriptor: int, limit: float, mode: int = fcntl.LOCK_EX) -> bool:
    """Take the lock. Wait at most ``limit`` seconds, for ever if negative; return whether it was taken.

    ``mode``: LOCK_EX or LOCK_SH. Without the lock, also after an exception such as KeyboardInterrupt, the descriptor is
    closed: now, or by the waiting thread when it gets the lock.
    """
    try:
        if try_flock(descriptor, mode):
            return True
    except BaseException:
        os.close(descriptor)
        raise
    if limit == 0:
        os.close(descriptor)
        return False
    return _FlockThread(descriptor, mode).wait_acquired(limit)


class _FlockThread:
    """A thread that waits in flock(2). If the caller has given up, it closes the descriptor as soon as it has the lock.

    A blocked flock(2) has no timeout; without a thread only a signal could end it, and the program needs its signals.
    """

    def __init__(self, descriptor: int, mode: int) -> None:
        self._descriptor, self._mode = descriptor, mode
        self._guard = threading.Lock()
        self._finished = threading.Event()
        self._acquired = self._given_up = False

    def wait_acquired(self, limit: float) -> bool:
        """Return whether the lock was taken within ``limit`` seconds. If not, the thread closes it later."""
        try:
            self._start()
            self._finished.wait(None if limit < 0 else limit)
        except BaseException:
            self._give_up(close=True)
            raise
        return not self._give_up(close=False)

    def _start(self) -> None:
        try:
            threading.Thread(target=self._wait_in_queue, daemon=True, name="waits for a lock").start()
        except RuntimeError:  # no thread was started that could close it
            os.close(self._descriptor)
            raise

    def _wait_in_queue(self) -> None:
        try:
            fcntl.flock(self._descriptor, self._mode)
            acquired = True
        except OSError:
            acquired = False
        with self._guard:
            self._acquired = acquired
            if self._given_up or not acquired:
                os.close(self._descriptor)
        self._finished.set()

    def _give_up(self, close: bool) -> bool:
        """Stop waiting. Return True if the lock was not taken. ``close``: release it if it was.

        Closed race: under the guard either the thread has reported the lock, or it sees that the caller gave up.
        """
        with self._guard:
            self._given_up = not self._acquired
            if self._acquired and close:
                os.close(self._descriptor)
            return self._given_up


_PROC = Path("/proc")


def find_holders(path: Path) -> tuple[int, ...]:
    """Return the pids of the processes that hold the lock; none without /proc, or if they cannot be seen.

    The kernel names the process that took the lock. If that one has closed the file, the processes that inherited it
    hold the lock. Of a living process these are its descendants: a supervisor closes the turn of its merger. Only if
    it has ended, all processes are searched.
    """
    return _find_by_mode(path, proc_stat.ANY_MODE)


def _find_by_mode(path: Path, modes: frozenset[str]) -> tuple[int, ...]:
    try:
        wanted, table = path.stat(), (_PROC / "locks").read_text()
    except OSError:
        return ()
    rows = [line.split() for line in table.splitlines()]
    rows = [row for row in rows if len(row) > 5 and row[1] == "FLOCK" and row[3] in modes]
    takers = {int(row[4]) for row in rows if row[5].endswith(f":{wanted.st_ino}")}
    holders = tuple(pid for pid in sorted(takers) if proc_stat.holds_flock(pid, wanted, modes))
    if holders:
        return holders
    return tuple(pid for pid in sorted(_find_heirs(takers)) if proc_stat.holds_flock(pid, wanted, modes))


def find_holder(path: Path) -> int | None:
    """Return the process that holds the exclusive lock, by the kernel's list: agents can write in the lock file.

    The caller may send it a signal. So it is never a process that only checks whether the lock is free, which holds it
    in shared mode for a moment, and never this one: a thread of it may still wait for the lock. Without /proc the file
    is believed, if the process is not init. None if it is not known.
    """
    if processes.has_proc():
        pids = _find_by_mode(path, frozenset({"WRITE"}))
        return next((pid for pid in pids if pid != os.getpid()), None)
    pid = last_holder_pid(path)
    return pid if pid is not None and pid > 1 and pid != os.getpid() else None


def read_command(pid: int) -> tuple[str, ...]:
    """Return the command line of a process; empty if it has ended."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ()
    return tuple(os.fsdecode(word) for word in words if word)


def read_directory(pid: int) -> Path | None:
    """Return the working directory of a process; None if it has ended or belongs to another user."""
    try:
        return (_PROC / str(pid) / "cwd").readlink()
    except OSError:
        return None


def read_program(pid: int) -> str | None:
    """Return the path of the program file of a process; None if it has ended or belongs to another user.

    The path of a file that was removed meanwhile ends in ``(deleted)``.
    """
    try:
        return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115 - called for each process of the machine
    except OSError:
        return None


def _find_heirs(takers: set[int]) -> set[int]:
    """Return the pids that may have inherited a lock from processes that have closed its file."""
    heirs = set[int]()
    for pid in takers:
        taker = processes.identify_process(pid)
        heirs.update(_iter_pids() if taker is None else processes.find_descendants(taker))
    return heirs


def _iter_pids() -> Iterator[int]:
    yield from (int(path.name) for path in _PROC.iterdir() if path.name.isdecimal())


_COMMAND_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,30}")
"""A command of liza, or an agent."""
MAX_LINE: Final = 400
"""Bytes of the line in a lock file."""
_HOLDER_LINES: dict[int, bytes] = {}


def own_line() -> bytes:
    """Return the line ``pid start program`` of this process, at most MAX_LINE bytes; built once per pid."""
    pid = os.getpid()
    if pid not in _HOLDER_LINES:
        _HOLDER_LINES.clear()
        line = f"{pid} {_describe_start(pid)} {_describe_program(pid)}\n"
        _HOLDER_LINES[pid] = line.encode(errors="replace")[:MAX_LINE]
    return _HOLDER_LINES[pid]


def _describe_start(pid: int) -> str:
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
    words = read_command(pid)
    # Liza runs as: python PATH/liza COMMAND, or python -P -m liza COMMAND.
    options = list(takewhile(lambda word: word.startswith("-"), words[1:]))
    name, *rest = (PurePath(word).name for word in words[len(options) + 1 :] or [""])
    if name.partition(".")[0] not in ("liza", "liza-agent"):
        return PurePath(words[0]).name if words else "?"
    return f"{name} {rest[0]}" if rest and _COMMAND_NAME.fullmatch(rest[0]) else name


def describe_holder(path: Path) -> str:
    """Describe the holder of a lock for a message: from /proc/locks, else from the line in the lock file."""
    for pid in find_holders(path)[:1]:
        return f"process {pid} (started at tick {_describe_start(pid)}) holds it: {_describe_program(pid)}"
    try:
        pid_text, start, program = _read_line(path).split(" ", 2)
    except (OSError, ValueError, NotRegularFile):
        return "its holder is unknown"
    return f"last taken by process {pid_text} (started at tick {start}): {program.strip()}"


def last_holder_pid(path: Path) -> int | None:
    """Return the pid in a lock file, which is that of the last holder; None if the file has no pid.

    Agents can write in the file: do not send a signal to this process. `find_holder` asks the kernel.
    """
    try:
        return int(_read_line(path).split(" ", 1)[0])
    except (OSError, ValueError, NotRegularFile):
        return None


def _read_line(path: Path) -> str:
    """Return the begin of a lock file: an agent can write in it, and make it large. Raises NotRegularFile, OSError."""
    with untrusted_files.open_to_read(path) as file:
        return file.read(MAX_LINE).decode(errors="replace")
