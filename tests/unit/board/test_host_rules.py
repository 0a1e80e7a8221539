"""When a host is lost, when its sessions end, and who may use its name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from liza.board.rules.host_leases import (
    LEASE,
    AgentPlacement,
    Begin,
    Continue,
    HostCondition,
    HostLease,
    HostRow,
    HostTable,
    NameTaken,
    decide_start,
    forget_command,
    judge_host,
    lease_end,
    must_end_sessions,
    takeover_time,
)
from liza.model.value_classes import replace

SEEN = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
LONG_AGO = SEEN - timedelta(days=1)
OWN, OTHER, TOKEN, PENDING = (UUID(int=number) for number in range(1, 5))
ROW = HostRow("h1", OWN, TOKEN, "boot-1", "box:/srv/shop", LONG_AGO, SEEN, SEEN + LEASE)
ELSEWHERE = replace(ROW, address="box:/srv/copy")
KNOWN = HostLease(host="h1", incarnation=OWN, boot="boot-1", sent_at=100.0, tokens=(TOKEN,))


def _lease(incarnation: UUID, *tokens: UUID) -> HostLease:
    return HostLease(host="h1", incarnation=incarnation, boot="boot-1", sent_at=1.0, tokens=tokens)


def _at(seconds: float) -> datetime:
    return SEEN + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("seconds", "condition"),
    [(0, "alive"), (19, "alive"), (20, "silent"), (59, "silent"), (60, "silent"), (61, "lost")],
)
def test_a_host_is_lost_a_minute_after_its_last_renewal(seconds: float, condition: str) -> None:
    assert judge_host(ROW, _at(seconds), LONG_AGO) is HostCondition(condition)


@pytest.mark.parametrize(("started", "lost_at"), [(-100, 60), (-15, 60), (0, 75), (300, 375)])
def test_nothing_expires_soon_after_postgresql_started(started: float, lost_at: float) -> None:
    assert takeover_time(ROW, _at(started)) == _at(lost_at)
    assert lease_end(ROW, _at(started)) == _at(lost_at - 15)


@pytest.mark.parametrize(
    ("started", "seconds", "is_silent", "is_advised"),
    [
        (-100, 25, True, False),  # its sessions may live
        (-100, 31, True, True),
        (60, 75, False, False),  # no host could renew while PostgreSQL was down
        (60, 81, True, False),
        (60, 121, True, True),
    ],
)
def test_a_host_is_forgotten_when_it_had_time_to_come_back(
    started: float, seconds: float, is_silent: bool, is_advised: bool
) -> None:
    condition = judge_host(ROW, _at(seconds), _at(started))
    assert condition is (HostCondition.SILENT if is_silent else HostCondition.ALIVE)
    step = "liza host forget h1" if is_advised else "liza host list"
    assert forget_command(ROW, _at(seconds), _at(started)) == step


@pytest.mark.parametrize(
    ("lease", "row", "boot", "seconds", "decision"),
    [
        (None, None, "boot-1", 0, Begin()),
        (KNOWN, None, "boot-1", 0, Begin()),  # a person forgot it
        (KNOWN, ROW, "boot-1", 40, Continue()),  # the host process was started again
        (KNOWN, ROW, "boot-1", 46, Begin()),
        (KNOWN, ROW, "boot-2", 10, Begin()),  # the machine was: no session lives
        (_lease(OWN, OTHER, TOKEN), ROW, "boot-1", 5, Continue()),
        (None, ROW, "boot-1", 0, NameTaken(ROW)),  # another clone on the machine
        (None, ROW, "boot-9", 59, NameTaken(ROW)),  # another machine
        (None, ROW, "boot-9", 61, Begin()),
        (_lease(OWN, PENDING), ROW, "boot-1", 5, NameTaken(ROW)),  # the copy of a disk
        (_lease(OTHER, TOKEN), ROW, "boot-1", 5, NameTaken(ROW)),
        (KNOWN, ELSEWHERE, "boot-1", 5, NameTaken(ELSEWHERE)),  # the copy of a clone, before the next renewal
        (KNOWN, ELSEWHERE, "boot-1", 61, Begin()),  # the clone was moved
    ],
)  # fmt: skip
def test_only_who_knows_the_last_renewal_is_the_host(
    lease: HostLease | None, row: HostRow | None, boot: str, seconds: float, decision: object
) -> None:
    assert decide_start(lease, row, boot, "box:/srv/shop", _at(seconds), LONG_AGO) == decision


@pytest.mark.parametrize(("sent_at", "ends"), [(100.0, False), (71.0, False), (70.0, True), (0.0, True), (101.0, True)])
def test_sessions_end_30_seconds_after_the_last_renewal(sent_at: float, ends: bool) -> None:
    lease = HostLease(host="h1", incarnation=OWN, boot="b", sent_at=sent_at)
    assert must_end_sessions(lease, 100.0) is ends
    assert must_end_sessions(None, 100.0)


@pytest.mark.parametrize(
    ("incarnation", "seconds", "held"), [(OWN, 10, True), (OWN, 59, True), (OWN, 61, False), (OTHER, 10, False)]
)
def test_an_agent_is_held_as_long_as_its_host_is(incarnation: UUID, seconds: float, held: bool) -> None:
    agent = AgentPlacement("coder-1", "h1", incarnation, LONG_AGO)
    assert HostTable((ROW,), (agent,), (), _at(seconds), LONG_AGO).is_held(agent) is held


@pytest.mark.parametrize(
    ("hosts", "seconds", "lost"),
    [((ROW,), 10, False), ((ROW,), 61, True), ((), 10, True), ((replace(ROW, incarnation=OTHER),), 61, False)],
    ids=["alive", "silent for a minute", "forgotten", "began again"],
)
def test_a_lost_host_has_lost_its_agents_until_it_begins_again(
    hosts: tuple[HostRow, ...], seconds: float, lost: bool
) -> None:
    agent = AgentPlacement("coder-1", "h1", OWN, LONG_AGO, "coder-1.1")
    assert HostTable(hosts, (agent,), (), _at(seconds), LONG_AGO).is_lost(agent) is lost
