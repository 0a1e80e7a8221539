"""Current activity of an agent, and its start time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from liza.crew.crew import Crew
from liza.programs.session import session_process, setup_note
from liza.programs.session.run_directory import RunDir
from liza.rules.errors import LizaError
from liza.rules.model import State
from liza.rules.owned_work import CurrentWork, find_current_work
from liza.rules.value_classes import Value
from liza.rules.work_kinds import WorkKind

_KIND_LABELS = {WorkKind.WORK: "working", WorkKind.REVIEW: "reviewing", WorkKind.PLANNING: "planning"}
WAITING_FOR_PERSON = "waits for you"
REPORTED, OBSERVED = "reported", "observed"
"""Sources of a session's state."""


class Activity(Value):
    """Label that a duration can follow (``working`` 4 min), and the start time."""

    label: str
    since: datetime


def find_activity(crew: Crew, state: State, agent: str) -> Activity | None:
    """Return the activity of the agent's run; None if the agent has no work or its files cannot be read."""
    work = find_current_work(state, agent)
    if work is None:
        return None
    try:
        return _session_activity(crew, state, work, crew.run_dir(work.run))
    except (LizaError, OSError):
        return None


def activity_row(crew: Crew, state: State, agent: str) -> dict[str, Any]:
    """Activity as `status --json` prints it: ``doing``, ``since`` and ``seconds``, each null if unknown."""
    current = find_activity(crew, state, agent)
    if current is None:
        return {"doing": None, "since": None, "seconds": None}
    seconds = max(0, int((crew.clock.now() - current.since).total_seconds()))
    return {"doing": current.label, "since": current.since, "seconds": seconds}


def reported_row(crew: Crew, state: State, agent: str) -> dict[str, Any]:
    """Return the state of an agent's session as `status --json` prints it.

    ``state_source`` is ``reported`` if the program's runtime or hooks report its turns, ``observed`` if the supervisor
    judges by output and processes. ``reported_by`` is the TurnSource of a report, ``phase`` the reported TurnPhase. All
    are null without a session.
    """
    work = find_current_work(state, agent)
    nothing = {"phase": None, "state_source": None, "reported_by": None}
    if work is None:
        return nothing
    try:
        directory = crew.run_dir(work.run)
        if not isinstance(session_process.read_state(directory.path), session_process.RunningSession):
            return nothing
        turn = directory.read_turn()
    except (LizaError, OSError):
        return nothing
    if turn is None:
        return {**nothing, "state_source": OBSERVED}
    return {"phase": turn.phase, "state_source": REPORTED, "reported_by": turn.source.value}


def _session_activity(crew: Crew, state: State, work: CurrentWork, directory: RunDir) -> Activity | None:
    if not directory.exists():
        setup = setup_note.read_setup_note(crew.paths, work.run)
        return Activity("set-up", setup.started) if setup is not None else _manual_activity(state, work)
    session = session_process.read_state(directory.path)
    if not isinstance(session, session_process.RunningSession):
        return None
    if directory.read_question() is not None:
        asked_at = (directory.path / "asks").stat().st_mtime
        return Activity(WAITING_FOR_PERSON, datetime.fromtimestamp(asked_at, UTC).replace(microsecond=0))
    return Activity(_KIND_LABELS[work.kind], session.time)


def _manual_activity(state: State, work: CurrentWork) -> Activity | None:
    task = state.task(work.task) if work.task else None
    times = [event.time for event in task.history if event.run == work.run] if task is not None else []
    return Activity(_KIND_LABELS[work.kind], times[0]) if times else None
