"""Figures of the crew and of the server in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from liza.api.calls import ServerFacts
from liza.api.rules.prometheus_text import Family, format_families, usage_families
from liza.crew.crew import Crew
from liza.model.errors import LizaError
from liza.model.model import FINAL_STATUSES, State, Status
from liza.usage import costs

Samples = tuple[tuple[Mapping[str, str], float], ...]


def format_metrics(crew: Crew, server: ServerFacts) -> str:
    """Return all figures. Raises LizaError if the board cannot be read."""
    state = crew.board.read()
    cost = costs.sprint_cost(crew, state)
    requests = sorted(server.requests.copy().items())
    families = [
        Family("liza_tasks", "gauge", "Tasks by status", _task_counts(state)),
        Family("liza_agents", "gauge", "Agents with a running supervisor, by role", _agent_counts(crew, state)),
        Family("liza_tokens", "gauge", "Tokens of the sprint", _known(cost["tokens"])),
        Family("liza_cost_usd", "gauge", "Cost of the sprint in dollars", _known(cost["money"])),
        Family("liza_sessions", "gauge", "Sessions of the sprint", _known(cost["sessions"])),
        Family("liza_board_revision", "counter", "Revision of the board", _known(state.revision)),
        Family("liza_api_uptime_seconds", "gauge", "Uptime of the server", _known(server.uptime())),
        Family("liza_api_streams", "gauge", "Open event streams", _known(server.streams)),
        Family(
            "liza_api_requests_total",
            "counter",
            "Answered requests",
            tuple(({"operation": name, "status": str(status)}, count) for (name, status), count in requests),
        ),
    ]
    # Without a readable ledger these are missing, as the ones of the sprint above; `liza status` says why.
    with suppress(LizaError):
        families += usage_families(costs.read_usage(crew, state))
    return format_families(families)


def _task_counts(state: State) -> Samples:
    counts = Counter(task.status for task in state.tasks)
    counts.update({status: state.archived.counts.get(status.value, 0) for status in FINAL_STATUSES})
    return tuple(({"status": status.value}, counts[status]) for status in Status)


def _agent_counts(crew: Crew, state: State) -> Samples:
    counts = Counter(agent.role for name, agent in state.agents.items() if crew.is_supervised(name))
    return tuple(({"role": role}, count) for role, count in sorted(counts.items()))


def _known(value: float | None) -> Samples:
    """Return one sample, or none for a figure that is not known."""
    return () if value is None else (({}, value),)
