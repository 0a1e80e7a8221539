"""logs: the output of an agent's program, and what is to be told beside it."""

from __future__ import annotations

import os
import queue
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from liza.briefs import delivery_log
from liza.briefs.delivery_log import DeliveryEntry
from liza.crew.crew import Crew
from liza.guards import session_guards
from liza.model.derived import find_current_work
from liza.model.errors import Refused, UnknownId, UsageError
from liza.model.model import Agent, State
from liza.model.paths import agent_of, parse_agent_id, run_id, run_number
from liza.model.statuses import WorkKind
from liza.model.value_classes import Value, replace
from liza.programs import liveness
from liza.programs.session import run_archive, run_directory
from liza.programs.session.run_archive import OutputTail
from liza.system import untrusted_files
from liza.tasks import archive
from liza.text.formats import did_you_mean
from liza.text.redaction import redact, redactable_length

MAX_WAIT = 30.0  # seconds after which the file is read again, in case an event was lost
_CHUNK_BYTES = 1 << 19
_MAX_BYTES = 1 << 22  # bytes read at once


class RunNotes(Value):
    """What is to be told of a run beside its output: the denials of its guards by rule, and why it printed nothing;
    empty if it printed something."""

    denials: Mapping[str, tuple[int, str]]
    silence: str


def read_notes(crew: Crew, run: str) -> RunNotes:
    """Return the notes about a run, without secrets. Raises Refused if it has no output, NotRegularFile."""
    is_silent = not read_output(crew, run, 1).size
    counts = session_guards.count_denials(crew.run_dir(run).path)
    return RunNotes(
        {redact(rule): (count, redact(last)) for rule, (count, last) in counts.items()},
        _describe_silence(crew, run) if is_silent else "",
    )


def list_deliveries(crew: Crew, name: str, most: int) -> list[DeliveryEntry]:
    """Return the last ``most`` delivery events of an agent's messages, or of those to the named run, oldest first.

    Raises UnknownId, LizaError if the log cannot be read.
    """
    agent = parse_agent_id(name.partition(".")[0])
    state = crew.board.read()
    if agent not in state.agents:
        raise UnknownId(f"there is no agent {agent} on the board{did_you_mean(agent, state.agents)}", "liza agents")
    entries = delivery_log.read_entries(crew.paths, agent)
    return [entry for entry in entries if "." not in name or entry.run == name][-most:]


def read_output(crew: Crew, run: str, lines: int) -> OutputTail:
    """Return the last lines of a run's output, also of an archived run. Raises Refused if there is no output."""
    path = crew.run_dir(run).output_path
    try:
        return read_tail(path, lines)
    except (FileNotFoundError, NotADirectoryError):
        pass
    archive = run_archive.archive_path(crew.paths, run)
    tail = run_archive.read_output(archive, run, _MAX_BYTES) if archive.exists() else None
    if tail is not None:
        return replace(tail, data=_last_lines(tail.data, lines))
    raise _no_output(crew, run)


def _no_output(crew: Crew, run: str) -> Refused:
    """Error for a run without output, which says why it has none."""
    state, agent = crew.board.read(), agent_of(run)
    other = find_host_error(crew, state, agent, run)
    if other is not None:
        return other
    if agent not in state.agents and not crew.run_dir(run).exists():
        return Refused(f"there is no agent {agent} on the board{did_you_mean(agent, state.agents)}", "liza agents")
    return Refused(_describe_missing_log(crew, run, state.agents.get(agent)), f"liza agents {agent}")


def find_host_error(crew: Crew, state: State, agent: str, name: str, command: str = "logs") -> Refused | None:
    """Return the error for sessions that are on another host, with the command to type there; None if they are here.

    ``name``: the agent or run of the command. Raises BoardUnavailable.
    """
    host = crew.find_holder(agent) if crew.is_on_server else ""
    if not host and agent in state.agents and state.agents[agent].host not in ("", crew.host):
        host = state.agents[agent].host
    table = crew.board.hosts() if host else None
    if table is None:
        return None
    address = next((f" ({row.address})" for row in table.hosts if row.name == host), "")
    message = f"the sessions of {agent} are on the host {host}{address}, and their output is there; type there"
    return Refused(message, f"liza {command} {name}")


def _describe_missing_log(crew: Crew, run: str, agent: Agent | None) -> str:
    """Return why a run has no output; a claim by hand and a run that never was have no directory either."""
    if (archive := run_archive.archive_path(crew.paths, run)).exists():
        return f"{run} printed nothing; its archive is {archive}"
    number = run_number(run, agent_of(run)) or 0
    if agent is not None and agent.program and number <= agent.runs and not crew.run_dir(run).exists():
        return f"the log of {run} is gone: its run directory does not exist any more"
    return f"{run} printed nothing: no program was started for it"


