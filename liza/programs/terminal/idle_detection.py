"""Signs that a program waits for input: thread states, silence, and the end of its output.

Each sign has a confidence from 0 to 1. It depends on the system which signs are available.
"""

from __future__ import annotations

import os
import platform
import re
import select
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from liza.programs.session.session_process import RunningSession
from liza.programs.terminal import shells
from liza.system import processes

PROC = Path("/proc")
BLOCKED_CONFIDENCE, POLLING_CONFIDENCE = 0.95, 0.6
QUIET_SECONDS, SILENT_SECONDS = 0.2, 0.5  # seconds without output: for a natural ending, and for any output
FULL_SILENCE_SECONDS = 3.0  # seconds of silence for confidence 1, before the limit MAX_SILENCE_CONFIDENCE
MAX_SILENCE_CONFIDENCE = 0.8
NATURAL_CONFIDENCE = 0.6
AGREEMENT_BONUS = 0.1
IDLE_THRESHOLD = 0.7
"""Minimum combined confidence for a program to count as waiting for input."""
_READ_CHANNELS = ("n_tty_read", "wait_woken", "pipe_read", "unix_stream_read_generic")
_POLL_CHANNELS = ("poll_schedule_timeout", "do_select", "do_poll", "do_sys_poll", "ep_poll", "do_epoll_wait")
_WAIT_SYSCALLS: dict[str, dict[str, frozenset[int]]] = {
    # Numbers from the kernel's system call tables: read, poll, select, and wait for an epoll descriptor.
    "x86_64": {
        "read": frozenset({0, 19}),
        "poll": frozenset({7, 271}),
        "select": frozenset({23, 270}),
        "epoll": frozenset({232, 281, 441}),
    },
    "aarch64": {
        "read": frozenset({63, 65}),
        "poll": frozenset({73}),
        "select": frozenset({72}),
        "epoll": frozenset({22, 441}),
    },
}
_POLLFD = struct.Struct("ihh")
_MOST_ASKED = 1024  # maximum descriptors that are examined
_ANSI = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-_])")
_GOES_ON = re.compile(r"([,;:\-–—(\[{]|\w)$")


@dataclass(frozen=True)
class IdleSign:
    """A sign that the program waits for input, with a confidence from 0 to 1. ``is_busy``: a sign of work instead."""

    source: str
    confidence: float
    is_busy: bool = False


def combine_confidence(signs: Sequence[IdleSign]) -> float:
    """Return the confidence of all signs together: the highest, plus a bonus if there are several.

    0 without signs, or if one of them shows work.
    """
    if not signs or any(sign.is_busy for sign in signs):
        return 0.0
    highest = max(sign.confidence for sign in signs)
    return min(highest + (AGREEMENT_BONUS if len(signs) > 1 else 0.0), 1.0)


class ThreadState(Enum):
    """What a thread does, as far as input is concerned. Of many threads, the first of these states decides."""

    READS = "blocked on its terminal"
    POLLS = "waits for its terminal, or for something else"
    WORKS = "runs"
    OTHER = "waits for something else"


def session_signs(living: RunningSession, silence: float | None, text: str) -> tuple[IdleSign, ...]:
    """Return all available signs.

    A program that draws its screen may poll for keys between two steps of work, so after recent output the process
    signs count as polling only.
    """
    process = process_signs(living)
    if silence is not None and silence < SILENT_SECONDS:
        process = tuple(sign if sign.is_busy else replace(sign, confidence=POLLING_CONFIDENCE) for sign in process)
    from_output = output_signs(silence, text)
    if not processes.has_proc():
        # Without /proc no sign can contradict these, so the evidence names that.
        from_output = tuple(replace(sign, source=f"{sign.source} without /proc") for sign in from_output)
    return (*process, *from_output)


def process_signs(living: RunningSession) -> tuple[IdleSign, ...]:
    """Return the sign from the threads of the program and its descendants; none if /proc is missing or hides them."""
    pids = processes.find_descendants(living.shim)
    state_by_pid = {pid: read_thread_state(pid) for pid in pids}
    states = [state for state in state_by_pid.values() if state is not None]
    if not states:
        return ()
    if ThreadState.WORKS in states:
        return (IdleSign("process", BLOCKED_CONFIDENCE, is_busy=True),)
    if ThreadState.READS in states:
        return (IdleSign("process", BLOCKED_CONFIDENCE),)
    return (
        (IdleSign("process", POLLING_CONFIDENCE),)
        if ThreadState.POLLS in states
        else (IdleSign("process", BLOCKED_CONFIDENCE, is_busy=True),)
    )


def read_thread_state(pid: int) -> ThreadState | None:
    """Return what the threads of a process do; None if it is gone, or may not be examined."""
    states = []
    try:
        for thread in sorted((PROC / str(pid) / "task").iterdir(), key=lambda path: int(path.name)):
            states.append(_thread_state(pid, thread))
    except (OSError, ValueError, IndexError):
        # The process ended meanwhile, or belongs to another user.
        return None
    if ThreadState.READS in states and ThreadState.WORKS in states:
        # A garbage collector, or work in parallel to a thread that reads: uncertain.
        return ThreadState.POLLS
    return next((state for state in ThreadState if state in states), None)


def _thread_state(pid: int, thread: Path) -> ThreadState:
    state = (thread / "stat").read_bytes().rpartition(b") ")[2][:1]
    if state in (b"R", b"D"):
        return ThreadState.WORKS
    if state != b"S":
        return ThreadState.OTHER
    call = _wait_syscall(thread)
    return _state_by_channel(pid, thread) if call is None else _state_by_syscall(pid, call)


