"""Identify processes, prove that a process is dead, and kill all processes of a run.

A process is identified by host, boot, pid and start time, so that a reused pid is not confused with it. It counts as
dead only if that is proved. On another host, or if ``/proc`` hides its entry, it counts as alive.
"""

from __future__ import annotations

import functools
import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from liza.model.model import ProcessIdentity
from liza.system.ancestors import SHIM_PREFIX
from liza.system.limited_program import run_limited
from liza.system.proc_stat import PARENT, START_TIME, is_ended, read_stat

PROC = Path("/proc")
_BOOT_ID_FILE = PROC / "sys" / "kernel" / "random" / "boot_id"
_KTHREAD = 0x00200000  # PF_KTHREAD of the kernel's linux/sched.h, in the flags of /proc/<pid>/stat
_EXEC_LIMIT = 0.5  # seconds that an execve(2) may take before the environment of the process is taken as empty
_MAX_POLL = 2_000_000.0  # seconds: poll(2) takes milliseconds as a 32-bit number
_KILL_ROUND = 0.25  # seconds to wait for the killed processes before the next search


def has_proc() -> bool:
    """Return whether this system has ``/proc``."""
    return _BOOT_ID_FILE.exists()


def host_name() -> str:
    """Return the name of this machine."""
    return os.uname().nodename


@functools.cache
def boot_id() -> str:
    """Return a text that changes with every boot of this machine; empty if the system has none."""
    if has_proc():
        return _BOOT_ID_FILE.read_text().strip()
    return _command_output("sysctl", "-n", "kern.boottime")


def identify_self() -> ProcessIdentity:
    """Return the identity of this process. Raises OSError if it is not in the process table."""
    process = identify_process(os.getpid())
    if process is None:
        raise OSError(f"process {os.getpid()} (this one) is not in the process table")
    return process


def identify_process(pid: int) -> ProcessIdentity | None:
    """Return the process that has ``pid`` now; None if there is no process, or only a zombie."""
    start = _start_time(pid)
    return None if start is None else ProcessIdentity(host=host_name(), boot=boot_id(), pid=pid, start=start)


def is_proved_dead(process: ProcessIdentity) -> bool | None:
    """Return True if the process is dead, False if it is alive, None if unknown; callers treat None as alive."""
    if process.host != host_name() or not boot_id():
        return None
    if process.boot != boot_id():
        return True
    start = _start_time(process.pid)
    if start is not None:
        return start != process.start
    return None if _is_hidden(process.pid) else True


def may_be_alive(process: ProcessIdentity) -> bool:
    """Return whether the process is alive, or not proved dead."""
    return is_proved_dead(process) is not True


def process_age(process: ProcessIdentity) -> float | None:
    """Return the seconds since the process started, by CLOCK_BOOTTIME, which cannot be set; None if unknown."""
    if not hasattr(time, "CLOCK_BOOTTIME") or not process.start.isdecimal():
        return None
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(process.start) / os.sysconf("SC_CLK_TCK"))


def _start_time(pid: int) -> str | None:
    if not has_proc():
        row = _command_output("ps", "-o", "stat=,lstart=", "-p", str(pid))
        state, _, start = row.partition(" ")
        return None if not row or state.startswith("Z") else start.strip()
    fields = read_stat(pid)
    return None if fields is None or is_ended(fields) else fields[START_TIME].decode()


def _is_hidden(pid: int) -> bool:
    """Return whether a pid without a readable entry is that of a live process (mount option hidepid)."""
    fields = read_stat(pid)
    if fields is not None:
        return not is_ended(fields)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # Our own process without an entry: it has ended just now, or another one has just got the pid.
    return False


def _command_output(*words: str) -> str:
    try:
        return run_limited(words, 10).stdout.strip()
    except OSError:
        return ""


def iter_run_pids(run: str, root: Path) -> Iterator[int]:
    """Yield the pids whose environment names this run of this crew, the highest first; not this process.

    The environment is used because programs start their tools in other sessions and process groups. Without ``/proc``
    there are none.
    """
    return _iter_pids_with_variables(f"LIZA_RUN={run}", f"LIZA_ROOT={root}")


