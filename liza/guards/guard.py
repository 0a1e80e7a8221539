"""guard test: say what the guards would decide about a tool, and why. Nothing runs."""

from __future__ import annotations

import os
from pathlib import Path

from liza.box import support
from liza.crew.crew import Crew, find_crew
from liza.guards import guard_files
from liza.guards.rules.guard_rules import ROLE_NAMES
from liza.guards.session_guards import SessionGuards
from liza.model.errors import NoCrew, UsageError
from liza.model.paths import ROLES, Paths, check_task_id
from liza.model.value_classes import Value

_SHELL = "bash"
_PATH_TOOLS = ("write", "read")


class GuardQuestion(Value):
    """A tool of an agent. ``tool`` is a name of a program or of the vocabulary; None: a shell, or a write with a
    ``path``."""

    command: str | None = None
    role: str = "coder"
    tool: str | None = None
    path: str | None = None
    task: str | None = None


class GuardAnswer(Value):
    """The verdict on a tool: its reason, the rule that decided, and notices about the project's file."""

    allowed: bool
    reason: str | None
    rule: str | None
    notices: tuple[str, ...]


def ask_guards(question: GuardQuestion) -> GuardAnswer:
    """Return what the guards decide.

    Outside a crew, the defaults are asked for the current directory. Raises UsageError.
    """
    role = ROLE_NAMES.get(question.role, question.role)
    if role not in ROLES:
        raise UsageError(f"{question.role!r} is not a role: {', '.join(ROLES)}", "liza guard test 'ls' --role coder")
    if (question.command is None) == (question.path is None):
        raise UsageError("give a command or --path, one of them", "liza guard test 'git push' --role coder")
    try:
        crew: Crew | None = find_crew()
    except NoCrew:
        crew = None
    home = Path.home()
    paths = crew.paths if crew is not None else Paths(Path.cwd())
    loaded = guard_files.load_guards(paths, home)
    config = crew.board.read().config if crew is not None else None
    data = guard_files.compose_guards(
        loaded,
        paths,
        role,
        home,
        task=check_task_id(question.task) if question.task else None,
        worktree=_find_worktree(crew, question.task),
        tests=config.integration_command if config else None,
        on_error=config.guards.on_error if config else "deny",
        is_confined=config is not None and support.choose_box_program(config.confinement) is not None,
    )
    tool = question.tool or (_SHELL if question.command is not None else _PATH_TOOLS[0])
    given = {"command": question.command} if question.command is not None else {"path": question.path}
    verdict = SessionGuards(data).judge(tool, given, os.environ)
    return GuardAnswer(verdict.allowed, verdict.reason, verdict.rule, loaded.notices)


def _find_worktree(crew: Crew | None, task: str | None) -> str:
    """Return the worktree of a task; without one, a worktree that no session has."""
    if crew is None:
        return str(Path.cwd())
    entry = crew.board.read().task(task) if task else None
    name = entry.worktree if entry is not None and entry.worktree else "guard-test"
    return str(crew.paths.slot(name))
