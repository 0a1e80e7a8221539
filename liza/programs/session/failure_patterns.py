"""Tell from what a program prints why its model does not answer. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from liza.programs.presets.preset import FailurePattern

MAX_RESET_DELAY = timedelta(days=8)
"""A reset that lies further away is a number that meant something else; limits of use are those of a week at most."""
_MAX_LINE = 4000
_MESSAGE = re.compile(r'"message": ?"(?P<text>[^"\\]+)')
_CODE = re.compile(r'"(?:code|status)": ?"?(?P<code>[1-5]\d\d)\b')
_CLOCK = re.compile(r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?\s*(?P<half>[ap]m)?", re.IGNORECASE)


@dataclass(frozen=True)
class ModelFailure:
    """``kind`` as in a row's failures, ``words`` what was said, ``until`` when it is over, where that was said.

    ``retried``: the program tries again by itself. ``times``: how often in a row it was seen.
    """

    kind: str
    message: str
    until: datetime | None = None
    retried: bool = False
    count: int = 1


@dataclass(frozen=True)
class ModelSigns:
    """What a row says about its program's model: how it tells of failures, and what shows an answer."""

    failures: Sequence[FailurePattern]
    answers: str = ""


def find_failure(signs: ModelSigns, tail: str, now: datetime) -> ModelFailure | None:
    """Return what keeps the model from answering after the last line of ``tail``; None if nothing does.

    ``now`` has the zone in which a time of day is meant.
    """
    found: ModelFailure | None = None
    for line in tail.splitlines():
        found = update_failure(signs, found, line, now)
    return found


def update_failure(
    signs: ModelSigns,
    before: ModelFailure | None,
    line: str,
    now: datetime,
    is_own: Callable[[int], bool] | None = None,
) -> ModelFailure | None:
    """Return what keeps the model from answering after one more line of output.

    A line that shows an answer ends any trouble. What the program tries again by itself also ends with the next event
    that is no failure, where the row does not say what an answer looks like. ``is_own`` tells whether a process id in a
    shared log belongs to this session.
    """
    # The beginning of a long line: what tells a failure stands there, and an expression's time grows with the rest.
    line = line[:_MAX_LINE]
    found = _match_failure(signs.failures, line, is_own)
    if found is not None:
        failure, match = found
        words = " ".join(_format_message(failure, line, match).split())[:200]
        times = 1 if before is None else before.count + 1
        return ModelFailure(failure.kind, words, _parse_reset_time(match.groupdict(), now), failure.retried, times)
    if before is None or (signs.answers and re.match(signs.answers, line)):
        return None
    went_on = before.retried and not signs.answers and line.startswith('{"')
    return None if went_on else before


def _match_failure(
    failures: Sequence[FailurePattern], line: str, is_own: Callable[[int], bool] | None
) -> tuple[FailurePattern, re.Match[str]] | None:
    """Return the last of the row's failures that the line matches."""
    for failure in reversed(failures):
        match = re.search(failure.match, line, re.MULTILINE)
        if match is None:
            continue
        pid = match.groupdict().get("pid")
        if pid is None or (is_own is not None and pid.isdecimal() and is_own(int(pid))):
            return failure, match
    return None


def _format_message(failure: FailurePattern, line: str, found: re.Match[str]) -> str:
    """Return what a person reads of it, without what is written for machines."""
    if not failure.says:
        return extract_message(_matched_message(line, found))
    said = failure.says
    for name, value in found.groupdict().items():
        said = said.replace(f"{{{name}}}", extract_message(value or ""))
    return said


def extract_message(text: str) -> str:
    """Return the message of an error that is wrapped in JSON, with its code; other text as it is."""
    text = re.sub(r"^\[(.*)\]$", r"\1", text)
    begin = text.find('{"')
    message = _MESSAGE.search(text, begin) if begin >= 0 else None
    if message is None:
        return text
    code = _CODE.search(text, begin)
    before = text[:begin].lstrip("[").rstrip(" :")
    said = message["text"] + (f" ({code['code']})" if code and code["code"] not in message["text"] else "")
    return f"{before}: {said}" if before else said


def _matched_message(tail: str, found: re.Match[str]) -> str:
    """What the row says is for people, which may come out of JSON; otherwise the line."""
    said = found.groupdict().get("words")
    if not said:
        return _matched_line(tail, found)
    try:
        return str(json.loads(f'"{said}"')).encode("utf-8", "replace").decode()
    except (ValueError, RecursionError):
        return said


def _matched_line(tail: str, found: re.Match[str]) -> str:
    """What matched, with what stands before and after it in its line, as far as that is for people."""
    begin, end = tail.rfind("\n", 0, found.start()) + 1, tail.find("\n", found.end())
    line = tail[begin : end if end >= 0 else len(tail)]
    return line if len(line) <= 200 else tail[max(begin, found.start() - 40) : found.end() + 120]


def _parse_reset_time(said: dict[str, str | None], now: datetime) -> datetime | None:
    seconds = 0.0
    for unit, worth in (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1), ("milliseconds", 0.001)):
        if said.get(unit):
            seconds += _figure(said[unit]) * worth
    if seconds > 0:
        return now + timedelta(seconds=seconds) if seconds <= MAX_RESET_DELAY.total_seconds() else None
    if said.get("epoch"):
        try:
            at = datetime.fromtimestamp(float(said["epoch"] or 0), now.tzinfo)
        except (ValueError, OverflowError, OSError):
            return None
        return at if now < at <= now + MAX_RESET_DELAY else None
    return _next_clock_time(said["time"] or "", now) if said.get("time") else None


def _figure(text: str | None) -> float:
    """What a group says; nothing where the row lets it match what is no figure."""
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def _next_clock_time(text: str, now: datetime) -> datetime | None:
    """The next time that the clock shows ``15:00`` or ``3pm``."""
    found = _CLOCK.search(text)
    if not found:
        return None
    hour, minute = int(found["hour"]), int(found["minute"] or 0)
    if found["half"]:
        hour = hour % 12 + (12 if found["half"].lower() == "pm" else 0)
    if hour > 23 or minute > 59:
        return None
    at = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return at if at > now else at + timedelta(days=1)
