"""What the end of a session means. Pure: the run's closing code outranks its exit code, and exit code 0 proves no
work."""

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
    """It ended well, and the agent can take more work. ``idle``: it set no closing code and made no progress."""

    idle: bool


@dataclass(frozen=True)
class HandedOff:
    """It wants a new session on the same claim. ``idle``: nothing was committed and no closing code was set."""

    idle: bool


@dataclass(frozen=True)
class Crashed:
    """It failed, for ``reason``: the agent backs off, and the crash is counted."""

    reason: str


@dataclass(frozen=True)
class NeverRan:
    """The program could not be started: a retry cannot help until a person acts."""

    reason: str


@dataclass(frozen=True)
class ModelRefused:
    """The model answers no request until a person acts, for example by a login."""

    reason: str


@dataclass(frozen=True)
class UsageLimited:
    """A usage limit is reached, and ends by itself: at ``until``, if the program printed that. Not a crash."""

    reason: str
    until: datetime | None


@dataclass(frozen=True)
class LostBeforeStart:
    """Its terminal was lost before it had begun: not a fault of the program or its task, and not counted as a try."""

    reason: str


@dataclass(frozen=True)
class NoModelAnswer:
    """The model gave no usable answer: not a fault of the task; the agent backs off before the next try."""

    reason: str


@dataclass(frozen=True)
class Halted:
    """It was ended on purpose: not a fault of the program."""

    reason: str


DELIBERATE_STOPS = ("stop", "over", "fenced")
"""Stop reasons that say nothing about the session's program."""

Outcome = (
    Completed | HandedOff | Crashed | NeverRan | LostBeforeStart | ModelRefused | UsageLimited | NoModelAnswer | Halted
)


def classify_end(
    end: EndedSession | VanishedSession,
    closing_code: str | None,
    codes: Mapping[str, str],
    moved: bool,
    stopped: str | None = None,
    failure: ModelFailure | None = None,
    *,
    begun: bool = True,
) -> Outcome:
    """Classify the end of a session.

    ``closing_code`` is the run's. ``codes`` maps the program's own exit codes to closing codes (a vendor may use
    42 for something else). ``moved``: it committed, or its task changed status. ``stopped`` is the stop reason if it
    was ended on purpose. ``failure`` is the model failure in its last lines: four programs exit with 0 even then.
    ``begun``: it had read its brief.
    """
    if isinstance(end, EndedSession) and end.error is not None:
        return NeverRan(end.error)
    if closing_code is not None:
        return _outcome_of_code(closing_code, f"closing code {closing_code}", idle=False)
    if stopped == IDLE_REASON:
        return Completed(idle=not moved)
    if stopped is not None and (
        failure is None or stopped in DELIBERATE_STOPS or stopped.startswith(NO_PROGRESS_PREFIX)
    ):
        return Halted(stopped)
    clean_exit = stopped is None and isinstance(end, EndedSession) and (end.code == 0 or end.unplugged)
    if failure is not None and not (moved and clean_exit):
        return _outcome_of_failure(failure)
    if isinstance(end, VanishedSession):
        return Crashed("it vanished without an end record: killed from outside, or the machine went down")
    if end.unplugged:
        # The program may exit with 0, because it only saw the end of its input; its exit code is no evidence. Once it
        # has begun, the end counts as a crash: a program that closes its own terminal each time would be restarted for
        # ever.
        lost = f"its terminal's server is gone ({describe_end(end)})"
        return Crashed(lost) if begun or moved else LostBeforeStart(lost)
    if end.signal is not None:
        return Crashed(describe_end(end))
    return _outcome_of_code(codes.get(str(end.code), str(end.code)), describe_end(end), idle=not moved)


def _outcome_of_failure(failure: ModelFailure) -> Outcome:
    reason = model_silence.describe_failure(failure.kind, failure.message)
    match failure.kind:
        case model_silence.LOGIN:
            return ModelRefused(reason)
        case model_silence.QUOTA:
            return UsageLimited(reason, failure.until)
        case _:
            return NoModelAnswer(reason)


def _outcome_of_code(code: str, reason: str, *, idle: bool) -> Outcome:
    if code == "0":
        return Completed(idle)
    return HandedOff(idle) if code == "42" else Crashed(reason)
