"""agents: list the agents, what each does, and why an idle one is idle."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from liza.api.health import AgentsAnswer, ListedAgent
from liza.board.contract import Board
from liza.crew import history_export
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.recorder import record_history
from liza.crew.result import Result
from liza.git import board_history, git_refs
from liza.model.derived import find_current_work
from liza.model.errors import LizaError, Refused, UnknownId, UsageError
from liza.model.model import State, Task
from liza.model.paths import Paths, parse_agent_id, role_of, run_id, sort_agents
from liza.model.type_errors import describe_decode_error
from liza.model.value_classes import FrozenStruct, Value, decodable, replace
from liza.model.value_classes import asdict as fields_of
from liza.system import atomic, untrusted_files
from liza.tasks.evidence import gather_evidence
from liza.tasks.rules import work_record
from liza.tasks.rules.work_record import ReviewRecord, TaskRecord
from liza.text.formats import count_noun, did_you_mean
from liza.usage import costs
from liza.view import activity
from liza.view.rules.picture import agent_line
from liza.view.rules.structs import AgentLine
from liza.view.status import agent_row


def list_agents(crew: Crew) -> tuple[AgentLine, ...]:
    """Return every agent with its word."""
    state = crew.board.read()
    evidence = gather_evidence(crew, state)
    signal_names = tuple(crew.board.signals())
    rows = (agent_row(crew, state, name, evidence, signal_names) for name in sort_agents(state.agents))
    return tuple(agent_line(row, signal_names) for row in rows)


def list_states(crew: Crew) -> AgentsAnswer:
    """Return every agent with its operating state, for the worker API. Raises LizaError, OSError if the board cannot be
    read."""
    state, signal_names = crew.board.read(), tuple(crew.board.signals())
    agents = (_list_state(crew, state, agent, signal_names) for agent in sort_agents(state.agents))
    return AgentsAnswer(agents=tuple(agents))


def _list_state(crew: Crew, state: State, agent: str, signal_names: tuple[str, ...]) -> ListedAgent:
    runs, work = state.agents[agent].runs, find_current_work(state, agent)
    row = ListedAgent(
        id=agent,
        role=role_of(agent),
        run_id=run_id(agent, runs) if runs else None,
        task_id=None if work is None else work.task,
    )
    try:
        report = activity.find_state(crew, state, agent, signal_names)
    except (LizaError, OSError) as error:
        return msgspec.structs.replace(row, error=str(error))
    return msgspec.structs.replace(row, state=report.state, evidence=report.evidence, state_since=report.since)


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
        **fields_of(agent_row(crew, state, name, gather_evidence(crew, state), tuple(crew.board.signals()))),
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
    own = own_record(crew, state, name)
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
            for record in read_imported(crew.paths, name)
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
    record = export_record(crew, name)
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def import_agent(crew: Crew, data: bytes) -> Result:
    """Keep the work record that another crew exported.

    Raises UsageError for a file that is no record, Refused if it contradicts an imported record.
    """
    require_person(crew, planner=False)
    record = parse_record(data)
    is_new = import_record(crew, record)
    text = f"{record.agent} has {count_noun(len(record.tasks), 'task')} from {record.repository}"
    details = {"agent": record.agent, "crew": record.crew}
    return Result("changed" if is_new else "unchanged", None, None, f"liza agents {record.agent}", details, text)


FORMAT = 1
MAX_BYTES = 10_000_000
"""Maximum size of an imported record, in bytes: 10,000 tasks have some 3 MB."""


class ExportedRecord(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The work record of an agent in one crew, for another crew.

    ``crew`` names the crew: the first commit of its history. ``proof`` is the commit of that history at which
    the record was made, of the revision ``revision``.
    """

    format: int
    agent: str
    crew: str
    repository: str
    revision: int
    proof: str
    tasks: tuple[TaskRecord, ...] = ()
    reviews: ReviewRecord = ReviewRecord()


class OwnRecord(Value):
    """What an agent did in this crew. ``unreadable``: archived tasks whose entries are damaged, so that they are
    missing here."""

    tasks: tuple[TaskRecord, ...]
    reviews: ReviewRecord
    unreadable: tuple[str, ...] = ()