def _describe_silence(crew: Crew, run: str) -> str:
    """Return that a run printed nothing, and how its program ended."""
    directory = crew.run_dir(run)
    end = liveness.read_end(directory.path)
    if end is not None:
        return f"{run} printed nothing; {liveness.describe_end(end)}"
    return f"{run} printed nothing{' so far' if liveness.is_session_living(directory) else ''}"


def resolve_run(crew: Crew, name: str) -> str:
    """Return the last run of a task if ``name`` is a task and not an agent, else ``name``.

    Raises Refused, UnknownId if it can be neither.
    """
    if "." in name:
        return name
    state = crew.board.read()
    task = archive.find_task(crew.board, state, name) if name not in state.agents else None
    if task is None:
        try:
            return parse_agent_id(name)
        except UsageError as error:
            suggestion = did_you_mean(name, [*state.agents, *(task.id for task in state.tasks)])
            raise UnknownId(f"there is no agent and no task {name}{suggestion}", "liza status") from error
    run = task.run or next((event.run for event in reversed(task.history) if event.run), None)
    if run is None:
        raise Refused(f"{name} is a task, and no agent has taken it yet", f"liza task show {name}")
    return run


def find_newest_run(crew: Crew, agent: str) -> str:
    """Newest run of an agent with output, or its newest run if none has output. Raises UnknownId, Refused."""
    state = crew.board.read()
    if agent not in state.agents:
        raise UnknownId(f"there is no agent {agent} on the board{did_you_mean(agent, state.agents)}", "liza agents")
    runs = run_directory.list_runs(crew.paths, agent)
    if not runs:
        raise _no_runs(crew, state, agent)
    with_output = [run for run in runs if crew.run_dir(run).output_path.exists()]
    return (with_output or list(runs))[-1]


def _no_runs(crew: Crew, state: State, agent: str) -> Refused:
    """Error for an agent without runs; it names the log of its set-up if there is one."""
    work = find_current_work(state, agent)
    task = state.task(work.task) if work is not None and work.task and work.kind == WorkKind.WORK else None
    log = crew.paths.logs / f"setup-{(task.worktree if task else None) or agent}.log"
    if log.exists():
        shown = str(log.relative_to(crew.paths.root))
        return Refused(f"{agent} has no runs yet; the output of its set-up is in {shown}", f"less {shown}")
    other = find_host_error(crew, state, agent, agent)
    if other is not None:
        return other
    if crew.is_on_server:
        return Refused(f"{agent} has no runs on this host", f"liza agents {agent}")
    number, program = state.agents[agent].runs, state.agents[agent].program
    if number and program:
        return Refused(f"the logs of {agent} are gone, up to that of {run_id(agent, number)}", f"liza agents {agent}")
    return Refused(f"{agent} has no runs yet", f"liza agents {agent}")


def complete_length(data: bytes) -> int:
    """Number of bytes that can be shown: complete lines, and no part of an incomplete secret."""
    # latin-1 maps each byte to one character, so the length is in bytes. The patterns are ASCII.
    return redactable_length(data.decode("latin-1"))


def redacted_text(data: bytes) -> str:
    """Decode UTF-8 and redact secrets."""
    return redact(data.decode("utf-8", "replace"))


def read_from(path: Path, offset: int) -> tuple[bytes, int]:
    """Read a file from ``offset``; return the bytes and the new offset.

    No bytes if the file was archived or removed meanwhile. Raises NotRegularFile.
    """
    try:
        with untrusted_files.open_to_read(path) as file:
            if file.seek(0, 2) < offset:
                # The file was truncated because it was too large: read it from its start.
                offset = 0
            file.seek(offset)
            data = file.read(_MAX_BYTES)
    except FileNotFoundError:
        return b"", offset
    return data, offset + len(data)


def wait_for_event(events_queue: queue.Queue[Any]) -> None:
    """Wait for an event, for at most MAX_WAIT seconds; drop the events that are queued with it."""
    try:
        events_queue.get(timeout=MAX_WAIT)
        while True:
            events_queue.get_nowait()
    except queue.Empty:
        return


def read_tail(path: Path, lines: int) -> OutputTail:
    """Return the last lines of a file, read from its end."""
    with untrusted_files.open_to_read(path) as file:
        size = file.seek(0, 2)
        start, data = size, b""
        while start > 0 and len(data) < _MAX_BYTES and data.count(b"\n") <= lines:
            step = min(_CHUNK_BYTES, start)
            start -= step
            file.seek(start)
            data = file.read(step) + data
        changed = os.fstat(file.fileno()).st_mtime
    return OutputTail(_last_lines(data, lines), size, changed)


def _last_lines(data: bytes, lines: int) -> bytes:
    return b"".join(data.splitlines(keepends=True)[-lines:])
