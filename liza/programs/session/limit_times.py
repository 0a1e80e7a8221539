"""Read from a program's words when its usage limit ends. Pure.

Vendors print a duration, a time of day, a date, a timestamp, or a field of a structured error. A time of day has the
zone that is printed after it, else that of this machine.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from liza.model.rests import MAX_LIMIT

JUST_ENDED = timedelta(minutes=15)
"""Age up to which a printed end means now. A program prints a limit that has ended until its vendor's servers agree."""

_UNITS = {"w": 604_800.0, "d": 86_400.0, "h": 3600.0, "ms": 0.001, "mil": 0.001, "m": 60.0, "s": 1.0}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_OFFSETS = {
    "AKDT": -8, "AKST": -9, "CDT": -5, "CEST": 2, "CET": 1, "CST": -6, "EDT": -4, "EEST": 3, "EET": 2, "EST": -5,
    "GMT": 0, "HST": -10, "JST": 9, "MDT": -6, "MST": -7, "PDT": -7, "PST": -8, "UTC": 0, "Z": 0,
}  # fmt: skip
"""Hours of the abbreviations that programs print; a name of the time zone database is better, where it is printed."""
_ANCHOR = re.compile(
    r"\b(?:resets?|resetting|retry(?:ing)?|again|wait(?:ing)?|available|until|renews?|refresh(?:es)?)\b"
    r"(?:\s+(?:again|at|on|in|after|by|for|about|around|approximately|is|the))*[\s:~≈·∙•-]*",
    re.IGNORECASE,
)
_UNIT = r"(?:weeks?|w|days?|d|hours?|hrs?|h|milliseconds?|msecs?|ms|minutes?|mins?|m|seconds?|secs?|s)"
_DURATION = re.compile(rf"(?:\d+(?:\.\d+)?\s*{_UNIT}(?![a-z])(?:\s*,)?(?:\s+and)?\s*)+", re.IGNORECASE)
_PART = re.compile(r"(?P<count>\d+(?:\.\d+)?)\s*(?P<unit>mil|ms|[wdhms])", re.IGNORECASE)
_ZONE = (
    r"(?:\s*\((?P<name>[A-Za-z]+(?:[/_+-][A-Za-z0-9:]+)*|[+-]\d{1,2}(?::?\d{2})?)\)"
    r"|\s*(?P<offset>(?:UTC|GMT)?[+-]\d{1,2}(?::?\d{2})?\b)"
    r"|\s*(?P<word>[A-Z][A-Za-z]+/[A-Za-z_/]+|UTC|GMT|Z|[A-Z]{2,4}T)\b)?"
)
_CLOCK = r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2})(?::\d{2}(?:\.\d+)?)?)?(?:\s*(?P<half>[ap])\.?m\b\.?)?"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})[a-z]*\.?"
_MONTH_FIRST = rf"{_MONTH}\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s+(?P<year>\d{{4}}))?(?!\d|:)"
_DAY_FIRST = rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+{_MONTH}(?:,?\s+(?P<year>\d{{4}}))?(?!\d|:)"
_WEEKDAY = rf"(?P<weekday>today|tonight|tomorrow|(?:{'|'.join(_DAYS)})[a-z]*)"
_ISO = r"(?P<year>\d{4})-(?P<number>\d{2})-(?P<day>\d{2})"
_TIMES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_ISO}[T\s]+{_CLOCK}(?-i:{_ZONE})",
        rf"(?:{_WEEKDAY},?\s+)?{_MONTH_FIRST}(?:,?\s+(?:at\s+)?{_CLOCK})?(?-i:{_ZONE})",
        rf"(?:{_WEEKDAY},?\s+)?{_DAY_FIRST}(?:,?\s+(?:at\s+)?{_CLOCK})?(?-i:{_ZONE})",
        rf"{_WEEKDAY}(?:,?\s+(?:at\s+)?{_CLOCK})?(?-i:{_ZONE})",
        rf"{_CLOCK}(?-i:{_ZONE})",
    )
)
_EPOCH = re.compile(r"(?:\||resets?_?at[\\\"']*\s*[:=]\s*[\\\"']*)(?P<epoch>\d{10}(?:\d{3})?)(?!\d)", re.IGNORECASE)
_SECONDS = re.compile(
    r"(?:resets?_in_seconds|retry[-_ ]?(?:after|delay)(?:[-_]?(?:seconds|(?P<ms>ms)))?)[\\\"']*\s*[:=]?\s*[\\\"']*"
    r"(?P<count>\d+(?:\.\d+)?)(?P<unit>ms|s)?(?=[\\\"',}\s]|$)",
    re.IGNORECASE,
)


