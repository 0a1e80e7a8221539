"""agents: who is there, what each does, and why an idle one is idle."""

from __future__ import annotations

from typing import Any

from liza.board import signals
from liza.crew.crew import Crew
from liza.rules.errors import UnknownId
from liza.rules.paths import parse_agent_id, sort_agents
from liza.rules.suggestions import did_you_mean
from liza.verbs.status import agent_row


def list_agents(crew: Crew) -> list[dict[str, Any]]:
    """Every agent, as `status --json` shows it."""
    state = crew.board.read()
    evidence = crew.gather_evidence(state)
    standing = signals.active_signals(crew.paths)
    return [agent_row(crew, state, name, evidence, standing) for name in sort_agents(state.agents)]


def show_agent(crew: Crew, name: str) -> dict[str, Any]:
    """One agent, with its counters, its notes and what it did, newest first. Raises UnknownId, Usage."""
    name = parse_agent_id(name)
    state = crew.board.read()
    if name not in state.agents:
        known = ", ".join(state.agents) or "none"
        near = did_you_mean(name, state.agents)
        raise UnknownId(f"there is no agent {name} on the board (there are: {known}){near}", "liza agents")
    known_agent = state.agents[name]
    work: list[dict[str, Any]] = sorted(
        (
            {"time": line.time, "task": task.id, "event": line.event, "run": line.run, "detail": line.detail}
            for task in state.tasks
            for line in task.history
            if line.agent == name
        ),
        key=lambda line: line["time"],
        reverse=True,
    )
    return {
        **agent_row(crew, state, name, crew.gather_evidence(state), signals.active_signals(crew.paths)),
        "runs": known_agent.runs,
        "iterations_total": known_agent.iterations_total,
        "heartbeat": known_agent.heartbeat,
        "notes": [note.message for note in state.human_notes if note.recipient == name],
        "work": work,
    }
