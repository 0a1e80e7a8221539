"""Find in a program's output why its model does not answer. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from liza.model.rests import MAX_LIMIT
from liza.model.session_ends import SilenceKind
from liza.model.value_classes import Value
from liza.programs.presets.preset import FailurePattern
from liza.programs.session import limit_times

_MAX_LINE = 4000
_MESSAGE = re.compile(r'"message": ?"(?P<text>[^"\\]+)')
_CODE = re.compile(r'"(?:code|status)": ?"?(?P<code>[1-5]\d\d)\b')


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
        kind = SilenceKind(failure.kind)
        until = _find_end(kind, match, line, now)
        if until is None and before is not None and before.kind is kind is SilenceKind.QUOTA:
            until = before.until  # One line gives the reason, another one the time.
        return ModelFailure(kind, message, until, failure.retried, count)
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


def _find_end(kind: SilenceKind, match: re.Match[str], line: str, now: datetime) -> datetime | None:
    """Return when the failure ends, by the groups of the match; that of a usage limit also by its words."""
    groups = match.groupdict()
    seconds = 0.0
    for unit, worth in (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1), ("milliseconds", 0.001)):
        if groups.get(unit):
            seconds += _figure(groups[unit]) * worth
    if seconds > 0:
        return now + timedelta(seconds=seconds) if seconds <= MAX_LIMIT.total_seconds() else None
    if groups.get("epoch"):
        return limit_times.from_epoch(groups["epoch"] or "", now)
    if groups.get("time"):
        return limit_times.find_reset_time(f"resets {groups['time']}", now)
    if kind is not SilenceKind.QUOTA:
        return None
    words = _matched_message(line, match)
    return limit_times.find_reset_time(words, now) or limit_times.find_reset_time(line, now)


def _figure(text: str | None) -> float:
    """Return the group as a number; 0 if the row's expression matched something else."""
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