def find_reset_time(text: str, now: datetime) -> datetime | None:
    """Return when the limit ends that ``text`` reports; None if it does not say so in a known form.

    An end up to JUST_ENDED ago is ``now``. An older or a too late one, and one in an unknown time zone, is None.
    ``now`` has the time zone of a printed time without one.
    """
    for anchor in _ANCHOR.finditer(text):
        duration = _DURATION.match(text, anchor.end())
        if duration is not None:
            return in_range(now + timedelta(seconds=_sum_seconds(duration.group())), now)
        for pattern in _TIMES:
            match = pattern.match(text, anchor.end())
            if match is not None and _is_complete(match):
                return _find_time(match, now)
    epoch = _EPOCH.search(text)
    if epoch is not None:
        return from_epoch(epoch["epoch"], now)
    seconds = _SECONDS.search(text)
    if seconds is not None:
        unit = "ms" if seconds["ms"] else (seconds["unit"] or "s").lower()
        return in_range(now + timedelta(seconds=float(seconds["count"]) * _UNITS[unit]), now)
    return None


def from_epoch(digits: str, now: datetime) -> datetime | None:
    """Return the time of seconds or milliseconds since 1970, as ``find_reset_time`` does."""
    try:
        number = float(digits)
        at = datetime.fromtimestamp(number / 1000 if number >= 1e12 else number, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return in_range(at, now)


def in_range(at: datetime, now: datetime) -> datetime | None:
    """Return ``at`` in the zone of ``now``, ``now`` if it has just passed, None if it cannot be the end of a limit."""
    delay = at.astimezone(UTC) - now.astimezone(UTC)
    if not -JUST_ENDED <= delay <= MAX_LIMIT:
        return None
    return max(at.astimezone(UTC), now.astimezone(UTC)).astimezone(now.tzinfo)


def _sum_seconds(text: str) -> float:
    parts = ((float(part["count"]), part["unit"].lower()) for part in _PART.finditer(text))
    return min(sum(count * _UNITS[unit] for count, unit in parts), 2 * MAX_LIMIT.total_seconds())


def _is_complete(match: re.Match[str]) -> bool:
    """Return whether the match names a day or a time of day: a bare number is neither."""
    groups = match.groupdict()
    return any(groups.get(name) for name in ("day", "weekday", "minute", "half"))


def _find_time(match: re.Match[str], now: datetime) -> datetime | None:
    """Return the time that one of _TIMES matched."""
    groups = match.groupdict()
    zone = _find_zone(groups["name"] or groups["offset"] or groups["word"], now)
    clock = _find_clock(groups)
    if zone is None or clock is None:
        return None
    today = now.astimezone(zone).date()
    for day in _list_days(groups, today):
        at = in_range(datetime.combine(day, clock, zone), now)
        if at is not None:
            return at
    return None


def _find_clock(groups: dict[str, str | None]) -> time | None:
    """Return the time of day, midnight if none was printed; None if no clock shows it."""
    hour, minute, half = int(groups["hour"] or 0), int(groups["minute"] or 0), (groups["half"] or "").lower()
    if half and not 1 <= hour <= 12:
        return None
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return time(hour, minute) if hour <= 23 and minute <= 59 else None


def _list_days(groups: dict[str, str | None], today: date) -> list[date]:
    """Return the days that can be meant, the earliest first."""
    month, year = groups.get("month"), groups.get("year")
    number = groups.get("number") or (str(_MONTHS.index(month.lower()) + 1) if month else None)
    if number is not None:
        years = (int(year),) if year else (today.year - 1, today.year, today.year + 1)
        return [day for year in years if (day := _make_date(year, int(number), int(groups["day"] or 0))) is not None]
    word = (groups.get("weekday") or "").lower()
    if word in ("today", "tonight", "tomorrow"):
        return [today + timedelta(days=word == "tomorrow")]
    if word:
        days = [today + timedelta(days=ahead) for ahead in range(8)]
        return [day for day in days if _DAYS[day.weekday()] == word[:3]]
    return [today + timedelta(days=ahead) for ahead in (-1, 0, 1)]


def _make_date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _find_zone(name: str | None, now: datetime) -> tzinfo | None:
    """Return the zone of a printed name or offset, that of ``now`` without a name, None for an unknown name."""
    if name is None or name.lower() == "local":
        return now.tzinfo or UTC
    offset = re.fullmatch(r"(?:UTC|GMT)?(?P<sign>[+-])(?P<hours>\d{1,2}):?(?P<minutes>\d{2})?", name)
    if offset is not None:
        seconds = int(offset["hours"]) * 3600 + int(offset["minutes"] or 0) * 60
        return _fixed(-seconds if offset["sign"] == "-" else seconds)
    if name.upper() in _OFFSETS:
        return _fixed(_OFFSETS[name.upper()] * 3600)
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        # Unknown here, or this system has no time zone database.
        return None


def _fixed(seconds: int) -> tzinfo | None:
    return timezone(timedelta(seconds=seconds)) if abs(seconds) < 86_400 else None
