"""Bring what a boxed session committed into the repository: at its closing verb, after its turns and at its end."""

from __future__ import annotations

from liza.crew.crew import Crew
from liza.rules.alarm_kinds import LoggedKind
from liza.rules.errors import LizaError
from liza.rules.model import Task
from liza.rules.paths import branch_of


def import_work(crew: Crew, task: Task) -> str | None:
    """Import the commits of the session that owns a task. Return the newest one; None without a boxed session.

    Raises ImportRefused, GitFailed, OSError, LockTimeout.
    """
    if task.worktree is None or not crew.worktrees.exists(task.worktree):
        return None
    return crew.worktrees.import_run(task.worktree)


def try_import(crew: Crew, slot: str, run: str) -> str:
    """Import the commits of a session in a slot. Return why that is impossible; empty if it was done.

    The reason is in the alert log. Nothing is lost: the commits stay in the git directory of the run.
    """
    try:
        if crew.worktrees.exists(slot):
            crew.worktrees.import_run(slot)
    except (LizaError, OSError) as error:
        reason = error.message if isinstance(error, LizaError) else str(error)
        hint = getattr(error, "hint", "") or "liza doctor"
        crew.append_alert_log(
            [f"{LoggedKind.NOT_IMPORTED}  the commits of {run} are not on its branch: {reason}. Next: {hint}"]
        )
        return reason
    return ""


def find_moved_branch(crew: Crew, task: Task, commit: str) -> str | None:
    """Return the tip of a task's branch if something else has moved it away from ``commit``; None if not."""
    tip = crew.worktrees.branch_tip(task.id)
    return None if tip in (None, commit) else tip


def describe_moved(task: Task, tip: str) -> tuple[str, str]:
    """Return what a session is told whose branch was moved outside of its box, and the next step."""
    branch = branch_of(task.id)
    return (
        f"{branch} was moved to {tip[:12]} outside of your session",
        f"git fetch liza && git rebase liza/{branch}",
    )
