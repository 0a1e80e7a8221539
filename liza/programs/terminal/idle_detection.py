"""Signs that a program waits for input: what the kernel says of its threads, how long it has been silent, how it ended
what it said. Each with how sure it is, as far as this system shows anything.
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
QUIET_SECONDS, SILENT_SECONDS, MAX_SILENCE_CONFIDENCE = 0.2, 0.5, 0.8  # the first two in seconds
FULL_SILENCE_SECONDS = 3.0  # seconds that would make silence certain, were it not for MOST_SILENT
NATURAL_CONFIDENCE = 0.6
AGREEMENT_BONUS = 0.1
IDLE_THRESHOLD = 0.7
"""How sure the witnesses have to be together, for a program to count as waiting."""
_READ_CHANNELS = ("n_tty_read", "wait_woken", "pipe_read", "unix_stream_read_generic")
_POLL_CHANNELS = ("poll_schedule_timeout", "do_select", "do_poll", "do_sys_poll", "ep_poll", "do_epoll_wait")
_WAIT_SYSCALLS: dict[str, dict[str, frozenset[int]]] = {
    # From the kernel's tables: the calls that read, poll, select, and wait for an epoll.
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
_MOST_ASKED = 1024  # descriptors
_ANSI = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-_])")
_GOES_ON = re.compile(r"([,;:\-–—(\[{]|\w)$")


@dataclass(frozen=True)
class IdleSign:
    """One sign, and how sure it is, from 0 to 1. ``against``: a sign that the program is at work."""

    source: str
    confidence: float
    is_busy: bool = False


def combine_confidence(witnesses: Sequence[IdleSign]) -> float:
    """How sure the witnesses are together: the surest, and a little more when they agree; 0 without any, or when one
    speaks against it."""
    if not witnesses or any(one.is_busy for one in witnesses):
        return 0.0
    surest = max(one.confidence for one in witnesses)
    return min(surest + (AGREEMENT_BONUS if len(witnesses) > 1 else 0.0), 1.0)


class ThreadState(Enum):
    """What a thread is at, as far as typing goes. Of many threads the first of these speaks."""

    READS = "blocked on its terminal"
    POLLS = "waits for its terminal, or for something else"
    WORKS = "runs"
    OTHER = "waits for something else"


def session_signs(living: RunningSession, silence: float | None, text: str) -> tuple[IdleSign, ...]:
    """All signs that there are. Who draws at this moment may look for keys in between, and be at work all the same."""
    program = process_signs(living)
    if silence is not None and silence < SILENT_SECONDS:
        program = tuple(one if one.is_busy else replace(one, confidence=POLLING_CONFIDENCE) for one in program)
    output = output_signs(silence, text)
    if not processes.has_proc():
        # Weaker than they look, with nobody to speak against them: whoever reads the evidence is told.
        output = tuple(replace(one, source=f"{one.source} without /proc") for one in output)
    return (*program, *output)


def process_signs(living: RunningSession) -> tuple[IdleSign, ...]:
    """What the kernel says of the program and all below it; nothing where there is no /proc, or it hides them."""
    pids = processes.find_descendants(living.shim)
    seen = {pid: read_thread_state(pid) for pid in pids}
    at = [one for one in seen.values() if one is not None]
    if not at:
        return ()
    if ThreadState.WORKS in at:
        return (IdleSign("process", BLOCKED_CONFIDENCE, is_busy=True),)
    if ThreadState.READS in at:
        return (IdleSign("process", BLOCKED_CONFIDENCE),)
    return (
        (IdleSign("process", POLLING_CONFIDENCE),)
        if ThreadState.POLLS in at
        else (IdleSign("process", BLOCKED_CONFIDENCE, is_busy=True),)
    )


def read_thread_state(pid: int) -> ThreadState | None:
    """What the threads of a process are at; None when it is gone, or may not be seen."""
    found = []
    try:
        for thread in sorted((PROC / str(pid) / "task").iterdir(), key=lambda at: int(at.name)):
            found.append(_thread_state(pid, thread))
    except (OSError, ValueError, IndexError):
        # It went meanwhile, or is another user's.
        return None
    if ThreadState.READS in found and ThreadState.WORKS in found:
        # A collector of garbage, or the work itself beside a thread that listens.
        return ThreadState.POLLS
    return next((one for one in ThreadState if one in found), None)


def _thread_state(pid: int, thread: Path) -> ThreadState:
    state = (thread / "stat").read_bytes().rpartition(b") ")[2][:1]
    if state in (b"R", b"D"):
        return ThreadState.WORKS
    if state != b"S":
        return ThreadState.OTHER
    call = _wait_syscall(thread)
    return _state_by_channel(pid, thread) if call is None else _state_by_syscall(pid, call)


def _wait_syscall(thread: Path) -> tuple[str, int, int] | None:
    """Which of the calls that wait for input the thread is in, and its first two arguments; empty for any other call.

    None where the system does not tell.
    """
    table = _WAIT_SYSCALLS.get(platform.machine())
    try:
        number, first, second = (thread / "syscall").read_text().split()[:3]
    except (OSError, ValueError):
        # Only who may trace a process is told; and "running" is a single word.
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
        # What it has open says little: who waits for a child's output has a terminal, too.
        watched = [_target(pid, handle) for handle in _polled_handles(pid, name, first, second)]
    else:
        return ThreadState.OTHER
    if not any(_is_input(one) for one in watched):
        return ThreadState.OTHER
    # What it waits for may as well be the answer of a model.
    return ThreadState.POLLS if any(one.startswith("socket:") for one in watched) else ThreadState.READS


def _state_by_channel(pid: int, thread: Path) -> ThreadState:
    """The same by the kernel's wait channel, which says less: not what is waited for."""
    channel = (thread / "wchan").read_text()
    if not _is_input(_target(pid, 0)):
        return ThreadState.OTHER
    if channel.startswith(_READ_CHANNELS):
        return ThreadState.READS
    return ThreadState.POLLS if channel.startswith(_POLL_CHANNELS) else ThreadState.OTHER


