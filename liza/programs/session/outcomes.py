"""What the end of a session means. Pure: the word of the run before its exit code, and never a 0 as proof of work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from liza.programs.session.failure_patterns import ModelFailure
from liza.programs.session.session_process import EndedSession, VanishedSession, describe_end
from liza.rules.sessions import model_silence
from liza.rules.sessions.decide import IDLE_REASON
from liza.rules.sessions.loop_detection import NO_PROGRESS_PREFIX


@dataclass(frozen=True)
class Completed:
    """It ended well, and more work can be looked for. ``idle``: it said nothing final and moved nothing."""

    idle: bool


@dataclass(frozen=True)
class HandedOff:
    """It wants a fresh session on the same claim. ``idle``: nothing was committed and nothing was said."""

    idle: bool


@dataclass(frozen=True)
class Crashed:
    """It failed, and why: worth a pause, and a count."""

    reason: str


@dataclass(frozen=True)
class NeverRan:
    """The program could not be started at all: trying again will not help before a person did something."""

    reason: str


@dataclass(frozen=True)
class ModelRefused:
    """The model answers nobody before a person did something, such as a login."""

    reason: str


@dataclass(frozen=True)
class UsageLimited:
    """A limit of use is reached, which goes by by itself: at ``until``, where that was said. No crash."""

    reason: str
    until: datetime | None


@dataclass(frozen=True)
class LostBeforeStart:
    """Its terminal was lost before it had begun: no fault of the program or its task, and no try."""

    reason: str


@dataclass(frozen=True)
class NoModelAnswer:
    """The model gave no answer that could be used: no fault of the task, and worth a pause before the next try."""

    reason: str


@dataclass(frozen=True)
class Halted:
    """It was ended on purpose; no fault of the program."""

    reason: str


DELIBERATE_STOPS = ("stop", "over", "fenced")
"""Reasons to end a session that say nothing about its program."""

Outcome = (
    Completed | HandedOff | Crashed | NeverRan | LostBeforeStart | ModelRefused | UsageLimited | NoModelAnswer | Halted
)


def classify_end(
    end: EndedSession | VanishedSession,
    word: str | None,
    codes: Mapping[str, str],
    moved: bool,
    stopped: str | None = None,
    trouble: ModelFailure | None = None,
    *,
    begun: bool = True,
) -> Outcome:
    """What came of a session that is over.

    ``word`` is what the run left, ``codes`` what the program's own exit codes mean (a vendor may use 42 for something
    else), ``moved`` whether it committed or moved its task, ``stopped`` why it was ended on purpose, if it was,
    ``trouble`` what its last lines say that the model did not answer for: four programs end with 0 even then, and
    ``begun`` whether it had read its brief.
    """
    if isinstance(end, EndedSession) and end.error is not None:
        return NeverRan(end.error)
    if word is not None:
        return _outcome_of_code(word, f"said {word}", idle=False)
    if stopped == IDLE_REASON:
        return Completed(idle=not moved)
    if stopped is not None and (
        trouble is None or stopped in DELIBERATE_STOPS or stopped.startswith(NO_PROGRESS_PREFIX)
    ):
        return Halted(stopped)
    well = stopped is None and isinstance(end, EndedSession) and (end.code == 0 or end.unplugged)
    if trouble is not None and not (moved and well):
        return _outcome_of_failure(trouble)
    if isinstance(end, VanishedSession):
        return Crashed("it vanished without an end: killed from outside, or the machine went down")
    if end.unplugged:
        # It may well end with 0, for to it that is the end of its input; no fault of its own, whatever it says.
        # Once it has begun it counts: a program that ends its own terminal each time would go on for ever.
        lost = f"its terminal's server is gone ({describe_end(end)})"
        return Crashed(lost) if begun or moved else LostBeforeStart(lost)
    if end.signal is not None:
        return Crashed(describe_end(end))
    return _outcome_of_code(codes.get(str(end.code), str(end.code)), describe_end(end), idle=not moved)


def _outcome_of_failure(trouble: ModelFailure) -> Outcome:
    reason = model_silence.describe_failure(trouble.kind, trouble.message)
    match trouble.kind:
        case model_silence.LOGIN:
            return ModelRefused(reason)
        case model_silence.QUOTA:
            return UsageLimited(reason, trouble.until)
        case _:
            return NoModelAnswer(reason)


def _outcome_of_code(word: str, what: str, *, idle: bool) -> Outcome:
    if word == "0":
        return Completed(idle)
    return HandedOff(idle) if word == "42" else Crashed(what)
