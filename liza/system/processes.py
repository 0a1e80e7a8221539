"""Which process is which, whether it is dead, and how every process of a run is ended.

A process is named by host, boot, pid and start time. Only what can be proved counts as dead: another host and a
``/proc`` that hides its entries are unknown, and unknown is alive.
"""

from __future__ import annotations

import functools
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from liza.rules.model import ProcessIdentity

PROC = Path("/proc")
_BOOT_ID_FILE = PROC / "sys" / "kernel" / "random" / "boot_id"
_KTHREAD = 0x00200000  # PF_KTHREAD of the kernel's linux/sched.h, in the flags of /proc/<pid>/stat
_EXEC_LIMIT = (
    0.5  # seconds that a process may take from one program to the next before its environment is taken for empty
)
_KILL_ROUND = 0.25  # seconds that one round of killing waits for its dead


def has_proc() -> bool:
    """Whether this system shows its processes under ``/proc``."""
    return _BOOT_ID_FILE.exists()


def host_name() -> str:
    """The name of this machine."""
    return os.uname().nodename


@functools.cache
def boot_id() -> str:
    """A text that changes with every boot of this machine; empty where the system tells none."""
    if has_proc():
        return _BOOT_ID_FILE.read_text().strip()
    return _command_output("sysctl", "-n", "kern.boottime")


def identify_self() -> ProcessIdentity:
    """This process."""
    found = identify_process(os.getpid())
    if found is None:
        raise OSError("this process cannot see itself in the process table")
    return found


def identify_process(pid: int) -> ProcessIdentity | None:
    """The process that has ``pid`` now; None when there is none, or only its zombie."""
    start = _start_time(pid)
    return None if start is None else ProcessIdentity(host=host_name(), boot=boot_id(), pid=pid, start=start)


def is_proved_dead(process: ProcessIdentity) -> bool | None:
    """True: it is gone. False: it lives. None: that cannot be known from here, and it counts as alive."""
    if process.host != host_name() or not boot_id():
        return None
    if process.boot != boot_id():
        return True
    start = _start_time(process.pid)
    if start is not None:
        return start != process.start
    return None if _is_hidden(process.pid) else True


def may_be_alive(process: ProcessIdentity) -> bool:
    """Whether the process must be treated as living: proved alive, or not provable."""
    return is_proved_dead(process) is not True


def process_age(process: ProcessIdentity) -> float | None:
    """Seconds since the process began, by a clock that nobody can set; None where the system does not tell."""
    if not hasattr(time, "CLOCK_BOOTTIME") or not process.start.isdecimal():
        return None
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(process.start) / os.sysconf("SC_CLK_TCK"))


def _start_time(pid: int) -> str | None:
    if not has_proc():
        said = _command_output("ps", "-o", "stat=,lstart=", "-p", str(pid))
        state, _, start = said.partition(" ")
        return None if not said or state.startswith("Z") else start.strip()
    fields = _stat_fields(pid)
    return None if fields is None or fields[0] in (b"Z", b"X") else fields[19].decode()


def _stat_fields(pid: int) -> list[bytes] | None:
    """The fields of ``/proc/<pid>/stat`` after the command's name, which may itself hold blanks and brackets."""
    try:
        return (PROC / str(pid) / "stat").read_bytes().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def _is_hidden(pid: int) -> bool:
    """Whether a pid without a readable entry is in use all the same (``hidepid``), and not by a zombie."""
    fields = _stat_fields(pid)
    if fields is not None:
        return fields[0] not in (b"Z", b"X")
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # Ours, and yet without an entry: it goes this moment, or took the pid only now.
    return False


def _command_output(*words: str) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def find_run_pids(run: str, root: Path) -> tuple[int, ...]:
    """The pids whose environment names this run of this crew, without this process. Empty where there is no ``/proc``.

    Programs put their tools into sessions and groups of their own; the environment is what those inherit.
    """
    return tuple(iter_run_pids(run, root))


def iter_run_pids(run: str, root: Path) -> Iterator[int]:
    """As ``with_run``, each as it is found, and those that were born last first."""
    return _iter_pids_with_variables(f"LIZA_RUN={run}", f"LIZA_ROOT={root}")


def iter_agent_pids(agent: str, root: Path) -> Iterator[int]:
    """As ``each_of_run``, for all runs of an agent of this crew."""
    return _iter_pids_with_variables(f"LIZA_AGENT_ID={agent}", f"LIZA_ROOT={root}")


