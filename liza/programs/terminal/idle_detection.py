"""The process that has a terminal: whether it waits for input, and whether it is a shell."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path

from liza.box.box import is_box
from liza.model.value_classes import Value, replace
from liza.programs.liveness import RunningSession
from liza.system import proc_stat, processes
from liza.system.processes import PROC

BLOCKED_CONFIDENCE, POLLING_CONFIDENCE = 0.95, 0.6
SILENT_SECONDS = 0.5  # seconds without output that count as silence
FULL_SILENCE_SECONDS = 3.0  # seconds of silence for confidence 1, before the limit MAX_SILENCE_CONFIDENCE
MAX_SILENCE_CONFIDENCE = 0.8
AGREEMENT_BONUS = 0.1
MAX_SIGN_AGE = 3.0
"""Seconds after which a sign is stale: its reader was stopped or slow, and the program may have begun to work."""
IDLE_THRESHOLD = 0.7
"""Minimum combined confidence for a program to count as waiting for input."""
# Wait channels of /proc/<pid>/wchan. wait_woken is a read of a terminal or of a TCP socket.
_READ_CHANNELS = ("n_tty_read", "wait_woken")
_POLL_CHANNELS = ("poll_schedule_timeout", "do_select", "do_poll", "do_sys_poll")
_EPOLL_CHANNELS = ("ep_poll", "do_epoll_wait")


class IdleSign(Value):
    """A sign that the program waits for input, with a confidence from 0 to 1. ``is_busy``: a sign of work instead.

    ``taken``: when its evidence was read, in seconds of the monotonic clock.
    """

    source: str
    confidence: float
    taken: float
    is_busy: bool = False


def list_current(signs: Sequence[IdleSign], now: float) -> tuple[IdleSign, ...]:
    """Return the signs that are evidence for ``now``, in seconds of the monotonic clock."""
    return tuple(sign for sign in signs if now - sign.taken <= MAX_SIGN_AGE)


def combine_confidence(signs: Sequence[IdleSign], now: float) -> float:
    """Return the confidence of all current signs together: the highest, plus a bonus if there are several.

    0 without such signs, or if one of them shows work. A stale sign neither supports nor contradicts.
    """
    current = list_current(signs, now)
    if not current or any(sign.is_busy for sign in current):
        return 0.0
    highest = max(sign.confidence for sign in current)
    return min(highest + (AGREEMENT_BONUS if len(current) > 1 else 0.0), 1.0)


class ThreadState(Enum):
    """What a thread does, as far as input is concerned. Of many threads, the first of these states decides."""

    READS = "waits for its terminal"
    POLLS = "waits for its terminal, or for something else"
    WORKS = "runs"
    OTHER = "waits for something else"


def session_signs(living: RunningSession, silence: float | None, taken: float) -> tuple[IdleSign, ...]:
    """Return all available signs. ``silence`` is the seconds since the last output, None without any output. ``taken``:
    the time of the monotonic clock before ``silence`` was read.

    A program that draws its screen may poll for keys between two steps of work, so after recent output the process
    signs count as polling only.
    """
    process = process_signs(living, taken)
    if silence is None:
        return process
    if silence < SILENT_SECONDS:
        return tuple(sign if sign.is_busy else replace(sign, confidence=POLLING_CONFIDENCE) for sign in process)
    # Without /proc no sign can contradict silence, so the evidence names that.
    source = "silence" if processes.has_proc() else "silence without /proc"
    return (*process, IdleSign(source, min(silence / FULL_SILENCE_SECONDS, MAX_SILENCE_CONFIDENCE), taken))


def process_signs(living: RunningSession, taken: float) -> tuple[IdleSign, ...]:
    """Return the sign from the threads of the program and its descendants; none if /proc is missing or hides them."""
    states = [state for pid in processes.find_descendants(living.shim) if (state := read_thread_state(pid)) is not None]
    if not states:
        return ()
    if ThreadState.WORKS in states:
        return (IdleSign("process", BLOCKED_CONFIDENCE, taken, is_busy=True),)
    if ThreadState.READS in states:
        return (IdleSign("process", BLOCKED_CONFIDENCE, taken),)
    if ThreadState.POLLS in states:
        return (IdleSign("process", POLLING_CONFIDENCE, taken),)
    return (IdleSign("process", BLOCKED_CONFIDENCE, taken, is_busy=True),)


def read_thread_state(pid: int) -> ThreadState | None:
    """Return what the threads of a process do; None if it is gone, may not be examined, or only makes a box."""
    try:
        if is_box(read_argv(pid)):
            return None
        states = [_thread_state(pid, thread) for thread in (PROC / str(pid) / "task").iterdir()]
    except (OSError, ValueError):
        # The process or a thread ended meanwhile, or it belongs to another user.
        return None
    if ThreadState.READS in states and ThreadState.WORKS in states:
        # A garbage collector, or work in parallel to a thread that reads: uncertain.
        return ThreadState.POLLS
    return next((state for state in ThreadState if state in states), None)


def _thread_state(pid: int, thread: Path) -> ThreadState:
    """Return the state of a thread by the kernel's wait channel and the open descriptors of its process.

    The descriptors that it waits for are known only for epoll. In any other wait, an open socket or pipe may be the
    connection to a model or a tool, so the thread does not count as waiting for its terminal.
    """
    fields = proc_stat.read_stat(f"{pid}/task/{thread.name}")
    if fields is None:
        raise ProcessLookupError(f"thread {thread.name} of process {pid}")
    if fields[proc_stat.STATE] in (b"R", b"D"):
        return ThreadState.WORKS
    channel = (thread / "wchan").read_text()
    if channel.startswith(_EPOLL_CHANNELS):
        watched = _epoll_targets(pid)
        if not any(map(is_terminal, watched)):
            return ThreadState.OTHER
        return ThreadState.POLLS if any(target.startswith("socket:") for target in watched) else ThreadState.READS
    if channel.startswith(_READ_CHANNELS):
        connections: tuple[str, ...] = ("socket:",)
    elif channel.startswith(_POLL_CHANNELS):
        connections = ("socket:", "pipe:")
    else:
        return ThreadState.OTHER
    if not is_terminal(descriptor_target(pid, 0)):
        return ThreadState.OTHER
    is_connected = any(target.startswith(connections) for target in _open_targets(pid).values())
    return ThreadState.OTHER if is_connected else ThreadState.READS


def _epoll_targets(pid: int) -> list[str]:
    """Return the targets of all descriptors that a process watches by epoll."""
    targets = _open_targets(pid)
    epolls = (handle for handle, target in targets.items() if target == "anon_inode:[eventpoll]")
    return [targets.get(handle, "") for epoll in epolls for handle in _watched_handles(pid, epoll)]


def _watched_handles(pid: int, epoll: int) -> Iterable[int]:
    info = (PROC / str(pid) / "fdinfo" / str(epoll)).read_text()
    return [int(line.split()[1]) for line in info.splitlines() if line.startswith("tfd:")]


def _open_targets(pid: int) -> dict[int, str]:
    handles = [int(path.name) for path in (PROC / str(pid) / "fd").iterdir()]
    return {handle: descriptor_target(pid, handle) for handle in handles}


def read_argv(pid: int) -> tuple[str, ...]:
    """Return the argv of a process; empty for a zombie. Raises OSError if it is gone."""
    words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")[:-1]
    return tuple(word.decode(errors="replace") for word in words)


def descriptor_target(pid: int, handle: int) -> str:
    """Return the target of a descriptor; empty if the descriptor has no target."""
    try:
        return os.readlink(PROC / str(pid) / "fd" / str(handle))  # noqa: PTH115 - "socket:[7]" is not a path
    except OSError:
        return ""


def is_terminal(target: str) -> bool:
    """Return whether a descriptor's target is a terminal."""
    return target.startswith(("/dev/pts/", "/dev/tty"))


