"""agents: list the agents, what each does, and why an idle one is idle."""

from __future__ import annotations

from typing import Any

from liza.board import signals
from liza.crew.crew import Crew
from liza.rules.errors import UnknownId
from liza.rules.formatting.suggestions import did_you_mean
from liza.rules.paths import parse_agent_id, sort_agents
from liza.verbs.status import agent_row


def list_agents(crew: Crew) -> list[dict[str, Any]]:
    """Return every agent as `status --json` prints it."""
    state = crew.board.read()
    evidence = crew.gather_evidence(state)
    signal_names = signals.active_signals(crew.paths)
    return [agent_row(crew, state, name, evidence, signal_names) for name in sort_agents(state.agents)]


def show_agent(crew: Crew, name: str) -> dict[str, Any]:
    """Return one agent with its counters, its notes and its events, newest first. Raises UnknownId, UsageError."""
    name = parse_agent_id(name)
    state = crew.board.read()
    if name not in state.agents:
        names = ", ".join(state.agents) or "none"
        suggestion = did_you_mean(name, state.agents)
        raise UnknownId(f"there is no agent {name} on the board (there are: {names}){suggestion}", "liza agents")
    agent = state.agents[name]
    work: list[dict[str, Any]] = sorted(
        (
            {"time": event.time, "task": task.id, "event": event.event, "run": event.run, "detail": event.detail}
            for task in state.tasks
            for event in task.history
            if event.agent == name
        ),
        key=lambda event: event["time"],
        reverse=True,
    )
    return {
        **agent_row(crew, state, name, crew.gather_evidence(state), signals.active_signals(crew.paths)),
        "runs": agent.runs,
        "iterations_total": agent.iterations_total,
        "heartbeat": agent.heartbeat,
        "notes": [note.message for note in state.human_notes if note.recipient == name],
        "work": work,
    }
