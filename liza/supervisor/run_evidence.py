"""What the files of a run, the board and the process table show of an agent's sessions. Nothing is remembered here."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from liza.crew.crew import Crew
from liza.model.errors import LizaError
from liza.model.model import State
from liza.model.paths import run_number
from liza.programs import run_state
from liza.programs.session import session_process
from liza.programs.session.run_directory import RunDir, list_runs
from liza.system import proc_stat, processes
from liza.usage.session_usage import trusted_record


def find_unconcluded_run(crew: Crew, state: State, agent: str) -> RunDir | None:
    """Return the agent's newest run that is not concluded, or None.

    A living session always counts. A run directory above the agent's run counter is ignored: agents can write there.
    """
    agent_record = state.agents.get(agent)
    for run in reversed(list_runs(crew.paths, agent)):
        directory = crew.run_dir(run)
        if run_state.is_session_living(directory):
            return directory
        if agent_record is None or (run_number(run, agent) or 0) <= agent_record.runs:
            return None if directory.is_concluded() else directory
    return None


def model_activity(crew: Crew, state: State, directory: RunDir) -> tuple[object, ...]:
    """Return signs of a working model: worktree changes, context use, `liza ready`, tool calls, the ends of turns."""
    turn = directory.read_turn()
    agent, record = state.agents.get(directory.agent), trusted_record(crew, state, directory)
    return (
        _newest_mtime(Path(record.worktree)) if record and record.worktree else None,
        agent.context_percent if agent else None,
        directory.read_activity(),
        0 if turn is None else turn.turns,
    )


def reported_silence(directory: RunDir) -> tuple[str, str] | None:
    """Return what was last reported about the model; None also if unreadable, so that it is reported again."""
    try:
        note = directory.read_model_note()
    except LizaError:
        return None
    return None if note is None else (note.kind, note.words)


def session_age(process_state: session_process.RunningSession | session_process.ShimStarting, now: datetime) -> float:
    """Return the age of a running session in seconds, by the process if possible: the clock may have been set."""
    if isinstance(process_state, session_process.ShimStarting):
        return 0.0
    age = processes.process_age(process_state.child)
    return max(0.0, (now - process_state.time).total_seconds()) if age is None else age


def cpu_seconds(session: session_process.RunningSession) -> float:
    """Return the CPU time of the session's processes, also of ended ones; 0 if the system does not tell.

    The shim is the subreaper of the session: it has the time of orphans that have ended.
    """
    total = 0
    for pid in (session.shim.pid, *processes.find_descendants(session.shim)):
        fields = proc_stat.read_stat(pid)
        if fields is not None:
            total += sum(int(fields[index]) for index in proc_stat.ALL_TICKS)
    return total / os.sysconf("SC_CLK_TCK")


def _newest_mtime(worktree: Path) -> float | None:
    try:
        return max(
            worktree.stat().st_mtime, *(entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(worktree))
        )
    except (OSError, TypeError):
        return None
