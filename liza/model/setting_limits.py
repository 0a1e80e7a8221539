"""Values that a setting may have: numbers, permissions, quiet hours and targets of notices. Pure.

People and agents can edit the board. A number outside its limits would make each claim and each supervisor fail, so
the default is in effect instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any, Final

import msgspec

from liza.model.configuration import Config
from liza.model.value_classes import Value, replace

MAX_DURATION: Final = 365 * 24 * 3600
"""Maximum number of seconds of a setting."""
MAX_NUMBER: Final = 1 << 53
"""Maximum of all other integers: readers of JSON may hold numbers as floats."""
_DURATIONS: Final = frozenset((
    "heartbeat_interval", "lease_duration", "hung_after", "poll_interval", "ready_timeout", "answer_timeout",
    "idle_after", "grace", "restart_after_handoff", "restart_after_crash", "session_max", "integration_timeout",
    "pull_request_interval", "delivery.readiness_timeout", "delivery.acknowledgment_timeout",
    "delivery.retry_backoffs", "loop.pause", "loop.unchanged_seconds", "breaker.window",
))  # fmt: skip


def find_excesses(config: Config) -> Iterator[tuple[str, Any, str]]:
    """Yield the dotted name, the value and the expected range of each number outside its limits."""
    for name in Config.__struct_fields__:
        value = getattr(config, name)
        if isinstance(value, msgspec.Struct):
            for inner in value.__struct_fields__:
                yield from _find_excess(f"{name}.{inner}", getattr(value, inner))
        else:
            yield from _find_excess(name, value)


def _find_excess(name: str, value: Any) -> Iterator[tuple[str, Any, str]]:
    is_duration = name in _DURATIONS
    for number in value if type(value) is tuple else (value,):
        # "not 0 <= number" instead of "number < 0", because NaN must be refused too.
        if is_duration and number is not None and not 0 <= number <= MAX_DURATION:
            yield name, number, f"0 to {MAX_DURATION} seconds"
        elif type(number) is int and not -MAX_NUMBER <= number <= MAX_NUMBER:
            yield name, number, f"at most {MAX_NUMBER}"


def with_usable_numbers(config: Config) -> Config:
    """Return the settings with the default instead of each number outside its limits."""
    usual = Config()
    for name in {name for name, *_ in find_excesses(config)}:
        outer, _, inner = name.partition(".")
        value = getattr(usual, outer)
        if inner:
            value = replace(getattr(config, outer), **{inner: getattr(value, inner)})
        config = replace(config, **{outer: value})
    return config


def lease_seconds(config: Config) -> int:
    """Return the duration of a lease. A transaction has the settings as they are written, also unusable ones."""
    seconds = config.lease_duration
    return seconds if 0 <= seconds <= MAX_DURATION else Config().lease_duration


def lease_expiry(config: Config, now: datetime) -> datetime:
    """Return when a lease taken at ``now`` expires."""
    return now + timedelta(seconds=lease_seconds(config))


PROMPTS: Final = "prompts"
"""The program does only what needs no permission prompt."""
BYPASS: Final = "bypass"
"""The program skips its prompts."""
VALUES: Final = (PROMPTS, BYPASS)
_EARLIER_WORD: Final = "confined"
"""What version 0.1 wrote for ``prompts``."""


def read_permissions(text: str) -> str:
    """Return the present word for one that an earlier version may have written."""
    return PROMPTS if text == _EARLIER_WORD else text


def choose_permissions(setting: str | None, *, is_boxed: bool) -> str:
    """Return the permissions of a session. The box replaces prompts, unless a person wants both."""
    return setting or (BYPASS if is_boxed else PROMPTS)


class DailyHours(Value):
    """From ``start`` until before ``end`` in local time, past midnight if ``end`` is earlier.

    ``days``: those on which the hours begin; 0 is Monday.
    """

    start: time
    end: time
    days: frozenset[int] = frozenset(range(7))

    def contains(self, local: datetime) -> bool:
        """Return whether a local time is in the hours."""
        today, now = local.weekday(), local.time()
        if self.start < self.end:
            return today in self.days and self.start <= now < self.end
        return (now >= self.start and today in self.days) or (now < self.end and (today - 1) % 7 in self.days)

    def next_start(self, local: datetime) -> datetime:
        """Return the next local time, without a time zone, at which the hours begin after ``local``."""
        days = (local.date() + timedelta(days=count) for count in range(8))
        starts = (datetime.combine(day, self.start) for day in days if day.weekday() in self.days)
        return next(start for start in starts if start > local.replace(tzinfo=None))


_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS: Final = re.compile(
    rf"(?:({'|'.join(_DAYS)})(?:-({'|'.join(_DAYS)}))? )?([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)", re.ASCII
)


def parse_hours(text: str) -> DailyHours | None:
    """Return the hours of a text such as ``22:00-07:00``, or with days: ``mon-fri 08:00-20:00`` or ``sun 10:00-12:00``.

    None if it is not of this form or has no length.
    """
    match = _HOURS.fullmatch(text)
    if match is None:
        return None
    start, end = time(int(match[3]), int(match[4])), time(int(match[5]), int(match[6]))
    first, last = _DAYS.index(match[1] or "mon"), _DAYS.index(match[2] or match[1] or "sun")
    days = frozenset((first + count) % 7 for count in range((last - first) % 7 + 1))
    return None if start == end else DailyHours(start, end, days)


NO_SESSION: Final = "no session starts before"
"""Start of the sentence about the time until the working hours."""


def describe_opening(config: Config, now: datetime, zone: tzinfo | None = None) -> str | None:
    """Return until when no session starts, with the command that ends the wait; None if sessions start now."""
    opening = find_opening(config, now, zone)
    if opening is None:
        return None
    local = opening.astimezone(zone)
    day = "" if opening - now < timedelta(days=1) else f" on {_DAYS[local.weekday()].capitalize()}"
    return f"{NO_SESSION} {local:%H:%M}{day} (config.work_hours): liza config set work_hours null"


def find_opening(config: Config, now: datetime, zone: tzinfo | None = None) -> datetime | None:
    """Return when `config.work_hours` begin, in UTC; None while they last, and without such hours.

    ``zone``: whose clock on the wall counts; None: that of this machine.
    """
    hours = parse_hours(config.work_hours) if config.work_hours is not None else None
    local = now.astimezone(zone)
    if hours is None or hours.contains(local):
        return None
    return hours.next_start(local).replace(tzinfo=zone).astimezone(UTC)


DESKTOP: Final = "desktop"
EXEC_LABEL: Final = "exec"
CUT_COMMAND: Final = "[cut: liza config get notify]"
"""Shown instead of a command, which may contain a credential. It names the command that prints it."""
VARIABLE_PREFIX, FILE_PREFIX = "env:", "file:"


def is_url(target: str) -> bool:
    """Return whether a target is an address itself, and not the name of one."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", target) is not None