def _iter_pids_with_variables(*variables: str) -> Iterator[int]:
    wanted = set(map(os.fsencode, variables))
    # A family that keeps forking goes on in its youngest, which must not be looked at last.
    for pid in sorted(_pids(), reverse=True):
        shown = b""
        # A process of another user, or one that went meanwhile, is not of this run as far as can be seen.
        with suppress(OSError):
            shown = _read_environment(pid)
        if wanted <= set(shown.split(b"\0")):
            yield pid


def _read_environment(pid: int) -> bytes:
    """What a process was given; what is between two programs has none to show for a moment, and is asked again.

    Raises:
        OSError: it is another user's, or gone.
    """
    at = PROC / str(pid) / "environ"
    if shown := at.read_bytes():
        return shown
    end = time.monotonic() + _EXEC_LIMIT
    while _is_in_exec(pid) and time.monotonic() < end:
        time.sleep(0.001)  # the kernel needs microseconds for it, and tells nobody when it is done
    return at.read_bytes()


def _is_in_exec(pid: int) -> bool:
    """Whether the kernel is still laying out the program's memory."""
    fields = _stat_fields(pid)
    if fields is None or fields[0] in (b"Z", b"X") or int(fields[6]) & _KTHREAD:
        return False
    return fields[48] == b"0"


def find_pids_with_open(pattern: str) -> dict[int, str]:
    """The pids that have a file open whose path matches, with that path; ``(deleted)`` stands behind one that is gone.

    Empty where there is no ``/proc``.
    """
    wanted = re.compile(pattern)
    found = {}
    for pid in _pids():
        # A process of another user, or one that went meanwhile, shows nothing.
        with suppress(OSError):
            for descriptor in (PROC / str(pid) / "fd").iterdir():
                with suppress(OSError):
                    if wanted.fullmatch(path := str(descriptor.readlink())):
                        found[pid] = path
    return found


def find_descendants(process: ProcessIdentity) -> tuple[int, ...]:
    """The pids of every descendant of a living process; with a subreaper on top nothing escapes by orphaning itself."""
    if is_proved_dead(process) is not False:
        return ()
    children: dict[int, list[int]] = {}
    for pid in _pids():
        fields = _stat_fields(pid)
        if fields is not None and fields[0] not in (b"Z", b"X"):
            children.setdefault(int(fields[1]), []).append(pid)
    return tuple(_walk_children(children, process.pid))


def _walk_children(children: dict[int, list[int]], top: int) -> Iterable[int]:
    ahead = list(children.get(top, []))
    while ahead:
        pid = ahead.pop()
        yield pid
        ahead.extend(children.get(pid, []))


def _pids() -> tuple[int, ...]:
    if not has_proc():
        return ()
    return tuple(int(at.name) for at in PROC.iterdir() if at.name.isdigit() and int(at.name) != os.getpid())


def kill_run(run: str, root: Path, limit: float = 5.0) -> tuple[int, ...]:
    """KILL every process of the run until none is found; the pids that were still there after ``limit`` seconds."""
    return kill_all(lambda: iter_run_pids(run, root), limit)


def kill_all(find: Callable[[], Iterable[int]], limit: float = 5.0) -> tuple[int, ...]:
    """KILL what ``find`` finds as it finds it, again and again, for it may fork meanwhile; what is left after ``limit``
    seconds."""
    end = time.monotonic() + limit
    while True:
        late = time.monotonic() >= end
        killed = [(pid, _kill(pid)) for pid in find()]
        handles = [handle for _, handle in killed if handle is not None]
        try:
            _wait_all(handles, _KILL_ROUND)
        finally:
            for handle in handles:
                os.close(handle)
        if not killed or late:
            return tuple(pid for pid, _ in killed)


def _kill(pid: int) -> int | None:
    """KILL by a handle, so that a reused pid is never hit twice; the handle, which becomes readable at its death."""
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
    """A file descriptor that becomes readable when the process ends; the caller closes it.

    None when the process is gone, or the system has no such thing.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return None
    # The pid may have changed hands before it was opened; from here on it cannot.
    if identify_process(process.pid) == process:
        return handle
    os.close(handle)
    return None


def wait_readable(handle: int, limit: float) -> bool:
    """Wait until the descriptor is readable or closed at the other end, at most ``limit`` seconds."""
    waiter = select.poll()
    waiter.register(handle, select.POLLIN)
    return bool(waiter.poll(max(0, int(limit * 1000))))
