"""What the last lines of a program say that kept its model from answering. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from liza.programs.preset import Failure

LONGEST = timedelta(days=8)
"""A reset that lies further away is a number that meant something else; limits of use are those of a week at most."""
_LONGEST_LINE = 1000
_CLOCK = re.compile(r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?\s*(?P<half>[ap]m)?", re.IGNORECASE)


@dataclass(frozen=True)
class Trouble:
    """``kind`` as in a row's failures, ``words`` what was said, ``until`` when it is over, where that was said."""

    kind: str
    words: str
    until: datetime | None = None
    retried: bool = False


def trouble(failures: Sequence[Failure], tail: str, now: datetime) -> Trouble | None:
    """The last thing in ``tail`` that one of a row's failures matches; None where there is none. ``now`` has the zone
    in which a time of day is meant. What the program tried again counts only while nothing else came after it."""
    # Of a long line the beginning: what tells a failure stands there, and an expression's time grows with the rest.
    tail = "\n".join(line[:_LONGEST_LINE] for line in tail.splitlines())
    last: tuple[int, Failure, re.Match[str]] | None = None
    for failure in failures:
        for found in re.finditer(failure.match, tail, re.MULTILINE):
            if failure.retried and _went_on(failures, tail[found.end() :]):
                continue
            if last is None or found.start() >= last[0]:
                last = (found.start(), failure, found)
    if last is None:
        return None
    _, failure, found = last
    words = " ".join(_words(tail, found).split())[:200]
    return Trouble(failure.kind, words, _until(found.groupdict(), now), failure.retried)


def _went_on(failures: Sequence[Failure], after: str) -> bool:
    """Whether an event came that is no failure; a failure's own words may go on over several lines."""
    events = [line for line in after.splitlines()[1:] if line.startswith('{"')]
    return any(not any(re.match(one.match, line) for one in failures) for line in events)


def _words(tail: str, found: re.Match[str]) -> str:
    """What the row says is for people, which may come out of JSON; otherwise the line."""
    said = found.groupdict().get("words")
    if not said:
        return _line_of(tail, found)
    try:
        return str(json.loads(f'"{said}"')).encode("utf-8", "replace").decode()
    except (ValueError, RecursionError):
        return said


def _line_of(tail: str, found: re.Match[str]) -> str:
    """What matched, with what stands before and after it in its line, as far as that is for people."""
    begin, end = tail.rfind("\n", 0, found.start()) + 1, tail.find("\n", found.end())
    line = tail[begin : end if end >= 0 else len(tail)]
    return line if len(line) <= 200 else tail[max(begin, found.start() - 40) : found.end() + 120]


def _until(said: dict[str, str | None], now: datetime) -> datetime | None:
    seconds = 0.0
    for unit, worth in (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1)):
        if said.get(unit):
            seconds += float(said[unit] or 0) * worth
    if seconds > 0:
        return now + timedelta(seconds=seconds) if seconds <= LONGEST.total_seconds() else None
    if said.get("epoch"):
        try:
            at = datetime.fromtimestamp(float(said["epoch"] or 0), now.tzinfo)
        except (ValueError, OverflowError, OSError):
            return None
        return at if now < at <= now + LONGEST else None
    return _next(said["time"] or "", now) if said.get("time") else None


def _next(text: str, now: datetime) -> datetime | None:
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