SHELLS = frozenset({
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "rzsh", "rksh", "ksh93", "lksh", "oksh", "pdksh",
    "yash", "posh", "osh", "hush", "fish", "csh", "tcsh", "nu", "pwsh", "elvish", "xonsh", "rc", "es",
})  # fmt: skip
# Programs that start a shell, of which only the first name is visible.
SHELL_STARTERS = frozenset({"nix-shell", "busybox", "toybox", "su", "sudo", "doas", "script", "chroot"})


def is_shell(argv: Sequence[str]) -> bool:
    """Return whether a program executes what is typed: any shell, unless its first argument is a script or ``-c``.

    Only the flags of a script's first line, such as ``-eu``, may precede it. With any other option it counts as an
    interactive shell: the value of an option can look like a script.
    """
    if not argv:
        return False
    name = program_name(argv[0])
    first = next((word for word in argv[1:] if not re.fullmatch("-[efuvx]+", word)), "")
    return name in SHELL_STARTERS or (name in SHELLS and not _is_script(first))


def program_name(word: str) -> str:
    """Return the name of a program from its first argument; a login shell has a dash before it."""
    return word.rpartition("/")[2].removeprefix("-")


def _is_script(word: str) -> bool:
    """Return whether an argument names a script, or is ``-c``; paths in /dev and /proc may be the terminal itself."""
    if word.startswith(("-", "+")):
        return re.fullmatch("-[efuvx]*c", word) is not None
    return bool(word) and not f"{posixpath.normpath(word)}/".lstrip("/").startswith(("dev/", "proc/"))


def reveal_shell(argv: tuple[str, ...], executable: str) -> tuple[str, ...]:
    """Return the argv, with the executable in front if that is a shell under another name."""
    is_hidden = program_name(executable) in SHELLS and bool(argv) and program_name(argv[0]) not in SHELLS
    return (executable, *argv[1:]) if is_hidden else argv


def find_foreground_argv(shim: int) -> tuple[str, ...] | None:
    """Return the argv of the process that has the shim's terminal; None if there is no /proc, or no such process.

    If several processes have it, a shell that reads the terminal is preferred: it may receive what is typed.
    """
    try:
        fields = proc_stat.read_stat(shim)
        if fields is None:
            return None
        group = int(fields[proc_stat.TERMINAL_GROUP])
        argv = _argv_of(group)
    except (OSError, ValueError):
        return None
    if is_shell(argv):
        return argv
    readers = list(_foreground_readers(shim, group))
    first = next((reader for reader in readers if not is_box(reader)), argv) if is_box(argv) else argv
    return next((reader for reader in readers if is_shell(reader)), first)


def _foreground_readers(shim: int, group: int) -> Iterator[tuple[str, ...]]:
    """Yield the argv of each process of a group, below a shim, whose stdin is a terminal."""
    living = processes.identify_process(shim)
    for pid in processes.find_descendants(living) if living is not None else ():
        # A process that ended meanwhile reads nothing.
        with suppress(OSError, ValueError):
            fields = proc_stat.read_stat(pid)
            if fields is not None and int(fields[proc_stat.GROUP]) == group and is_terminal(descriptor_target(pid, 0)):
                yield _argv_of(pid)


def _argv_of(pid: int) -> tuple[str, ...]:
    """Return the argv of a process; empty for a zombie. Raises OSError if it is gone."""
    argv = read_argv(pid)
    try:
        executable = str((PROC / str(pid) / "exe").readlink())
    except OSError:
        executable = ""
    return reveal_shell(argv, executable)
