"""Bring what a boxed session committed into the repository: at its closing verb, after its turns and at its end."""

from __future__ import annotations

from liza.crew.crew import Crew
from liza.git.run_git import REMOTE
from liza.model.alarm_kinds import LoggedKind
from liza.model.errors import LizaError, Refused
from liza.model.model import Task
from liza.model.paths import branch_of


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


def refuse_moved_branch(crew: Crew, task: Task, commit: str) -> None:
    """Raise Refused if a task's branch was moved away from ``commit`` outside of its session. Raises GitFailed."""
    branch, tip = branch_of(task.id), crew.worktrees.branch_tip(task.id)
    if tip is not None and tip != commit:
        raise Refused(
            f"{branch} was moved to {tip[:12]} outside of your session",
            f"git fetch {REMOTE} && git rebase {REMOTE}/{branch}",
        )
