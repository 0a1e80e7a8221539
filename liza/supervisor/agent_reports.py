"""Tell the other hosts of the agents that are here, for their `liza status`."""

from __future__ import annotations

from typing import Final

import msgspec

from liza.board.shared_records import SharedRecords
from liza.crew.crew import Crew
from liza.hosts import local_sessions
from liza.model.value_classes import replace
from liza.system.clock import boottime
from liza.tasks.evidence import gather_evidence
from liza.usage import costs, shared_facts
from liza.usage.shared_facts import AgentReport
from liza.view import status
from liza.view.rules.structs import AgentRow

MIN_SECONDS: Final = 2.0
"""Seconds between two looks at the files of all sessions."""


class AgentReporter:
    """Tells of the agents of this host when something changed, and every WRITE_SECONDS."""

    def __init__(self, crew: Crew, shared: SharedRecords) -> None:
        self._crew, self._shared = crew, shared
        self._looked_at = self._sent_at = float("-inf")
        self._sent: dict[str, AgentRow] = {}

    def tell(self) -> None:
        """Tell what is new. Raises LizaError, OSError."""
        now, agents = boottime(), local_sessions.list_supervised(self._crew.paths)
        if now - self._looked_at < MIN_SECONDS or not (agents or self._sent):
            return
        self._looked_at = now
        state = self._crew.board.read()
        evidence, signals = gather_evidence(self._crew, state), tuple(self._crew.board.signals())
        here = [agent for agent in agents if agent in state.agents]
        rows = {agent: status.agent_row(self._crew, state, agent, evidence, signals) for agent in here}
        # Times that only pass are told with the next change.
        steady = {agent: replace(row, seconds=None, lease_expires=None) for agent, row in rows.items()}
        if steady == self._sent and now - self._sent_at < shared_facts.WRITE_SECONDS:
            return
        living = costs.list_living(self._crew, state)
        reports = {
            agent: AgentReport(row=msgspec.Raw(msgspec.json.encode(row)), living=living.get(agent))
            for agent, row in rows.items()
        }
        shared_facts.write_reports(self._shared, self._crew.host, reports)
        self._sent, self._sent_at = steady, now
