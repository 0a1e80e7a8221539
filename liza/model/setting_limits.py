"""Values that a setting may have: numbers, permissions, quiet hours and targets of notices. Pure.

People and agents can edit the board. A number outside its limits would make each claim and each supervisor fail, so
the default is in effect instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, time, timedelta
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


class QuietHours(Value):
    """From ``start`` until before ``end``, each day, in local time; past midnight if ``end`` is earlier."""

    start: time
    end: time

    def contains(self, local: time) -> bool:
        """Return whether a local time of day is in the quiet hours."""
        if self.start < self.end:
            return self.start <= local < self.end
        return local >= self.start or local < self.end


def parse_quiet_hours(text: str) -> QuietHours | None:
    """Return the hours of a text such as ``22:00-07:00``; None if it is not of this form or has no length."""
    match = re.fullmatch(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])", text, re.ASCII)
    if match is None:
        return None
    start, end = time(int(match[1]), int(match[2])), time(int(match[3]), int(match[4]))
    return None if start == end else QuietHours(start, end)


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
