"""Commits of a session: import those of a boxed session, and describe those that an earlier run left."""

from __future__ import annotations

from liza.crew.crew import Crew
from liza.git.run_git import REMOTE
from liza.git.salvage_restore import find_last_salvage
from liza.model.alarm_kinds import LoggedKind
from liza.model.errors import LizaError, Refused
from liza.model.history_events import HistoryEvent
from liza.model.model import Task
from liza.model.paths import branch_of
from liza.tasks.rules.conversations import earlier_runs


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


def describe_left_work(crew: Crew, task: Task, run: str) -> str:
    """Return which operation of git an earlier run left since the last submission, or the commits that the last run
    left outside the branch, with the next step; empty if there is nothing. Raises GitFailed.
    """
    runs = earlier_runs(task, run)
    last = find_last_salvage(crew.git, task.id) if runs else None
    if last is None:
        return ""
    submitted = max((at for at, event in enumerate(task.history) if event.event == HistoryEvent.SUBMIT), default=-1)
    if last.unfinished and any(event.run == last.run for event in task.history[submitted + 1 :]):
        saved = f"Its files are in {last.ref}: git diff HEAD {last.ref}"
        return f"{last.run} left the worktree like this, before it was reset: {last.unfinished}. {saved}"
    branch = branch_of(task.id)
    ancestry = ("merge-base", "--is-ancestor", last.head, f"refs/heads/{branch}")
    if last.run == runs[0] and crew.git.run(*ancestry, codes=(0, 1)).code == 1:
        return f"{last.run} left commits that are not on {branch}: git merge --no-edit {last.head[:12]}"
    return ""