def iter_guard_pids(run: str, root: Path) -> Iterator[int]:
    """Yield the pids of the guards of the run's commands, which have the run in variables of their own."""
    return _iter_pids_with_variables(f"{SHIM_PREFIX}RUN={run}", f"{SHIM_PREFIX}ROOT={root}")


def parent_pid(pid: int) -> int | None:
    """Return the parent of a process; None without ``/proc``, or if the process has ended."""
    with suppress(OSError):
        fields = read_stat(pid)
        return None if fields is None else int(fields[PARENT])
    return None


def is_guard_of(pid: int, run: str, root: Path) -> bool | None:
    """Return whether a process was started as the shim or a guard of this run; None without ``/proc``, or if its
    environment cannot be read."""
    if not has_proc():
        return None
    try:
        rows = _read_environment(pid).split(b"\0")
    except OSError:
        return None
    return {os.fsencode(f"{SHIM_PREFIX}RUN={run}"), os.fsencode(f"{SHIM_PREFIX}ROOT={root}")} <= set(rows)


def iter_agent_pids(agent: str, root: Path) -> Iterator[int]:
    """Yield the pids of all runs of an agent of this crew, the highest pid first."""
    # LIZA_AGENT_ID alone is not of a session: a person may have it in the shell that runs `liza up`.
    return _iter_pids_with_variables(f"LIZA_ROOT={root}", prefix=f"LIZA_RUN={agent}.")


def _iter_pids_with_variables(*variables: str, prefix: str = "") -> Iterator[int]:
    """Yield the pids that have these variables, and one that begins with ``prefix``."""
    wanted, beginning = set(map(os.fsencode, variables)), os.fsencode(prefix)
    # Highest pid first: of processes that keep forking, the newest must be found before it forks again.
    for pid in sorted(_pids(), reverse=True):
        block = b""
        # The process belongs to another user or has just ended: treat it as not of this run.
        with suppress(OSError):
            block = _read_environment(pid)
        rows = set(block.split(b"\0"))
        if wanted <= rows and (not beginning or any(row.startswith(beginning) for row in rows)):
            yield pid


def _read_environment(pid: int) -> bytes:
    """Return the environment that a process was started with. It is empty during an execve(2); then read it again.

    Raises OSError if the process belongs to another user or has ended.
    """
    path = PROC / str(pid) / "environ"
    if block := path.read_bytes():
        return block
    end = time.monotonic() + _EXEC_LIMIT
    while _is_in_exec(pid) and time.monotonic() < end:
        time.sleep(0.001)  # takes microseconds, and there is no event to wait for
    return path.read_bytes()


def _is_in_exec(pid: int) -> bool:
    """Return whether the process is inside execve(2): its environment has no address yet."""
    fields = read_stat(pid)
    if fields is None or is_ended(fields) or int(fields[6]) & _KTHREAD:
        return False
    return fields[48] == b"0"  # field 51, env_end


def find_pids_with_open(pattern: str) -> dict[int, str]:
    """Return the pids that have a file open whose path matches, each with that path. Empty without ``/proc``.

    The path of a deleted file ends in ``(deleted)``.
    """
    regex = re.compile(pattern)
    return {pid: path for pid, path in _open_paths() if regex.fullmatch(path)}


def find_open_files(directory: Path) -> frozenset[str] | None:
    """Return the paths below a directory that other processes of this user have open; None if that cannot be told."""
    if not has_proc():
        return None
    prefix = f"{directory}/"
    return frozenset(path for _, path in _open_paths() if path.startswith(prefix))


def _open_paths() -> Iterator[tuple[int, str]]:
    """Yield the pid and the path of each open file of this user's processes."""
    for pid in _pids():
        directory = f"{PROC}/{pid}/fd"
        # The process belongs to another user or has just ended.
        with suppress(OSError):
            for descriptor in os.listdir(directory):  # noqa: PTH208 - strings: there are hundreds of files
                with suppress(OSError):
                    yield pid, os.readlink(f"{directory}/{descriptor}")  # noqa: PTH115


