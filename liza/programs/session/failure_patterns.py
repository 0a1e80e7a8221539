"""Find in a program's output why its model does not answer. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from liza.programs.presets.preset import FailurePattern
from liza.rules.sessions.session_ends import SilenceKind
from liza.rules.value_classes import Value

MAX_RESET_DELAY = timedelta(days=8)
"""Maximum time until a usage limit resets. A later time is a misread number: no known limit is longer than a week."""
_MAX_LINE = 4000
_MESSAGE = re.compile(r'"message": ?"(?P<text>[^"\\]+)')
_CODE = re.compile(r'"(?:code|status)": ?"?(?P<code>[1-5]\d\d)\b')
_CLOCK = re.compile(r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?\s*(?P<half>[ap]m)?", re.IGNORECASE)


class ModelFailure(Value):
    """Why the model does not answer: ``message`` for a person, ``until`` when it ends, if known.

    ``retried``: the program retries by itself. ``count``: how often in succession it was seen.
    """

    kind: SilenceKind
    message: str
    until: datetime | None = None
    retried: bool = False
    count: int = 1


class ModelSigns(Value):
    """How a row's program reports failures of its model, and which line shows an answer."""

    failures: Sequence[FailurePattern]
    answers: str = ""


def find_failure(signs: ModelSigns, tail: str, now: datetime) -> ModelFailure | None:
    """Return the failure that lasts after the last line of ``tail``; None if no failure lasts.

    ``now`` has the time zone of printed times of day.
    """
    failure: ModelFailure | None = None
    for line in tail.splitlines():
        failure = update_failure(signs, failure, line, now)
    return failure


def update_failure(
    signs: ModelSigns,
    before: ModelFailure | None,
    line: str,
    now: datetime,
    is_own: Callable[[int], bool] | None = None,
) -> ModelFailure | None:
    """Return the failure that lasts after one more line of output, or None.

    A line that shows an answer ends any failure. A failure that the program retries also ends with the next event that
    is no failure, if the row does not define what an answer looks like. ``is_own`` returns whether a process id in a
    shared log belongs to this session.
    """
    # Only the start of a long line: failures match there, and the time of a regular expression grows with the length.
    line = line[:_MAX_LINE]
    hit = _match_failure(signs.failures, line, is_own)
    if hit is not None:
        failure, match = hit
        message = " ".join(_format_message(failure, line, match).split())[:200]
        count = 1 if before is None else before.count + 1
        until = _parse_reset_time(match.groupdict(), now)
        return ModelFailure(SilenceKind(failure.kind), message, until, failure.retried, count)
    if before is None or (signs.answers and re.match(signs.answers, line)):
        return None
    retry_succeeded = before.retried and not signs.answers and line.startswith('{"')
    return None if retry_succeeded else before


def _match_failure(
    failures: Sequence[FailurePattern], line: str, is_own: Callable[[int], bool] | None
) -> tuple[FailurePattern, re.Match[str]] | None:
    """Return the last of the row's failures that matches the line, with the match."""
    for failure in reversed(failures):
        match = re.search(failure.match, line, re.MULTILINE)
        if match is None:
            continue
        pid = match.groupdict().get("pid")
        if pid is None or (is_own is not None and pid.isdecimal() and is_own(int(pid))):
            return failure, match
    return None


def _format_message(failure: FailurePattern, line: str, match: re.Match[str]) -> str:
    """Return the message for a person, without machine-readable text."""
    if not failure.says:
        return extract_message(_matched_message(line, match))
    message = failure.says
    for name, value in match.groupdict().items():
        message = message.replace(f"{{{name}}}", extract_message(value or ""))
    return message


def extract_message(text: str) -> str:
    """Return the message of an error that is wrapped in JSON, with its code; any other text unchanged."""
    text = re.sub(r"^\[(.*)\]$", r"\1", text)
    begin = text.find('{"')
    message = _MESSAGE.search(text, begin) if begin >= 0 else None
    if message is None:
        return text
    code = _CODE.search(text, begin)
    before = text[:begin].lstrip("[").rstrip(" :")
    result = message["text"] + (f" ({code['code']})" if code and code["code"] not in message["text"] else "")
    return f"{before}: {result}" if before else result


def _matched_message(tail: str, match: re.Match[str]) -> str:
    """Return the group ``words``, decoded if it is part of a JSON string; without that group, the matched line."""
    words = match.groupdict().get("words")
    if not words:
        return _matched_line(tail, match)
    try:
        return str(json.loads(f'"{words}"')).encode("utf-8", "replace").decode()
    except (ValueError, RecursionError):
        return words


def _matched_line(tail: str, match: re.Match[str]) -> str:
    """Return the matched line, or the match with some context if the line is longer than 200 characters."""
    begin, end = tail.rfind("\n", 0, match.start()) + 1, tail.find("\n", match.end())
    line = tail[begin : end if end >= 0 else len(tail)]
    return line if len(line) <= 200 else tail[max(begin, match.start() - 40) : match.end() + 120]


def _parse_reset_time(groups: dict[str, str | None], now: datetime) -> datetime | None:
    seconds = 0.0
    for unit, worth in (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1), ("milliseconds", 0.001)):
        if groups.get(unit):
            seconds += _figure(groups[unit]) * worth
    if seconds > 0:
        return now + timedelta(seconds=seconds) if seconds <= MAX_RESET_DELAY.total_seconds() else None
    if groups.get("epoch"):
        try:
            at = datetime.fromtimestamp(float(groups["epoch"] or 0), now.tzinfo)
        except (ValueError, OverflowError, OSError):
            return None
        return at if now < at <= now + MAX_RESET_DELAY else None
    return _next_clock_time(groups["time"] or "", now) if groups.get("time") else None


def _figure(text: str | None) -> float:
    """Return the group as a number; 0 if the row's expression matched something else."""
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def _next_clock_time(text: str, now: datetime) -> datetime | None:
    """Return the next time at which a clock shows ``15:00`` or ``3pm``."""
    match = _CLOCK.search(text)
    if not match:
        return None
    hour, minute = int(match["hour"]), int(match["minute"] or 0)
    if match["half"]:
        hour = hour % 12 + (12 if match["half"].lower() == "pm" else 0)
    if hour > 23 or minute > 59:
        return None
    at = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return at if at > now else at + timedelta(days=1)
