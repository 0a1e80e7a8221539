"""Who says a verb: a run of an agent, or a person."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from liza.programs import ancestors
from liza.rules.errors import NotYours, Refused
from liza.rules.paths import agent_of, role_of
from liza.verbs.crew import Crew


@dataclass(frozen=True)
class RunCaller:
    """A verb said from inside a session: by which run, on which task."""

    run: str
    task: str | None

    @property
    def agent(self) -> str:
        return agent_of(self.run)


def person() -> str:
    """``human:<login name>``: how a person stands in the history."""
    try:
        return f"human:{getpass.getuser()}"
    except (OSError, KeyError):
        return f"human:{os.getuid()}"


def run_caller(crew: Crew, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> RunCaller:
    """The run that says this: from the session's environment, or, for a person who sits in a claimed worktree and
    does its work by hand, from the worktree. Raises Refused outside both, NotYours for a session that speaks as
    another one."""
    env = os.environ if environ is None else environ
    run = env.get("LIZA_RUN")
    caller = _by_hand(crew, cwd) if not run else RunCaller(run, env.get("LIZA_TASK") or None)
    agent_of(caller.run)
    above = ancestors.outermost_run(crew.paths.root)
    if above is not None and above != caller.run:
        raise NotYours(f"this was said from inside the session {above}, in the name of {caller.run}", "liza ready")
    return caller


def _by_hand(crew: Crew, cwd: Path | None) -> RunCaller:
    here = (cwd or Path.cwd()).resolve()
    slots = crew.paths.slots.resolve()
    if here.is_relative_to(slots) and here != slots:
        owner = crew.worktrees.owner(here.relative_to(slots).parts[0])
        if owner is not None:
            return RunCaller(owner[1], _reviewed(crew, owner[1]) or owner[0])
    raise Refused(
        f"this is said by an agent's run, and {here} is neither a session nor a claimed worktree",
        "liza claim ID --agent coder-1, then cd .worktrees/ID",
    )


def _reviewed(crew: Crew, run: str) -> str | None:
    """The task that a reviewer's run has judged or is to judge; its worktree bears the reviewer's name."""
    if role_of(agent_of(run)) != "code-reviewer":
        return None
    for task in crew.board.read().tasks:
        if task.review_run == run or any(event.run == run for event in task.history):
            return task.id
    return None


def task_of(caller: RunCaller) -> str:
    """The task of the caller's run. Raises NotYours."""
    if caller.task is None:
        raise NotYours(f"{caller.run} has no task", f"liza agents {caller.agent}")
    return caller.task


def human_or(crew: Crew, *, planner: bool) -> str:
    """The name of whoever says a verb that is a person's: refused inside a session, unless it is a planner's run and
    the verb is one of the planner's too. Raises Refused, NotYours."""
    run = _session_around(crew)
    if run is None:
        return person()
    if planner and role_of(agent_of(run)) == "planner":
        from liza.rules.planning import planned

        planned(crew.board.read(), run)
        return agent_of(run)
    raise Refused(f"this is for a person, and it was said from inside the session {run}", "liza ready")


def _session_around(crew: Crew) -> str | None:
    """The run whose session this process descends from; what a process says of itself can be unset, so its
    ancestors are asked as well."""
    own = os.environ.get("LIZA_RUN")
    if own and os.environ.get("LIZA_ROOT") == str(crew.paths.root):
        return own
    for environ in ancestors.environs():
        if environ.get("LIZA_RUN") and environ.get("LIZA_ROOT") == str(crew.paths.root):
            return environ["LIZA_RUN"]
    return None
