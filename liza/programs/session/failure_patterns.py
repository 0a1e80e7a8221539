"""Find in a program's output why its model does not answer, and when a usage limit ends. Pure but `FailureWatch`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from liza.model.backoff import MAX_LIMIT
from liza.model.errors import NotRegularFile
from liza.model.session_ends import SilenceKind
from liza.model.value_classes import Value
from liza.programs import reported_figures
from liza.programs.presets.preset import FailurePattern, Preset
from liza.programs.rules.model_silence import MAX_REFUSALS, MAX_RETRIES
from liza.programs.session.log_file import parse_object
from liza.system.file_growth import Tail

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
        return from_epoch(groups["epoch"] or "", now)
    if groups.get("time"):
        return find_reset_time(f"resets {groups['time']}", now)
    if kind is not SilenceKind.QUOTA:
        return None
    words = _matched_message(line, match)
    return find_reset_time(words, now) or find_reset_time(line, now)


def _figure(text: str | None) -> float:
    """Return the group as a number; 0 if the row's expression matched something else."""
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


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


INITIAL_BYTES = 64 << 10
"""Bytes before the end at which reading begins, for a supervisor that adopts a session and has read nothing yet."""
MAX_BYTES = 1 << 20
"""Maximum new bytes of a file per read; of more, only the end is read."""
_VARIABLE = re.compile(r"\$\{(?P<name>\w+):-(?P<default>[^{}]*)\}")


class FailureWatch:
    """The model failures of one session's program. Times are seconds of the monotonic clock.

    ``environ`` is the session's environment, for the path of the program's log; ``is_own`` returns whether a process id
    belongs to the session.
    """

    def __init__(
        self, row: Preset, output: Path, environ: Mapping[str, str], is_own: Callable[[int], bool] | None = None
    ) -> None:
        self.row = row
        self.failure: ModelFailure | None = None
        self.failing_since: float | None = None
        """When the present failure was first seen."""
        self.has_answered = False
        """Whether a line has shown an answer of the model. The caller resets it."""
        self.has_log = bool(row.log)
        self._signs = ModelSigns(row.failures, row.answers)
        self._environ = environ
        self._is_own = is_own
        self._output = _tail(output)
        self._log: Tail | None = None
        self._session: str | None = None

    def read_new(self, steady: float, now: datetime) -> bool:
        """Read new lines. Return whether the failure or the answer changed in a way that has to be acted on or
        reported."""
        before = self._summary()
        for line in _lines(self._output):
            self._read_line(line, now)
            if self.has_log and self._session is None:
                self._session = reported_figures.find_session_id(self.row.usage, parse_object(line))
        if self._log is None and self.has_log and (self._session or "{session}" not in self.row.log):
            self._log = _tail(resolve_log_path(self.row.log, self._environ, self._session or ""))
        for line in _lines(self._log) if self._log is not None else ():
            self._read_line(line, now)
        if self.failure is None:
            self.failing_since = None
        elif self.failing_since is None:
            self.failing_since = steady
        return self._summary() != before

    def _read_line(self, line: str, now: datetime) -> None:
        self.failure = update_failure(self._signs, self.failure, line, now, self._is_own)
        if self.row.answers and re.match(self.row.answers, line):
            self.has_answered = True

    def _summary(self) -> tuple[object, ...]:
        failure = self.failure
        if failure is None:
            return (self.has_answered,)
        return (
            failure.kind,
            failure.message,
            failure.count >= MAX_RETRIES,
            failure.kind is SilenceKind.LOGIN and failure.count >= MAX_REFUSALS,
        )


def _tail(path: Path) -> Tail:
    return Tail(path, first=INITIAL_BYTES, most=MAX_BYTES, anew=True)


def _lines(tail: Tail) -> Iterator[str]:
    """Yield the new lines; none if the file cannot be read."""
    with suppress(OSError, NotRegularFile):
        yield from tail.lines()


def resolve_log_path(template: str, environ: Mapping[str, str], session: str) -> Path:
    """Return the path of a program's own log: ``${NAME:-default}`` is a variable, ``~`` the home directory."""
    expanded = _VARIABLE.sub(lambda match: environ.get(match["name"]) or match["default"], template)
    return Path(expanded.replace("{session}", session.replace("/", "_"))).expanduser()
