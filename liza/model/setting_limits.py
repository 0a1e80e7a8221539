"""Limits of the numbers in ``config``: times that a clock can add, and integers that every format can hold. Pure.

People and agents can edit the board. A number outside its limits would make each claim and each supervisor fail, so
the default is in effect instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from liza.model.model import Config
from liza.model.value_classes import replace

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