def _target(pid: int, handle: int) -> str:
    """What a descriptor leads to; empty where it leads nowhere."""
    try:
        return os.readlink(PROC / str(pid) / "fd" / str(handle))  # noqa: PTH115 - "socket:[7]" is no path
    except OSError:
        return ""


def _polled_handles(pid: int, name: str, first: int, second: int) -> Iterator[int]:
    """The descriptors of a poll or a select that are waited for to be read, out of the memory of the process: whoever
    is told of its calls may look there. Raises OSError."""
    with (PROC / str(pid) / "mem").open("rb", buffering=0) as memory:
        if name == "poll":
            memory.seek(first)
            said = memory.read(min(second, _MOST_ASKED) * _POLLFD.size)
            for handle, events, _ in _POLLFD.iter_unpack(said[: len(said) // _POLLFD.size * _POLLFD.size]):
                if handle >= 0 and events & select.POLLIN:
                    yield handle
        elif first and second:
            # A select over no descriptor is a way to sleep.
            memory.seek(second)
            for number, byte in enumerate(memory.read((min(first, _MOST_ASKED) + 7) // 8)):
                yield from (8 * number + bit for bit in range(8) if byte >> bit & 1)


def _epoll_handles(pid: int, epoll: int) -> list[int]:
    said = (PROC / str(pid) / "fdinfo" / str(epoll)).read_text()
    return [int(line.split()[1]) for line in said.splitlines() if line.startswith("tfd:")]


def _is_input(target: str) -> bool:
    return target.startswith(("/dev/pts/", "/dev/tty"))


def output_signs(silence: float | None, text: str) -> tuple[IdleSign, ...]:
    """What its output says: ``silence`` is how many seconds ago its last word came, None when it said nothing yet."""
    if silence is None:
        return ()
    found = []
    if silence > SILENT_SECONDS:
        found.append(IdleSign("silence", min(silence / FULL_SILENCE_SECONDS, MAX_SILENCE_CONFIDENCE)))
    if silence > QUIET_SECONDS and ends_naturally(text):
        found.append(IdleSign("natural ending", NATURAL_CONFIDENCE))
    return tuple(found)


def ends_naturally(text: str) -> bool:
    """Whether a text ends as one that is whole, and not in the middle of a word or a list."""
    return not _GOES_ON.search(_ANSI.sub("", text)[-50:].strip())


def find_foreground_argv(shim: int) -> tuple[str, ...] | None:
    """The words of the process that has the shim's terminal; None where there is no /proc, or nothing has it.

    Of several that have it together a shell that reads it speaks: what is typed may be that one's.
    """
    try:
        group = int((PROC / str(shim) / "stat").read_bytes().rpartition(b") ")[2].split()[5])
        words = _argv_of(group)
    except (OSError, ValueError):
        return None
    if shells.is_shell(words):
        return words
    return next((other for other in _foreground_readers(shim, group) if shells.is_shell(other)), words)


def _foreground_readers(shim: int, group: int) -> Iterator[tuple[str, ...]]:
    """The words of the processes of a group, below a shim, whose input is a terminal."""
    living = processes.identify_process(shim)
    for pid in processes.find_descendants(living) if living is not None else ():
        # One that went meanwhile reads nothing.
        with suppress(OSError, ValueError):
            its = int((PROC / str(pid) / "stat").read_bytes().rpartition(b") ")[2].split()[2])
            if its == group and _is_input(_target(pid, 0)):
                yield _argv_of(pid)


def _argv_of(pid: int) -> tuple[str, ...]:
    """The command line of a process; empty for a zombie. Raises OSError for one that is gone."""
    said = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")[:-1]
    try:
        executable = str((PROC / str(pid) / "exe").readlink())
    except OSError:
        executable = ""
    return shells.reveal_shell(tuple(word.decode(errors="replace") for word in said), executable)


def is_stopped(pid: int) -> bool:
    """Whether a process stands still, so that whoever asks it something waits for ever."""
    try:
        return (PROC / str(pid) / "stat").read_bytes().rpartition(b") ")[2][:1] in (b"T", b"t")
    except OSError:
        return False
