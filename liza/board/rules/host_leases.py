"""When a host counts as lost, when its sessions must end, and which process may use the name of a host. Pure.

A host renews its lease every RENEWAL seconds. All times but ``sent_at`` are of the server's clock; ``sent_at`` is
CLOCK_BOOTTIME of the host, at the sending of the last renewal that succeeded. The server counts from later on, so:

    sent      +30 sessions end      +45 no renewal any more      +60 another host may take over
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from liza.model.value_classes import AwareDatetime, FrozenStruct, Value

RENEWAL: Final = timedelta(seconds=10)
"""Time between two renewals."""
SESSION_LIMIT: Final = timedelta(seconds=30)
"""Time without a renewal after which a host ends its sessions."""
LEASE: Final = timedelta(seconds=45)
GRACE: Final = timedelta(seconds=15)
"""Time from the end of a lease until another host may take over."""
START_GRACE: Final = LEASE + GRACE
"""Time after a start of PostgreSQL in which no lease ends: no host could renew while it was down."""
LEFT_LIMIT: Final = LEASE + GRACE
"""Time without a supervisor after which a host no longer has an agent: the keeper has started it again by then."""


class HostCondition(StrEnum):
    """Whether a host is heard."""

    ALIVE = "alive"
    SILENT = "silent"
    """It missed renewals. Its sessions end after SESSION_LIMIT, and nothing of it is taken over yet."""
    LOST = "lost"
    """Other hosts may take over its work."""


class HostLease(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """`.liza/run/host-lease`: what this host knows of its lease.

    ``tokens``: that of the last renewal that succeeded, and that of one whose answer has not come.
    """

    host: str
    incarnation: UUID
    boot: str
    sent_at: float
    tokens: tuple[UUID, ...] = ()


class HostRow(Value):
    """A host as the database has it. ``address``: machine and directory. ``token``: that of its last renewal."""

    name: str
    incarnation: UUID
    token: UUID
    boot: str
    address: str
    since: datetime
    seen: datetime
    expires: datetime


class AgentPlacement(Value):
    """Where the supervisor of an agent is. ``run``: whose session may live there; empty if none does."""

    agent: str
    host: str
    incarnation: UUID
    since: datetime
    run: str = ""


class DutyRow(Value):
    """Which host does something for the whole crew. ``term`` grows with each new holder."""

    name: str
    host: str
    incarnation: UUID
    term: int
    since: datetime


class HostTable(Value):
    """All hosts of a crew, their agents and duties, at ``now``. ``started``: the last start of PostgreSQL."""

    hosts: tuple[HostRow, ...]
    agents: tuple[AgentPlacement, ...]
    duties: tuple[DutyRow, ...]
    now: AwareDatetime
    started: AwareDatetime

    def find_host(self, name: str, incarnation: UUID) -> HostRow | None:
        """Return the row of a host in this incarnation; None if it is gone, or began again."""
        return next((row for row in self.hosts if (row.name, row.incarnation) == (name, incarnation)), None)

    def is_held(self, holding: AgentPlacement | DutyRow) -> bool:
        """Return whether an agent or a duty belongs to its host still."""
        row = self.find_host(holding.host, holding.incarnation)
        return row is not None and judge_host(row, self.now, self.started) is not HostCondition.LOST

    def is_lost(self, holding: AgentPlacement) -> bool:
        """Return whether the host of an agent was lost, left or was forgotten, and has not begun again."""
        row = next((row for row in self.hosts if row.name == holding.host), None)
        return row is None or (row.incarnation == holding.incarnation and not self.is_held(holding))


class Continue(Value):
    """The host goes on as the incarnation that it was."""


class Begin(Value):
    """The host begins a new incarnation. Its sessions must have ended before."""


class NameTaken(Value):
    """Another process, of another machine or clone, uses the name."""

    row: HostRow


def lease_end(row: HostRow, started: datetime) -> datetime:
    """Return when the host can no longer renew its lease."""
    return max(row.expires, started + START_GRACE)


def takeover_time(row: HostRow, started: datetime) -> datetime:
    """Return when other hosts may take over the work of a host that is not heard any more."""
    return max(row.expires + GRACE, started + START_GRACE + GRACE)


def judge_host(row: HostRow, now: datetime, started: datetime) -> HostCondition:
    """Return whether a host is heard."""
    if now > takeover_time(row, started):
        return HostCondition.LOST
    return HostCondition.SILENT if now - max(row.seen, started) >= 2 * RENEWAL else HostCondition.ALIVE


def forget_command(row: HostRow, now: datetime, started: datetime) -> str:
    """Return the command about a host that is not heard: to forget it is advised once no session of it can live, and
    it had the time to come back after a start of PostgreSQL."""
    is_over = now > max(sessions_end(row), started + START_GRACE)
    return f"liza host forget {row.name}" if is_over else "liza host list"


def decide_start(
    lease: HostLease | None, row: HostRow | None, boot: str, address: str, now: datetime, started: datetime
) -> Continue | Begin | NameTaken:
    """Decide how a host process starts, or goes on after a renewal that was refused.

    ``lease`` is what its clone has, ``row`` what the database has, ``address`` where the clone is. Only who knows the
    token of the last renewal is the host: a copy of its disk that began to renew has another one. A copy that starts
    before the host renews again knows the token, too, but is elsewhere.
    """
    if row is None:
        return Begin()
    is_own = lease is not None and lease.incarnation == row.incarnation and row.token in lease.tokens
    if lease is None or not is_own or row.address != address:
        return Begin() if judge_host(row, now, started) is HostCondition.LOST else NameTaken(row)
    return Continue() if lease.boot == boot and now <= lease_end(row, started) else Begin()


def must_end_sessions(lease: HostLease | None, boottime: float) -> bool:
    """Return whether the sessions of this host must end, at ``boottime`` of CLOCK_BOOTTIME."""
    # A lease of the time before a boot was sent "later" than now.
    return lease is None or not 0 <= boottime - lease.sent_at < SESSION_LIMIT.total_seconds()


def sessions_end(row: HostRow) -> datetime:
    """Return when the last session of a host that is not heard any more has ended."""
    return row.seen + SESSION_LIMIT