def _wait_syscall(thread: Path) -> tuple[str, int, int] | None:
    """Return the waiting system call of the thread and its first two arguments; an empty name for any other call.

    None if the system does not tell.
    """
    table = _WAIT_SYSCALLS.get(platform.machine())
    try:
        number, first, second = (thread / "syscall").read_text().split()[:3]
    except (OSError, ValueError):
        # Only a process that may trace the thread can read this; and the content for a running thread is one word.
        return None
    if table is None:
        return None
    name = next((name for name, numbers in table.items() if int(number) in numbers), "")
    return name, int(first, 16), int(second, 16)


def _state_by_syscall(pid: int, call: tuple[str, int, int]) -> ThreadState:
    name, first, second = call
    if name == "read":
        return ThreadState.READS if _is_input(_target(pid, first)) else ThreadState.OTHER
    if name == "epoll":
        watched = [_target(pid, handle) for handle in _epoll_handles(pid, first)]
    elif name in ("poll", "select"):
        # The open descriptors are no evidence: a process that waits for a child's output has a terminal, too.
        watched = [_target(pid, handle) for handle in _polled_handles(pid, name, first, second)]
    else:
        return ThreadState.OTHER
    if not any(_is_input(target) for target in watched):
        return ThreadState.OTHER
    # A socket may be the connection to the model, so the program may wait for an answer.
    return ThreadState.POLLS if any(target.startswith("socket:") for target in watched) else ThreadState.READS


def _state_by_channel(pid: int, thread: Path) -> ThreadState:
    """Return the state by the kernel's wait channel, which does not tell what the thread waits for."""
    channel = (thread / "wchan").read_text()
    if not _is_input(_target(pid, 0)):
        return ThreadState.OTHER
    if channel.startswith(_READ_CHANNELS):
        return ThreadState.READS
    return ThreadState.POLLS if channel.startswith(_POLL_CHANNELS) else ThreadState.OTHER


def _target(pid: int, handle: int) -> str:
    """Return the target of a descriptor; empty if there is none."""
    try:
        return os.readlink(PROC / str(pid) / "fd" / str(handle))  # noqa: PTH115 - "socket:[7]" is not a path
    except OSError:
        return ""


def _polled_handles(pid: int, name: str, first: int, second: int) -> Iterator[int]:
    """Yield the descriptors that a poll or select waits to read, from the memory of the process.

    A process that may read the system call may also read the memory. Raises OSError.
    """
    with (PROC / str(pid) / "mem").open("rb", buffering=0) as memory:
        if name == "poll":
            memory.seek(first)
            data = memory.read(min(second, _MOST_ASKED) * _POLLFD.size)
            for handle, events, _ in _POLLFD.iter_unpack(data[: len(data) // _POLLFD.size * _POLLFD.size]):
                if handle >= 0 and events & select.POLLIN:
                    yield handle
        elif first and second:
            # A select without descriptors is a sleep.
            memory.seek(second)
            for number, byte in enumerate(memory.read((min(first, _MOST_ASKED) + 7) // 8)):
                yield from (8 * number + bit for bit in range(8) if byte >> bit & 1)


def _epoll_handles(pid: int, epoll: int) -> list[int]:
    info = (PROC / str(pid) / "fdinfo" / str(epoll)).read_text()
    return [int(line.split()[1]) for line in info.splitlines() if line.startswith("tfd:")]


def _is_input(target: str) -> bool:
    return target.startswith(("/dev/pts/", "/dev/tty"))


def output_signs(silence: float | None, text: str) -> tuple[IdleSign, ...]:
    """Return the signs from the output. ``silence`` is the seconds since the last output, None if there is none."""
    if silence is None:
        return ()
    signs = []
    if silence > SILENT_SECONDS:
        signs.append(IdleSign("silence", min(silence / FULL_SILENCE_SECONDS, MAX_SILENCE_CONFIDENCE)))
    if silence > QUIET_SECONDS and ends_naturally(text):
        signs.append(IdleSign("natural ending", NATURAL_CONFIDENCE))
    return tuple(signs)


def ends_naturally(text: str) -> bool:
    """Return whether a text has a complete ending: not in the middle of a word or a list."""
    return not _GOES_ON.search(_ANSI.sub("", text)[-50:].strip())


def find_foreground_argv(shim: int) -> tuple[str, ...] | None:
    """Return the argv of the process that has the shim's terminal; None if there is no /proc, or no such process.

    If several processes have it, a shell that reads the terminal is preferred: it may receive what is typed.
    """
    try:
        group = int((PROC / str(shim) / "stat").read_bytes().rpartition(b") ")[2].split()[5])
        argv = _argv_of(group)
    except (OSError, ValueError):
        return None
    if shells.is_shell(argv):
        return argv
    return next((reader_argv for reader_argv in _foreground_readers(shim, group) if shells.is_shell(reader_argv)), argv)


def _foreground_readers(shim: int, group: int) -> Iterator[tuple[str, ...]]:
    """Yield the argv of each process of a group, below a shim, whose stdin is a terminal."""
    living = processes.identify_process(shim)
    for pid in processes.find_descendants(living) if living is not None else ():
        # A process that ended meanwhile reads nothing.
        with suppress(OSError, ValueError):
            process_group = int((PROC / str(pid) / "stat").read_bytes().rpartition(b") ")[2].split()[2])
            if process_group == group and _is_input(_target(pid, 0)):
                yield _argv_of(pid)


def _argv_of(pid: int) -> tuple[str, ...]:
    """Return the argv of a process; empty for a zombie. Raises OSError if it is gone."""
    words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")[:-1]
    try:
        executable = str((PROC / str(pid) / "exe").readlink())
    except OSError:
        executable = ""
    return shells.reveal_shell(tuple(word.decode(errors="replace") for word in words), executable)
