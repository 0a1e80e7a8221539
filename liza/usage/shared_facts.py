"""What hosts of a crew tell of their agents: what their files and processes show there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec

from liza.board.shared_records import SharedRecords
from liza.crew.crew import Crew
from liza.model.spending import LedgerEntry
from liza.model.value_classes import FrozenStruct, Value, decodable

WRITE_SECONDS: Final = 10.0
"""Seconds after which a host tells again what has not changed."""
SILENT_SECONDS: Final = 30.0
"""Age after which what a host told is shown with its age."""


class AgentReport(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """What a host tells of one agent. ``row``: the agent as `liza status` shows it there, in JSON. ``living``: its
    living session so far, as it will be in the ledger."""

    row: msgspec.Raw
    living: LedgerEntry | None = None


class HostReport(Value):
    """The report about an agent of another host, and when it came."""

    host: str
    agent: AgentReport
    time: datetime


def write_reports(shared: SharedRecords, host: str, reports: Mapping[str, AgentReport]) -> None:
    """Tell other hosts of the agents that are here. Raises BoardUnavailable."""
    shared.write_facts(host, {agent: msgspec.json.encode(report).decode() for agent, report in reports.items()})


def find_report(crew: Crew, agent: str) -> HostReport | None:
    """Return what the other host that has an agent told of it; None if it is not on another host, or told nothing.

    Raises BoardUnavailable.
    """
    host = crew.find_holder(agent) if crew.is_on_server else ""
    shared = crew.board.shared if host else None
    facts = None if shared is None else shared.read_facts().get(agent)
    if facts is None or facts.host != host:
        return None
    # Of a newer Liza there may be a report that this one cannot read.
    with suppress(msgspec.DecodeError):
        return HostReport(host, msgspec.json.decode(facts.body, type=decodable(AgentReport)), facts.time)
    return None
