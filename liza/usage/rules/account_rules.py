"""Which of several accounts of a program the next session uses, and until when an account is not used. Pure.

An account belongs to a person, not to a crew: several agents of several crews use it at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from liza.model.backoff import MAX_LIMIT, MAX_QUOTA_REST, MAX_RETRY_DELAY, MIN_QUOTA_REST, QUOTA_FACTOR, backoff
from liza.model.value_classes import AwareDatetime, FrozenStruct, Value, replace

SOURCE_RETRY = timedelta(minutes=1)
"""Time after which an account is tried again whose secret could not be read, such as from a locked password store."""
EXPIRY_MARGIN = timedelta(minutes=5)
"""How long before its end a credential is replaced; at most a fifth of its life."""


class Obstacle(StrEnum):
    """Why an account cannot be used."""

    LIMIT = "limit"
    """A usage limit is reached. It ends by itself."""
    LOGIN = "login"
    """The model refused the login. A person has to act."""
    SOURCE = "source"
    """Its secret could not be read, or its directory is missing. It is tried again."""


class AccountRecord(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """What keeps an account from being used, until when.

    ``failures`` counts the obstacles in a row. ``until`` None with an obstacle: until a person acts.
    """

    obstacle: Obstacle | None = None
    reason: str = ""
    until: AwareDatetime | None = None
    failures: int = 0


class NoneUsable(Value):
    """No account can be used before ``until``; None: not before a person acts. ``reason`` names each account."""

    until: datetime | None
    reason: str


class Lifetime(Value):
    """When a credential was read, and when it ends; None if that is not known."""

    read: datetime
    expires: datetime | None = None


_UNUSED = AccountRecord()


def is_usable(record: AccountRecord, now: datetime) -> bool:
    """Return whether an account may be used now."""
    return record.obstacle is None or (record.until is not None and record.until <= now)


def choose_account(
    names: Sequence[str],
    records: Mapping[str, AccountRecord],
    now: datetime,
    preferred: str | None = None,
) -> str | NoneUsable:
    """Return the account for the next session: the first usable one. ``names`` is not empty, in the order of the file.

    ``preferred`` is the account of a conversation that the session continues: it is kept while it is usable.
    """
    usable = [name for name in names if is_usable(records.get(name, _UNUSED), now)]
    if not usable:
        return _none_usable(names, records)
    return preferred if preferred in usable else usable[0]


def _none_usable(names: Sequence[str], records: Mapping[str, AccountRecord]) -> NoneUsable:
    ends = [until for name in names if (until := records[name].until) is not None]
    return NoneUsable(min(ends, default=None), "; ".join(f"{name}: {records[name].reason}" for name in names))


def describe_record(record: AccountRecord, now: datetime) -> str:
    """Return the state of an account in one word or two: ``usable``, ``limited``, ``set aside`` or ``not readable``."""
    if is_usable(record, now):
        return "usable"
    return {Obstacle.LIMIT: "limited", Obstacle.LOGIN: "set aside", Obstacle.SOURCE: "not readable"}[
        record.obstacle or Obstacle.LIMIT
    ]


def after_limit(
    record: AccountRecord, now: datetime, reason: str, until: datetime | None, first: float
) -> AccountRecord:
    """Return the record of an account whose usage limit is reached until ``until``.

    At most MAX_LIMIT from now: a worker may report any end. At least as long as an agent rests after such a session;
    if the end is not known, from ``first`` seconds on (``config.restart_after_crash``).
    """
    failures = record.failures + 1
    if until is None:
        until = now + timedelta(seconds=backoff(failures, first * QUOTA_FACTOR, MAX_QUOTA_REST))
    shortest = timedelta(seconds=backoff(failures, MIN_QUOTA_REST, MAX_RETRY_DELAY))
    return _with_obstacle(record, Obstacle.LIMIT, reason, min(max(until, now + shortest), now + MAX_LIMIT))


def after_refusal(record: AccountRecord, reason: str) -> AccountRecord:
    """Return the record of an account whose login was refused: it is not used until a person acts."""
    return _with_obstacle(record, Obstacle.LOGIN, reason, None)


def after_unreadable(record: AccountRecord, now: datetime, reason: str) -> AccountRecord:
    """Return the record of an account whose secret could not be read."""
    return _with_obstacle(record, Obstacle.SOURCE, reason, now + SOURCE_RETRY)


def after_success(record: AccountRecord) -> AccountRecord:
    """Return the record after a session that got answers: earlier limits do not count any more."""
    return replace(record, failures=0)


def _with_obstacle(record: AccountRecord, obstacle: Obstacle, reason: str, until: datetime | None) -> AccountRecord:
    # Two sessions can report one refusal: it outranks a limit, which would end by itself.
    if obstacle is not Obstacle.LOGIN and record.obstacle is Obstacle.LOGIN and record.until is None:
        return record
    return replace(record, obstacle=obstacle, reason=reason, until=until, failures=record.failures + 1)


def seconds_to_renewal(lifetime: Lifetime, now: datetime) -> float | None:
    """Return the seconds until a credential is to be replaced, 0 or less: now; None if its end is not known."""
    if lifetime.expires is None:
        return None
    margin = min(EXPIRY_MARGIN, (lifetime.expires - lifetime.read) / 5)
    return (lifetime.expires - max(margin, timedelta(0)) - now).total_seconds()


def rotation_reason(record: AccountRecord, lifetime: Lifetime, now: datetime) -> str | None:
    """Return why a living session is to get another credential; None if it keeps the present one."""
    if not is_usable(record, now):
        return record.reason
    left = seconds_to_renewal(lifetime, now)
    return "the credential expires" if left is not None and left <= 0 else None
