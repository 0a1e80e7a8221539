"""What an agent does now, and since when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from liza.crew.crew import Crew
from liza.programs.session import session_process, setup_note
from liza.programs.session.run_directory import RunDir
from liza.rules.errors import LizaError
from liza.rules.model import State
from liza.rules.sessions.decide import CurrentWork, find_current_work

_KIND_LABELS = {"work": "working", "review": "reviewing", "planning": "planning"}
WAITING_FOR_PERSON = "waits for you"


@dataclass(frozen=True)
class Activity:
    """``what`` it does, in words that a duration can follow: ``working`` 4 min."""

    label: str
    since: datetime


def find_activity(crew: Crew, state: State, agent: str) -> Activity | None:
    """What the agent's run does; None where it holds nothing, or where that cannot be read."""
    held = find_current_work(state, agent)
    if held is None:
        return None
    try:
        return _session_activity(crew, state, held, crew.run_dir(held.run))
    except (LizaError, OSError):
        return None


def activity_row(crew: Crew, state: State, agent: str) -> dict[str, Any]:
    """The same as `status --json` shows it: ``doing``, ``since`` and ``seconds``, each null where it is not known."""
    found = find_activity(crew, state, agent)
    if found is None:
        return {"doing": None, "since": None, "seconds": None}
    seconds = max(0, int((crew.clock.now() - found.since).total_seconds()))
    return {"doing": found.label, "since": found.since, "seconds": seconds}


def _session_activity(crew: Crew, state: State, held: CurrentWork, directory: RunDir) -> Activity | None:
    if not directory.exists():
        setup = setup_note.read_setup_note(crew.paths, held.run)
        return Activity("set-up", setup.started) if setup is not None else _manual_activity(state, held)
    found = session_process.read_state(directory.path)
    if not isinstance(found, session_process.RunningSession):
        return None
    if directory.read_question() is not None:
        asked = (directory.path / "asks").stat().st_mtime
        return Activity(WAITING_FOR_PERSON, datetime.fromtimestamp(asked, UTC).replace(microsecond=0))
    return Activity(_KIND_LABELS[held.kind], found.time)


def _manual_activity(state: State, held: CurrentWork) -> Activity | None:
    task = state.task(held.task) if held.task else None
    began = [event.time for event in task.history if event.run == held.run] if task is not None else []
    return Activity(_KIND_LABELS[held.kind], began[0]) if began else None
