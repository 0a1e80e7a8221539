"""What the end of a session means. Pure: the run's closing code outranks its exit code, and exit code 0 proves no
work."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from liza.model.session_ends import STOP_RULES, SessionOutcome, SilenceKind, StopReason
from liza.model.value_classes import Value
from liza.programs.liveness import EndedSession, VanishedSession, describe_end
from liza.programs.rules import model_silence
from liza.programs.session.failure_patterns import ModelFailure
from liza.programs.session.run_records import StopNote


class SessionEnd(Value):
    """How a session ended, and why.

    ``reason`` is a sentence for people; empty: the program's last output says more. ``retry_at``: when a usage limit
    ends, if known. ``needs_person``: a person has to start the program once, to answer it or to log in.
    ``login_refused``: the model refused the login of the session's account. ``is_own_failure``: the program, or the run
    itself by its closing code, says that it failed.
    ``model_refused``: the program has no such model.
    """

    outcome: SessionOutcome
    reason: str = ""
    retry_at: datetime | None = None
    needs_person: bool = False
    login_refused: bool = False
    is_own_failure: bool = False
    model_refused: bool = False


def classify_end(
    end: EndedSession | VanishedSession,
    closing_code: str | None,
    codes: Mapping[str, str],
    moved: bool,
    stop: StopNote | None = None,
    failure: ModelFailure | None = None,
    *,
    begun: bool = True,
) -> SessionEnd:
    """Classify the end of a session.

    ``closing_code`` is the run's. ``codes`` maps the program's own exit codes to closing codes (a vendor may use
    42 for something else). ``moved``: it committed, or its task changed status. ``stop``: the note of a session that
    Liza ended. ``failure`` is the model failure in its last lines: four programs exit with 0 even then. ``begun``: it
    had read its brief.
    """
    if isinstance(end, EndedSession) and end.error is not None:
        # The program could not be started: a retry cannot help until a person acts.
        return SessionEnd(SessionOutcome.UNUSABLE, end.error)
    if closing_code is not None:
        return _end_of_code(closing_code, f"closing code {closing_code}")
    if isinstance(end, EndedSession) and end.fenced:
        return SessionEnd(SessionOutcome.HELD_UP, "this host could not renew its lease for 30 s")
    if stop is not None and (failure is None or STOP_RULES[stop.kind].final):
        return _end_of_stop(stop, failure)
    clean_exit = stop is None and isinstance(end, EndedSession) and (end.code == 0 or end.unplugged)
    if failure is not None and not (moved and clean_exit):
        return _end_of_failure(failure)
    if isinstance(end, VanishedSession):
        return SessionEnd(
            SessionOutcome.CRASHED, "it vanished without an end record: killed from outside, or the machine went down"
        )
    if end.unplugged:
        # The program may exit with 0, because it only saw the end of its input; its exit code is no evidence. Once it
        # has begun, the end counts as a crash: a program that closes its own terminal each time would be restarted for
        # ever.
        lost = f"its terminal's server is gone ({describe_end(end)})"
        return SessionEnd(SessionOutcome.CRASHED if begun or moved else SessionOutcome.HELD_UP, lost)
    if end.signal is not None:
        return SessionEnd(SessionOutcome.CRASHED, describe_end(end))
    return _end_of_code(codes.get(str(end.code), str(end.code)), describe_end(end))


def _end_of_stop(stop: StopNote, failure: ModelFailure | None) -> SessionEnd:
    """Return the end of a session that Liza ended."""
    why = stop.kind
    until = failure.until if failure is not None and failure.kind is SilenceKind.QUOTA else None
    return SessionEnd(
        STOP_RULES[why].outcome,
        "" if why is StopReason.IDLE else stop.reason,
        retry_at=until if why is StopReason.USAGE_LIMIT else None,
        needs_person=STOP_RULES[why].outcome is SessionOutcome.UNUSABLE and why is not StopReason.MODEL_REFUSED,
        login_refused=why is StopReason.LOGIN_REFUSED,
        model_refused=why is StopReason.MODEL_REFUSED,
    )


def _end_of_failure(failure: ModelFailure) -> SessionEnd:
    reason = model_silence.describe_failure(failure.kind, failure.message)
    match failure.kind:
        case SilenceKind.LOGIN:
            return SessionEnd(SessionOutcome.UNUSABLE, reason, needs_person=True, login_refused=True)
        case SilenceKind.MODEL:
            return SessionEnd(SessionOutcome.UNUSABLE, reason, model_refused=True)
        case SilenceKind.QUOTA:
            return SessionEnd(SessionOutcome.QUOTA, reason, failure.until)
        case _:
            return SessionEnd(SessionOutcome.UNANSWERED, reason)


def _end_of_code(code: str, reason: str) -> SessionEnd:
    if code == "0":
        return SessionEnd(SessionOutcome.FINISHED)
    if code == "42":
        return SessionEnd(SessionOutcome.HANDED_OFF)
    return SessionEnd(SessionOutcome.CRASHED, reason, is_own_failure=True)
