"""diff: what a task changes against integration."""

from __future__ import annotations

from typing import Any

from liza.crew.crew import Crew
from liza.crew.drift import drift
from liza.repo.merge import merges
from liza.repo.runner import Git
from liza.rules.errors import Refused
from liza.rules.model import Status, Task
from liza.rules.paths import branch_of
from liza.rules.paths import check_task_id as checked_id
from liza.rules.tasks import claims

_DIFF_OPTIONS = ("--no-color", "--no-ext-diff", "--find-renames")


def diff(crew: Crew, task_id: str, stat: bool = False) -> dict[str, Any]:
    """The commit under review against where it left integration; of a CLAIMED task, what its worktree holds now.

    ``untracked`` names files that git does not know yet. Raises UnknownId, Refused, Missing, GitFailed.
    """
    state = crew.board.read()
    task = claims.get_task(state, checked_id(task_id))
    form = ("--stat",) if stat else ()
    if task.status is Status.CLAIMED and task.worktree and crew.paths.slot(task.worktree).is_dir():
        return _diff_worktree(crew, task, drift.require_integration(crew, state), form)
    if task.merge_commit:
        old, new = f"{task.merge_commit}^1", task.merge_commit
    else:
        new = _commit_to_show(crew.git, task)
        old = _merge_base(crew.git, drift.require_integration(crew, state), new)
    text = crew.git.out("diff", *_DIFF_OPTIONS, *form, old, new, "--")
    return _diff_row(task, old, new, text)


def _diff_worktree(crew: Crew, task: Task, integration: str, form: tuple[str, ...]) -> dict[str, Any]:
    assert task.worktree is not None
    there = crew.worktrees.slot_git(task.worktree)
    head = there.out("rev-parse", "HEAD")
    base = _merge_base(there, integration, head)
    text = there.out("diff", *_DIFF_OPTIONS, *form, base, "--")
    untracked = there.out("ls-files", "-z", "--others", "--exclude-standard").split("\0")
    return _diff_row(task, base, head, text, [name for name in untracked if name], str(crew.paths.task_link(task.id)))


def _merge_base(git: Git, integration: str, commit: str) -> str:
    """Where ``commit`` left integration. Raises Refused where they have no commit in common, GitFailed."""
    found = git.run("merge-base", integration, commit, codes=(0, 1)).stdout.decode().strip()
    if not found:
        raise Refused(f"{commit[:12]} has no commit in common with integration", f"git show {commit[:12]}")
    return found


def _commit_to_show(git: Git, task: Task) -> str:
    found = task.review_commit or merges.branch_tip(git, branch_of(task.id))
    if found is None:
        raise Refused(f"{task.id} is {task.status}: nothing was done for it yet", f"liza task show {task.id}")
    return found


def _diff_row(
    task: Task, old: str, new: str, text: str, untracked: list[str] | None = None, directory: str | None = None
) -> dict[str, Any]:
    return {
        "task": task.id,
        "status": task.status.value,
        "base": old,
        "commit": new,
        "directory": directory,
        "untracked": untracked or [],
        "diff": text,
    }
