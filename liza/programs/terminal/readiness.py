"""Readiness of a session: ready by evidence, still starting, or not going to be ready, and why.

A timeout alone is no evidence: it ends the waiting, and the facts up to then decide the reason. The process that has
the terminal tells whether the program waits for input, and whether it is a shell.
"""

from __future__ import annotations

import os
import posixpath
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum, StrEnum
from pathlib import Path
from typing import Protocol

from liza.box.box import is_box
from liza.model.value_classes import Value, replace
from liza.programs import liveness
from liza.programs.liveness import EndedSession, NoSession, ProcessState, RunningSession, VanishedSession, describe_end
from liza.programs.presets.preset import Dialog, Preset
from liza.programs.session.run_directory import RunDir, Sentinel
from liza.programs.terminal import screens
from liza.programs.terminal.screens import Screen
from liza.system import proc_stat, processes
from liza.system.processes import PROC

STEADY_SECONDS = 1.0  # seconds that a question must stay unchanged to count as waiting for a person


class NotReadyReason(StrEnum):
    """Why a session is not going to be ready."""

    NEVER_STARTED = "never started"
    LOGIN = "login"
    DIALOG = "dialog"
    DEAD = "dead"
    SILENT = "silent"
    BUSY = "busy"


class ReadinessFacts(Value):
    """The facts about a session at ``now`` of the monotonic clock, ``since_start`` seconds after its start. ``tail`` is
    the end of its output, or its ``screen`` as text."""

    state: ProcessState
    since_start: float
    timeout: float
    sentinel: Sentinel | None = None
    tail: str = ""
    screen: Screen | None = None
    ready_prompt: str = ""
    login_signs: tuple[str, ...] = ()
    dialogs: tuple[Dialog, ...] = ()
    idle_signs: tuple[IdleSign, ...] = ()
    now: float = 0.0
    has_asked: bool = False
    """Whether its program has sent a request to its model: the model's answer may take longer than the start
    timeout."""


class Ready(Value):
    """The session has read its brief, waits for input, or has sent a request to its model; ``evidence`` names the
    sign."""

    evidence: str


class StillStarting(Value):
    """There is no evidence of readiness yet, and none against it."""

    reason: str


class NotReady(Value):
    """The session needs a person to become ready; ``reason`` is for a person."""

    kind: NotReadyReason
    reason: str


def classify_readiness(facts: ReadinessFacts) -> Ready | StillStarting | NotReady:
    """Classify by the first that applies: ready file, end, question for a person, prompt, idle signs, timeout."""
    if facts.sentinel is not None:
        return Ready(facts.sentinel.evidence)
    if isinstance(facts.state, EndedSession | VanishedSession):
        return _classify_ended(facts)
    question = _find_question(facts)
    if question is not None:
        # Some questions appear briefly while a program starts, and are answered by the program itself.
        return question if _is_steady(facts) or facts.since_start > facts.timeout else StillStarting(question.reason)
    if facts.ready_prompt and _has_prompt(facts):
        return Ready("ready prompt")
    confidence = combine_confidence(facts.idle_signs, facts.now)
    if confidence > IDLE_THRESHOLD and not (facts.screen is not None and screens.is_blank(facts.screen)):
        sources = ", ".join(sign.source for sign in list_current(facts.idle_signs, facts.now))
        return Ready(f"waits for input ({sources}, {confidence:.0%})")
    if facts.since_start <= facts.timeout:
        return StillStarting("no session yet" if isinstance(facts.state, NoSession) else "no sign of readiness yet")
    return _classify_late(facts)


def _classify_ended(facts: ReadinessFacts) -> NotReady:
    if isinstance(facts.state, EndedSession) and facts.state.error is not None:
        return NotReady(NotReadyReason.NEVER_STARTED, facts.state.error)
    end = describe_end(facts.state) if isinstance(facts.state, EndedSession) else "vanished without an end record"
    sign = _login_sign(facts)
    if sign is not None:
        return NotReady(NotReadyReason.LOGIN, f"the program is not logged in ({sign!r}); {end}")
    return NotReady(NotReadyReason.DEAD, f"{end} before it had read its brief{_last_line(facts.tail)}")


def _is_steady(facts: ReadinessFacts) -> bool:
    """Return whether the screen has been unchanged for STEADY_SECONDS."""
    return (
        facts.screen is None
        or facts.screen.seconds_since_change is None
        or facts.screen.seconds_since_change >= STEADY_SECONDS
    )


def _find_question(facts: ReadinessFacts) -> NotReady | None:
    """Return the question for a person that the screen shows: the program will not continue by itself."""
    screen = facts.screen or Screen(tuple(facts.tail.splitlines()))
    question = screens.find_question(screen, facts.ready_prompt, facts.dialogs)
    return None if question is None else NotReady(NotReadyReason.DIALOG, f"the program shows {question}")


def _login_sign(facts: ReadinessFacts) -> str | None:
    return next((sign for sign in facts.login_signs if sign in facts.tail), None)


def _has_prompt(facts: ReadinessFacts) -> bool:
    if facts.screen is not None:
        return screens.has_prompt(facts.screen, facts.ready_prompt)
    last = next((line for line in reversed(facts.tail.splitlines()) if line.strip()), "")
    return last.lstrip().startswith(facts.ready_prompt.rstrip())


def _classify_late(facts: ReadinessFacts) -> Ready | NotReady:
    waited = f"after {facts.since_start:.0f} s"
    if isinstance(facts.state, NoSession):
        return NotReady(NotReadyReason.NEVER_STARTED, f"no session {waited}")
    sign = _login_sign(facts)
    if sign is not None:
        return NotReady(NotReadyReason.LOGIN, f"the program is not logged in ({sign!r}) {waited}")
    if facts.has_asked:
        return Ready("has asked its model")
    if not facts.tail.strip():
        return NotReady(NotReadyReason.SILENT, f"its process is running and has printed and reported nothing {waited}")
    return NotReady(
        NotReadyReason.BUSY, f"it prints output and has not read its brief {waited}{_last_line(facts.tail)}"
    )


def _last_line(tail: str) -> str:
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    return f": {lines[-1][-200:]}" if lines else ""


class TerminalView(Protocol):
    """The terminal of a run."""

    def screen(self, now: float) -> Screen:
        """Return the screen at ``now`` of the monotonic clock."""
        ...

    def idle_signs(self) -> tuple[IdleSign, ...]:
        """Return the signs that the program waits for input."""
        ...


def gather_facts(
    run_dir: RunDir, preset: Preset, since_start: float, timeout: float, pane: TerminalView | None = None
) -> ReadinessFacts:
    """Gather the facts about a session from its files, processes and terminal, without waiting.

    Raises LizaError if one of them cannot be read.
    """
    state = liveness.read_state(run_dir.path)
    screen = None if pane is None else pane.screen(time.monotonic())
    tail = run_dir.output_tail() if screen is None else screen.text
    return ReadinessFacts(
        state=state,
        since_start=since_start,
        timeout=timeout,
        sentinel=run_dir.read_sentinel(),
        tail=tail,
        screen=screen,
        ready_prompt=preset.ready_prompt if screen is not None else "",
        login_signs=preset.login_signs,
        # Dialogs need a screen: output without one may only mention their text.
        dialogs=preset.dialogs if screen is not None else (),
        # Without a terminal Liza can type nothing, so an idle program does not wait for Liza.
        idle_signs=pane.idle_signs() if pane is not None and isinstance(state, RunningSession) else (),
        now=time.monotonic(),
    )


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
