"""What the last session of a task left that is neither on the task's branch nor restored."""

from __future__ import annotations

from liza.crew.crew import Crew
from liza.git.salvage_restore import find_last_salvage
from liza.model.history_events import HistoryEvent
from liza.model.model import Task
from liza.model.paths import branch_of
from liza.tasks.rules.conversations import earlier_runs


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