def target_problem(target: str) -> str | None:
    """Return why ``target`` is no target; None if it is one. The text has no part of an address."""
    if target == DESKTOP or is_url(target):
        return None
    if target.startswith(VARIABLE_PREFIX):
        valid = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", target.removeprefix(VARIABLE_PREFIX), re.ASCII)
        return None if valid else "env: needs the name of an environment variable"
    if target.startswith(FILE_PREFIX):
        # A relative path would be below the checkout, where agents' commits arrive.
        path = target.removeprefix(FILE_PREFIX)
        return None if path.startswith(("/", "~/")) and "\0" not in path else "file: needs an absolute path"
    return "not desktop, env:NAME, file:PATH or a URL"


def board_problems(targets: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the label of each target that the board must not have, and why."""
    for target in targets:
        problem = target_problem(target)
        if problem is None and is_url(target):
            problem = "a URL, which the history of the board would keep"
        if problem is not None:
            yield target_label(target), problem


def target_label(target: str) -> str:
    """Return a target as it may be shown: of an address only the scheme, of an unknown form nothing."""
    if is_url(target):
        return f"{target.partition('://')[0]}://…"
    return target if target_problem(target) is None else "…"


MAX_LINK: Final = 200
"""Maximum number of characters of the address of the page."""
_LINK: Final = re.compile(
    r"https?://(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~%-]+)*/?", re.ASCII
)


def is_link(text: str) -> bool:
    """Return whether a text is an address to which the path of a page can be added: of http or https, without a user
    name, a query or a fragment.
    """
    return len(text) <= MAX_LINK and _LINK.fullmatch(text) is not None


def hide_credentials(settings: Any) -> Any:
    """Return ``config.notify`` as JSON values with labels instead of targets, and without its command."""
    if not isinstance(settings, Mapping):
        return settings
    shown = dict(settings)
    if isinstance(settings.get("targets"), list | tuple):
        shown["targets"] = [target_label(str(target)) for target in settings["targets"]]
    if settings.get("exec"):
        shown["exec"] = CUT_COMMAND
    link = settings.get("link")
    if link and not is_link(str(link)):
        shown["link"] = target_label(str(link))  # it may have a password
    return shown
