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
from liza.rules.sessions.decide import Holding, holding

_AT_WORK = {"work": "working", "review": "reviewing", "planning": "planning"}
WAITS = "waits for you"


@dataclass(frozen=True)
class Activity:
    """``what`` it does, in words that a duration can follow: ``working`` 4 min."""

    what: str
    since: datetime


def doing(crew: Crew, state: State, agent: str) -> Activity | None:
    """What the agent's run does; None where it holds nothing, or where that cannot be read."""
    held = holding(state, agent)
    if held is None:
        return None
    try:
        return _of_run(crew, state, held, crew.run_dir(held.run))
    except (LizaError, OSError):
        return None


def row(crew: Crew, state: State, agent: str) -> dict[str, Any]:
    """The same as `status --json` shows it: ``doing``, ``since`` and ``seconds``, each null where it is not known."""
    found = doing(crew, state, agent)
    if found is None:
        return {"doing": None, "since": None, "seconds": None}
    seconds = max(0, int((crew.clock.now() - found.since).total_seconds()))
    return {"doing": found.what, "since": found.since, "seconds": seconds}


def _of_run(crew: Crew, state: State, held: Holding, directory: RunDir) -> Activity | None:
    if not directory.exists():
        setup = setup_note.of(crew.paths, held.run)
        return Activity("set-up", setup.started) if setup is not None else _by_hand(state, held)
    found = session_process.look(directory.path)
    if not isinstance(found, session_process.Living):
        return None
    if directory.asks() is not None:
        asked = (directory.path / "asks").stat().st_mtime
        return Activity(WAITS, datetime.fromtimestamp(asked, UTC).replace(microsecond=0))
    return Activity(_AT_WORK[held.kind], found.time)


def _by_hand(state: State, held: Holding) -> Activity | None:
    task = state.task(held.task) if held.task else None
    began = [event.time for event in task.history if event.run == held.run] if task is not None else []
    return Activity(_AT_WORK[held.kind], began[0]) if began else None