def find_descendants(process: ProcessIdentity) -> tuple[int, ...]:
    """Return the pids of all descendants of a living process. If it is a subreaper, orphans are among them."""
    if is_proved_dead(process) is not False:
        return ()
    children: dict[int, list[int]] = {}
    for pid in _pids():
        fields = read_stat(pid)
        if fields is not None and not is_ended(fields):
            children.setdefault(int(fields[PARENT]), []).append(pid)
    return tuple(_walk_children(children, process.pid))


def _walk_children(children: dict[int, list[int]], top: int) -> Iterable[int]:
    waiting = list(children.get(top, []))
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting.extend(children.get(pid, []))


def _pids() -> tuple[int, ...]:
    if not has_proc():
        return ()
    return tuple(int(path.name) for path in PROC.iterdir() if path.name.isdigit() and int(path.name) != os.getpid())


def kill_run(run: str, root: Path, limit: float = 5.0) -> tuple[int, ...]:
    """Send SIGKILL to every process of the run until none is found. Return the pids left after ``limit`` seconds."""
    return kill_all(lambda: iter_run_pids(run, root), limit)


def wait_until_gone(find: Callable[[], Iterable[int]], limit: float) -> tuple[int, ...]:
    """Wait until ``find`` yields no pid.

    Return the pids left after ``limit`` seconds; those now if there is no pidfd.
    """
    end = time.monotonic() + limit
    while True:
        pids = tuple(find())
        if not pids or time.monotonic() >= end or not hasattr(os, "pidfd_open"):
            return pids
        for pid in pids:
            with suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                try:
                    wait_readable(handle, max(0.0, end - time.monotonic()))
                finally:
                    os.close(handle)


def kill_all(find: Callable[[], Iterable[int]], limit: float = 5.0) -> tuple[int, ...]:
    """Send SIGKILL to each pid as ``find`` yields it, and repeat until it yields none, since processes may fork.

    Return the pids left after ``limit`` seconds.
    """
    end = time.monotonic() + limit
    while True:
        is_last_round = time.monotonic() >= end
        killed = [(pid, _kill(pid)) for pid in find()]
        handles = [handle for _, handle in killed if handle is not None]
        try:
            _wait_all(handles, _KILL_ROUND)
        finally:
            for handle in handles:
                os.close(handle)
        if not killed or is_last_round:
            return tuple(pid for pid, _ in killed)


def _kill(pid: int) -> int | None:
    """Send SIGKILL through a pidfd; return the pidfd, which becomes readable when the process ends.

    None if the process has ended or the system has no pidfd.
    """
    with suppress(ProcessLookupError, PermissionError):
        if not hasattr(os, "pidfd_open"):
            os.kill(pid, signal.SIGKILL)
            return None
        handle = os.pidfd_open(pid)
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        return handle
    return None


def _wait_all(handles: list[int], limit: float) -> None:
    end = time.monotonic() + limit
    for handle in handles:
        wait_readable(handle, max(0.0, end - time.monotonic()))


def open_pidfd(process: ProcessIdentity) -> int | None:
    """Return a pidfd, which becomes readable when the process ends. The caller closes it.

    None if the process has ended or the system has no pidfd.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return None
    # Closed race: the pid may have been reused before the pidfd was opened. Afterwards it cannot change.
    if identify_process(process.pid) == process:
        return handle
    os.close(handle)
    return None


def wait_readable(handle: int, limit: float) -> bool:
    """Wait until the descriptor is readable or hung up, at most ``limit`` seconds; return whether it is."""
    waiter = select.poll()
    waiter.register(handle, select.POLLIN)
    return bool(waiter.poll(max(0, int(min(limit, _MAX_POLL) * 1000))))


_REPEAT_LIMIT = 1.0  # seconds


class Repeats:
    """timeout(1) sends SIGTERM to its child and again to the child's process group: count this as one signal."""

    def __init__(self) -> None:
        self._term = float("-inf")

    def is_new(self, number: int, now: float | None = None) -> bool:
        """Return False for a SIGTERM less than 1 s after one that counted, else True. ``now``: monotonic seconds."""
        if number != signal.SIGTERM:
            return True
        at = time.monotonic() if now is None else now
        if at - self._term < _REPEAT_LIMIT:
            return False
        self._term = at
        return True
