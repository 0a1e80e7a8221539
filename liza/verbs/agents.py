"""agents: list the agents, what each does, and why an idle one is idle."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from liza.board import signals
from liza.crew.archive import work_records
from liza.crew.caller import require_person
from liza.crew.crew import Crew, open_crew
from liza.crew.evidence import gather_evidence
from liza.crew.result import Result
from liza.rules.errors import Refused, UnknownId
from liza.rules.formatting.counts import count_noun
from liza.rules.formatting.suggestions import did_you_mean
from liza.rules.model import State
from liza.rules.paths import parse_agent_id, role_of, sort_agents
from liza.rules.reports import work_record
from liza.rules.reports.work_record import TaskRecord
from liza.rules.value_classes import asdict as fields_of
from liza.verbs.status import agent_row


def list_agents(crew: Crew) -> list[dict[str, Any]]:
    """Return every agent as `status --json` prints it."""
    state = crew.board.read()
    evidence = gather_evidence(crew, state)
    signal_names = signals.active_signals(crew.paths)
    return [agent_row(crew, state, name, evidence, signal_names) for name in sort_agents(state.agents)]


def show_agent(crew: Crew, name: str) -> dict[str, Any]:
    """Return one agent with its counters, its notes and its events, newest first. Raises UnknownId, UsageError."""
    name = parse_agent_id(name)
    state = crew.board.read()
    record = _record_row(crew, state, name)
    if name not in state.agents:
        if record["tasks"] or record["imported"] or any(record["reviews"].values()):
            return {"id": name, "role": role_of(name), "status": None, "record": record, "notes": [], "work": []}
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
        **agent_row(crew, state, name, gather_evidence(crew, state), signals.active_signals(crew.paths)),
        "runs": agent.runs,
        "iterations_total": agent.iterations_total,
        "context_percent": agent.context_percent,
        "heartbeat": agent.heartbeat,
        "notes": [note.message for note in state.human_notes if note.recipient == name],
        "work": work,
        "record": record,
    }


def _record_row(crew: Crew, state: State, name: str) -> dict[str, Any]:
    """Return the work record of an agent in this crew, and those of other crews that were imported."""
    own = work_records.own_record(crew, state, name)
    return {
        **_summary(own.tasks),
        "reviews": fields_of(own.reviews),
        "tasks": [fields_of(task) for task in own.tasks],
        "unreadable": list(own.unreadable),
        "imported": [
            {
                "crew": record.crew,
                "repository": record.repository,
                "revision": record.revision,
                "proof": record.proof,
                **_summary(record.tasks),
                "reviews": fields_of(record.reviews),
                "tasks": [fields_of(task) for task in record.tasks],
            }
            for record in work_records.read_imported(crew, name)
        ],
    }


def _summary(tasks: Sequence[TaskRecord]) -> dict[str, Any]:
    costs = [task.cost for task in tasks if task.cost is not None]
    return {
        "counts": dict(Counter(task.outcome.value for task in tasks)),
        "rates": work_record.success_rates(tasks),
        "areas": work_record.count_areas(tasks),
        "languages": work_record.count_languages(tasks),
        "failed_merges": sum(task.failed_merges for task in tasks),
        "cost": round(sum(costs), 4) if costs else None,
        "programs": sorted({program for task in tasks for program in task.programs}),
    }


def export_agent(crew: Crew, name: str) -> bytes:
    """Return the work record of an agent as JSON, for another crew. Raises Refused if it has none."""
    record = work_records.export_record(crew, name)
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def import_agent(crew: Crew, data: bytes, origin: Path | None) -> Result:
    """Keep the work record that another crew exported. ``origin``: a checkout of its repository, to verify it.

    Raises UsageError for a file that is no record, Refused if it contradicts the origin or an imported record.
    """
    require_person(crew, planner=False)
    record = work_records.parse_record(data)
    doubts = () if origin is None else work_records.find_doubts(open_crew(origin.resolve()), record)
    if doubts:
        raise Refused(f"{record.repository} does not prove the record of {record.agent}: {'; '.join(doubts[:3])}",
                      f"git -C {shlex.quote(str(origin))} log liza/blackboard")  # fmt: skip
    is_new = work_records.import_record(crew, record)
    checked = "not verified: --origin DIR names the repository it comes from" if origin is None else "verified"
    text = f"{record.agent} has {count_noun(len(record.tasks), 'task')} from {record.repository}, {checked}"
    details = {"agent": record.agent, "crew": record.crew, "verified": origin is not None}
    return Result("changed" if is_new else "unchanged", None, None, f"liza agents {record.agent}", details, text)