def own_record(crew: Crew, state: State, agent: str) -> OwnRecord:
    """Return what an agent did in this crew. Raises LizaError, OSError."""
    archived, unreadable = _read_archived(crew.board, state)
    tasks = [*state.tasks, *archived]
    entries = costs.read_usage(crew, state)
    records = [record for task in tasks if (record := work_record.task_record(task, agent, entries)) is not None]
    commits = [record.merge_commit for record in records if record.merge_commit is not None]
    paths = git_refs.list_merged_paths(crew.git, commits)
    return OwnRecord(
        tuple(replace(record, paths=paths.get(record.merge_commit or "", ())) for record in records),
        work_record.review_record(tasks, agent),
        unreadable,
    )


def _read_archived(board: Board, state: State) -> tuple[list[Task], tuple[str, ...]]:
    """Return the tasks of the archive that are not on the board, and the ids of those that cannot be read."""
    ids = {task_id for task_id in board.archived_ids() if state.task(task_id) is None}
    entries = board.archived(ids)
    tasks = [entry.task for entry in entries.values() if entry.task is not None]
    return tasks, tuple(task_id for task_id, entry in entries.items() if entry.task is None)


def export_record(crew: Crew, agent: str) -> ExportedRecord:
    """Return an agent's record in this crew, with the commit of the history that proves it. Raises LizaError."""
    agent = parse_agent_id(agent)
    if crew.is_on_server:
        history_export.fetch_history(crew)
    record_history(crew)
    state = crew.board.read()
    proof = board_history.find_proof(crew.git)
    if proof is None:
        raise Refused("the history has no commit yet that could prove a record", "liza history")
    own = own_record(crew, state, agent)
    if own.unreadable:
        names = ", ".join(own.unreadable[:5])
        raise Refused(f"the record would be incomplete: {names} cannot be read in the archive", "liza validate")
    if not own.tasks and own.reviews == ReviewRecord():
        raise Refused(f"{agent} has no work record in this crew", "liza agents")
    return ExportedRecord(
        format=FORMAT,
        agent=agent,
        crew=proof.first,
        repository=crew.paths.root.name,
        revision=proof.revision,
        proof=proof.newest,
        tasks=own.tasks,
        reviews=own.reviews,
    )


def parse_record(data: bytes) -> ExportedRecord:
    """Return the record that ``liza agents export`` wrote. Raises UsageError for anything else."""
    hint = "liza agents coder-1 --export"
    try:
        record = msgspec.json.decode(data, type=decodable(ExportedRecord))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = describe_decode_error(error, ExportedRecord)
        raise UsageError(f"this is not a work record of an agent: {reason}", hint) from error
    if record.format != FORMAT:
        raise UsageError(f"the record has format {record.format}, expected {FORMAT}", hint)
    parse_agent_id(record.agent)
    if not _is_commit(record.crew) or not _is_commit(record.proof):
        raise UsageError("the record names no commit of a history", hint)
    if len({task.task for task in record.tasks}) != len(record.tasks):
        raise UsageError("the record has a task twice", hint)
    return record


def _is_commit(text: str) -> bool:
    return len(text) in (40, 64) and set(text) <= set("0123456789abcdef")


def read_imported(paths: Paths, agent: str) -> tuple[ExportedRecord, ...]:
    """Return the records of an agent that were imported, in the order of their crews. Raises LizaError."""
    directory = paths.records / agent
    files = sorted(directory.glob("*.json")) if directory.is_dir() else []
    records = []
    for path in files:
        try:
            records.append(parse_record(untrusted_files.read(path, MAX_BYTES)))
        except (UsageError, OSError) as error:
            raise LizaError(f"{path} cannot be read: {error}", f"rm {path}") from error
    return tuple(records)


def import_record(crew: Crew, record: ExportedRecord) -> bool:
    """Keep a record of another crew; return False if it is here already, or a newer one of that crew.

    Raises Refused for a record of this crew, and for one that contradicts the kept one of the same revision.
    """
    own = board_history.find_proof(crew.git)
    if own is not None and own.first == record.crew:
        raise Refused(f"{record.agent} made this record in this crew", f"liza agents {record.agent}")
    path = crew.paths.records / record.agent / f"{record.crew[:16]}.json"
    kept = {earlier.crew: earlier for earlier in read_imported(crew.paths, record.agent)}.get(record.crew)
    if kept is not None and kept.revision == record.revision and kept != record:
        message = f"{path} has another record of {record.agent} at revision {record.revision} of the same crew"
        raise Refused(message, f"cat {shlex.quote(str(path))}")
    if kept is not None and kept.revision >= record.revision:
        return False
    atomic.make_directory(crew.paths.root, path.parent)
    atomic.write(path, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    return True
