"""A model that does not answer: when its session is ended, and the text for people."""

from __future__ import annotations

from datetime import datetime, timedelta

from liza.model.session_ends import SilenceKind
from liza.model.value_classes import Value

LOGIN_PATIENCE = 5.0
"""Seconds in which a program may renew a refused login or exit by itself."""
MAX_REFUSALS = 3  # refused logins in a row after which a session is ended at once
MAX_RETRIES = 10
"""Failed requests in a row after which a session is ended: some programs retry for ever."""
SILENCE_REPORTED = 60.0
"""Seconds without an answer after which ``status`` reports it; at most a fifth of ``config.answer_timeout``."""
ALERT_AFTER_SESSIONS = 3
"""Sessions in a row that failed because of the model, after which a person is told."""

NO_MODEL = "it has no such model"
_SENTENCES = {
    SilenceKind.MODEL: NO_MODEL + ": {words}",
    SilenceKind.LOGIN: "the model refuses the program's login: {words}",
    SilenceKind.QUOTA: "a usage limit is reached: {words}",
    SilenceKind.SERVER: "its model answers with errors: {words}",
    SilenceKind.BROKEN: "its model's answers break off: {words}",
}


class ModelSilence(Value):
    """Why a running session gets no answer from its model, and for how many seconds.

    ``retry_at``: when the program retries by itself, if it says so. ``retried``: the program retries by itself.
    ``failed_requests``: failed requests in a row.
    """

    kind: SilenceKind
    seconds: float
    message: str = ""
    retry_at: datetime | None = None
    retried: bool = False
    failed_requests: int = 1


def describe_failure(kind: SilenceKind, words: str) -> str:
    """Return the text for a failure that the program's output reported."""
    return _SENTENCES[kind].format(words=words)


def describe_silence(seconds: float) -> str:
    """Return the text for a silent model: for how long it gave no answer."""
    return f"no answer from its model for {seconds:.0f} s"


def describe_reason(model: ModelSilence) -> str:
    """Return why the session gets no answer."""
    return (
        describe_silence(model.seconds)
        if model.kind is SilenceKind.SILENT
        else describe_failure(model.kind, model.message)
    )


def seconds_to_end(model: ModelSilence, timeout: float) -> float:
    """Return the seconds until the session is ended if its model does not answer; 0 or less: now."""
    if model.kind is SilenceKind.MODEL:
        return 0.0
    if model.kind is SilenceKind.LOGIN:
        return 0.0 if model.failed_requests >= MAX_REFUSALS else LOGIN_PATIENCE - model.seconds
    if model.kind is not SilenceKind.SILENT and model.failed_requests >= MAX_RETRIES:
        return 0.0
    return timeout - model.seconds


def is_reported(model: ModelSilence, timeout: float) -> bool:
    """Return whether a person is told: errors at once, silence after ``report_delay``."""
    return model.kind is not SilenceKind.SILENT or model.seconds >= report_delay(timeout)


def report_delay(timeout: float) -> float:
    """Return the seconds of silence after which a person is told."""
    return min(SILENCE_REPORTED, timeout / 5)


def is_quota_wait_too_long(model: ModelSilence, now: datetime, timeout: float) -> bool:
    """Return whether the program waits for the end of a usage limit for longer than ``timeout`` seconds."""
    return (
        model.kind is SilenceKind.QUOTA
        and model.retry_at is not None
        and model.retry_at - now > timedelta(seconds=timeout)
    )


def describe_status(model: ModelSilence, left: float, program: str) -> str:
    """Return the text in ``status``: the reason, what retries, and when the session is ended in ``left`` seconds."""
    end = f"ended in {_span(left)}" if left >= 1 else "being ended"
    if model.kind is SilenceKind.SILENT:
        return f"no answer from its model for {_span(model.seconds)}; without one the session is {end}"
    if model.kind in (SilenceKind.LOGIN, SilenceKind.MODEL) or not model.retried:
        return f"{describe_failure(model.kind, model.message)}; the session is {end}"
    failure = describe_failure(model.kind, model.message)
    return f"{failure}; {program} tries again, and without an answer the session is {end}"


def _span(seconds: float) -> str:
    seconds = max(0.0, seconds)
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
