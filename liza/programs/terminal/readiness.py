"""How far a session has come: ready by evidence, still starting, or not going to be ready, and why.

A time-out proves nothing by itself; it only ends the waiting, and what was seen until then says what it was.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from liza.programs.presets.preset import Dialog, Preset
from liza.programs.session import session_process
from liza.programs.session.run_directory import RunDir, Sentinel
from liza.programs.session.session_process import (
    EndedSession,
    NoSession,
    ProcessState,
    RunningSession,
    VanishedSession,
    describe_end,
)
from liza.programs.terminal import idle_detection, screens
from liza.programs.terminal.idle_detection import IdleSign, combine_confidence
from liza.programs.terminal.screens import Screen

STEADY_SECONDS = 1.0  # seconds that a question stands unchanged before it is taken for one that waits for a person


class NotReadyReason(StrEnum):
    """Why a session is not going to be ready."""

    NEVER_STARTED = "never started"
    LOGIN = "login"
    DIALOG = "dialog"
    DEAD = "dead"
    SILENT = "silent"
    BUSY = "busy"


@dataclass(frozen=True)
class ReadinessFacts:
    """What was seen of a session. ``since_start`` is seconds of the steady clock; ``tail`` is the end of its output, or
    what its ``screen`` shows where it has one."""

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
    has_asked: bool = False
    """Whether its program has asked its model: how long that may take is another question than how long to start."""


@dataclass(frozen=True)
class Ready:
    """It has read its brief, waits for input, or has asked its model; ``evidence`` names what showed it."""

    evidence: str


@dataclass(frozen=True)
class StillStarting:
    """Not yet, and nothing speaks against it."""

    reason: str


@dataclass(frozen=True)
class NotReady:
    """It is not going to be ready without somebody; ``reason`` is for a person."""

    kind: NotReadyReason
    reason: str


def classify_readiness(seen: ReadinessFacts) -> Ready | StillStarting | NotReady:
    """The first that answers: the sentinel, the end, a program that asks for a person, the screen, the time."""
    if seen.sentinel is not None:
        return Ready(seen.sentinel.evidence)
    if isinstance(seen.state, EndedSession | VanishedSession):
        return _classify_ended(seen)
    asks = _find_question(seen)
    if asks is not None:
        # Some flash by while a program comes up, and answer themselves.
        return asks if _is_steady(seen) or seen.since_start > seen.timeout else StillStarting(asks.reason)
    if seen.ready_prompt and _has_prompt(seen):
        return Ready("ready prompt")
    sure = combine_confidence(seen.idle_signs)
    if sure > idle_detection.IDLE_THRESHOLD and not (seen.screen is not None and screens.is_blank(seen.screen)):
        sources = ", ".join(one.source for one in seen.idle_signs)
        return Ready(f"waits for input ({sources}, {sure:.0%})")
    if seen.since_start <= seen.timeout:
        return StillStarting("no session yet" if isinstance(seen.state, NoSession) else "no sign of readiness yet")
    return _classify_late(seen)


def _classify_ended(seen: ReadinessFacts) -> NotReady:
    if isinstance(seen.state, EndedSession) and seen.state.error is not None:
        return NotReady(NotReadyReason.NEVER_STARTED, seen.state.error)
    how = describe_end(seen.state) if isinstance(seen.state, EndedSession) else "vanished without an end"
    sign = _login_sign(seen)
    if sign is not None:
        return NotReady(NotReadyReason.LOGIN, f"the program is not logged in ({sign!r}); {how}")
    return NotReady(NotReadyReason.DEAD, f"{how} before it had read its brief{_last_line(seen.tail)}")


def _is_steady(seen: ReadinessFacts) -> bool:
    """Whether what its screen shows has been there for a moment."""
    return (
        seen.screen is None
        or seen.screen.seconds_since_change is None
        or seen.screen.seconds_since_change >= STEADY_SECONDS
    )


def _find_question(seen: ReadinessFacts) -> NotReady | None:
    """A program that waits for a person: it will not go on by itself, so there is no use in waiting."""
    screen = seen.screen or Screen(tuple(seen.tail.splitlines()))
    asks = screens.find_question(screen, seen.ready_prompt, seen.dialogs)
    return None if asks is None else NotReady(NotReadyReason.DIALOG, f"the program shows {asks}")


def _login_sign(seen: ReadinessFacts) -> str | None:
    return next((sign for sign in seen.login_signs if sign in seen.tail), None)


def _has_prompt(seen: ReadinessFacts) -> bool:
    if seen.screen is not None:
        return screens.has_prompt(seen.screen, seen.ready_prompt)
    last = next((line for line in reversed(seen.tail.splitlines()) if line.strip()), "")
    return last.lstrip().startswith(seen.ready_prompt.rstrip())


def _classify_late(seen: ReadinessFacts) -> Ready | NotReady:
    waited = f"after {seen.since_start:.0f} s"
    if isinstance(seen.state, NoSession):
        return NotReady(NotReadyReason.NEVER_STARTED, f"no session {waited}")
    sign = _login_sign(seen)
    if sign is not None:
        return NotReady(NotReadyReason.LOGIN, f"the program is not logged in ({sign!r}) {waited}")
    if seen.has_asked:
        return Ready("has asked its model")
    if not seen.tail.strip():
        return NotReady(NotReadyReason.SILENT, f"it lives and has said nothing {waited}")
    return NotReady(
        NotReadyReason.BUSY, f"it lives and talks, and has not read its brief {waited}{_last_line(seen.tail)}"
    )


def _last_line(tail: str) -> str:
    said = [line.strip() for line in tail.splitlines() if line.strip()]
    return f": {said[-1][-200:]}" if said else ""


class TerminalView(Protocol):
    """The terminal of a run."""

    def screen(self, now: float) -> Screen:
        """What is to be seen at ``now``, of the steady clock."""
        ...

    def idle_signs(self, text: str) -> tuple[IdleSign, ...]:
        """The signs that the program waits for input; ``text`` is what its screen shows."""
        ...


def gather_facts(
    run_dir: RunDir, preset: Preset, since_start: float, timeout: float, pane: TerminalView | None = None
) -> ReadinessFacts:
    """What can be seen of a session now: its files, its processes, its terminal where it has one. Waits for nothing.

    Raises LizaError when something of it cannot be read.
    """
    look = session_process.read_state(run_dir.path)
    screen = None if pane is None else pane.screen(time.monotonic())
    tail = run_dir.output_tail() if screen is None else screen.text
    return ReadinessFacts(
        state=look,
        since_start=since_start,
        timeout=timeout,
        sentinel=run_dir.read_sentinel(),
        tail=tail,
        screen=screen,
        ready_prompt=preset.ready_prompt if screen is not None else "",
        login_signs=preset.login_signs,
        # They need a screen: what a program prints without one may merely speak of them.
        dialogs=preset.dialogs if screen is not None else (),
        # Without a terminal nothing can come later, so a program that waits does not wait for us.
        idle_signs=pane.idle_signs(tail) if pane is not None and isinstance(look, RunningSession) else (),
    )
