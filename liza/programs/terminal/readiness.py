"""Readiness of a session: ready by evidence, still starting, or not going to be ready, and why.

A timeout alone is no evidence: it ends the waiting, and the facts up to then decide the reason.
"""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Protocol

from liza.model.value_classes import Value
from liza.programs import liveness
from liza.programs.liveness import EndedSession, NoSession, ProcessState, RunningSession, VanishedSession, describe_end
from liza.programs.presets.preset import Dialog, Preset
from liza.programs.session.run_directory import RunDir, Sentinel
from liza.programs.terminal import idle_detection, screens
from liza.programs.terminal.idle_detection import IdleSign, combine_confidence
from liza.programs.terminal.screens import Screen

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
    if confidence > idle_detection.IDLE_THRESHOLD and not (facts.screen is not None and screens.is_blank(facts.screen)):
        sources = ", ".join(sign.source for sign in idle_detection.list_current(facts.idle_signs, facts.now))
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
