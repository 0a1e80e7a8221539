"""The verbs about hosts: who is there, what each holds, and that one is dead."""

from __future__ import annotations

from datetime import datetime

from liza.board.address import read_address
from liza.board.rules.host_leases import (
    DutyRow,
    HostCondition,
    HostRow,
    HostTable,
    forget_command,
    judge_host,
    sessions_end,
    takeover_time,
)
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.model.errors import Refused, UnknownId, UsageError
from liza.model.value_classes import Value
from liza.text.formats import did_you_mean, format_time


class HostLine(Value):
    """One host as `liza host list` shows it.

    ``silent``: seconds since its last renewal. ``takeover``: when other hosts may take over what it has, if it is not
    heard any more. ``duties``: such as ``merger 7``, with the term. ``next``: a command that helps.
    """

    name: str
    condition: HostCondition
    address: str
    since: datetime
    seen: datetime
    silent: int
    takeover: datetime
    agents: tuple[str, ...]
    duties: tuple[str, ...]
    is_here: bool
    next: str


def list_hosts(crew: Crew) -> tuple[HostLine, ...]:
    """Return all hosts of the crew, with what each holds. Raises UsageError, BoardUnavailable."""
    table = crew.board.hosts()
    address = read_address(crew.paths.board_address)
    if table is None or address is None:
        raise UsageError("this crew has its board in files: it has one host", "liza status")
    return tuple(_describe(table, row, address.host) for row in table.hosts)


def _describe(table: HostTable, row: HostRow, here: str) -> HostLine:
    condition = judge_host(row, table.now, table.started)
    is_alive = condition is HostCondition.ALIVE

    def is_of_row(host: str, incarnation: object) -> bool:
        return (host, incarnation) == (row.name, row.incarnation)

    return HostLine(
        name=row.name,
        condition=condition,
        address=row.address,
        since=row.since,
        seen=row.seen,
        silent=max(0, round((table.now - row.seen).total_seconds())),
        takeover=takeover_time(row, table.started),
        agents=tuple(held.agent for held in table.agents if is_of_row(held.host, held.incarnation)),
        duties=tuple(_format_duty(duty) for duty in table.duties if is_of_row(duty.host, duty.incarnation)),
        is_here=row.name == here,
        next="" if is_alive else forget_command(row, table.now, table.started),
    )


def _format_duty(duty: DutyRow) -> str:
    return f"{duty.name} {duty.term}"


def forget_host(crew: Crew, name: str) -> Result:
    """Record that a host is dead: other hosts take over at once. Refused while its sessions may live.

    Raises Refused, UnknownId, UsageError.
    """
    require_person(crew, planner=False)
    table = crew.board.hosts()
    if table is None:
        raise UsageError("this crew has its board in files: it has one host", "liza status")
    row = next((host for host in table.hosts if host.name == name), None)
    if row is None:
        raise UnknownId(f"no host {name}{did_you_mean(name, [host.name for host in table.hosts])}", "liza host list")
    if table.now < sessions_end(row):
        raise Refused(
            f"{name} was heard at {format_time(row.seen)}: its sessions may go on until "
            f"{format_time(sessions_end(row))}",
            "liza host list",
        )
    crew.board.forget_host(name, row.incarnation)
    agents = tuple(held.agent for held in table.agents if (held.host, held.incarnation) == (name, row.incarnation))
    message = f"{name} is forgotten" + (f"; {', '.join(agents)} may start on other hosts" if agents else "")
    return Result("changed", None, None, "liza host list", {"agents": agents}, message)
