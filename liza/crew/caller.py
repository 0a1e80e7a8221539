"""Identify the caller of a verb: an agent's run or a person."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from pathlib import Path

from liza.board.contract import Board
from liza.crew.crew import Crew
from liza.model.derived import find_current_work, require_planner
from liza.model.errors import NotOwner, Refused
from liza.model.paths import agent_of, person_id, role_of
from liza.model.value_classes import Value
from liza.programs.session.run_directory import ReadyEvidence
from liza.system import ancestors


class RunCaller(Value):
    """A verb was called from inside a session: the run and its task."""

    run: str
    task: str | None

    @property
    def agent(self) -> str:
        return agent_of(self.run)


_INSIDE_PROJECT_COMMAND = "it was called from inside a test or a set-up command of the crew"


def current_person() -> str:
    """Name of the current person in the history: ``human:<login name>``, or the user id if there is no name."""
    try:
        return person_id(getpass.getuser())
    except (OSError, KeyError):
        return person_id(str(os.getuid()))


def identify_run(crew: Crew, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> RunCaller:
    """Identify the calling run, from the session's environment or else from the claimed worktree that ``cwd`` is in.

    The second is for a person who does the work of a task by hand. Raises Refused outside both, NotOwner if the
    enclosing session is that of another run.
    """
    if crew.authenticated_run is not None:
        return RunCaller(crew.authenticated_run, _recorded_task(crew, crew.authenticated_run))
    env = os.environ if environ is None else environ
    run = env.get("LIZA_RUN")
    enclosing = ancestors.find_outermost_run(crew.paths.root)
    if ancestors.PROJECT_COMMAND_RUN in (run, enclosing):
        raise NotOwner(_INSIDE_PROJECT_COMMAND, "liza status")
    caller = _run_of_worktree(crew, cwd) if not run else RunCaller(run, env.get("LIZA_TASK") or None)
    agent_of(caller.run)
    if enclosing is not None and enclosing != caller.run:
        raise NotOwner(
            f"this was called from inside the session {enclosing}, in the name of {caller.run}", "liza ready"
        )
    return caller


def _run_of_worktree(crew: Crew, cwd: Path | None) -> RunCaller:
    directory = (cwd or Path.cwd()).resolve()
    slots = crew.paths.slots.resolve()
    if directory.is_relative_to(slots) and directory != slots:
        owner = crew.slot_owner(directory.relative_to(slots).parts[0])
        if owner is not None:
            return RunCaller(owner[1], _reviewed_task_id(crew.board, owner[1]) or owner[0])
    claimed = next((task.id for task in crew.board.read().tasks if task.worktree is not None), None)
    raise Refused(
        f"this command is for an agent's run, and {directory} is neither a session nor a claimed worktree",
        "liza claim --agent coder-1" if claimed is None else f'cd "$(liza path {claimed})"',
    )


def _reviewed_task_id(board: Board, run: str) -> str | None:
    """Task that a reviewer's run reviews or has reviewed; the worktree is named after the reviewer, not the task."""
    if role_of(agent_of(run)) != "code-reviewer":
        return None
    for task in board.read().tasks:
        if task.review_run == run or any(event.run == run for event in task.history):
            return task.id
    return None


def require_task(caller: RunCaller) -> str:
    """Return the task of the caller's run. Raises NotOwner if it has none."""
    if caller.task is None:
        raise NotOwner(f"{caller.run} has no task", f"liza agents {caller.agent}")
    return caller.task


def require_person(crew: Crew, *, planner: bool) -> str:
    """Return the name of the caller of a verb that is for people, and for supervisors: they run outside every session.

    Inside a session the verb is refused, unless ``planner`` is set and the session is a planner's: then the agent's
    name is returned. Raises Refused, NotOwner.
    """
    run = enclosing_run(crew)
    if run is None:
        return current_person()
    if run == ancestors.PROJECT_COMMAND_RUN:
        raise Refused(f"this is for a person: {_INSIDE_PROJECT_COMMAND}", "liza status")
    if planner and role_of(agent_of(run)) == "planner":
        require_planner(crew.board.read(), run)
        return agent_of(run)
    raise Refused(f"this is for a person, and it was called from inside the session {run}", "liza ready")


def identify_caller(crew: Crew) -> RunCaller | str:
    """Identify the caller of a verb that is for runs and people: a run, or the name of a person.

    A call from inside a session belongs to that session, even if LIZA_RUN was unset. Raises Refused, NotOwner.
    """
    run = enclosing_run(crew)
    if run is not None and run != ancestors.PROJECT_COMMAND_RUN and not os.environ.get("LIZA_RUN"):
        return RunCaller(run, _task_of_run(crew.board, run))
    try:
        return identify_run(crew)
    except NotOwner:
        raise
    except Refused:
        return require_person(crew, planner=False)


def enclosing_run(crew: Crew) -> str | None:
    """Run whose session this process descends from, or else the run that LIZA_RUN names; None outside of both."""
    if crew.authenticated_run is not None:
        return crew.authenticated_run
    named = os.environ.get("LIZA_RUN") if os.environ.get("LIZA_ROOT") == str(crew.paths.root) else None
    return ancestors.find_outermost_run(crew.paths.root) or named or None


def _recorded_task(crew: Crew, run: str) -> str | None:
    """Task of a run as its record says it, also after it was submitted; without a record, its current work."""
    record = crew.run_dir(run).read_record()
    return _task_of_run(crew.board, run) if record is None else record.task


def _task_of_run(board: Board, run: str) -> str | None:
    work = find_current_work(board.read(), agent_of(run))
    return work.task if work is not None and work.run == run else None


def record_run_result(crew: Crew, run: str, code: str) -> None:
    """Write the closing code of ``run``; does nothing for a person who works by hand and has no run directory."""
    directory = crew.run_dir(run)
    if directory.exists():
        directory.mark_ready(crew.clock.now(), ReadyEvidence.CLOSING_VERB)
        directory.set_closing_code(code)
