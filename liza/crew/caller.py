"""Identify the caller of a verb: an agent's run, a person, or neither."""

from __future__ import annotations

import getpass
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from liza.crew.crew import Crew
from liza.programs.session import run_directory, session_process
from liza.rules.errors import LizaError, NotOwner, Refused
from liza.rules.paths import agent_of, role_of
from liza.rules.sessions.decide import find_current_work
from liza.system import ancestors, processes
from liza.system.file_lock import Lock

PERSON_VARIABLE = "LIZA_PERSON"
"""The variable by which a person in another pid namespace than the crew's says so, at a terminal."""


@dataclass(frozen=True)
class RunCaller:
    """A verb said from inside a session: by which run, on which task."""

    run: str
    task: str | None

    @property
    def agent(self) -> str:
        return agent_of(self.run)


_INSIDE_PROJECT_COMMAND = "it was said from inside a test or a set-up command of the crew"


def current_person() -> str:
    """``human:<login name>``: how a person stands in the history."""
    try:
        return f"human:{getpass.getuser()}"
    except (OSError, KeyError):
        return f"human:{os.getuid()}"


def identify_run(crew: Crew, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> RunCaller:
    """The run that says this: from the session's environment, or, for a person who sits in a claimed worktree and
    does its work by hand, from the worktree. Raises Refused outside both, NotYours for a session that speaks as
    another one."""
    env = os.environ if environ is None else environ
    run = env.get("LIZA_RUN")
    above = ancestors.find_outermost_run(crew.paths.root)
    if ancestors.PROJECT_COMMAND_RUN in (run, above):
        raise NotOwner(_INSIDE_PROJECT_COMMAND, "liza status")
    caller = _run_of_worktree(crew, cwd) if not run else RunCaller(run, env.get("LIZA_TASK") or None)
    agent_of(caller.run)
    if above is not None and above != caller.run:
        raise NotOwner(f"this was said from inside the session {above}, in the name of {caller.run}", "liza ready")
    return caller


def _run_of_worktree(crew: Crew, cwd: Path | None) -> RunCaller:
    here = (cwd or Path.cwd()).resolve()
    slots = crew.paths.slots.resolve()
    if here.is_relative_to(slots) and here != slots:
        owner = crew.worktrees.owner(here.relative_to(slots).parts[0])
        if owner is not None:
            _require_same_pid_namespace(crew)
            return RunCaller(owner[1], _reviewed_task_id(crew, owner[1]) or owner[0])
    raise Refused(
        f"this is said by an agent's run, and {here} is neither a session nor a claimed worktree",
        "liza claim ID --agent coder-1, then cd .worktrees/ID",
    )


def _reviewed_task_id(crew: Crew, run: str) -> str | None:
    """The task that a reviewer's run has judged or is to judge; its worktree bears the reviewer's name."""
    if role_of(agent_of(run)) != "code-reviewer":
        return None
    for task in crew.board.read().tasks:
        if task.review_run == run or any(event.run == run for event in task.history):
            return task.id
    return None


def require_task(caller: RunCaller) -> str:
    """The task of the caller's run. Raises NotYours."""
    if caller.task is None:
        raise NotOwner(f"{caller.run} has no task", f"liza agents {caller.agent}")
    return caller.task


def require_person(crew: Crew, *, planner: bool) -> str:
    """The name of whoever says a verb that is a person's: refused inside a session, unless it is a planner's run and
    the verb is one of the planner's too. Raises Refused, NotYours."""
    run = enclosing_run(crew)
    if run is None:
        _require_same_pid_namespace(crew)
        return current_person()
    if run == ancestors.PROJECT_COMMAND_RUN:
        raise Refused(f"this is for a person: {_INSIDE_PROJECT_COMMAND}", "liza status")
    if planner and role_of(agent_of(run)) == "planner":
        from liza.rules.tasks.planning import require_planner

        require_planner(crew.board.read(), run)
        return agent_of(run)
    raise Refused(f"this is for a person, and it was said from inside the session {run}", "liza ready")


def identify_caller(crew: Crew) -> RunCaller | str:
    """The run that says what both runs and people say, or the name of a person. What is said inside a session is that
    session's, whatever it took off its environment. Raises Refused, NotYours."""
    run = enclosing_run(crew)
    if run is not None and run != ancestors.PROJECT_COMMAND_RUN and not os.environ.get("LIZA_RUN"):
        return RunCaller(run, _task_of_run(crew, run))
    try:
        return identify_run(crew)
    except NotOwner:
        raise
    except Refused:
        return require_person(crew, planner=False)


def enclosing_run(crew: Crew) -> str | None:
    """The run whose session this process descends from; what a process says of itself can be unset, so its
    ancestors are asked as well."""
    own = os.environ.get("LIZA_RUN")
    if own and os.environ.get("LIZA_ROOT") == str(crew.paths.root):
        return own
    for environ in ancestors.ancestor_environments():
        if environ.get("LIZA_RUN") and environ.get("LIZA_ROOT") == str(crew.paths.root):
            return environ["LIZA_RUN"]
    return None


def _task_of_run(crew: Crew, run: str) -> str | None:
    held = find_current_work(crew.board.read(), agent_of(run))
    return held.task if held is not None and held.run == run else None


def _require_same_pid_namespace(crew: Crew) -> None:
    """Refuse a caller that cannot see the crew's living processes: a session can put a pid namespace between itself and
    what it says, and nothing tells it from a person then. A person says so at a terminal. Raises Refused."""
    unseen = None if ancestors.is_in_initial_pid_namespace() else next(_find_unseen_processes(crew), None)
    if unseen is None:
        return
    if os.environ.get(PERSON_VARIABLE) == "yes" and sys.stdin is not None and sys.stdin.isatty():
        where = os.ttyname(sys.stdin.fileno())
        words = shlex.join(sys.argv[1:3])
        crew.append_alert_log(
            [f"another_namespace  {current_person()} at {where}, in another pid namespace, said: liza {words}"]
        )
        return
    raise Refused(
        f"this is for a person, and it was said in another pid namespace than that of {unseen}",
        f"{PERSON_VARIABLE}=yes {shlex.join(['liza', *sys.argv[1:]])}",
    )


def _find_unseen_processes(crew: Crew) -> Iterator[str]:
    """The living processes of the crew that are in another pid namespace, above this one."""
    supervisors = sorted(crew.paths.locks.glob("supervisor-*.lock"))
    for path in (*supervisors, crew.paths.merge_lock):
        if not path.exists():
            continue
        lock = Lock(path)
        if lock.try_acquire():
            lock.release()
        elif not ancestors.is_holder_visible(path):
            name = path.name.removesuffix(".lock").removeprefix("supervisor-")
            yield "a merge" if name == "merge" else f"the supervisor of {name}"
    for agent in crew.board.read().agents:
        for run in run_directory.list_runs(crew.paths, agent)[-1:]:
            if _is_session_unseen(crew.run_dir(run).path):
                yield f"the session {run}"


def _is_session_unseen(run_dir: Path) -> bool:
    """Whether a session lives whose shim this process cannot see. Its lock outlives the supervisor that took it, so
    the kernel's table does not tell."""
    try:
        living = run_directory.read_struct(run_dir / "session.json", session_process.RunningSession)
    except LizaError:
        living = None
    if living is None or not session_process.is_locked(run_dir):
        return False
    return processes.identify_process(living.shim.pid) != living.shim
