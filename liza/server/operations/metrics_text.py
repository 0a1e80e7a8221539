"""Figures of the crew and of the server in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from liza.crew import usage_summary
from liza.crew.crew import Crew
from liza.rules.model import FINAL_STATUSES, State, Status
from liza.server.operations.calls import ServerFacts

Sample = tuple[Mapping[str, str], float]


def format_metrics(crew: Crew, server: ServerFacts) -> str:
    """Return all figures. Raises LizaError if the board cannot be read."""
    state = crew.board.read()
    cost = usage_summary.sprint_cost(crew, state)
    requests = sorted(server.requests.copy().items())
    families = [
        _family("liza_tasks", "gauge", "Tasks by status", _task_counts(state)),
        _family("liza_agents", "gauge", "Agents with a running supervisor, by role", _agent_counts(crew, state)),
        _family("liza_tokens", "gauge", "Tokens of the sprint", _known(cost["tokens"])),
        _family("liza_cost_usd", "gauge", "Cost of the sprint in dollars", _known(cost["money"])),
        _family("liza_sessions", "gauge", "Sessions of the sprint", _known(cost["sessions"])),
        _family("liza_board_revision", "counter", "Revision of the board", _known(state.revision)),
        _family("liza_api_uptime_seconds", "gauge", "Uptime of the server", _known(server.uptime())),
        _family("liza_api_streams", "gauge", "Open event streams", _known(server.streams)),
        _family(
            "liza_api_requests_total",
            "counter",
            "Answered requests",
            [({"operation": name, "status": str(status)}, count) for (name, status), count in requests],
        ),
    ]
    return "".join(families)


def _task_counts(state: State) -> list[Sample]:
    counts = Counter(task.status for task in state.tasks)
    counts.update({status: state.archived.counts.get(status.value, 0) for status in FINAL_STATUSES})
    return [({"status": status.value}, counts[status]) for status in Status]


def _agent_counts(crew: Crew, state: State) -> list[Sample]:
    counts = Counter(agent.role for name, agent in state.agents.items() if crew.is_supervised(name))
    return [({"role": role}, count) for role, count in sorted(counts.items())]


def _known(value: float | None) -> list[Sample]:
    """Return one sample, or none for a figure that is not known."""
    return [] if value is None else [({}, value)]


def _family(name: str, kind: str, help_text: str, samples: Iterable[Sample]) -> str:
    rows = [f"{name}{_format_labels(labels)} {value:g}\n" for labels, value in samples]
    return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n{''.join(rows)}" if rows else ""


def _format_labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
