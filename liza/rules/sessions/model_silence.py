"""A model that does not answer: when its session is ended, and what a person reads of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

LOGIN, QUOTA, SERVER, BROKEN, SILENT = "login", "quota", "server", "broken", "silent"
LOGIN_PATIENCE = 5.0
"""Seconds for a program to renew a login that was refused, or to end by itself."""
MAX_REFUSALS = 3
MAX_RETRIES = 10
"""Failed requests in a row after which a session is ended: some programs repeat them without end."""
SILENCE_REPORTED = 60.0
"""Seconds without an answer after which ``status`` says so; earlier where less than five times that is allowed."""
ALERT_AFTER_SESSIONS = 3
"""Sessions in a row that came to nothing because of the model, after which a person is told."""
MAX_QUOTA_REST = 3600.0
QUOTA_FACTOR = 12.0
"""The first pause after a limit of use whose end nobody told, in units of ``config.restart_after_crash``."""

_SENTENCES = {
    LOGIN: "the model refuses the program's login: {words}",
    QUOTA: "a limit of use is reached: {words}",
    SERVER: "its model answers with errors: {words}",
    BROKEN: "its model's answers break off: {words}",
}


@dataclass(frozen=True)
class ModelSilence:
    """Why a living session gets no answer from its model, and for how many seconds.

    ``until`` is when the program tries again by itself, where it said so; ``times`` how many requests in a row failed.
    """

    kind: str
    seconds: float
    message: str = ""
    retry_at: datetime | None = None
    retried: bool = False
    failed_requests: int = 1


def describe_failure(kind: str, words: str) -> str:
    """Return the reason as a sentence; a kind that is not known is an error of the model's server."""
    return _SENTENCES.get(kind, _SENTENCES[SERVER]).format(words=words)


def describe_silence(seconds: float) -> str:
    """Return the reason why a session was ended that got no answer at all."""
    return f"no answer from its model for {seconds:.0f} s"


def describe_reason(model: ModelSilence) -> str:
    """Return why the session gets no answer."""
    return describe_silence(model.seconds) if model.kind == SILENT else describe_failure(model.kind, model.message)


def seconds_to_end(model: ModelSilence, timeout: float) -> float:
    """Return the seconds until the session is ended unless its model answers; 0 or less: now."""
    if model.kind == LOGIN:
        return 0.0 if model.failed_requests >= MAX_REFUSALS else LOGIN_PATIENCE - model.seconds
    if model.kind != SILENT and model.failed_requests >= MAX_RETRIES:
        return 0.0
    return timeout - model.seconds


def is_reported(model: ModelSilence, timeout: float) -> bool:
    """Return whether a person is told: at once what was said, silence only once it is unusual."""
    return model.kind != SILENT or model.seconds >= report_delay(timeout)


def report_delay(timeout: float) -> float:
    """Return the seconds of silence after which a person is told."""
    return min(SILENCE_REPORTED, timeout / 5)


def is_quota_wait_too_long(model: ModelSilence, now: datetime, timeout: float) -> bool:
    """Return whether the program itself waits for a limit of use for longer than a session may go without an answer."""
    return model.kind == QUOTA and model.retry_at is not None and model.retry_at - now > timedelta(seconds=timeout)


def describe_status(model: ModelSilence, left: float, program: str) -> str:
    """Return what ``status`` says while it lasts: the reason, who tries again, and when the session is ended."""
    end = f"ended in {_span(left)}" if left >= 1 else "being ended"
    if model.kind == SILENT:
        return f"no answer from its model for {_span(model.seconds)}; without one the session is {end}"
    if model.kind == LOGIN or not model.retried:
        return f"{describe_failure(model.kind, model.message)}; the session is {end}"
    return f"{describe_failure(model.kind, model.message)}; {program} tries again, and without an answer the session is {end}"


def _span(seconds: float) -> str:
    seconds = max(0.0, seconds)
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
